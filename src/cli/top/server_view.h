// What a running server tells a client about itself, for weft top: its figures, and the
// conversations of the client's key.
//
// One thread; Fetch blocks.
#ifndef WEFT_CLI_TOP_SERVER_VIEW_H_
#define WEFT_CLI_TOP_SERVER_VIEW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cli/serve/server_figures.h"

namespace weft::cli {

// A conversation, as far as the key may see it.
struct ConversationView {
  std::string name;   // empty: none was given
  std::string state;  // "writing", "reading", "waiting"; or its session's, such as "parked"
  int64_t tokens = 0;
  int64_t idle_ms = 0;  // since its last turn; 0 while one runs
  // while a turn runs
  int64_t prompt_tokens = 0, found_tokens = 0, done_tokens = 0;
  int64_t written_tokens = 0;
  int64_t waits_behind_tokens = 0;
  double seconds_left = 0;  // of its prompt

  bool is_running() const { return state == "writing" || state == "reading" || state == "waiting"; }
};

struct ServerView {
  // Absent where the key may not see them.
  std::optional<ServerFigures> figures;
  // Running ones first, then those used last.
  std::vector<ConversationView> conversations;
  int64_t others_running = 0;  // turns of other keys
};

struct ServerAddress {
  std::string url;
  std::string api_key;
};

// The name of its model, which stays as long as the server runs.
StatusOr<std::string> FetchModelName(const ServerAddress& address);
StatusOr<ServerView> FetchServerView(const ServerAddress& address);

// From the answers of /slots and /v1/sessions.
void AddConversations(std::string_view slots, std::string_view sessions, ServerView* view);

}  // namespace weft::cli

#endif  // WEFT_CLI_TOP_SERVER_VIEW_H_
