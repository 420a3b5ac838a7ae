#include "model/hub/local_models.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "model/formats/model_file.h"
#include "model/hub/catalogue_load.h"
#include "model/hub/files.h"
#include "model/hub/hub_cache.h"
#include "model/hub/names/catalogue.h"
#include "model/hub/names/quantization.h"
#include "model/hub/ollama_store.h"

namespace weft::hub {
namespace {

constexpr int kFolderDepth = 4;

class Lister {
 public:
  explicit Lister(const Places& places) : places_(places) {}

  std::vector<LocalModel> Run() {
    AddOwn();
    AddHub();
    AddLlamaCpp();
    for (const std::string& folder : places_.ollama_folders) AddOllama(folder, Owner::kOllama);
    for (const std::string& folder : places_.lm_studio_folders) AddLmStudio(folder);
    if (!places_.models_folder.empty()) AddFolder(places_.models_folder, Owner::kFolder);
    return std::move(models_);
  }

 private:
  // Adds a model whose parts are present, unless an earlier folder had it.
  void Add(LocalModel model);
  // Sorts the models added from `first` on, and disambiguates equal names.
  void Settle(size_t first);
  void AddOwn();
  void AddHub();
  void AddLlamaCpp();
  void AddOllama(const std::string& folder, Owner owner);
  void AddLmStudio(const std::string& folder);
  void AddFolder(const std::string& folder, Owner owner);

