// Where a text stands, as Markdown is read: in a fence, in code between backticks, within
// brackets. What looks like a call is one only where prose could stand: in a program or in
// the middle of a larger JSON document it is a part of that.
//
// Sees the text byte by byte, so that it does not depend on how that is cut. A value; one
// thread at a time.
#ifndef WEFT_REPLY_TEXT_PLACE_H_
#define WEFT_REPLY_TEXT_PLACE_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace weft {

class TextPlace {
 public:
  // The text goes on so.
  void Pass(std::string_view text) {
    for (const char c : text) PassByte(c);
  }
  // A call stood here, which was taken out.
  void PassCall();

  // Whether an object here may be a call.
  bool MayHoldObject() const;
  // Whether markup here may be that of a call.
  bool MayHoldMarkup() const { return MayHoldFence() && depth_ == 0; }
  bool MayHoldFence() const {
    return !in_info_ && run_ == 0 && code_ticks_ == 0 &&
           (fence_ticks_ == 0 || fence_may_hold_calls_);
  }
  bool in_fence() const { return fence_ticks_ > 0 || in_info_; }
  bool at_line_start() const { return at_line_start_; }

  // Whether a fence of this language may hold a call; whether a longer word may be such a
  // language.
  static bool IsCallLanguage(std::string_view word);
  static bool MayBecomeCallLanguage(std::string_view prefix);

 private:
  void PassByte(char c);
  void PassLineEnd();
  void EndRun(char next);
  void PassBracket(char c);

  char last_ = '\n';  // byte
  // That are no white space, the last two of the line; 0: none yet.
  char last_of_line_ = 0;
  char before_last_ = 0;
  bool at_line_start_ = true;
  // Backticks (or tildes) just passed, what they are, and whether the line began with them.
  size_t run_ = 0;
  char run_char_ = 0;
  bool run_starts_line_ = false;
  // An open fence, and the text behind its backticks while that line lasts.
  size_t fence_ticks_ = 0;
  char fence_char_ = 0;
  bool fence_may_hold_calls_ = false;
  bool in_info_ = false;
  std::string info_;
  size_t code_ticks_ = 0;  // of open code in a line
  // Open brackets, up to the end of the paragraph or of the fence.
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

}  // namespace weft

#endif  // WEFT_REPLY_TEXT_PLACE_H_
