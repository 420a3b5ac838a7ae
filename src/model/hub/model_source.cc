#include "model/hub/model_source.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/files/mapped_file.h"
#include "base/log.h"
#include "base/strings.h"
#include "model/formats/model_file.h"
#include "model/hub/catalogue_load.h"
#include "model/hub/files.h"
#include "model/hub/hub_cache.h"
#include "model/hub/names/quantization.h"
#include "model/hub/ollama_store.h"
#include "model/hub/refusals.h"

namespace weft::hub {
namespace {

constexpr size_t kMaxCandidates = 8;

std::string NamesOf(std::span<const CatalogueEntry> catalogue) {
  std::vector<std::string> names;
  for (const CatalogueEntry& entry : catalogue) names.push_back(entry.name);
  return StrJoin(names, ", ");
}

// "Q4_K_M, Q8_0": the quantizations that a repository offers instead.
std::string OffersOf(std::span<const FileGroup> groups) {
  std::vector<std::string> names;
  for (const FileGroup& group : groups) {
    const std::string name = group.quantization.empty() ? group.name : group.quantization;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    if (names.size() == 24) break;
  }
  return Printable(StrJoin(names, ", "), 400);
}

StatusOr<FileGroup> ChooseFrom(std::span<const FileGroup> groups, const HubName& name,
                               const std::string& where) {
  if (groups.empty()) {
    return NotFound(where,
                    " contains no GGUF file: look for a repository of the same model whose name "
                    "ends with GGUF");
  }
  const int index = ChooseGroup(groups, name.wanted);
  if (index >= 0) return groups[static_cast<size_t>(index)];
  return NotFound(where, " has no ", Printable(name.wanted), ", it has ", OffersOf(groups));
}

// Checks a file from a URL that gave no checksum.
Status CheckModel(const std::string& path, const std::string& url) {
  const auto file = ModelFile::Open(path);
  if (file.ok()) return OkStatus();
  return FailedPrecondition("what ", Printable(HostOf(url), 200),
                            " sent is not a readable GGUF model: check that ", Printable(url, 300),
                            " is the URL of the file and not of a page about it; nothing was kept");
}

// Checks one part of a split model, which cannot be parsed alone.
Status CheckMagic(const std::string& path, const std::string& url) {
  char head[4] = {};
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.ok() && ReadAt(fd.get(), 0, std::as_writable_bytes(std::span(head)), path).ok() &&
      std::string_view(head, sizeof(head)) == "GGUF") {
    return OkStatus();
  }
  return FailedPrecondition("what ", Printable(HostOf(url), 200),
                            " sent is not a GGUF model: check ", Printable(url, 300),
                            "; nothing was kept");
}

// PathOfAddress; an error if the URL cannot name a file.
StatusOr<std::string> CheckedPath(const ModelName& name) {
  std::string path = PathOfAddress(name.text);
  if (!IsSafePath(path)) {
    return InvalidArgument("this is not the URL of a file: ", Printable(name.text, 200));
  }
  if (!name.sha256.empty() && !SplitParts(path).empty()) {
    return InvalidArgument("a split model has no single checksum: omit #sha256=");
  }
  return path;
}

WantedFile WantedOf(const std::string& url, const std::string& path, const std::string& sha256) {
  WantedFile wanted{.url = url,
                    .name = path.substr(path.rfind('/') + 1),
                    .path = path,
                    .gathering = path + ".incomplete",
                    .lock = path + ".lock",
                    .verify_kept = true};
  if (!sha256.empty()) wanted.checksum = {DigestKind::kSha256, sha256};
  return wanted;
}

// Several names of one file are not ambiguous.
Status CheckUnique(std::span<const LocalModel> all, const std::vector<size_t>& matches,
                   std::string_view what) {
  const auto real = [&](size_t i) { return RealPath(all[i].path); };
  if (std::all_of(matches.begin(), matches.end(),
                  [&](size_t i) { return real(i) == real(matches[0]); })) {
    return OkStatus();
  }
  std::vector<std::string> names;
  for (const size_t i : matches) {
    if (names.size() < kMaxCandidates) names.push_back(Printable(all[i].name, 200));
  }
  if (matches.size() > names.size()) {
    names.push_back(StrCat("and ", matches.size() - names.size(), " more"));
  }
  return InvalidArgument(Printable(what), " may be ", StrJoin(names, ", "),
                         ": give more of the name");
}

void TellMissingProjector(const std::string& file, const HubName& name, const Status& why) {
  LogLine(StrCat("the projector ", Printable(file, 200), " could not be downloaded, so ",
                 Printable(name.repo, 200),
                 " sees no pictures until 'weft pull' gets it: ", Message(why)));
}

// The options of each transfer, with its hooks.
HttpOptions HookedInto(HttpOptions http, const LoadHooks& hooks) {
  http.is_cancelled = hooks.is_cancelled;
  http.budget = hooks.budget;
  return http;
}

}  // namespace

