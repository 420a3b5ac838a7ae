#include "serve/thought_limit.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace weft::serve {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

// A mark in place of the rest of a character would leave half of it. Models that write no
// characters at all are not waited for.
constexpr int64_t kMostOver = 3;
bool EndsWithinCharacter(std::string_view text) {
  size_t behind = 0;  // bytes behind the last one that begins a character
  while (behind < text.size() && behind < 4 &&
         (static_cast<unsigned char>(text[text.size() - 1 - behind]) & 0xc0) == 0x80) {
    ++behind;
  }
  if (behind == text.size()) return false;
  const auto first = static_cast<unsigned char>(text[text.size() - 1 - behind]);
  const size_t wanted = first < 0xc0 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
  return behind < wanted;
}

}  // namespace

bool EndsInThought(std::string_view prompt, const ThoughtMarks& marks) {
  const size_t open = prompt.rfind(marks.open);
  return open != prompt.npos && prompt.find(marks.close, open) == prompt.npos;
}

ThoughtLimit::ThoughtLimit(std::shared_ptr<const Tokenizer> tokenizer, ThoughtMarks marks,
                           int64_t most_tokens, bool is_open)
    : tokenizer_(std::move(tokenizer)),
      marks_(std::move(marks)),
      most_tokens_(most_tokens),
      stage_(is_open ? Stage::kThinking : Stage::kBefore) {}

void ThoughtLimit::Look(int32_t token) {
  if (stage_ == Stage::kAfter) return;
  if (stage_ == Stage::kEnding) {
    if (++n_ending_ == ending_.size()) stage_ = Stage::kAfter;
    return;
  }
  text_ += tokenizer_->Piece(token, /*render_special=*/true);
  if (stage_ == Stage::kBefore) {
    const std::string_view said =
        std::string_view(text_).substr(std::min(text_.find_first_not_of(kSpace), text_.size()));
    if (said.starts_with(marks_.open)) {
      text_ = said.substr(marks_.open.size());
      stage_ = Stage::kThinking;
    } else if (!marks_.open.starts_with(said)) {
      stage_ = Stage::kAfter;
    }
    return;
  }
  ++n_thought_;
  if (text_.find(marks_.close) != text_.npos) {
    stage_ = Stage::kAfter;
  } else if (text_.size() > 2 * marks_.close.size() + 4) {
    text_.erase(0, text_.size() - marks_.close.size() - 4);
  }
}

void ThoughtLimit::BeginEnding() {
  ending_ = tokenizer_->Encode(marks_.answer, {.add_special = false, .parse_special = true});
  stage_ = ending_.empty() ? Stage::kAfter : Stage::kEnding;
}

void ThoughtLimit::Apply(std::span<const int32_t> generated, std::vector<bool>* allowed) {
  for (; n_seen_ < generated.size(); ++n_seen_) Look(generated[n_seen_]);
  const bool is_late = stage_ == Stage::kThinking && n_thought_ >= most_tokens_;
  if (is_late && (!EndsWithinCharacter(text_) || n_thought_ >= most_tokens_ + kMostOver)) {
    BeginEnding();
  }
  if (stage_ != Stage::kEnding) return;
  std::fill(allowed->begin(), allowed->end(), false);
  (*allowed)[static_cast<size_t>(ending_[n_ending_])] = true;
}

}  // namespace weft::serve
