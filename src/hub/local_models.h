// The models that are on this machine, whoever has put them there.
//
// A list is made anew each time it is asked for, from names alone; only ReadModelFacts opens a
// file, and reads no more than its head. Blocking; any thread.
#ifndef WEFT_HUB_LOCAL_MODELS_H_
#define WEFT_HUB_LOCAL_MODELS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/model_facts.h"
#include "hub/model_name.h"
#include "hub/places.h"

namespace weft::hub {

// Whose folder a model is in.
enum class Owner { kWeft, kHub, kLlamaCpp, kOllama, kLmStudio, kFolder };
// "weft", "hub", "llama.cpp", "ollama", "lm-studio", "folder".
std::string_view NameOf(Owner owner);

struct LocalModel {
  std::string name;  // by which -m finds it
  Owner owner = Owner::kFolder;
  std::string path;                // the first part
  std::vector<std::string> parts;  // all of them, `path` among them
  int64_t n_bytes = 0;
  std::string repo;          // "owner/repo", where that is known
  std::string file;          // the first part's path in the repository
  std::string quantization;  // by the file's name; empty: not told
  OllamaName ollama;         // of owner kOllama, and of what Weft has from there
  bool is_ollama = false;
  std::string parameters;       // Ollama's, as JSON
  std::string ollama_template;  // in Ollama's language
};

// In the order weft, hub, llama.cpp, ollama, lm-studio, folder, each by name. A file that
// two of them lead to is listed once.
std::vector<LocalModel> ListLocalModels(const Places& places);

// The models of `all` that `name` may mean, as positions: one whose name it is, else those
// whose name has it as a part, in any letter case.
std::vector<size_t> MatchLocalModels(std::span<const LocalModel> all, std::string_view name);
// The model of a repository that has the quantization or file wanted; -1: none.
int FindOfRepo(std::span<const LocalModel> all, const HubName& name);
int FindOfOllama(std::span<const LocalModel> all, const OllamaName& name);

StatusOr<ModelFacts> ReadModelFacts(const std::string& path);

}  // namespace weft::hub

#endif  // WEFT_HUB_LOCAL_MODELS_H_