std::string PathOfAddress(const std::string& url) {
  std::string origin = OriginOf(url);  // with the port, and in lower case
  if (const size_t at = origin.find("://"); at != origin.npos) origin.replace(at, 3, "-");
  if (const size_t at = origin.rfind(':'); at != origin.npos) origin[at] = '-';
  const size_t end = url.find_first_of("/?", url.find("://") + 3);
  if (origin.empty() || end == url.npos) return "";
  std::string path = url.substr(end);
  std::string query;
  if (const size_t at = path.find('?'); at != path.npos) {
    query = path.substr(at);
    path.resize(at);
  }
  for (size_t at = 0; (at = path.find(':', at)) != path.npos;) path.replace(at, 1, "%3A");
  const size_t slash = path.rfind('/');
  if (slash == path.npos || slash + 1 == path.size()) return "";
  std::string name = path.substr(slash + 1);
  if (!name.ends_with(".gguf")) {
    // The file of that name with the ending is another one.
    StrAppend(&query, "#", name);
    name += ".gguf";
  }
  StrAppend(&origin, path.substr(0, slash));
  if (!query.empty()) StrAppend(&origin, "/", Sha256Hex(query).substr(0, 16));
  return StrCat(origin, "/", name);
}

ModelSource::ModelSource(Places places, LoadHooks hooks, const HttpOptions& http,
                         std::span<const CatalogueEntry> catalogue)
    : places_(std::move(places)),
      hooks_(std::move(hooks)),
      http_(HookedInto(http, hooks_)),
      catalogue_(catalogue) {}

StatusOr<ModelName> ModelSource::Parse(std::string_view what) const {
  return ParseModelName(what, places_.hub_endpoint);
}

Status ModelSource::Offline(const std::string& what) const {
  return FailedPrecondition(Printable(what, 200),
                            " is not here, and HF_HUB_OFFLINE prevents downloading it: unset that, "
                            "or name a model that 'weft list' shows");
}

StatusOr<std::string> ModelSource::Find(std::string_view what) const {
  const std::string text(what);
  // An existing file takes precedence over any other meaning of its name.
  if (access(text.c_str(), F_OK) == 0) return text;
  WEFT_ASSIGN_OR_RETURN(const ModelName name, Parse(what));
  const auto local = FindLocal(what);
  if (local.ok()) return local->path;
  // Opening the file will report that it is missing.
  if (name.kind == ModelName::Kind::kFile) return text;
  if (local.status().code() != StatusCode::kNotFound) return local.status();
  return PullNamed(name);
}

StatusOr<std::string> ModelSource::Pull(std::string_view what) const {
  WEFT_ASSIGN_OR_RETURN(const ModelName name, Parse(what));
  if (name.kind == ModelName::Kind::kFile) {
    return InvalidArgument(Printable(what, 200),
                           " is a file, so there is nothing to download; use it with -m directly");
  }
  return PullNamed(name);
}

StatusOr<std::string> ModelSource::PullNamed(const ModelName& name) const {
  switch (name.kind) {
    case ModelName::Kind::kHub:
      return PullFromHub(name.hub);
    case ModelName::Kind::kOllama:
      return PullFromOllama(name.ollama);
    case ModelName::Kind::kAddress:
      return PullAddress(name);
    case ModelName::Kind::kPlain:
      return FindPlain(name.text);
    case ModelName::Kind::kFile:
      break;
  }
  return name.text;
}

