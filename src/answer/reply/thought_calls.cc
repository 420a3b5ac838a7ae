#include "answer/reply/thought_calls.h"

#include <algorithm>
#include <string>
#include <utility>

#include "answer/reply/io.h"

namespace weft {
namespace {

using Kind = ReplyDelta::Kind;
using Deltas = std::vector<ReplyDelta>;

bool IsBlank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

class ThoughtCalls final : public ReplyParser {
 public:
  ThoughtCalls(std::unique_ptr<ReplyParser> own, std::vector<std::string_view> opens,
               ParameterTypes tools, std::function<std::unique_ptr<ReplyParser>()> new_parser)
      : own_(std::move(own)),
        opens_(std::move(opens)),
        tools_(std::move(tools)),
        new_parser_(std::move(new_parser)) {}

  Deltas Push(std::string_view text) override {
    Deltas out;
    for (ReplyDelta& delta : own_->Push(text)) Take(std::move(delta), &out);
    return out;
  }
  Deltas Finish(ReplyEnd end) override {
    Deltas out;
    for (ReplyDelta& delta : own_->Finish(end)) Take(std::move(delta), &out);
    if (trial_ == nullptr || !GiveCalls(&out)) Release(&out);
    return out;
  }

 private:
  void Take(ReplyDelta delta, Deltas* out) {
    if (delta.kind == Kind::kReasoning) {
      for (const char c : delta.text) TakeByte(c, out);
      return;
    }
    Release(out);
    n_calls_ = std::max(n_calls_, delta.call + 1);
    out->push_back(std::move(delta));
  }

  // Byte by byte, so that the result does not depend on how the text is cut.
  void TakeByte(char c, Deltas* out) {
    held_ += c;
    if (trial_ != nullptr) {
      if (!Try({&c, 1}) || held_.size() > ReplyIo::kMaxHeldBytes) Release(out);
      return;
    }
    size_t released = 0;
    while (!MayOpen(std::string_view(held_).substr(released))) ++released;
    Give(std::string_view(held_).substr(0, released), out);
    held_.erase(0, released);
    if (std::ranges::count(opens_, held_) == 0) return;
    trial_ = new_parser_();
    Try(held_);
  }

  bool MayOpen(std::string_view text) const {
    return std::ranges::any_of(opens_,
                               [&](std::string_view open) { return open.starts_with(text); });
  }

  // False if the text is more than calls of offered tools.
  bool Try(std::string_view text) { return AreCalls(trial_->Push(text)); }
  bool AreCalls(Deltas deltas) {
    for (ReplyDelta& delta : deltas) {
      const bool is_text = delta.kind == Kind::kContent || delta.kind == Kind::kReasoning;
      if (is_text && IsBlank(delta.text)) continue;
      if (is_text || (delta.kind == Kind::kCallBegin && !tools_.Offers(delta.name))) return false;
      n_open_ += delta.kind == Kind::kCallBegin ? 1 : 0;
      n_open_ -= delta.kind == Kind::kCallEnd ? 1 : 0;
      calls_.push_back(std::move(delta));
    }
    return true;
  }

  // At the end of the reply. False if it does not end with whole calls.
  bool GiveCalls(Deltas* out) {
    if (!AreCalls(trial_->Finish(ReplyEnd::kCut)) || calls_.empty() || n_open_ > 0) return false;
    for (ReplyDelta& delta : calls_) {
      delta.call += n_calls_;
      out->push_back(std::move(delta));
    }
    return true;
  }

  // The held text is a part of the thought.
  void Release(Deltas* out) {
    trial_.reset();
    calls_.clear();
    n_open_ = 0;
    Give(std::exchange(held_, {}), out);
  }

  static void Give(std::string_view text, Deltas* out) {
    if (text.empty()) return;
    if (out->empty() || out->back().kind != Kind::kReasoning) {
      out->push_back({.kind = Kind::kReasoning});
    }
    out->back().text += text;
  }

  const std::unique_ptr<ReplyParser> own_;
  const std::vector<std::string_view> opens_;
  const ParameterTypes tools_;
  const std::function<std::unique_ptr<ReplyParser>()> new_parser_;
  std::string held_;                    // a marker's beginning, or what may be calls
  std::unique_ptr<ReplyParser> trial_;  // parses held_; null: no marker yet
  Deltas calls_;                        // that it has found
  int n_open_ = 0;                      // calls not ended yet
  int n_calls_ = 0;                     // found by own_
};

}  // namespace

std::unique_ptr<ReplyParser> MakeThoughtCalls(
    std::unique_ptr<ReplyParser> own, std::vector<std::string_view> opens, ParameterTypes tools,
    std::function<std::unique_ptr<ReplyParser>()> new_parser) {
  return std::make_unique<ThoughtCalls>(std::move(own), std::move(opens), std::move(tools),
                                        std::move(new_parser));
}

}  // namespace weft
