// Models in Ollama's layout, in its own folders and in Weft's folder of the same form:
//
//   manifests/HOST/SPACE/MODEL/TAG   JSON: layers with media types, digests and sizes
//   blobs/sha256-HEX                 their bytes
//
// Ollama's folders are never modified. Holds only the path; any thread.
#ifndef WEFT_MODEL_HUB_OLLAMA_STORE_H_
#define WEFT_MODEL_HUB_OLLAMA_STORE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "model/hub/names/model_name.h"

namespace weft::hub {

struct OllamaLayer {
  std::string kind;  // "model", "template", "params", "system", ...; "config"
  std::string hex;   // its SHA-256
  int64_t n_bytes = 0;
};

// Max size of a manifest: its values may take eighty times that memory.
inline constexpr size_t kMaxManifestBytes = size_t{256} << 10;

// The layers of a manifest, its configuration last. An error if it is not a manifest.
StatusOr<std::vector<OllamaLayer>> ParseOllamaManifest(std::string_view json);

class OllamaStore {
 public:
  explicit OllamaStore(std::string root) : root_(std::move(root)) {}

  struct Model {
    OllamaName name;
    std::string manifest;  // its path
    std::vector<OllamaLayer> layers;

    const OllamaLayer* Find(std::string_view kind) const;
  };
  // The models whose weights are present.
  std::vector<Model> Models() const;

  std::string BlobPath(const OllamaLayer& layer) const;
  std::string ManifestPath(const OllamaName& name) const;
  // The text of a small layer, such as the template; empty if there is none.
  std::string TextOf(const Model& model, std::string_view kind) const;
  // Removes a model and the blobs that no other model uses. REQUIRES: the folder is Weft's own.
  StatusOr<int64_t> Remove(const OllamaName& name) const;

 private:
  const std::string root_;
};

}  // namespace weft::hub

#endif  // WEFT_MODEL_HUB_OLLAMA_STORE_H_
