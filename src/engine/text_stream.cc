#include "engine/text_stream.h"

#include <algorithm>
#include <utility>

namespace weft {

Status ValidateStopStrings(const std::vector<std::string>& stop_strings) {
  if (stop_strings.size() > kMaxStopStrings) {
    return InvalidArgument("too many stop strings: ", stop_strings.size(), ", at most ",
                           kMaxStopStrings);
  }
  for (const std::string& stop : stop_strings) {
    if (stop.empty()) return InvalidArgument("a stop string is empty");
    if (stop.size() > kMaxStopStringBytes) {
      return InvalidArgument("a stop string has ", stop.size(), " bytes, at most ",
                             kMaxStopStringBytes);
    }
  }
  return OkStatus();
}

TextStream::TextStream(std::shared_ptr<const Tokenizer> tokenizer,
                       std::vector<std::string> stop_strings, std::vector<TokenId> shown)
    : tokenizer_(std::move(tokenizer)),
      stop_strings_(std::move(stop_strings)),
      shown_(std::move(shown)),
      decoder_(tokenizer_, /*render_special=*/true) {}

namespace {

// Length of the longest suffix of `text` that is a proper prefix of `stop`.
size_t OpenPrefix(const std::string& text, const std::string& stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.compare(text.size() - n, n, stop, 0, n) == 0) return n;
  }
  return 0;
}

}  // namespace

bool TextStream::Shows(TokenId token) const {
  if (tokenizer_->IsEndOfGeneration(token)) return false;
  return !tokenizer_->Piece(token, /*render_special=*/false).empty() ||
         std::find(shown_.begin(), shown_.end(), token) != shown_.end();
}

TextStream::Result TextStream::Push(TokenId token) {
  if (!Shows(token)) return {};
  return Scan(decoder_.Push(token));
}

TextStream::Result TextStream::Scan(std::string completed) {
  if (stop_strings_.empty()) return {.text = std::move(completed), .stopped = std::nullopt};
  held_ += completed;
  size_t first = std::string::npos;
  const std::string* found = nullptr;
  for (const std::string& stop : stop_strings_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    if (at < first || (at == first && stop.size() > found->size())) {
      first = at;
      found = &stop;
    }
  }
  if (found != nullptr) {
    Result result{.text = held_.substr(0, first), .stopped = *found};
    held_.clear();
    return result;
  }
  size_t open = 0;
  for (const std::string& stop : stop_strings_) open = std::max(open, OpenPrefix(held_, stop));
  Result result{.text = held_.substr(0, held_.size() - open), .stopped = std::nullopt};
  held_.erase(0, held_.size() - open);
  return result;
}

std::string TextStream::Finish() {
  Result last = Scan(decoder_.Finish());
  if (last.stopped) return std::move(last.text);
  last.text += std::exchange(held_, std::string());
  return std::move(last.text);
}

}  // namespace weft
