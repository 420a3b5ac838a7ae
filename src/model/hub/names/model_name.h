// The ways to name a model, and their meanings.
//
//   models/tiny.gguf               a file
//   https://host/path/tiny.gguf    a URL; ...#sha256=HEX gives its checksum
//   owner/repo[@REVISION][:QUANT]  a repository of the hub; QUANT may be a file's name
//   ollama:qwen3:0.6b              a model of Ollama
//   smollm2                        a name in the catalogue, or of a local model
//
// Pure functions; any thread.
#ifndef WEFT_MODEL_HUB_NAMES_MODEL_NAME_H_
#define WEFT_MODEL_HUB_NAMES_MODEL_NAME_H_

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

  // As Ollama's commands show it, without default parts.
  std::string Short() const;
};

struct ModelName {
  enum class Kind { kFile, kAddress, kHub, kOllama, kPlain };
  Kind kind = Kind::kPlain;
  std::string text;    // as given; for a URL, without the '#' part
  std::string sha256;  // for a URL; may be empty
  HubName hub;
  OllamaName ollama;
};

// Does not check whether a file of that name exists, in which case the caller should prefer the
// file. URLs below `hub_endpoint` are converted to the repositories they name.
StatusOr<ModelName> ParseModelName(std::string_view text, std::string_view hub_endpoint);
// The same for arguments that can only be a repository of the hub.
StatusOr<HubName> ParseHubName(std::string_view text);
// Without the prefix "ollama:".
StatusOr<OllamaName> ParseOllamaName(std::string_view text);

// A path within a repository or cache that cannot lead outside.
bool IsSafePath(std::string_view path);

inline constexpr char kOllamaHost[] = "registry.ollama.ai";

}  // namespace weft::hub

#endif  // WEFT_MODEL_HUB_NAMES_MODEL_NAME_H_
