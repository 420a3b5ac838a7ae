#include "engine/sampling/text_stream.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "weft/options.h"

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

TextStream::Stop::Stop(std::string stop_text) : text(std::move(stop_text)), shorter(text.size()) {
  static_assert(kMaxStopStringBytes <= std::numeric_limits<uint16_t>::max());
  for (size_t i = 1, n = 0; i < text.size(); ++i) {
    shorter[i] = static_cast<uint16_t>(n);
    while (n > 0 && text[i] != text[n]) n = shorter[n];
    if (text[i] == text[n]) ++n;
  }
}

bool TextStream::Stop::Push(char byte) {
  while (matched > 0 && byte != text[matched]) matched = shorter[matched];
  if (byte == text[matched]) ++matched;
  if (matched < text.size()) return false;
  matched = 0;
  return true;
}

TextStream::TextStream(std::shared_ptr<const Tokenizer> tokenizer,
                       std::vector<std::string> stop_strings, std::vector<TokenId> shown)
    : tokenizer_(std::move(tokenizer)),
      shown_(std::move(shown)),
      decoder_(tokenizer_, /*render_special=*/true) {
  stops_.reserve(stop_strings.size());
  for (std::string& stop : stop_strings) stops_.emplace_back(std::move(stop));
}

bool TextStream::Shows(TokenId token) const {
  if (tokenizer_->IsEndOfGeneration(token)) return false;
  return !tokenizer_->Piece(token, /*render_special=*/false).empty() ||
         std::find(shown_.begin(), shown_.end(), token) != shown_.end();
}

TextStream::Result TextStream::Push(TokenId token, bool may_stop) {
  if (!Shows(token)) return {};
  std::string completed = decoder_.Push(token);
  if (!may_stop) return {.text = std::move(completed), .stopped = std::nullopt};
  return Scan(std::move(completed));
}

TextStream::Result TextStream::Scan(std::string completed) {
  if (stops_.empty()) return {.text = std::move(completed), .stopped = std::nullopt};
  const size_t n_held = held_.size();
  held_ += completed;
  size_t first = std::string::npos;
  const Stop* found = nullptr;
  for (Stop& stop : stops_) {
    size_t end = n_held;
    while (end < held_.size() && !stop.Push(held_[end])) ++end;
    if (end == held_.size()) continue;
    const size_t at = end + 1 - stop.text.size();
    if (at < first || (at == first && stop.text.size() > found->text.size())) {
      first = at;
      found = &stop;
    }
  }
  if (found != nullptr) {
    Result result{.text = held_.substr(0, first), .stopped = found->text};
    held_.clear();
    return result;
  }
  size_t open = 0;
  for (const Stop& stop : stops_) open = std::max(open, stop.matched);
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
