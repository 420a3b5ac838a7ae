#include "cli/serve/model_shelf.h"

#include <utility>

#include "base/log.h"
#include "base/strings.h"
#include "model/head_spec.h"

namespace weft::cli {
namespace {

// What a model in memory depends on besides its file.
std::string KeyOf(const std::string& path, const ModelFlags& flags) {
  std::string adapters;
  for (const AdapterFlag& adapter : flags.adapters) {
    StrAppend(&adapters, "\n", adapter.name, "=", adapter.path);
  }
  return StrCat(path, adapters, "\n", flags.backend, " ", flags.device, " ", flags.gpu_layers, " ",
                flags.expert_layers, " ", flags.strict_bits, " ", flags.threads, " ", flags.context,
                " ", flags.pooling, " ", flags.spec_path);
}

}  // namespace

std::shared_ptr<const Model> ModelShelf::Find(const std::string& key) {
  MutexLock lock(&mutex_);
  const auto it = models_.find(key);
  return it == models_.end() ? nullptr : it->second.lock();
}

void ModelShelf::Put(const std::string& key, const std::shared_ptr<const Model>& model) {
  MutexLock lock(&mutex_);
  models_[key] = model;
}

StatusOr<std::shared_ptr<const Model>> ModelShelf::Load(
    const ModelFlags& flags, std::shared_ptr<const ModelFile> file,
    const std::function<void(double fraction)>& told) {
  const std::string key = KeyOf(file->path(), flags);
  if (auto model = Find(key); model != nullptr && model->CheckFile().ok()) return model;
  WEFT_ASSIGN_OR_RETURN(auto model, LoadFlaggedModel(flags, std::move(file), told));
  LogLine(StrCat("loaded ", Printable(model->name(), 200), ": ", model->loading()));
  Put(key, model);
  return model;
}

StatusOr<std::shared_ptr<const Model>> ModelShelf::LoadDraft(const ModelFlags& flags,
                                                             const Model& model) {
  if (flags.draft_path.empty()) return LoadFlaggedDraft(flags, model);
  // A draft model is loaded as its file says.
  ModelFlags draft = flags;
  draft.path = flags.draft_path;
  draft.spec_path.clear();
  draft.context = 0;
  draft.pooling.clear();
  draft.adapters.clear();
  const auto file = OpenFlaggedFile(draft);
  WEFT_RETURN_IF_ERROR(Annotate(file.status(), "the draft model: "));
  // A head belongs to one model.
  if (IsHeadFile(**file)) return LoadFlaggedDraft(flags, model);
  const std::string key = KeyOf((*file)->path(), draft);
  if (auto found = Find(key); found != nullptr && found->CheckFile().ok()) return found;
  WEFT_ASSIGN_OR_RETURN(auto loaded, LoadFlaggedDraft(flags, model));
  Put(key, loaded);
  return loaded;
}

}  // namespace weft::cli
