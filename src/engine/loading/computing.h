// What computes a model: a backend and one of its devices, or two that share its layers or its
// experts; and the weights that are loaded for it. This is where ModelOptions::backend, device,
// device_layers and expert_layers become a choice.
//
// Any thread; blocks while it loads.
#ifndef WEFT_ENGINE_LOADING_COMPUTING_H_
#define WEFT_ENGINE_LOADING_COMPUTING_H_

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "model/adapter_spec.h"
#include "model/formats/model_file.h"
#include "model/model_spec.h"
#include "weft/model.h"

namespace weft {

struct Computing {
  const Backend* backend = nullptr;
  // The same, where it is the model's own: the one that divides layers, over the one that divides
  // experts. Either may be null.
  std::shared_ptr<const Backend> leaves_experts = {}, divided = {};
  std::shared_ptr<const Weights> weights = {};
  // What ModelOptions::kAnyBackend chose and why, for people; empty where there was no choice.
  std::string choice = {};
  std::string loading = {};  // see Model::loading
};

// An error that names the missing part, if the named backend cannot be used here.
Status CheckBackend(const ModelOptions& options);

// Loads the weights, with adapters for them. REQUIRES: CheckBackend(options).
StatusOr<Computing> LoadForComputing(const std::shared_ptr<const ModelFile>& file,
                                     const ModelSpec& spec, const ModelOptions& options,
                                     std::vector<Adapter> adapters = {});

}  // namespace weft

#endif  // WEFT_ENGINE_LOADING_COMPUTING_H_
