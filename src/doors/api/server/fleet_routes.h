// The status of a server that has several models, and llama-server's routes for loading and
// unloading them: /health, /metrics, /v1/models, /models/load, /models/unload, /models/sse.
#ifndef WEFT_DOORS_API_SERVER_FLEET_ROUTES_H_
#define WEFT_DOORS_API_SERVER_FLEET_ROUTES_H_

#include "doors/host/fleet_host.h"
#include "doors/host/model_fleet.h"
#include "doors/http/router.h"

namespace weft::serve {

// Register before RegisterServerApi, whose routes of the same paths tell of one model. Both outlive
// the router. `metrics`: whether to serve them.
void RegisterFleetApi(Router& router, FleetHost& host, ModelFleet& fleet, bool metrics = true);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_SERVER_FLEET_ROUTES_H_
