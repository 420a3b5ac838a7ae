// What operators do to the models of a running server: read them again, download one, delete one.
#ifndef WEFT_CLI_SERVE_FLEET_ACTIONS_H_
#define WEFT_CLI_SERVE_FLEET_ACTIONS_H_

#include <memory>

#include "cli/serve/fleet_models.h"
#include "cli/serve/serve_flags.h"
#include "doors/api/ollama/routes.h"
#include "doors/api/server/fleet_routes.h"
#include "doors/host/model_fleet.h"

namespace weft::cli {

// `flags` and `fleet` outlive them.
serve::FleetActions FleetActionsFor(const ServeFlags& flags,
                                    std::shared_ptr<const FleetParts> parts,
                                    serve::ModelFleet& fleet);

// Ollama's /api/pull. What it has pulled is served; a model that is served is not pulled again.
// `flags` and `fleet` outlive it.
serve::OllamaPull OllamaPullFor(const ServeFlags& flags, std::shared_ptr<const FleetParts> parts,
                                serve::ModelFleet& fleet);

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_FLEET_ACTIONS_H_
