#include "host/prompt_memory.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace weft::serve {
namespace {

// Length of the common prefix in bytes.
size_t SharedBytes(std::string_view a, std::string_view b) {
  constexpr size_t kBlock = 4096;
  const size_t most = std::min(a.size(), b.size());
  size_t same = 0;
  while (same + kBlock <= most && std::memcmp(a.data() + same, b.data() + same, kBlock) == 0) {
    same += kBlock;
  }
  while (same < most && a[same] == b[same]) ++same;
  return same;
}

size_t BytesOf(std::string_view text, const ChatContext& context) {
  return text.size() + context.tokens().size() * sizeof(TokenId) +
         context.marks().size() * sizeof(ChatContext::Mark);
}

// Whether the first text and its tokens extend the second's: anything that shares a prefix with the
// second then shares at least as much with the first.
bool Continues(std::string_view text, std::span<const TokenId> tokens, std::string_view begin_text,
               std::span<const TokenId> begin_tokens) {
  return text.starts_with(begin_text) && tokens.size() >= begin_tokens.size() &&
         std::equal(begin_tokens.begin(), begin_tokens.end(), tokens.begin());
}

}  // namespace

PromptMemory::PromptMemory(std::shared_ptr<const Tokenizer> tokenizer, const Limits& limits)
    : tokenizer_(std::move(tokenizer)),
      encoder_(MakePromptEncoder(tokenizer_, limits.tokens)),
      limits_(limits) {}

ChatContext PromptMemory::ContextFor(std::string_view domain, std::string_view text,
                                     std::span<const TokenSpan> known) {
  ChatContext context;
  {
    MutexLock lock(&mutex_);
    auto best = entries_.end();
    size_t most = 0;
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      if (it->domain != domain) continue;
      const size_t shared = SharedBytes(it->text, text);
      if (shared <= most) continue;
      most = shared;
      best = it;
    }
    if (best != entries_.end()) {
      context = best->context;
      entries_.splice(entries_.begin(), entries_, best);
    }
  }
  // Encoding a long text takes a while, so do it without the lock.
  context.Become(text, encoder_, known);
  return context;
}

std::vector<TokenId> PromptMemory::Encode(std::string_view domain, std::string_view text,
                                          std::span<const TokenSpan> known) {
  ChatContext context = ContextFor(domain, text, known);
  std::vector<TokenId> tokens = context.tokens();
  if (limits_.tokens > 0 && static_cast<int64_t>(tokens.size()) > limits_.tokens) return tokens;
  Insert({.domain = std::string(domain), .text = std::string(text), .context = std::move(context)});
  return tokens;
}

void PromptMemory::Remember(std::string_view domain, std::string_view prompt,
                            std::span<const TokenId> prompt_tokens,
                            std::span<const TokenId> reply) {
  ChatContext context = ContextFor(domain, prompt, {});
  // It was forgotten meanwhile, or another conversation gives the same text different tokens: what
  // the engine holds is then unknown.
  if (!std::equal(context.tokens().begin(), context.tokens().end(), prompt_tokens.begin(),
                  prompt_tokens.end())) {
    return;
  }
  std::string text(prompt);
  for (const TokenId token : reply) {
    const std::string piece = tokenizer_->Piece(token, /*render_special=*/true);
    context.Append(token, piece);
    text += piece;
  }
  Insert({.domain = std::string(domain), .text = std::move(text), .context = std::move(context)});
}

void PromptMemory::Insert(Entry entry) {
  entry.bytes = BytesOf(entry.text, entry.context);
  MutexLock lock(&mutex_);
  for (auto it = entries_.begin(); it != entries_.end();) {
    const bool is_old = it->domain == entry.domain &&
                        (it->text == entry.text || Continues(entry.text, entry.context.tokens(),
                                                             it->text, it->context.tokens()));
    if (is_old) bytes_ -= it->bytes;
    it = is_old ? entries_.erase(it) : std::next(it);
  }
  const std::string domain = entry.domain;
  bytes_ += entry.bytes;
  entries_.push_front(std::move(entry));
  Trim(domain);
}

void PromptMemory::Trim(std::string_view domain) {
  size_t of_domain = 0;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const bool surplus = it->domain == domain && ++of_domain > limits_.contexts_per_domain;
    if (!surplus) {
      ++it;
      continue;
    }
    bytes_ -= it->bytes;
    it = entries_.erase(it);
  }
  while (bytes_ > limits_.bytes && !entries_.empty()) {
    bytes_ -= entries_.back().bytes;
    entries_.pop_back();
  }
}

size_t PromptMemory::size() const {
  MutexLock lock(&mutex_);
  return entries_.size();
}

}  // namespace weft::serve
