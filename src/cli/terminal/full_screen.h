// The whole terminal, for a command that shows figures until a key ends it. While this object
// lives, keys are read one by one and not shown; afterwards the terminal is as before.
//
// One at a time, one thread.
#ifndef WEFT_CLI_TERMINAL_FULL_SCREEN_H_
#define WEFT_CLI_TERMINAL_FULL_SCREEN_H_

#include <termios.h>

#include <string>
#include <vector>

#include "base/terminal.h"

namespace weft::cli {

class FullScreen {
 public:
  // Whether standard input and output are terminals, as this needs.
  static bool IsPossible();

  FullScreen();
  ~FullScreen();
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;

  static WindowSize GetSize();
  // Replaces the shown lines, cut to fit. Each character is one column wide.
  void Draw(const std::vector<std::string>& lines);
  // Waits that long. False once the user has ended it by q, Escape or Ctrl-C, or a signal has.
  bool Wait(int timeout_ms);

 private:
  termios before_ = {};
};

}  // namespace weft::cli

#endif  // WEFT_CLI_TERMINAL_FULL_SCREEN_H_
