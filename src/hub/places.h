// Where models are kept on this machine, and where they come from: read once from the
// environment that the programs of the field use.
//
// A plain value; any thread.
#ifndef WEFT_HUB_PLACES_H_
#define WEFT_HUB_PLACES_H_

#include <functional>
#include <string>
#include <vector>

namespace weft::hub {

struct Places {
  // The hub's own tools' cache: HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub.
  std::string hub_cache;
  std::string hub_endpoint;  // HF_ENDPOINT; without a '/' at its end
  std::string hub_token;     // HF_TOKEN, or the file that the hub's login writes
  bool offline = false;      // HF_HUB_OFFLINE

  std::string ollama_registry;              // WEFT_OLLAMA_REGISTRY
  std::vector<std::string> ollama_folders;  // OLLAMA_MODELS, the user's, the system's
  std::string llama_cpp_cache;              // LLAMA_CACHE, ~/.cache/llama.cpp
  std::vector<std::string> lm_studio_folders;
  std::string models_folder;  // of --models-dir; empty: none
  // Weft's own, for what no hub's layout has a place for: WEFT_CACHE, ~/.cache/weft.
  std::string own;

  // What pip is run by: python3.
  std::string python = "python3";
};

// Null where a variable is not set.
using EnvironmentFn = std::function<const char*(const char* name)>;

Places PlacesOf(const EnvironmentFn& environment);
// Of the process.
Places ProcessPlaces();

}  // namespace weft::hub

#endif  // WEFT_HUB_PLACES_H_
