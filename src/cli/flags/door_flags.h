// Flags for access to an HTTP server, and its limits.
#ifndef WEFT_CLI_FLAGS_DOOR_FLAGS_H_
#define WEFT_CLI_FLAGS_DOOR_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "api/front_door.h"
#include "api/page/channel.h"
#include "base/status.h"
#include "http/server.h"

namespace weft::cli {

struct DoorFlags {
  std::string api_key_file;
  std::string metrics_key_file;
  std::vector<std::string> cors_origins;
  std::vector<std::string> allowed_hosts;
  int max_connections = 1024;
  int max_sessions_per_key = 0;  // 0: an equal share for each
  std::vector<std::string> shares;
  int64_t max_body_bytes = 0;  // 0: as much as the context can use
  int64_t request_bytes = int64_t{768} << 20;
  bool log_text = false;
  std::string metrics = "on";
  bool no_slots = false;
  bool no_ui = false;
};

void AddDoorFlags(CLI::App* app, DoorFlags* flags);

// Reads the key files and logs a summary of them.
StatusOr<serve::FrontDoor::Options> DoorOptions(const DoorFlags& flags, const std::string& host);
void SetLimits(const DoorFlags& flags, serve::HttpServerOptions* options);
// Sessions per key; 0 unless there are several keys.
int SessionsPerKey(const DoorFlags& flags, const serve::ApiKeys& keys, int max_sessions);
// EngineOptions::share_weights.
StatusOr<std::map<std::string, double, std::less<>>> ShareWeights(const DoorFlags& flags,
                                                                  const serve::ApiKeys& keys);
serve::ChannelLimits ChannelsPerKey(const serve::ApiKeys& keys);
// For bodies that arrive once the model is loaded. `row_width`: of vectors that clients may send in
// place of tokens; 0: none.
uint64_t MaxBodyBytes(const DoorFlags& flags, int64_t context_tokens, int64_t row_width);
// Reloads both files, and logs it.
void ReloadKeys(serve::ApiKeys* keys, serve::ApiKeys* metrics_keys);

}  // namespace weft::cli

#endif  // WEFT_CLI_FLAGS_DOOR_FLAGS_H_
