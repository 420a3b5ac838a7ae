// The Markdown context of a position in text: in a fence, in code between backticks, within
// brackets. Something that looks like a call is one only where prose could be; in a program or in
// the middle of a larger JSON document it is part of that.
//
// Sees the text byte by byte, so the result does not depend on how it is cut. A value; one thread
// at a time.
#ifndef WEFT_ANSWER_REPLY_TEXT_PLACE_H_
#define WEFT_ANSWER_REPLY_TEXT_PLACE_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace weft {

class TextPlace {
 public:
  // Advances over `text`.
  void Pass(std::string_view text) {
    for (const char c : text) PassByte(c);
  }
  // A call was removed here.
  void PassCall();

  // Whether an object here may be a call.
  bool MayHoldObject() const;
  // Whether markup here may belong to a call.
  bool MayHoldMarkup() const { return MayHoldFence() && depth_ == 0; }
  bool MayHoldFence() const {
    return !in_info_ && run_ == 0 && code_ticks_ == 0 &&
           (fence_ticks_ == 0 || fence_may_hold_calls_);
  }
  bool in_fence() const { return fence_ticks_ > 0 || in_info_; }
  bool at_line_start() const { return at_line_start_; }

  // Whether a fence of this language may hold a call; whether `prefix` may grow into such a
  // language.
  static bool IsCallLanguage(std::string_view word);
  static bool MayBecomeCallLanguage(std::string_view prefix);

 private:
  void PassByte(char c);
  void PassLineEnd();
  void EndRun(char next);
  void PassBracket(char c);

  char last_ = '\n';  // byte
  // The last two characters of the line that are not white space; 0: none yet.
  char last_of_line_ = 0;
  char before_last_ = 0;
  bool at_line_start_ = true;
  // The run of backticks (or tildes) just passed, its character, and whether it began the line.
  size_t run_ = 0;
  char run_char_ = 0;
  bool run_starts_line_ = false;
  // An open fence; and whether we are still in its first line, after the backticks.
  size_t fence_ticks_ = 0;
  char fence_char_ = 0;
  bool fence_may_hold_calls_ = false;
  bool in_info_ = false;
  std::string info_;
  size_t code_ticks_ = 0;  // opened inline code with this many
  // Open brackets, up to the end of the paragraph or fence.
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

}  // namespace weft

#endif  // WEFT_ANSWER_REPLY_TEXT_PLACE_H_
