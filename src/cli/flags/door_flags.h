// What follows from the options about access to an HTTP server and about its limits.
#ifndef WEFT_CLI_FLAGS_DOOR_FLAGS_H_
#define WEFT_CLI_FLAGS_DOOR_FLAGS_H_

#include <cstdint>
#include <map>
#include <string>

#include "base/status.h"
#include "doors/api/front_door.h"
#include "doors/api/page/channel.h"
#include "doors/host/server_options.h"
#include "doors/http/server.h"

namespace weft::cli {

// Reads the key files and logs a summary of them.
StatusOr<serve::FrontDoor::Options> DoorOptions(const serve::ServerOptions& options);
void SetLimits(const serve::ServerOptions& options, serve::HttpServerOptions* http);
// Sessions per key; 0 unless there are several keys.
int SessionsPerKey(const serve::ServerOptions& options, const serve::ApiKeys& keys);
// EngineOptions::share_weights.
StatusOr<std::map<std::string, double, std::less<>>> ShareWeights(
    const serve::ServerOptions& options, const serve::ApiKeys& keys);
serve::ChannelLimits ChannelsPerKey(const serve::ApiKeys& keys);
// For bodies that arrive once the model is loaded. `row_width`: of vectors that clients may send in
// place of tokens; 0: none. `sees`: they may have pictures.
uint64_t MaxBodyBytes(const serve::ServerOptions& options, int64_t context_tokens,
                      int64_t row_width, bool sees);
// Reloads both files, and logs it.
void ReloadKeys(serve::ApiKeys* keys, serve::ApiKeys* metrics_keys);

}  // namespace weft::cli

#endif  // WEFT_CLI_FLAGS_DOOR_FLAGS_H_
