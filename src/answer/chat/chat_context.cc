#include "answer/chat/chat_context.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "base/unicode.h"

namespace weft {
namespace {

uint64_t HashOf(std::string_view text, uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

bool InsideCharacter(std::string_view rest) {
  return !rest.empty() && IsContinuationByte(rest.front());
}

// SentencePiece vocabularies may put a space before text at the start or after a control token, so
// with them the text can only be cut next to control tokens.
bool MayCut(const Tokenizer& tokenizer, TokenId before, std::string_view rest) {
  if (tokenizer.model_name() != "llama" || tokenizer.IsControl(before)) return true;
  constexpr size_t kLongestControlBytes = 256;
  const auto tokens = tokenizer.Encode(rest.substr(0, kLongestControlBytes),
                                       {.add_special = false, .parse_special = true});
  return !tokens.empty() && tokenizer.IsControl(tokens.front());
}

}  // namespace

PromptEncoder MakePromptEncoder(std::shared_ptr<const Tokenizer> tokenizer, int64_t max_tokens) {
  PromptEncoder encoder;
  encoder.encode = [tokenizer, max_tokens](std::string_view text, bool at_start) {
    std::vector<TokenId> tokens;
    const std::string bos = tokenizer->Piece(tokenizer->bos(), /*render_special=*/true);
    const bool written = !bos.empty() && text.starts_with(bos);
    if (at_start && tokenizer->adds_bos() && !written) tokens.push_back(tokenizer->bos());
    const auto more = tokenizer->Encode(
        text, {.add_special = false, .parse_special = true, .max_tokens = max_tokens});
    tokens.insert(tokens.end(), more.begin(), more.end());
    return tokens;
  };
  encoder.may_cut = [tokenizer](TokenId before, std::string_view rest) {
    return MayCut(*tokenizer, before, rest);
  };
  return encoder;
}

ChatContext::ChatContext(std::vector<TokenId> before) : tokens_(std::move(before)) {
  marks_.push_back({.n_tokens = static_cast<int64_t>(tokens_.size())});
}

bool ChatContext::Restore(std::vector<TokenId> tokens, std::vector<Mark> marks) {
  if (marks.empty() || marks.front().text_bytes != 0 || marks.front().n_tokens < 0 ||
      marks.back().n_tokens != static_cast<int64_t>(tokens.size())) {
    return false;
  }
  const auto out_of_order = [](const Mark& a, const Mark& b) {
    return b.text_bytes < a.text_bytes || b.n_tokens < a.n_tokens;
  };
  if (std::adjacent_find(marks.begin(), marks.end(), out_of_order) != marks.end()) return false;
  tokens_ = std::move(tokens);
  marks_ = std::move(marks);
  return true;
}

size_t ChatContext::MatchingMark(std::string_view rendered, const PromptEncoder& encoder) const {
  size_t same = 0;  // the last mark up to which the text is unchanged
  for (; same + 1 < marks_.size(); ++same) {
    const Mark &from = marks_[same], &to = marks_[same + 1];
    if (to.text_bytes > static_cast<int64_t>(rendered.size())) break;
    const std::string_view part = rendered.substr(
        static_cast<size_t>(from.text_bytes), static_cast<size_t>(to.text_bytes - from.text_bytes));
    if (HashOf(part, from.text_hash) != to.text_hash) break;
  }
  for (; same > 0; --same) {
    const Mark& mark = marks_[same];
    const std::string_view rest = rendered.substr(static_cast<size_t>(mark.text_bytes));
    if (rest.empty()) break;
    if (InsideCharacter(rest) || mark.n_tokens == 0) continue;
    if (encoder.may_cut(tokens_[static_cast<size_t>(mark.n_tokens) - 1], rest)) break;
  }
  return same;
}

void ChatContext::Become(std::string_view rendered, const PromptEncoder& encoder,
                         std::span<const TokenSpan> known) {
  const size_t same = MatchingMark(rendered, encoder);
  marks_.resize(same + 1);
  tokens_.resize(static_cast<size_t>(marks_[same].n_tokens));
  const auto encode_to = [&](size_t end) {
    const size_t begin = static_cast<size_t>(marks_.back().text_bytes);
    const std::string_view text = rendered.substr(begin, end - begin);
    if (!text.empty()) Add(text, encoder.encode(text, /*at_start=*/tokens_.empty()));
  };
  for (const TokenSpan& span : known) {
    if (static_cast<int64_t>(span.begin) < marks_.back().text_bytes) continue;
    encode_to(span.begin);
    Add(rendered.substr(span.begin, span.end - span.begin), span.tokens);
  }
  encode_to(rendered.size());
}

// A text of several tokens, without marks between them.
void ChatContext::Add(std::string_view text, std::span<const TokenId> tokens) {
  const Mark& last = marks_.back();
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  marks_.push_back({.text_bytes = last.text_bytes + static_cast<int64_t>(text.size()),
                    .n_tokens = static_cast<int64_t>(tokens_.size()),
                    .text_hash = HashOf(text, last.text_hash)});
}

void ChatContext::Append(TokenId token, std::string_view piece) {
  Add(piece, std::span(&token, 1));
}

int64_t CommonTokens(const ChatContext& a, const ChatContext& b) {
  const auto end =
      std::mismatch(a.tokens().begin(), a.tokens().end(), b.tokens().begin(), b.tokens().end());
  return end.first - a.tokens().begin();
}

}  // namespace weft
