// Where models are stored on this machine, and where they come from: read once, from the
// environment variables that other programs use.
//
// A plain value; any thread.
#ifndef WEFT_MODEL_HUB_PLACES_H_
#define WEFT_MODEL_HUB_PLACES_H_

#include <functional>
#include <string>
#include <vector>

namespace weft::hub {

struct Places {
  // The cache of the hub's own tools: HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub.
  std::string hub_cache;
  std::string hub_endpoint;  // HF_ENDPOINT; without a trailing '/'
  std::string hub_token;     // HF_TOKEN, or the file written by the hub's login
  bool offline = false;      // HF_HUB_OFFLINE

  std::string ollama_registry;              // WEFT_OLLAMA_REGISTRY
  std::vector<std::string> ollama_folders;  // OLLAMA_MODELS, the user's, the system's
  std::string llama_cpp_cache;              // LLAMA_CACHE, ~/.cache/llama.cpp
  std::vector<std::string> lm_studio_folders;
  std::string models_folder;  // from --models-dir; empty: none
  // Weft's own, for models that do not fit the hub's layout: WEFT_CACHE, ~/.cache/weft.
  std::string own;
  std::string packed_copies;  // in `own`: weights as the kernels use them, for faster starts

  // The Python that runs pip.
  std::string python = "python3";
};

// Null if a variable is not set.
using EnvironmentFn = std::function<const char*(const char* name)>;

Places PlacesOf(const EnvironmentFn& environment);
// From the process's environment.
Places ProcessPlaces();

}  // namespace weft::hub

#endif  // WEFT_MODEL_HUB_PLACES_H_
