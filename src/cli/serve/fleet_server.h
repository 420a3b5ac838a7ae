// weft serve with several models: they come and go while the server runs.
#ifndef WEFT_CLI_SERVE_FLEET_SERVER_H_
#define WEFT_CLI_SERVE_FLEET_SERVER_H_

#include <cstdint>

#include "base/status.h"
#include "cli/serve/serve_flags.h"
#include "doors/api/front_door.h"
#include "doors/host/api_keys.h"
#include "weft/engine.h"

namespace weft::cli {

struct FleetDoor {
  serve::FrontDoor::Options options;
  serve::ApiKeys* keys;
  serve::ApiKeys* metrics_keys;
  int64_t start_us;
};

// Runs until a signal ends the server. `engine`: of every model, except for its memory.
Status ServeFleet(const ServeFlags& flags, const EngineOptions& engine, FleetDoor door);

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_FLEET_SERVER_H_
