#include "answer/reply/call_writer.h"

#include <algorithm>
#include <utility>

namespace weft {

std::string JsonEscaped(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (byte < 0x20) {
      out += {'\\', 'u', '0', '0', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += c;
    }
  }
  return out;
}

bool CallWriter::SetName(std::string_view name) {
  const auto unfit = [](char c) {
    return static_cast<unsigned char>(c) <= ' ' ||
           std::string_view("\"'<>{}()[]").find(c) != std::string_view::npos;
  };
  if (has_name() || name.empty() || name.size() > kMaxNameBytes ||
      std::any_of(name.begin(), name.end(), unfit)) {
    return false;
  }
  name_ = name;
  BeginIfClear();
  return true;
}

void CallWriter::BeginIfClear() {
  if (begun_ || !clear_ || !has_name()) return;
  begun_ = true;
  io_->BeginCall(name_, id_);
  io_->Arguments(unsaid_);
  unsaid_.clear();
  io_->Forget();
  if (complete_) io_->EndCall();
}

void CallWriter::Put(std::string_view json) {
  if (!begun_) {
    unsaid_ += json;
    BeginIfClear();
    return;
  }
  io_->Arguments(json);
  io_->Forget();
}

void CallWriter::Key(std::string_view key) {
  Element();
  Between("\"");
  Between(JsonEscaped(key));
  Between("\": ");
}

void CallWriter::Element() {
  if (!first_) Between(", ");
}

bool CallWriter::Open(char bracket) {
  if (closers_.size() >= kMaxDepth) return false;
  clear_ = clear_ || !closers_.empty();
  closers_ += bracket == '{' ? '}' : ']';
  between_ += bracket;
  first_ = true;
  Put(std::exchange(between_, {}));
  return true;
}

void CallWriter::Close() {
  between_ += closers_.back();
  closers_.pop_back();
  first_ = false;
  clear_ = true;
  complete_ = closers_.empty();
  const bool was_begun = begun_;
  Put(std::exchange(between_, {}));
  if (complete_ && was_begun) io_->EndCall();
}

void CallWriter::Scalar(std::string_view json) {
  between_ += json;
  first_ = false;
  clear_ = true;
  Put(std::exchange(between_, {}));
}

void CallWriter::StartString() {
  between_ += '"';
  first_ = false;
  in_string_ = true;
  clear_ = true;
  Put(std::exchange(between_, {}));
}

void CallWriter::StringText(std::string_view text) { Put(JsonEscaped(text)); }

void CallWriter::StringEscape(std::string_view escape) { Put(escape); }

void CallWriter::EndString() {
  in_string_ = false;
  Put("\"");
}

void CallWriter::Whole(std::string_view json) {
  clear_ = complete_ = true;
  const bool was_begun = begun_;
  Put(json);
  if (was_begun) io_->EndCall();
}

void CallWriter::Complete() {
  if (complete_ || !begun_ || io_->is_cut()) return;
  std::string rest = in_string_ ? "\"" : "";
  rest.append(closers_.rbegin(), closers_.rend());
  io_->Arguments(rest);
  in_string_ = false;
  closers_.clear();
  complete_ = true;
  io_->EndCall();
}

}  // namespace weft
