// The models on this machine, whichever program put them there.
//
// Every call makes a new list, from names only; only ReadModelFacts opens a file, and reads just
// its head. Blocks; any thread.
#ifndef WEFT_MODEL_HUB_LOCAL_MODELS_H_
#define WEFT_MODEL_HUB_LOCAL_MODELS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/formats/model_facts.h"
#include "model/hub/names/model_name.h"
#include "model/hub/places.h"

namespace weft::hub {

// Whose folder a model is in.
enum class Owner { kWeft, kHub, kLlamaCpp, kOllama, kLmStudio, kFolder };
// "weft", "hub", "llama.cpp", "ollama", "lm-studio", "folder".
std::string_view NameOf(Owner owner);

struct LocalModel {
  std::string name;  // as accepted by -m
  Owner owner = Owner::kFolder;
  std::string path;                // the first part's
  std::vector<std::string> parts;  // all of them, including `path`
  int64_t n_bytes = 0;
  std::string repo;          // "owner/repo", if known
  std::string file;          // the first part's path in the repository
  std::string quantization;  // from the file's name; empty: unknown
  OllamaName ollama;         // for Owner::kOllama, and for Weft's own downloads from there
  bool is_ollama = false;
  std::string parameters;                 // Ollama's parameters, as JSON
  std::vector<std::string> ollama_kinds;  // what else Ollama has for it: "template", "system" ...
};

// In the order weft, hub, llama.cpp, ollama, lm-studio, folder, each sorted by name. A file
// reachable through two of them is listed once.
std::vector<LocalModel> ListLocalModels(const Places& places);

// Positions in `all` of the models that `name` may mean: an exact match, otherwise all whose names
// contain it, ignoring case.
std::vector<size_t> MatchLocalModels(std::span<const LocalModel> all, std::string_view name);
// The repository's model with the wanted quantization or file; -1: none.
int FindOfRepo(std::span<const LocalModel> all, const HubName& name);
int FindOfOllama(std::span<const LocalModel> all, const OllamaName& name);

StatusOr<ModelFacts> ReadModelFacts(const std::string& path);

}  // namespace weft::hub

#endif  // WEFT_MODEL_HUB_LOCAL_MODELS_H_
