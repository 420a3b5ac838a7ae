// What a line typed into weft chat asks for: something said to the model, or a command.
// Pure functions; callable anywhere.
#ifndef WEFT_CLI_CHAT_COMMAND_H_
#define WEFT_CLI_CHAT_COMMAND_H_

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace weft::cli {

enum class ChatVerb {
  kSay,
  kNew,
  kList,
  kSwitch,
  kFork,
  kUndo,
  kSystem,
  kHistory,
  kSave,
  kLoad,
  kPark,
  kRename,
  kDrop,
  kStats,
  kHelp,
  kQuit,
};

struct ChatCommand {
  ChatVerb verb = ChatVerb::kSay;
  // Of a conversation; empty where the command has none, or leaves the choice to us.
  std::string name;
  // What is said, or a system message.
  std::string text;
  // Of /undo (1 unless given) and /fork (-1 unless given: after the last message).
  int64_t number = -1;
};

// A line that begins with '/' is a command, and one that begins with "//" says what
// follows the first '/'. INVALID_ARGUMENT for commands that do not exist, and for
// arguments that a command does not take.
StatusOr<ChatCommand> ParseChatLine(std::string_view line);

struct ChatHelp {
  const char* usage;
  const char* summary;
};
// Every command, in the order in which /help shows them.
std::span<const ChatHelp> ChatHelpLines();

}  // namespace weft::cli

#endif  // WEFT_CLI_CHAT_COMMAND_H_
