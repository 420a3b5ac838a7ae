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
  std::string name;        // empty: none was given
  std::string state;       // "writing", "reading", "waiting"; or its session's, such as "parked"
  std::string model = {};  // empty if the server has one
  int64_t tokens = 0;
  int64_t idle_ms = 0;  // since its last turn; 0 while one runs
  // while a turn runs
  int64_t prompt_tokens = 0, found_tokens = 0, done_tokens = 0;
  int64_t written_tokens = 0;
  int64_t waits_behind_tokens = 0;
  double seconds_left = 0;  // of its prompt

  bool is_running() const { return state == "writing" || state == "reading" || state == "waiting"; }
};

// One of the models of a server that has several.
struct ModelView {
  std::string name;
  std::string state;  // "loaded", "loading", "unloaded"
  int64_t memory_bytes = 0;
  int64_t requests = 0;
  std::vector<std::string> adapters = {};
};

struct ServerView {
  // Absent where the key may not see them.
  std::optional<ServerFigures> figures;
  // Running ones first, then those used last.
  std::vector<ConversationView> conversations;
  int64_t others_running = 0;     // turns of other keys
  std::vector<ModelView> models;  // empty if the server has one
};

struct ServerAddress {
  std::string url;
  std::string api_key;
};

// The name of its model, or how many it has.
StatusOr<std::string> FetchModelName(const ServerAddress& address);
StatusOr<ServerView> FetchServerView(const ServerAddress& address);

// From the answer of /v1/models.
std::vector<ModelView> ModelsIn(std::string_view models);
// From the answer of /slots, of that model where there are several.
void AddTurns(std::string_view slots, const std::string& model, ServerView* view);
// From the answer of /v1/sessions. REQUIRES: all turns are added.
void AddIdle(std::string_view sessions, ServerView* view);

}  // namespace weft::cli

#endif  // WEFT_CLI_TOP_SERVER_VIEW_H_
