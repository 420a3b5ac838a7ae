#include "answer/reply/control_filter.h"

#include <algorithm>
#include <utility>

namespace weft {
namespace {

using Kind = ReplyDelta::Kind;

class ControlFilter final : public ReplyParser {
 public:
  ControlFilter(std::unique_ptr<ReplyParser> parser, std::vector<std::string> hidden)
      : parser_(std::move(parser)), hidden_(std::move(hidden)) {}

  std::vector<ReplyDelta> Push(std::string_view text) override {
    std::vector<ReplyDelta> out;
    for (ReplyDelta& delta : parser_->Push(text)) Take(std::move(delta), &out);
    return out;
  }
  std::vector<ReplyDelta> Finish(ReplyEnd end) override {
    std::vector<ReplyDelta> out;
    for (ReplyDelta& delta : parser_->Finish(end)) Take(std::move(delta), &out);
    Give(std::exchange(open_, {}), &out);
    return out;
  }

 private:
  void Take(ReplyDelta delta, std::vector<ReplyDelta>* out) {
    if (delta.kind != kind_) Give(std::exchange(open_, {}), out);
    kind_ = delta.kind;
    if (kind_ == Kind::kContent || kind_ == Kind::kReasoning) {
      Give(Shown(delta.text), out);
    } else {
      out->push_back(std::move(delta));
    }
  }

  // Returns the text known not to belong to a hidden text, given more of it.
  std::string Shown(std::string_view text) {
    std::string shown;
    for (const char c : text) {
      open_ += c;
      while (!open_.empty() && !MayBeHidden(open_)) {
        shown += open_.front();
        open_.erase(0, 1);
      }
      if (std::find(hidden_.begin(), hidden_.end(), open_) != hidden_.end()) open_.clear();
    }
    return shown;
  }

  bool MayBeHidden(std::string_view text) const {
    return std::any_of(hidden_.begin(), hidden_.end(),
                       [text](const std::string& hidden) { return hidden.starts_with(text); });
  }

  void Give(std::string text, std::vector<ReplyDelta>* out) const {
    if (!text.empty()) out->push_back({.kind = kind_, .text = std::move(text)});
  }

  const std::unique_ptr<ReplyParser> parser_;
  const std::vector<std::string> hidden_;
  Kind kind_ = Kind::kContent;  // the last delta's
  std::string open_;            // a partial hidden text
};

}  // namespace

std::unique_ptr<ReplyParser> MakeControlFilter(std::unique_ptr<ReplyParser> parser,
                                               std::vector<std::string> hidden) {
  return std::make_unique<ControlFilter>(std::move(parser), std::move(hidden));
}

}  // namespace weft
