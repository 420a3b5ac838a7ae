// The status of a server that has several models, and llama-server's routes for loading and
// unloading, adding and deleting them: /health, /metrics, /v1/models, /models, /models/load,
// /models/unload, /models/sse.
#ifndef WEFT_DOORS_API_SERVER_FLEET_ROUTES_H_
#define WEFT_DOORS_API_SERVER_FLEET_ROUTES_H_

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "doors/host/fleet_host.h"
#include "doors/host/model_fleet.h"
#include "doors/host/model_pulls.h"
#include "doors/http/router.h"

namespace weft::serve {

// What the routes let an operator do. An empty function refuses it.
struct FleetActions {
  bool metrics = true;  // whether to serve them
  // The models that the flags and files ask for now.
  std::function<StatusOr<std::vector<FleetModel>>()> read_again = {};
  ModelPulls::Pull pull = {};
  // Whether `pull` may ask for a model of that name.
  std::function<Status(const std::string& name)> may_pull = {};
  // What deletes the model's file; an error if that is not the server's, or another model's too.
  std::function<StatusOr<std::function<void()>>(const FleetModel& model)> deleter = {};
};

// Register before RegisterServerApi, whose routes of the same paths tell of one model. `host` and
// `fleet` outlive the router.
void RegisterFleetApi(Router& router, FleetHost& host, ModelFleet& fleet, FleetActions actions);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_SERVER_FLEET_ROUTES_H_
