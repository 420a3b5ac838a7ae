// Named conversations in the namespace of the caller's API key: list, create, inspect, fork, reset,
// park, restore, delete; and how much of their prompts was cached.
#ifndef WEFT_DOORS_API_SESSIONS_ROUTES_H_
#define WEFT_DOORS_API_SESSIONS_ROUTES_H_

#include "doors/host/host.h"
#include "doors/host/model_fleet.h"
#include "doors/http/router.h"

namespace weft::serve {

// GET and POST /v1/sessions, GET and DELETE /v1/sessions/{id},
// POST /v1/sessions/{id}/{fork,reset,park,restore}; GET /v1/cache/last. `host` outlives the router.
void RegisterSessionsApi(Router& router, Host& host);

// GET /v1/sessions of a server that has several models: the sessions of those that are loaded, each
// with its model. Register before RegisterSessionsApi. `fleet` outlives the router.
void RegisterFleetSessions(Router& router, ModelFleet& fleet);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_SESSIONS_ROUTES_H_
