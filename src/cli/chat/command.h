// What a line typed into weft chat asks for: something said to the model, or a command.
// Pure functions; callable anywhere.
#ifndef WEFT_CLI_CHAT_COMMAND_H_
#define WEFT_CLI_CHAT_COMMAND_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weft::cli {

enum class ChatVerb {
  kSay,
  kNew,
  kList,
  kSwitch,
  kFork,
  kUndo,
  kTrim,
  kRegenerate,
  kSystem,
  kHistory,
  kSave,
  kLoad,
  kPark,
  kRename,
  kDrop,
  kStats,
  kSet,
  kHelp,
  kQuit,
};

struct ChatCommand {
  ChatVerb verb = ChatVerb::kSay;
  // Of a conversation, or of a setting; empty where the command has none, or leaves the choice to
  // us.
  std::string name;
  // What is said, a system message, or the value of a setting.
  std::string text;
  // Of /undo (1 unless given), /trim (0 unless given: as many as needed) and /fork (-1 unless
  // given: after the last message).
  int64_t number = -1;
};

// A line that begins with '/' is a command, and one that begins with "//" says what
// follows the first '/'. INVALID_ARGUMENT for commands that do not exist, and for
// arguments that a command does not take.
StatusOr<ChatCommand> ParseChatLine(std::string_view line);

// Gathers the lines of one message.
class MessageLines {
 public:
  void Add(std::string_view line);
  bool empty() const { return n_lines_ == 0; }
  bool complete() const { return complete_; }
  // For ParseChatLine; what stood between quotes is said, whatever it begins with.
  std::string Take();

 private:
  std::string text_;
  int n_lines_ = 0;
  bool quoted_ = false, complete_ = false;
};

// What may stand at the end of `line` in place of its last part, which begins at `begin`:
// commands, and where one takes the name of a conversation or a setting, those that begin so.
struct ChatCompletions {
  size_t begin = 0;
  std::vector<std::string> candidates;
};
ChatCompletions CompleteChatLine(std::string_view line,
                                 const std::vector<std::string>& conversations,
                                 const std::vector<std::string>& settings);

struct ChatHelp {
  const char* usage;
  const char* summary;
};
// Every command, in the order in which /help shows them.
std::span<const ChatHelp> ChatHelpLines();

}  // namespace weft::cli

#endif  // WEFT_CLI_CHAT_COMMAND_H_
