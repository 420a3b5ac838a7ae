// Reads lines from a terminal, with editing, history and completion; or plainly from a pipe or
// file. Text pasted into a terminal is one line, whatever it contains. One thread.
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
    kInterrupted,  // Ctrl-C; the typed text is discarded
    kEnd,          // end of input, Ctrl-D on an empty line, or the process should end
  };

  // Completions for the end of a line, for Tab.
  using Complete = std::function<ChatCompletions(std::string_view line)>;

  // Edits if stdin and stdout are terminals; otherwise reads lines and shows no prompt. `signals`
  // must outlive it.
  static std::unique_ptr<LineEditor> Create(ChatSignals* signals, Complete complete);
  virtual ~LineEditor() = default;

  virtual bool is_terminal() const = 0;

  // The next line without its line end, as UTF-8 (invalid bytes are replaced).
  virtual Result Read(const std::string& prompt, std::string* line) = 0;
};

}  // namespace weft::cli

#endif  // WEFT_CLI_CHAT_LINE_EDITOR_H_
