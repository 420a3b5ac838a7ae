#include "model/hub/remove_model.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "model/hub/files.h"
#include "model/hub/hub_cache.h"
#include "model/hub/names/quantization.h"
#include "model/hub/net/kept_digest.h"
#include "model/hub/ollama_store.h"

namespace weft::hub {
namespace {

std::string HowToRemove(const LocalModel& model) {
  switch (model.owner) {
    case Owner::kOllama:
      return StrCat("belongs to Ollama: remove it with 'ollama rm ", model.ollama.Short(), "'");
    case Owner::kLmStudio:
      return "belongs to LM Studio: remove it there";
    case Owner::kLlamaCpp:
      return StrCat("belongs to llama.cpp: remove ", Printable(model.path, 300), " yourself");
    default:
      return StrCat("is your own file: remove ", Printable(model.path, 300), " yourself");
  }
}

// Adds the repository's projectors, if no model is left that they belong to.
void AddProjectors(const HubCache& cache, const std::string& repo,
                   std::vector<std::string>* files) {
  std::vector<std::string> projectors;
  for (const HubCache::Snapshot& snapshot : cache.Snapshots()) {
    if (snapshot.repo != repo) continue;
    for (const std::string& file : snapshot.files) {
      if (IsModelFile(file) && std::ranges::count(*files, file) == 0) return;
      if (IsProjectorFile(file)) projectors.push_back(file);
    }
  }
  files->insert(files->end(), projectors.begin(), projectors.end());
}

}  // namespace

StatusOr<LocalModel> FindToRemove(const ModelSource& source, std::string_view name) {
  // What the file should be is no reason to keep it.
  auto found =
      source.FindLocal(name.find("://") == name.npos ? name : name.substr(0, name.find('#')));
  if (found.status().code() == StatusCode::kNotFound) {
    return NotFound("there is no model ", Printable(name, 200),
                    " here: 'weft list' shows the models");
  }
  WEFT_RETURN_IF_ERROR(found.status());
  LocalModel model = *std::move(found);
  if (model.owner == Owner::kHub && model.file.empty()) {
    return InvalidArgument(
        "a model is removed from all revisions at once: omit @ and what follows");
  }
  if (model.owner != Owner::kWeft && model.owner != Owner::kHub) {
    return FailedPrecondition(Printable(model.name, 200), " ", HowToRemove(model));
  }
  if (model.parts.empty()) {
    // Downloaded from a URL; its parts have not been listed yet.
    const std::vector<std::string> parts = SplitParts(model.path);
    model.parts = parts.empty() ? std::vector<std::string>{model.path} : parts;
    for (const std::string& part : model.parts) {
      model.n_bytes += std::max<int64_t>(0, FileBytes(part));
    }
  }
  return model;
}

StatusOr<int64_t> RemoveModel(const Places& places, const LocalModel& model) {
  if (model.owner == Owner::kHub) {
    const HubCache cache(places.hub_cache);
    std::vector<std::string> files = SplitParts(model.file);
    if (files.empty()) files.push_back(model.file);
    AddProjectors(cache, model.repo, &files);
    return cache.Remove(model.repo, files);
  }
  if (model.is_ollama) return OllamaStore(places.own + "/ollama").Remove(model.ollama);
  int64_t freed = 0;
  for (const std::string& part : model.parts) {
    const int64_t bytes = FileBytes(part);
    if (bytes < 0) continue;
    if (unlink(part.c_str()) != 0) return ErrnoStatus(errno, part);
    unlink((part + ".lock").c_str());
    unlink(KeptDigestPath(part).c_str());
    freed += bytes;
  }
  return freed;
}

}  // namespace weft::hub