  const Places& places_;
  std::vector<LocalModel> models_;
  std::set<std::string> seen_;  // real paths already listed
};

void Lister::Add(LocalModel model) {
  for (const std::string& part : model.parts) {
    const int64_t bytes = FileBytes(part);
    if (bytes < 0) return;
    model.n_bytes += bytes;
  }
  model.path = model.parts.front();
  if (!seen_.contains(RealPath(model.path))) models_.push_back(std::move(model));
}

void Lister::Settle(size_t first) {
  const auto begin = models_.begin() + static_cast<int64_t>(first);
  std::map<std::string, int> names;
  for (auto it = begin; it != models_.end(); ++it) {
    ++names[it->name];
    seen_.insert(RealPath(it->path));
  }
  for (auto it = begin; it != models_.end(); ++it) {
    if (names[it->name] > 1 && !it->repo.empty()) it->name = StrCat(it->repo, ":", it->file);
  }
  std::stable_sort(begin, models_.end(),
                   [](const LocalModel& a, const LocalModel& b) { return a.name < b.name; });
}

std::string RepoName(const std::string& repo, const FileGroup& group) {
  return StrCat(repo, ":", group.quantization.empty() ? group.name : group.quantization);
}

std::vector<std::string> PartsOf(const std::string& folder, const std::vector<std::string>& files,
                                 const FileGroup& group) {
  std::vector<std::string> parts;
  for (const size_t index : group.parts) parts.push_back(StrCat(folder, "/", files[index]));
  return parts;
}

std::string StemOf(const std::string& file) { return file.substr(0, file.size() - 5); }

void Lister::AddOwn() {
  for (const CatalogueEntry& entry : Catalogue()) {
    Add({.name = entry.name, .owner = Owner::kWeft, .parts = {CataloguePath(places_, entry)}});
  }
  AddFolder(places_.own + "/files", Owner::kWeft);
  AddOllama(places_.own + "/ollama", Owner::kWeft);
  Settle(0);
}

void Lister::AddHub() {
  const size_t first = models_.size();
  std::set<std::string> listed;  // repository and file, from an earlier snapshot
  for (const HubCache::Snapshot& snapshot : HubCache(places_.hub_cache).Snapshots()) {
    for (const FileGroup& group : GroupFiles(snapshot.files)) {
      if (!listed.insert(StrCat(snapshot.repo, ":", group.name)).second) continue;
      Add({.name = RepoName(snapshot.repo, group),
           .owner = Owner::kHub,
           .parts = PartsOf(snapshot.folder, snapshot.files, group),
           .repo = snapshot.repo,
           .file = group.name,
           .quantization = group.quantization});
    }
  }
  Settle(first);
}

// Its files are named OWNER_REPO_FILE; "manifest=OWNER=REPO=TAG.json" next to them lists the
// repositories.
void Lister::AddLlamaCpp() {
  const size_t first = models_.size();
  const std::vector<std::string> files = FilesBelow(places_.llama_cpp_cache, 0);
  std::map<std::string, std::string> repos;  // by the prefix of the files' names
  for (const std::string& file : files) {
    const std::vector<std::string_view> parts = StrSplit(file, '=');
    if (parts.size() != 4 || parts[0] != "manifest") continue;
    repos[StrCat(parts[1], "_", parts[2], "_")] = StrCat(parts[1], "/", parts[2]);
  }
  for (const FileGroup& group : GroupFiles(files)) {
    LocalModel model{.name = StemOf(group.name),
                     .owner = Owner::kLlamaCpp,
                     .parts = PartsOf(places_.llama_cpp_cache, files, group),
                     .quantization = group.quantization};
    for (const auto& [prefix, repo] : repos) {
      if (!group.name.starts_with(prefix)) continue;
      FileGroup named = group;
      named.name = group.name.substr(prefix.size());
      model.name = RepoName(repo, named);
      model.repo = repo;
      model.file = named.name;
    }
    Add(std::move(model));
  }
  Settle(first);
}

void Lister::AddOllama(const std::string& folder, Owner owner) {
  const size_t first = models_.size();
  const OllamaStore store(folder);
  for (const OllamaStore::Model& model : store.Models()) {
    std::vector<std::string> kinds;
    for (const OllamaLayer& layer : model.layers) kinds.push_back(layer.kind);
    Add({.name = StrCat("ollama:", model.name.Short()),
         .owner = owner,
         .parts = {store.BlobPath(*model.Find("model"))},
         .ollama = model.name,
         .is_ollama = true,
         .parameters = store.TextOf(model, "params"),
         .ollama_kinds = std::move(kinds)});
  }
  Settle(first);
}

void Lister::AddLmStudio(const std::string& folder) {
  const size_t first = models_.size();
  const std::vector<std::string> files = FilesBelow(folder, kFolderDepth);
  for (const FileGroup& group : GroupFiles(files)) {
    LocalModel model{.name = StemOf(group.name),
                     .owner = Owner::kLmStudio,
                     .parts = PartsOf(folder, files, group),
                     .quantization = group.quantization};
    const std::vector<std::string_view> parts = StrSplit(group.name, '/');
    if (parts.size() >= 3) {
      model.repo = StrCat(parts[0], "/", parts[1]);
      FileGroup named = group;
      named.name = group.name.substr(model.repo.size() + 1);
      model.file = named.name;
      model.name = RepoName(model.repo, named);
    }
    Add(std::move(model));
  }
  Settle(first);
}

void Lister::AddFolder(const std::string& folder, Owner owner) {
  const size_t first = models_.size();
  const std::vector<std::string> files =
      FilesBelow(folder, owner == Owner::kWeft ? 32 : kFolderDepth);
  for (const FileGroup& group : GroupFiles(files)) {
    Add({.name = StemOf(group.name),
         .owner = owner,
         .parts = PartsOf(folder, files, group),
         .quantization = group.quantization});
  }
  Settle(first);
}

}  // namespace

std::string_view NameOf(Owner owner) {
  switch (owner) {
    case Owner::kWeft:
      return "weft";
    case Owner::kHub:
      return "hub";
    case Owner::kLlamaCpp:
      return "llama.cpp";
    case Owner::kOllama:
      return "ollama";
    case Owner::kLmStudio:
      return "lm-studio";
    case Owner::kFolder:
      return "folder";
  }
  return "";
}

std::vector<LocalModel> ListLocalModels(const Places& places) { return Lister(places).Run(); }

std::vector<size_t> MatchLocalModels(std::span<const LocalModel> all, std::string_view name) {
  const std::string wanted = AsciiLower(name);
  std::vector<size_t> whole, part;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string candidate = AsciiLower(all[i].name);
    if (candidate == wanted) {
      whole.push_back(i);
    } else if (candidate.find(wanted) != candidate.npos) {
      part.push_back(i);
    }
  }
  return whole.empty() ? part : whole;
}

int FindOfRepo(std::span<const LocalModel> all, const HubName& name) {
  // Try the owners in turn: the hub's cache comes first.
  for (const Owner owner : {Owner::kHub, Owner::kLlamaCpp, Owner::kLmStudio}) {
    std::vector<FileGroup> groups;
    std::vector<int> positions;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].owner != owner || !EqualsIgnoringCase(all[i].repo, name.repo)) continue;
      groups.push_back({.name = all[i].file, .quantization = all[i].quantization});
      positions.push_back(static_cast<int>(i));
    }
    const int index = ChooseGroup(groups, name.wanted);
    if (index >= 0) return positions[static_cast<size_t>(index)];
  }
  return -1;
}

int FindOfOllama(std::span<const LocalModel> all, const OllamaName& name) {
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].is_ollama && EqualsIgnoringCase(all[i].ollama.Short(), name.Short())) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

StatusOr<ModelFacts> ReadModelFacts(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const auto file, ModelFile::Open(path));
  return FactsOf(*file);
}

}  // namespace weft::hub
