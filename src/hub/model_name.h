// What a person may say where a model is wanted, and what is meant by it.
//
//   models/tiny.gguf               a file
//   https://host/path/tiny.gguf    an address; ...#sha256=HEX says what it must be
//   owner/repo[@REVISION][:QUANT]  a repository of the hub; QUANT may be a file's name
//   ollama:qwen3:0.6b              a model of Ollama
//   smollm2                        a name of the catalogue, or of a model that is here
//
// Pure functions; any thread.
#ifndef WEFT_HUB_MODEL_NAME_H_
#define WEFT_HUB_MODEL_NAME_H_

#include <string>
#include <string_view>

#include "base/status.h"

namespace weft::hub {

struct HubName {
  std::string repo;               // "owner/repo"
  std::string revision = "main";  // a branch, a tag, a commit
  std::string wanted;             // a quantization or a file; empty: the usual one
};

struct OllamaName {
  std::string host;  // "registry.ollama.ai"
  std::string space = "library";
  std::string model;
  std::string tag = "latest";

  // As Ollama's commands show it: what is usual is left out.
  std::string Short() const;
};

struct ModelName {
  enum class Kind { kFile, kAddress, kHub, kOllama, kPlain };
  Kind kind = Kind::kPlain;
  std::string text;    // as it was said; of an address without what follows '#'
  std::string sha256;  // of an address; empty: not told
  HubName hub;
  OllamaName ollama;
};

// Does not look whether a file of that name is there: `text` may be meant so whatever it looks
// like. Addresses below `hub_endpoint` are read as what they name there.
StatusOr<ModelName> ParseModelName(std::string_view text, std::string_view hub_endpoint);
// The same where only a repository of the hub can be meant.
StatusOr<HubName> ParseHubName(std::string_view text);
// Without "ollama:".
StatusOr<OllamaName> ParseOllamaName(std::string_view text);

// A path within a repository or cache that leads nowhere else.
bool IsSafePath(std::string_view path);

inline constexpr char kOllamaHost[] = "registry.ollama.ai";

}  // namespace weft::hub

#endif  // WEFT_HUB_MODEL_NAME_H_
