#include "model/hub/hub_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>

#include "base/files/mapped_file.h"
#include "model/hub/files.h"

namespace weft::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModels = "models--";
constexpr int kSnapshotDepth = 8;

// "owner/repo" of "models--owner--repo"; empty for other names.
std::string RepoOf(std::string_view folder) {
  if (!folder.starts_with(kModels)) return "";
  std::string repo(folder.substr(kModels.size()));
  if (const size_t at = repo.find("--"); at != repo.npos) repo.replace(at, 2, "/");
  return repo;
}

std::string TrimmedLine(std::string text) {
  text.erase(text.find_last_not_of(" \r\n") + 1);
  return text;
}

int64_t ChangedAt(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? info.st_mtime : 0;
}

}  // namespace

std::string HubCache::FolderOf(std::string_view repo) const {
  std::string name(repo);
  if (const size_t at = name.find('/'); at != name.npos) name.replace(at, 1, "--");
  return StrCat(root_, "/", kModels, name);
}

StatusOr<WantedFile> HubCache::Place(const std::string& repo, const HubFile& file) const {
  const std::string folder = FolderOf(repo);
  const std::string blob = StrCat(folder, "/blobs/", file.checksum.hex);
  WEFT_RETURN_IF_ERROR(MakeFolders(folder));
  WEFT_RETURN_IF_ERROR(MakeFoldersWithin(folder, "blobs"));
  WEFT_RETURN_IF_ERROR(
      MakeFoldersWithin(root_, StrCat(".locks/", fs::path(folder).filename().string())));
  return WantedFile{.name = file.path,
                    .path = blob,
                    .gathering = blob + ".incomplete",
                    .lock = StrCat(root_, "/.locks/", fs::path(folder).filename().string(), "/",
                                   file.checksum.hex, ".lock"),
                    .n_bytes = file.n_bytes,
                    .checksum = file.checksum};
}

StatusOr<std::string> HubCache::Link(const std::string& repo, const std::string& commit,
                                     const HubFile& file) const {
  const std::string path = StrCat(FolderOf(repo), "/snapshots/", commit, "/", file.path);
  const std::string inner = StrCat("snapshots/", commit, "/", file.path);
  WEFT_RETURN_IF_ERROR(MakeFoldersWithin(FolderOf(repo), inner.substr(0, inner.rfind('/'))));
  std::string target = "../../";
  for (auto n = std::count(file.path.begin(), file.path.end(), '/'); n > 0; --n) target += "../";
  StrAppend(&target, "blobs/", file.checksum.hex);
  std::error_code error;
  if (fs::read_symlink(path, error) == target && !error) return path;
  const std::string aside = StrCat(path, ".weft-", getpid());
  unlink(aside.c_str());
  if (symlink(target.c_str(), aside.c_str()) != 0) return WriteError(errno, path);
  if (std::rename(aside.c_str(), path.c_str()) == 0) return path;
  const int rename_error = errno;
  unlink(aside.c_str());
  return WriteError(rename_error, path);
}

Status HubCache::WriteRef(const std::string& repo, const std::string& revision,
                          const std::string& commit) const {
  // A commit needs no ref.
  if (revision == commit) return OkStatus();
  const std::string path = StrCat(FolderOf(repo), "/refs/", revision);
  if (const auto now = ReadFile(path, 4096); now.ok() && TrimmedLine(*now) == commit) {
    return OkStatus();
  }
  const std::string inner = StrCat("refs/", revision);
  WEFT_RETURN_IF_ERROR(MakeFoldersWithin(FolderOf(repo), inner.substr(0, inner.rfind('/'))));
  return ReplaceFile(StrCat(FolderOf(repo), "/.ref-", getpid()), path, commit);
}

