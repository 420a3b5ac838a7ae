// Lines from whoever sits at the terminal, with editing, history and completion; or from a pipe
// or file, plain. What is pasted into a terminal is one line, whatever it holds. One thread.
#ifndef WEFT_CLI_CHAT_LINE_EDITOR_H_
#define WEFT_CLI_CHAT_LINE_EDITOR_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cli/chat/command.h"
#include "cli/chat/signals.h"

namespace weft::cli {

class LineEditor {
 public:
  enum class Result {
    kLine,
    kInterrupted,  // Ctrl-C; what was typed is gone
    kEnd,          // end of input, Ctrl-D on an empty line, or the process is to end
  };

  // What may stand where the line ends that is given, for Tab.
  using Complete = std::function<ChatCompletions(std::string_view line)>;

  // Edits when stdin and stdout are terminals; else reads lines and shows no prompt.
  // `signals` must outlive it.
  static std::unique_ptr<LineEditor> Create(ChatSignals* signals, Complete complete);
  virtual ~LineEditor() = default;

  virtual bool is_terminal() const = 0;

  // The next line, without its end, as UTF-8 (what was not is replaced).
  virtual Result Read(const std::string& prompt, std::string* line) = 0;
};

}  // namespace weft::cli

#endif  // WEFT_CLI_CHAT_LINE_EDITOR_H_
