// The models of a server that has several: from -m given more than once, the file of --models, or
// the folder of --models-dir.
#ifndef WEFT_CLI_SERVE_FLEET_MODELS_H_
#define WEFT_CLI_SERVE_FLEET_MODELS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "answer/turn_activity.h"
#include "base/mutex.h"
#include "base/status.h"
#include "cli/serve/api_routes.h"
#include "cli/serve/model_shelf.h"
#include "cli/serve/serve_flags.h"
#include "doors/host/model_fleet.h"
#include "weft/engine.h"
#include "weft/model.h"
#include "weft/step_gate.h"

namespace weft::cli {

// Whether the flags ask for several models.
bool ServesSeveral(const ServeFlags& flags);

// Models that compute on the same device of a backend take turns. Any thread.
class StepGates {
 public:
  // The gate of the device that computes most of it.
  std::shared_ptr<StepGate> Of(const Model& model);

 private:
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<StepGate>> gates_ WEFT_GUARDED_BY(mutex_);
};

// What the models share. All of it outlives them.
struct FleetParts {
  EngineOptions engine;      // for each, except for its memory and its directory
  int64_t memory_bytes = 0;  // for all together
  std::string state_dir;     // each has its own in it; empty: none
  ApiParts apis;
  std::shared_ptr<serve::DrainSwitch> drain = std::make_shared<serve::DrainSwitch>();
  std::shared_ptr<serve::TurnActivity> activity = std::make_shared<serve::TurnActivity>();
  std::unique_ptr<ModelShelf> shelf = std::make_unique<ModelShelf>();
  std::unique_ptr<StepGates> gates = std::make_unique<StepGates>();
};

// Opens their files, downloading what is not here. A file that cannot be opened is an error if it
// was named, and a model with a problem if it was found in a folder.
StatusOr<std::vector<serve::FleetModel>> FleetModels(const ServeFlags& flags,
                                                     std::shared_ptr<const FleetParts> parts);
// One more, of that name; its file is here.
StatusOr<serve::FleetModel> FleetModelNamed(const std::string& name, const std::string& path,
                                            const ServeFlags& flags,
                                            std::shared_ptr<const FleetParts> parts);

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_FLEET_MODELS_H_