std::vector<HubCache::Snapshot> HubCache::Snapshots() const {
  std::vector<Snapshot> all;
  for (const std::string& name : FoldersIn(root_, /*with_links=*/true)) {
    const std::string repo = RepoOf(name);
    if (repo.empty()) continue;
    const std::string folder = StrCat(root_, "/", name);
    if (!CheckLinks(repo).ok()) continue;
    const auto main = ReadFile(folder + "/refs/main", 4096);
    std::vector<Snapshot> snapshots;
    for (const std::string& commit : FoldersIn(folder + "/snapshots", /*with_links=*/false)) {
      Snapshot snapshot{.repo = repo, .folder = StrCat(folder, "/snapshots/", commit)};
      snapshot.is_main = main.ok() && TrimmedLine(*main) == commit;
      snapshot.files = FilesBelow(snapshot.folder, kSnapshotDepth);
      if (!snapshot.files.empty()) snapshots.push_back(std::move(snapshot));
    }
    std::stable_sort(snapshots.begin(), snapshots.end(), [](const auto& a, const auto& b) {
      if (a.is_main != b.is_main) return a.is_main;
      return ChangedAt(a.folder) > ChangedAt(b.folder);
    });
    std::move(snapshots.begin(), snapshots.end(), std::back_inserter(all));
  }
  return all;
}

HubCache::Snapshot HubCache::SnapshotOf(const std::string& repo,
                                        const std::string& revision) const {
  const std::string folder = FolderOf(repo);
  const auto ref = ReadFile(StrCat(folder, "/refs/", revision), 4096);
  const std::string commit = ref.ok() ? TrimmedLine(*ref) : revision;
  Snapshot snapshot{.repo = repo, .folder = StrCat(folder, "/snapshots/", commit)};
  const bool is_followed = CheckLinks(repo).ok() && !IsLink(snapshot.folder);
  if (IsSafePath(commit) && is_followed)
    snapshot.files = FilesBelow(snapshot.folder, kSnapshotDepth);
  return snapshot;
}

Status HubCache::CheckLinks(const std::string& repo) const {
  for (const char* const inner : {"/blobs", "/snapshots"}) {
    const std::string path = FolderOf(repo) + inner;
    if (IsLink(path)) return NotFollowed(path);
  }
  return OkStatus();
}

StatusOr<int64_t> HubCache::Remove(const std::string& repo,
                                   const std::vector<std::string>& files) const {
  WEFT_RETURN_IF_ERROR(CheckLinks(repo));
  const std::string folder = FolderOf(repo);
  const std::string blobs = RealPath(folder + "/blobs") + "/";
  std::set<std::string> dropped, kept;
  for (const std::string& commit : FoldersIn(folder + "/snapshots", /*with_links=*/false)) {
    const std::string snapshot = StrCat(folder, "/snapshots/", commit);
    for (const std::string& file : FilesBelow(snapshot, kSnapshotDepth)) {
      const std::string path = StrCat(snapshot, "/", file);
      const std::string blob = RealPath(path);
      if (std::find(files.begin(), files.end(), file) == files.end()) {
        kept.insert(blob);
        continue;
      }
      std::error_code error;
      if (fs::is_symlink(path, error)) {
        if (unlink(path.c_str()) != 0) return ErrnoStatus(errno, path);
        // Link targets outside are not part of this cache.
        if (blob.starts_with(blobs)) dropped.insert(blob);
      } else {
        dropped.insert(blob);
      }
    }
  }
  int64_t freed = 0;
  for (const std::string& blob : dropped) {
    if (kept.contains(blob)) continue;
    const int64_t bytes = FileBytes(blob);
    if (unlink(blob.c_str()) != 0) return ErrnoStatus(errno, blob);
    freed += std::max<int64_t>(0, bytes);
  }
  // Remove empty folders, the deepest first; others stay.
  std::error_code error;
  std::vector<fs::path> folders;
  fs::recursive_directory_iterator it(folder + "/snapshots", error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    if (it->is_directory(error) && !it->is_symlink(error)) folders.push_back(it->path());
  }
  std::sort(folders.rbegin(), folders.rend());
  for (const fs::path& path : folders) rmdir(path.c_str());
  return freed;
}

}  // namespace weft::hub
