// A reply parser's input and output: bytes in, deltas out.
//
// A parser sees one byte after another and then the end, never the boundaries of the pieces, so its
// joined deltas cannot depend on them. Bytes that it took but did not emit yet are held: text that
// may turn out to be markup, and becomes visible if it does not.
//
// Owned by a ReplyParser; one thread at a time.
#ifndef WEFT_ANSWER_REPLY_IO_H_
#define WEFT_ANSWER_REPLY_IO_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answer/reply/reply.h"
#include "answer/reply/task.h"

namespace weft {

class ReplyIo {
 public:
  // Peek returns these instead of a byte: at the end of the text, or when the held text is too long
  // to be markup. Both tell parsers of markup to stop.
  static constexpr int kEnd = -1;
  static constexpr int kTooLong = -2;
  static constexpr size_t kMaxHeldBytes = size_t{1} << 20;

  // --- the parser's side ---------------------------------------------------------------
  class PeekAwaiter {
   public:
    explicit PeekAwaiter(ReplyIo* io) : io_(io) {}
    bool await_ready() const { return io_->HasNext(); }
    void await_suspend(std::coroutine_handle<> /*task*/) { io_->waiting_ = true; }
    int await_resume() const { return io_->Next(); }

   private:
    ReplyIo* const io_;
  };
  // The next byte, without taking it.
  PeekAwaiter Peek() { return PeekAwaiter(this); }
  // Takes the byte that Peek returned, and holds it.
  void Take() { held_ += input_[position_++]; }
  // Takes it without holding it: the parser emits or keeps it itself.
  void Skip() { ++position_; }

  const std::string& held() const { return held_; }
  // The held text was emitted, or was markup.
  void Forget() { held_.clear(); }
  // Holds `text`, the part of the held text that was not just emitted.
  void HoldAgain(std::string_view text) { held_ = text; }
  // Emits the held text as content.
  void ShowHeld();

  void Content(std::string_view text) { Text(ReplyDelta::Kind::kContent, text); }
  void Reasoning(std::string_view text) { Text(ReplyDelta::Kind::kReasoning, text); }
  void BeginCall(const std::string& name, const std::string& id);
  void Arguments(std::string_view json) { Text(ReplyDelta::Kind::kCallArguments, json); }
  void EndCall();
  // The reply was cut: text held back as the start of a call is dropped.
  bool is_cut() const { return is_cut_; }

  // --- the owner's side ----------------------------------------------------------------
  // `task` is the whole parser; it must outlive this.
  void Start(ReplyTask<bool>* task) { task->StartOn(&stack_); }
  // Continues with more text, and returns the resulting deltas. Replaces invalid UTF-8.
  std::vector<ReplyDelta> Run(std::string_view more, bool at_end);
  std::vector<ReplyDelta> Finish(ReplyEnd end) {
    is_cut_ = end == ReplyEnd::kCut;
    return Run({}, /*at_end=*/true);
  }

 private:
  bool HasNext() const {
    return at_end_ || position_ < input_.size() || held_.size() >= kMaxHeldBytes;
  }
  int Next() const;
  void Text(ReplyDelta::Kind kind, std::string_view text);

  ReplyTaskStack stack_;
  std::string half_character_;
  std::string input_;
  size_t position_ = 0;
  bool at_end_ = false;
  bool is_cut_ = false;
  bool waiting_ = false;
  std::string held_;
  int n_calls_ = 0;
  std::vector<ReplyDelta> deltas_;
};

}  // namespace weft

#endif  // WEFT_ANSWER_REPLY_IO_H_
