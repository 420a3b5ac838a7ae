// Lines from whoever sits at the terminal, with editing and history; or from a pipe or
// file, plain. One thread.
#ifndef WEFT_CLI_LINE_EDITOR_H_
#define WEFT_CLI_LINE_EDITOR_H_

#include <memory>
#include <string>

#include "cli/chat_signals.h"

namespace weft::cli {

class LineEditor {
 public:
  enum class Result {
    kLine,
    kInterrupted,  // Ctrl-C; what was typed is gone
    kEnd,          // end of input, Ctrl-D on an empty line, or the process is to end
  };

  // Edits when stdin and stdout are terminals; else reads lines and shows no prompt.
  // `signals` must outlive it.
  static std::unique_ptr<LineEditor> Create(ChatSignals* signals);
  virtual ~LineEditor() = default;

  // The next line, without its end, as UTF-8 (what was not is replaced).
  virtual Result Read(const std::string& prompt, std::string* line) = 0;
};

}  // namespace weft::cli

#endif  // WEFT_CLI_LINE_EDITOR_H_
