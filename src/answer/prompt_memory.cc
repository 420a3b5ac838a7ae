#include "answer/prompt_memory.h"

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

size_t BytesOf(const RememberedPrompt& prompt, const SubmittedPrompt& submitted) {
  return prompt.text.size() + prompt.context.tokens().size() * sizeof(TokenId) +
         prompt.context.marks().size() * sizeof(ChatContext::Mark) +
         (submitted.items != nullptr ? submitted.items->bytes() : 0);
}

// Whether the first text and its tokens extend the second's: anything that shares a prefix with the
// second then shares at least as much with the first.
bool Continues(const RememberedPrompt& prompt, const RememberedPrompt& begin) {
  const std::vector<TokenId>& tokens = prompt.context.tokens();
  const std::vector<TokenId>& begin_tokens = begin.context.tokens();
  return prompt.text.starts_with(begin.text) && tokens.size() >= begin_tokens.size() &&
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
      const size_t shared = SharedBytes(it->prompt->text, text);
      if (shared <= most) continue;
      most = shared;
      best = it;
    }
    if (best != entries_.end()) {
      context = best->prompt->context;
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
  Insert(domain, {.text = std::string(text), .context = std::move(context)}, {});
  return tokens;
}

EarlierPrompt PromptMemory::Track(std::string_view domain, std::string_view text,
                                  std::shared_ptr<const PromptItems> items) {
  EarlierPrompt earlier;
  MutexLock lock(&mutex_);
  Entry* own = nullptr;
  for (Entry& entry : entries_) {
    if (entry.domain != domain) continue;
    if (entry.prompt->text == text) own = &entry;
    if (entry.submitted.items == nullptr) continue;
    const size_t shared =
        std::min(SharedBytes(entry.prompt->text, text), entry.submitted.end_bytes);
    if (shared <= earlier.common_bytes) continue;
    earlier = {.prompt = entry.prompt, .submitted = entry.submitted, .common_bytes = shared};
  }
  if (own == nullptr) return earlier;  // too long to be remembered
  bytes_ -= own->bytes;
  own->submitted = {.items = std::move(items),
                    .prompt_bytes = text.size(),
                    .end_bytes = text.size(),
                    .end_tokens = static_cast<int64_t>(own->prompt->context.tokens().size())};
  own->bytes = BytesOf(*own->prompt, own->submitted);
  bytes_ += own->bytes;
  return earlier;
}

void PromptMemory::Remember(std::string_view domain, std::string_view prompt,
                            std::span<const TokenId> prompt_tokens, std::span<const TokenId> reply,
                            std::shared_ptr<const PromptItems> items) {
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
  const SubmittedPrompt submitted{.items = std::move(items),
                                  .prompt_bytes = prompt.size(),
                                  .end_bytes = text.size(),
                                  .end_tokens = static_cast<int64_t>(context.tokens().size()),
                                  .has_reply = true};
  Insert(domain, {.text = std::move(text), .context = std::move(context)}, submitted);
}

void PromptMemory::Insert(std::string_view domain, RememberedPrompt prompt,
                          SubmittedPrompt submitted) {
  MutexLock lock(&mutex_);
  const bool is_submitted = submitted.items != nullptr;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const RememberedPrompt& old = *it->prompt;
    const bool is_old = it->domain == domain && (old.text == prompt.text || Continues(prompt, old));
    if (!is_old) {
      ++it;
      continue;
    }
    const bool tells_more = it->submitted.end_bytes >= submitted.end_bytes;
    if (!is_submitted && it->submitted.items != nullptr && tells_more) submitted = it->submitted;
    bytes_ -= it->bytes;
    it = entries_.erase(it);
  }
  const size_t bytes = BytesOf(prompt, submitted);
  bytes_ += bytes;
  entries_.push_front({.domain = std::string(domain),
                       .prompt = std::make_shared<const RememberedPrompt>(std::move(prompt)),
                       .submitted = std::move(submitted),
                       .bytes = bytes});
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
