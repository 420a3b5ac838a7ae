#include "model/hub/ollama_store.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/files/mapped_file.h"
#include "model/hub/files.h"
#include "model/hub/names/digest.h"
#include "model/hub/net/download.h"
#include "nlohmann/json.hpp"

namespace weft::hub {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxTextBytes = size_t{1} << 20;
constexpr size_t kMaxLayers = 64;
constexpr std::string_view kMediaType = "application/vnd.ollama.image.";

bool ReadLayer(const Json& json, OllamaLayer* layer) {
  if (!json.is_object()) return false;
  const auto digest = json.find("digest"), size = json.find("size");
  if (digest == json.end() || !digest->is_string() || size == json.end() ||
      !size->is_number_integer()) {
    return false;
  }
  const std::string text = digest->get<std::string>();
  layer->n_bytes = size->get<int64_t>();
  if (!text.starts_with("sha256:") || layer->n_bytes < 0) return false;
  layer->hex = text.substr(7);
  const auto type = json.find("mediaType");
  if (type != json.end() && type->is_string()) {
    layer->kind = type->get<std::string>();
    if (layer->kind.starts_with(kMediaType)) layer->kind.erase(0, kMediaType.size());
  }
  return IsHex(layer->hex, 64);
}

}  // namespace

StatusOr<std::vector<OllamaLayer>> ParseOllamaManifest(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto wrong = [] { return FailedPrecondition("this is not a manifest of an Ollama model"); };
  if (!json.is_object()) return wrong();
  const auto list = json.find("layers");
  if (list == json.end() || !list->is_array() || list->size() > kMaxLayers) return wrong();
  std::vector<OllamaLayer> layers;
  for (const Json& item : *list) {
    OllamaLayer layer;
    if (!ReadLayer(item, &layer)) return wrong();
    layers.push_back(layer);
  }
  OllamaLayer config;
  if (const auto it = json.find("config"); it != json.end() && ReadLayer(*it, &config)) {
    config.kind = "config";
    layers.push_back(config);
  }
  return layers;
}

const OllamaLayer* OllamaStore::Model::Find(std::string_view kind) const {
  const auto it = std::find_if(layers.begin(), layers.end(),
                               [&](const OllamaLayer& layer) { return layer.kind == kind; });
  return it == layers.end() ? nullptr : &*it;
}

std::string OllamaStore::BlobPath(const OllamaLayer& layer) const {
  return StrCat(root_, "/blobs/sha256-", layer.hex);
}

std::string OllamaStore::ManifestPath(const OllamaName& name) const {
  return StrCat(root_, "/manifests/", name.host, "/", name.space, "/", name.model, "/", name.tag);
}

std::vector<OllamaStore::Model> OllamaStore::Models() const {
  std::vector<Model> models;
  constexpr int kDepth = 3;
  for (const std::string& file : FilesBelow(root_ + "/manifests", kDepth)) {
    const std::vector<std::string_view> parts = StrSplit(file, '/');
    if (parts.size() != 4) continue;
    Model model{.name = {.host = std::string(parts[0]),
                         .space = std::string(parts[1]),
                         .model = std::string(parts[2]),
                         .tag = std::string(parts[3])},
                .manifest = StrCat(root_, "/manifests/", file)};
    const auto text = ReadFile(model.manifest, kMaxManifestBytes);
    if (!text.ok()) continue;
    auto layers = ParseOllamaManifest(*text);
    if (!layers.ok()) continue;
    model.layers = *std::move(layers);
    const OllamaLayer* const weights = model.Find("model");
    if (weights == nullptr || FileBytes(BlobPath(*weights)) < 0) continue;
    models.push_back(std::move(model));
  }
  return models;
}

std::string OllamaStore::TextOf(const Model& model, std::string_view kind) const {
  const OllamaLayer* const layer = model.Find(kind);
  if (layer == nullptr) return "";
  const auto text = ReadFile(BlobPath(*layer), kMaxTextBytes);
  return text.ok() ? *text : "";
}

StatusOr<int64_t> OllamaStore::Remove(const OllamaName& name) const {
  if (IsLink(root_ + "/blobs")) return NotFollowed(root_ + "/blobs");
  const std::string path = ManifestPath(name);
  const auto text = ReadFile(path, kMaxManifestBytes);
  WEFT_RETURN_IF_ERROR(text.status());
  WEFT_ASSIGN_OR_RETURN(const std::vector<OllamaLayer> layers, ParseOllamaManifest(*text));
  if (unlink(path.c_str()) != 0) return ErrnoStatus(errno, path);
  std::set<std::string> kept;
  for (const Model& other : Models()) {
    for (const OllamaLayer& layer : other.layers) kept.insert(layer.hex);
  }
  int64_t freed = 0;
  for (const OllamaLayer& layer : layers) {
    const std::string blob = BlobPath(layer);
    const int64_t bytes = FileBytes(blob);
    if (bytes < 0 || kept.contains(layer.hex)) continue;
    if (unlink(blob.c_str()) != 0) return ErrnoStatus(errno, blob);
    freed += bytes;
  }
  return freed;
}

}  // namespace weft::hub
