// Output of weft chat's commands: pure functions from a room's state to text.
#ifndef WEFT_CLI_CHAT_TABLES_H_
#define WEFT_CLI_CHAT_TABLES_H_

#include <string>
#include <vector>

#include "cli/chat/room.h"
#include "weft/engine.h"

namespace weft::cli {

// Each ends with a newline; columns are aligned.
std::string ListText(const std::vector<ChatRoom::Listed>& list);
std::string StatsText(const std::vector<ChatRoom::Listed>& list, const EngineStats& stats);
std::string HistoryText(const OpenChat& conversation);
std::string HelpText();

}  // namespace weft::cli

#endif  // WEFT_CLI_CHAT_TABLES_H_
