#include "answer/reply/io.h"

#include <utility>

#include "base/unicode.h"

namespace weft {

int ReplyIo::Next() const {
  if (held_.size() >= kMaxHeldBytes) return kTooLong;
  return position_ < input_.size() ? static_cast<unsigned char>(input_[position_]) : kEnd;
}

void ReplyIo::ShowHeld() {
  Content(held_);
  held_.clear();
}

void ReplyIo::Text(ReplyDelta::Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (deltas_.empty() || deltas_.back().kind != kind) {
    deltas_.push_back({.kind = kind});
    if (kind == ReplyDelta::Kind::kCallArguments) deltas_.back().call = n_calls_ - 1;
  }
  deltas_.back().text += text;
}

void ReplyIo::BeginCall(const std::string& name, const std::string& id) {
  deltas_.push_back(
      {.kind = ReplyDelta::Kind::kCallBegin, .call = n_calls_++, .name = name, .id = id});
}

void ReplyIo::EndCall() {
  deltas_.push_back({.kind = ReplyDelta::Kind::kCallEnd, .call = n_calls_ - 1});
}

std::vector<ReplyDelta> ReplyIo::Run(std::string_view more, bool at_end) {
  half_character_ += more;
  const std::string all = std::exchange(half_character_, {});
  std::string_view rest = all;
  input_.clear();
  while (!rest.empty()) {
    const int length = StrictCharLength(rest);
    if (length == 0 && !at_end) break;
    if (length > 0) {
      input_ += rest.substr(0, static_cast<size_t>(length));
    } else {
      AppendUtf8(kReplacementChar, &input_);
    }
    rest.remove_prefix(length > 0 ? static_cast<size_t>(length) : 1);
  }
  half_character_ = rest;
  position_ = 0;
  at_end_ = at_end;
  waiting_ = false;
  if (!HasNext()) return {};
  while (!stack_.empty()) {
    const std::coroutine_handle<> task = stack_.back();
    task.resume();
    if (waiting_) break;
    if (task.done()) stack_.pop_back();
  }
  return std::exchange(deltas_, {});
}

}  // namespace weft