StatusOr<LocalModel> ModelSource::FindLocal(std::string_view what) const {
  WEFT_ASSIGN_OR_RETURN(const ModelName name, Parse(what));
  const auto missing = [&] { return NotFound("there is no ", Printable(what, 200), " here"); };
  if (name.kind == ModelName::Kind::kHub && name.hub.revision != "main") {
    WEFT_ASSIGN_OR_RETURN(const std::string path, FindOfRevision(name.hub));
    return LocalModel{.name = name.text, .owner = Owner::kHub, .path = path};
  }
  if (name.kind == ModelName::Kind::kAddress) {
    WEFT_ASSIGN_OR_RETURN(const std::string inner, CheckedPath(name));
    const std::string path = StrCat(places_.own, "/files/", inner);
    if (FileBytes(path) < 0) return missing();
    WEFT_RETURN_IF_ERROR(VerifyKept(hooks_, WantedOf(name.text, path, name.sha256)));
    return LocalModel{.name = name.text, .owner = Owner::kWeft, .path = path};
  }
  const std::vector<LocalModel> all = ListLocalModels(places_);
  const std::vector<size_t> matches = MatchLocalModels(all, what);
  const bool is_name = !matches.empty() && EqualsIgnoringCase(all[matches[0]].name, what);
  int index = -1;
  if (is_name) {
    index = static_cast<int>(matches[0]);
  } else if (name.kind == ModelName::Kind::kHub) {
    index = FindOfRepo(all, name.hub);
    // Ollama's models with a namespace look like repositories: "team/coder:q4".
    const auto ollama = ParseOllamaName(what);
    if (index < 0 && ollama.ok()) index = FindOfOllama(all, *ollama);
  } else if (name.kind == ModelName::Kind::kOllama) {
    index = FindOfOllama(all, name.ollama);
  } else if (name.kind == ModelName::Kind::kPlain && !matches.empty() &&
             FindInCatalogue(catalogue_, what) == nullptr) {
    // A complete name in the catalogue means that entry, whether it is here or not.
    WEFT_RETURN_IF_ERROR(CheckUnique(all, matches, what));
    index = static_cast<int>(matches[0]);
  }
  if (index < 0) return missing();
  return all[static_cast<size_t>(index)];
}

StatusOr<std::string> ModelSource::FindOfRevision(const HubName& name) const {
  const HubCache::Snapshot snapshot =
      HubCache(places_.hub_cache).SnapshotOf(name.repo, name.revision);
  const std::vector<FileGroup> groups = GroupFiles(snapshot.files);
  const int index = ChooseGroup(groups, name.wanted);
  if (index < 0)
    return NotFound("there is no ", name.repo, " of revision ", name.revision, " here");
  return StrCat(snapshot.folder, "/", groups[static_cast<size_t>(index)].name);
}

StatusOr<std::string> ModelSource::FindPlain(const std::string& name) const {
  if (const CatalogueEntry* entry = FindInCatalogue(catalogue_, name)) {
    if (places_.offline && FileBytes(CataloguePath(places_, *entry)) < 0) return Offline(name);
    return LoadFromCatalogue(hooks_, places_, *entry);
  }
  return NotFound(
      "there is no file ", Printable(name, 200),
      ", no local model has that in its name ('weft list' shows them), and the catalogue has only ",
      NamesOf(catalogue_), "; owner/repo names one on the Hugging Face Hub");
}

StatusOr<std::string> ModelSource::PullFromHub(const HubName& name) const {
  if (places_.offline) return Offline(name.repo);
  WEFT_ASSIGN_OR_RETURN(const HubListing listing, ListHubFiles(http_, places_, name));
  std::vector<std::string> paths;
  for (const HubFile& file : listing.files) paths.push_back(file.path);
  const std::vector<FileGroup> groups = GroupFiles(paths);
  WEFT_ASSIGN_OR_RETURN(const FileGroup group, ChooseFrom(groups, name, name.repo));
  const HubCache cache(places_.hub_cache);
  const auto load = [&](size_t index) -> StatusOr<std::string> {
    const HubFile& file = listing.files[index];
    WEFT_ASSIGN_OR_RETURN(WantedFile wanted, cache.Place(name.repo, file));
    wanted.url = HubFileUrl(places_, name.repo, listing.commit, file.path);
    wanted.token = places_.hub_token;
    WEFT_RETURN_IF_ERROR(LoadFile(
        http_, hooks_, wanted,
        [&](const HttpAnswer& answer) { return RefusalOf(answer, HubWish(places_, name)); }, {}));
    return cache.Link(name.repo, listing.commit, file);
  };
  std::string first;
  for (const size_t index : group.parts) {
    WEFT_ASSIGN_OR_RETURN(const std::string path, load(index));
    if (first.empty()) first = path;
  }
  if (const int projector = ChooseProjector(paths, group.name); projector >= 0) {
    const Status loaded = load(static_cast<size_t>(projector)).status();
    if (loaded.code() == StatusCode::kCancelled) return loaded;
    // The model can be used without it.
    if (!loaded.ok()) TellMissingProjector(paths[static_cast<size_t>(projector)], name, loaded);
  }
  WEFT_RETURN_IF_ERROR(cache.WriteRef(name.repo, name.revision, listing.commit));
  return first;
}

