// Parses a line typed into weft chat: a message for the model, or a command. Pure functions;
// callable anywhere.
#ifndef WEFT_CLI_CHAT_COMMAND_H_
#define WEFT_CLI_CHAT_COMMAND_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weft::cli {

inline constexpr std::string_view kBlank = " \t\r\n";
// Without the blanks around it.
std::string_view Trim(std::string_view text);

enum class ChatVerb {
  kSay,
  kImage,
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
  // Of a conversation or a setting; empty if the command has none, or leaves the choice to us.
  std::string name;
  // A message, a system message, the value of a setting, or what follows /image.
  std::string text;
  // For /undo (default 1), /trim (default 0: as many as needed) and /fork (default -1: after the
  // last message).
  int64_t number = -1;
};

// A line that begins with '/' is a command; one that begins with "//" is a message, without the
// first '/'. INVALID_ARGUMENT for unknown commands and for arguments that a command does not take.
StatusOr<ChatCommand> ParseChatLine(std::string_view line);

// Collects the lines of one message.
class MessageLines {
 public:
  void Add(std::string_view line);
  bool empty() const { return n_lines_ == 0; }
  bool complete() const { return complete_; }
  // For ParseChatLine; quoted text is always a message, whatever it begins with.
  std::string Take();

 private:
  std::string text_;
  int n_lines_ = 0;
  bool quoted_ = false, complete_ = false;
};

// Candidates to replace the last part of `line`, which begins at `begin`: commands, or names of
// conversations or settings where a command takes them.
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
// All commands, in the order of /help.
std::span<const ChatHelp> ChatHelpLines();

}  // namespace weft::cli

#endif  // WEFT_CLI_CHAT_COMMAND_H_
