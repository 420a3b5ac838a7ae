// POST /drain and /undrain, for operators: takes the server out of service and back. Turns that run
// go on, new ones get 503, /health says that it is drained, and named sessions go to disk.
#ifndef WEFT_DOORS_API_SERVER_DRAIN_ROUTES_H_
#define WEFT_DOORS_API_SERVER_DRAIN_ROUTES_H_

#include <functional>
#include <memory>
#include <vector>

#include "doors/host/drain_switch.h"
#include "doors/host/host.h"
#include "doors/host/model_fleet.h"
#include "doors/http/router.h"

namespace weft::serve {

// A model that stays loaded while this lives.
using HeldHost = std::shared_ptr<Host>;
using LoadedHosts = std::function<std::vector<HeldHost>()>;
// The one of a server with one model, or none while it is not ready. `host` outlives the result.
LoadedHosts OnlyHost(Host& host);
LoadedHosts HostsOf(ModelFleet& fleet);

void RegisterDrainApi(Router& router, std::shared_ptr<DrainSwitch> drain, LoadedHosts hosts);

// If the server is drained, begins to park the sessions that are idle now.
void ParkWhileDrained(const DrainSwitch& drain, const LoadedHosts& hosts);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_SERVER_DRAIN_ROUTES_H_