StatusOr<std::string> ModelSource::PullFromOllama(const OllamaName& name) const {
  if (places_.offline) return Offline(StrCat("ollama:", name.Short()));
  const std::string registry =
      name.host == kOllamaHost ? places_.ollama_registry : StrCat("https://", name.host);
  const std::string base = StrCat(registry, "/v2/", name.space, "/", name.model);
  const auto refusal = [&](const HttpAnswer& answer) {
    return RefusalOf(answer, OllamaWish(name, registry));
  };
  WEFT_ASSIGN_OR_RETURN(
      const HttpAnswer answer,
      http_.FetchText({.url = StrCat(base, "/manifests/", name.tag),
                       .accept = "application/vnd.docker.distribution.manifest.v2+json"},
                      kMaxManifestBytes));
  if (answer.head.status != 200) return refusal(answer);
  WEFT_ASSIGN_OR_RETURN(const std::vector<OllamaLayer> layers, ParseOllamaManifest(answer.body));
  const OllamaStore store(places_.own + "/ollama");
  WEFT_RETURN_IF_ERROR(MakeFolders(places_.own));
  WEFT_RETURN_IF_ERROR(MakeFoldersWithin(places_.own, "ollama/blobs"));
  std::string weights;
  for (const OllamaLayer& layer : layers) {
    if (layer.kind == "adapter") {
      return Unimplemented("ollama:", name.Short(),
                           " is a model with an adapter, which is not supported");
    }
    // Image projectors are not used here, and are large.
    if (layer.kind == "projector") continue;
    const std::string blob = store.BlobPath(layer);
    if (layer.kind == "model") weights = blob;
    const std::string file =
        layer.kind == "model" ? StrCat("ollama:", name.Short()) : StrCat("its ", layer.kind);
    WEFT_RETURN_IF_ERROR(LoadFile(http_, hooks_,
                                  {.url = StrCat(base, "/blobs/sha256:", layer.hex),
                                   .name = file,
                                   .path = blob,
                                   .gathering = blob + ".incomplete",
                                   .lock = blob + ".lock",
                                   .n_bytes = layer.n_bytes,
                                   .checksum = {DigestKind::kSha256, layer.hex}},
                                  refusal, {}));
  }
  if (weights.empty())
    return NotFound("ollama:", name.Short(), " has no weights: it runs elsewhere");
  WEFT_RETURN_IF_ERROR(ReplaceFile(StrCat(places_.own, "/ollama/.manifest-", getpid()),
                                   store.ManifestPath(name), answer.body));
  return weights;
}

StatusOr<std::string> ModelSource::PullAddress(const ModelName& name) const {
  WEFT_ASSIGN_OR_RETURN(const std::string inner, CheckedPath(name));
  const std::string path = StrCat(places_.own, "/files/", inner);
  if (places_.offline && FileBytes(path) < 0) return Offline(name.text);
  const auto load = [&](const std::string& url, const std::string& to, bool is_part) {
    return LoadFile(
        http_, hooks_, WantedOf(url, to, name.sha256),
        [&](const HttpAnswer& answer) { return RefusalOf(answer, AddressWish(url)); },
        [&, is_part](const std::string& file) {
          return is_part ? CheckMagic(file, url) : CheckModel(file, url);
        });
  };
  // All parts of a split model have the first one's URL except for the number.
  const std::vector<std::string> parts = SplitParts(inner);
  if (parts.empty()) {
    WEFT_RETURN_IF_ERROR(load(name.text, path, false));
    return path;
  }
  const std::string first = inner.substr(inner.rfind('/') + 1);
  for (const std::string& part : parts) {
    std::string url = name.text;
    const std::string file = part.substr(part.rfind('/') + 1);
    if (const size_t at = url.rfind(first); at != url.npos) url.replace(at, first.size(), file);
    WEFT_RETURN_IF_ERROR(load(url, StrCat(places_.own, "/files/", part), true));
  }
  return path;
}

}  // namespace weft::hub
