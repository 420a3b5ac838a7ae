#include "model/hub/net/download.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/files/file_io.h"
#include "base/files/mapped_file.h"
#include "base/system.h"
#include "model/hub/net/kept_digest.h"

namespace weft::hub {
namespace {

namespace fs = std::filesystem;

constexpr int kWaitMs = 200;
constexpr int kFirstPauseMs = 500;
// After a failure that followed some progress.
constexpr int kShortPauseMs = 100;
constexpr int kLongestPauseMs = 8000;
// Reserved on the disk for other programs.
constexpr int64_t kReserveBytes = int64_t{64} << 20;
constexpr size_t kTagBytes = 1024;

int64_t SizeOf(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) ? info.st_size : -1;
}

std::string FolderOf(const std::string& path) { return fs::path(path).parent_path().string(); }

Status OpenError(int error_number, const std::string& path) {
  return error_number == ELOOP ? NotFollowed(path) : WriteError(error_number, path);
}

// Writes a file that did not exist.
Status WriteNewFile(const std::string& path, std::string_view text) {
  unlink(path.c_str());
  const FileDescriptor fd(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!fd.ok()) return OpenError(errno, path);
  while (!text.empty()) {
    const ssize_t n = write(fd.get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return WriteError(n < 0 ? errno : ENOSPC, path);
    text.remove_prefix(static_cast<size_t>(n));
  }
  return OkStatus();
}

Status CheckWanted(const LoadHooks& hooks) {
  if (!hooks.is_cancelled || !hooks.is_cancelled()) return OkStatus();
  return Cancelled("the download is no longer wanted; the part received so far is kept");
}

// Whether the text is a strong entity tag.
bool IsTag(std::string_view text) {
  return text.size() > 1 && text.size() < kTagBytes && text.starts_with('"') &&
         text.ends_with('"') &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c != 127; });
}

// The partial file and its known properties. Add receives the bytes in order.
class Gathering : public HttpSink {
 public:
  Gathering(const LoadHooks& hooks, const WantedFile& wanted)
      : hooks_(hooks), wanted_(wanted), total_(wanted.n_bytes) {}

  // Opens the partial file and reads its contents.
  Status Open();
  Status Restart();
  bool IsWhole() const { return total_ >= 0 && have_ == total_; }
  int64_t have() const { return have_; }
  bool resumed() const { return resumed_; }
  // The server's answers contradict those properties.
  bool is_spoilt() const { return is_spoilt_; }
  const std::string& tag() const { return tag_; }
  std::string Finish() { return digest_->Finish(); }
  Status Sync();

  Status Begin(const HttpHead& head) override;
  Status Add(std::span<const std::byte> bytes) override;

 private:
  Status ReadOld();
  Status TakeTotal(int64_t total);
  void Tell(Progress::Stage stage) const;
  // Where the entity tag of the collected bytes is stored: without a checksum, only bytes of the
  // same version may be appended.
  std::string TagPath() const { return wanted_.gathering + ".etag"; }

  const LoadHooks& hooks_;
  const WantedFile& wanted_;
  FileDescriptor fd_;
  int64_t total_;
  int64_t have_ = 0;
  bool resumed_ = false;
  bool is_spoilt_ = false;
  std::string tag_;
  std::optional<Digest> digest_;
};

void Gathering::Tell(Progress::Stage stage) const {
  if (!hooks_.progress) return;
  const Checksum& checksum = wanted_.checksum;
  hooks_.progress({stage, wanted_.name, have_, total_,
                   checksum.kind == DigestKind::kSha256 ? checksum.hex : ""});
}

Status Gathering::Open() {
  fd_ = FileDescriptor(
      open(wanted_.gathering.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!fd_.ok()) return OpenError(errno, wanted_.gathering);
  const int64_t size = std::max<int64_t>(0, SizeOf(wanted_.gathering));
  if (wanted_.checksum.kind == DigestKind::kNone) {
    const auto tag = ReadFile(TagPath(), kTagBytes);
    // The tag is sent to the server, so it must not be the content of a linked file.
    if (tag.ok() && !IsLink(TagPath()) && IsTag(*tag)) tag_ = *tag;
    if (tag_.empty() && size > 0) return Restart();
  }
  if (total_ >= 0 && size > total_) return Restart();
  digest_.emplace(wanted_.checksum.kind, total_);
  have_ = size;
  resumed_ = size > 0;
  return resumed_ && wanted_.checksum.kind != DigestKind::kNone ? ReadOld() : OkStatus();
}

Status Gathering::ReadOld() {
  std::vector<std::byte> buffer(size_t{4} << 20);
  const int64_t size = have_;
  for (have_ = 0; have_ < size;) {
    const std::span part(buffer.data(),
                         std::min<size_t>(buffer.size(), static_cast<size_t>(size - have_)));
    WEFT_RETURN_IF_ERROR(ReadAt(fd_.get(), static_cast<uint64_t>(have_), part, wanted_.gathering));
    digest_->Update(part);
    have_ += std::ssize(part);
    Tell(Progress::Stage::kChecking);
  }
  return OkStatus();
}

Status Gathering::Restart() {
  if (ftruncate(fd_.get(), 0) != 0) return WriteError(errno, wanted_.gathering);
  unlink(TagPath().c_str());
  tag_.clear();
  have_ = 0;
  resumed_ = false;
  digest_.emplace(wanted_.checksum.kind, total_);
  return OkStatus();
}

Status Gathering::TakeTotal(int64_t total) {
  if (total < 0) {
    return FailedPrecondition(Printable(HostOf(wanted_.url), 200), " does not say how large ",
                              Printable(wanted_.name, 200),
                              " is: download it with another program and give its path");
  }
  if (wanted_.n_bytes >= 0 && total != wanted_.n_bytes) {
    is_spoilt_ = true;
    return FailedPrecondition(
        Printable(wanted_.name, 200), " should have ", wanted_.n_bytes, " bytes, but ",
        Printable(HostOf(wanted_.url), 200), " has ", total,
        ": it is being changed there, or its size is wrong; nothing was kept");
  }
  if (have_ > 0 && total_ >= 0 && total != total_) {
    return DataLoss(Printable(wanted_.name, 200), " has changed on the server: try again");
  }
  total_ = total;
  if (hooks_.budget != nullptr) WEFT_RETURN_IF_ERROR(hooks_.budget->Check(total_ - have_));
  return CheckSpace(hooks_, FolderOf(wanted_.gathering), total_ - have_, wanted_.name);
}

Status Gathering::Begin(const HttpHead& head) {
  if (head.status == 206) {
    // "bytes 100-199/200"
    const std::string_view range = head.Header("content-range");
    const size_t dash = range.find('-'), slash = range.find('/');
    int64_t first = -1, total = -1;
    if (!range.starts_with("bytes ") || dash == range.npos || slash == range.npos ||
        !ParseInt64(range.substr(6, dash - 6), &first) ||
        !ParseInt64(range.substr(slash + 1), &total) || first != have_) {
      return FailedPrecondition(Printable(HostOf(head.url), 200), " answered with another part of ",
                                Printable(wanted_.name, 200),
                                " than requested: a proxy may be in the way");
    }
    return TakeTotal(total);
  }
  // The whole file, whatever was requested.
  if (have_ > 0) WEFT_RETURN_IF_ERROR(Restart());
  WEFT_RETURN_IF_ERROR(TakeTotal(head.content_bytes));
  const std::string_view tag = head.Header("etag");
  if (wanted_.checksum.kind == DigestKind::kNone && IsTag(tag)) {
    tag_ = tag;
    // Without it the next attempt starts over, which is not an error.
    (void)WriteNewFile(TagPath(), tag_);
  }
  return OkStatus();
}

Status Gathering::Add(std::span<const std::byte> bytes) {
  if (std::ssize(bytes) > total_ - have_) {
    is_spoilt_ = true;
    return FailedPrecondition(Printable(HostOf(wanted_.url), 200), " sends more of ",
                              Printable(wanted_.name, 200), " than the ", total_,
                              " bytes it should have: nothing was kept");
  }
  digest_->Update(bytes);
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_.get(), bytes.data(), bytes.size(), have_);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return WriteError(n < 0 ? errno : ENOSPC, wanted_.gathering);
    have_ += n;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  Tell(Progress::Stage::kLoading);
  return CheckWanted(hooks_);
}

Status Gathering::Sync() {
  if (SyncFile(fd_.get()) != 0) return WriteError(errno, wanted_.gathering);
  unlink(TagPath().c_str());
  return OkStatus();
}

// Whether an error may go away by itself, so that a retry makes sense.
bool MayPass(const Status& status) {
  return status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kDataLoss ||
         status.code() == StatusCode::kDeadlineExceeded;
}

// How long to wait after this many consecutive attempts without progress.
int PauseMs(int no, const HttpHead& head) {
  int64_t told_s = 0;
  if (ParseInt64(head.Header("retry-after"), &told_s) && told_s > 0) {
    return static_cast<int>(std::min<int64_t>(told_s, 30)) * 1000;
  }
  if (no == 0) return kShortPauseMs;
  return std::min(kFirstPauseMs << std::min(no - 1, 10), kLongestPauseMs);
}

Status Fill(const HttpClient& http, const LoadHooks& hooks, const WantedFile& wanted,
            const RefusalFn& refusal, Gathering* file) {
  const int64_t at_first = file->have();
  int64_t most = at_first;
  for (int fruitless = 0; !file->IsWhole();) {
    const int64_t before = file->have();
    const auto answer = http.Fetch(
        {.url = wanted.url, .token = wanted.token, .first_byte = before, .if_range = file->tag()},
        file);
    Status status = answer.status();
    HttpHead head;
    if (answer.ok()) {
      head = answer->head;
      if (head.status == 416 && before > 0) {
        WEFT_RETURN_IF_ERROR(file->Restart());
        status = DataLoss(Printable(wanted.name, 200), " has changed on the server: try again");
      } else if (head.status < 200 || head.status > 299) {
        status = refusal(*answer);
        if (head.status != 429 && head.status < 500) return status;
      } else if (!file->IsWhole()) {
        status = DataLoss("the connection to ", Printable(HostOf(wanted.url), 200),
                          " broke off: try again, the part received so far is kept");
      }
    } else if (!MayPass(status)) {
      return status;
    }
    if (status.ok()) continue;
    // Without a network, report it at once.
    if (status.code() == StatusCode::kUnavailable && !answer.ok() && most == at_first)
      return status;
    fruitless = file->have() > most ? 0 : fruitless + 1;
    most = std::max(most, file->have());
    if (fruitless >= hooks.max_tries) return status;
    WEFT_RETURN_IF_ERROR(CheckWanted(hooks));
    hooks.sleep(PauseMs(fruitless, head));
  }
  return OkStatus();
}

}  // namespace

LoadHooks LoadHooks::Default() {
  LoadHooks hooks;
  hooks.free_bytes = FreeDiskBytes;
  hooks.sleep = [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
  return hooks;
}

Status MakeFolders(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return WriteError(error.value(), folder);
  return OkStatus();
}

Status MakeFoldersWithin(const std::string& folder, const std::string& inner) {
  FileDescriptor at(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  std::string path = folder;
  if (!at.ok()) return WriteError(errno, path);
  for (const std::string_view part : StrSplit(inner, '/')) {
    const std::string name(part);
    StrAppend(&path, "/", name);
    if (mkdirat(at.get(), name.c_str(), 0777) != 0 && errno != EEXIST) {
      return WriteError(errno, path);
    }
    FileDescriptor next(
        openat(at.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    // Linux says ENOTDIR of a link that is opened as a directory.
    if (!next.ok()) {
      const int open_error = errno;
      return IsLink(path) ? NotFollowed(path) : WriteError(open_error, path);
    }
    at = std::move(next);
  }
  return OkStatus();
}

bool IsLink(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
}

Status NotFollowed(const std::string& path) {
  return FailedPrecondition(Printable(path, 300),
                            " is a symbolic link, which is not followed here: remove it, or set "
                            "HF_HUB_CACHE or WEFT_CACHE to the folder that should be used");
}

Status ReplaceFile(const std::string& aside, const std::string& path, std::string_view text) {
  WEFT_RETURN_IF_ERROR(MakeFolders(FolderOf(aside)));
  WEFT_RETURN_IF_ERROR(MakeFolders(FolderOf(path)));
  Status status = WriteNewFile(aside, text);
  if (status.ok() && std::rename(aside.c_str(), path.c_str()) != 0)
    status = WriteError(errno, path);
  if (!status.ok()) unlink(aside.c_str());
  return status;
}

Status WriteError(int error_number, const std::string& path) {
  if (error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG) {
    return ResourceExhausted("the disk is full at ", Printable(path, 300),
                             ": free some space ('weft list' shows sizes, 'weft rm' removes "
                             "models) and try again; the part received so far is kept");
  }
  return ErrnoStatus(error_number, StrCat("cannot write ", Printable(path, 300)));
}

Status CheckSpace(const LoadHooks& hooks, const std::string& folder, int64_t n_bytes,
                  const std::string& name) {
  const auto free = hooks.free_bytes(folder);
  // If the file system does not say, writing will tell.
  if (!free.ok() || *free >= n_bytes + kReserveBytes) return OkStatus();
  return ResourceExhausted(Printable(name, 200), " needs ",
                           HumanBytes(static_cast<uint64_t>(n_bytes)), " more, but ",
                           Printable(folder, 300), " has ",
                           HumanBytes(static_cast<uint64_t>(std::max<int64_t>(0, *free))),
                           " left: free some space ('weft list' shows sizes, 'weft rm' removes "
                           "models) or set HF_HOME and WEFT_CACHE to a larger disk");
}

StatusOr<FileDescriptor> LockFile(const std::string& path, const LoadHooks& hooks,
                                  const std::function<void()>& waiting) {
  WEFT_RETURN_IF_ERROR(MakeFolders(FolderOf(path)));
  for (;;) {
    FileDescriptor fd(open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (!fd.ok()) return OpenError(errno, path);
    while (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return ErrnoStatus(errno, path);
      if (waiting) waiting();
      WEFT_RETURN_IF_ERROR(CheckWanted(hooks));
      hooks.sleep(kWaitMs);
    }
    // Other tools remove the lock file while holding it: then we hold a lock on an unlinked file.
    struct stat locked, named;
    if (fstat(fd.get(), &locked) == 0 && stat(path.c_str(), &named) == 0 &&
        locked.st_ino == named.st_ino && locked.st_dev == named.st_dev) {
      return fd;
    }
  }
}

Status VerifyKept(const LoadHooks& hooks, const WantedFile& wanted) {
  if (!wanted.verify_kept || wanted.checksum.kind != DigestKind::kSha256) return OkStatus();
  const auto tell = [&](int64_t done, int64_t total) {
    if (hooks.progress) {
      hooks.progress({Progress::Stage::kChecking, wanted.name, done, total, wanted.checksum.hex});
    }
    return CheckWanted(hooks);
  };
  WEFT_ASSIGN_OR_RETURN(const std::string hex, DigestOfFile(wanted.path, tell));
  if (hex == wanted.checksum.hex) return OkStatus();
  return FailedPrecondition("the file that is here has the checksum ", hex, ", not ",
                            wanted.checksum.hex, ": remove ", Printable(wanted.path, 300),
                            " ('weft rm' and the URL) to download it again, or correct #sha256=");
}

Status LoadFile(const HttpClient& http, const LoadHooks& hooks, const WantedFile& wanted,
                const RefusalFn& refusal,
                const std::function<Status(const std::string& path)>& check) {
  const auto is_there = [&] { return SizeOf(wanted.path) >= 0; };
  if (IsLink(wanted.path)) return NotFollowed(wanted.path);
  if (is_there()) return VerifyKept(hooks, wanted);
  WEFT_RETURN_IF_ERROR(MakeFolders(FolderOf(wanted.path)));
  WEFT_RETURN_IF_ERROR(MakeFolders(FolderOf(wanted.gathering)));
  WEFT_ASSIGN_OR_RETURN(
      const FileDescriptor lock, LockFile(wanted.lock, hooks, [&] {
        if (!hooks.progress) return;
        hooks.progress({Progress::Stage::kWaiting, wanted.name,
                        std::max<int64_t>(0, SizeOf(wanted.gathering)), wanted.n_bytes});
      }));
  if (is_there()) return VerifyKept(hooks, wanted);
  Gathering file(hooks, wanted);
  WEFT_RETURN_IF_ERROR(file.Open());
  bool resumed = file.resumed();
  for (;;) {
    const Status filled = Fill(http, hooks, wanted, refusal, &file);
    if (!filled.ok()) {
      if (file.is_spoilt() || file.have() == 0) {
        unlink(wanted.gathering.c_str());
        unlink((wanted.gathering + ".etag").c_str());
      }
      return filled;
    }
    const std::string digest = file.Finish();
    if (digest == wanted.checksum.hex) break;
    WEFT_RETURN_IF_ERROR(file.Restart());
    // What an earlier attempt left may have been wrong: start over once.
    if (std::exchange(resumed, false)) continue;
    unlink(wanted.gathering.c_str());
    return FailedPrecondition(
        Printable(wanted.name, 200), " as ", Printable(HostOf(wanted.url), 200),
        " sent it is not the expected file (its checksum is ", digest, ", not ",
        wanted.checksum.hex, "): nothing was kept; try again, or use another source");
  }
  WEFT_RETURN_IF_ERROR(file.Sync());
  if (check) {
    if (const Status bad = check(wanted.gathering); !bad.ok()) {
      unlink(wanted.gathering.c_str());
      return bad;
    }
  }
  if (std::rename(wanted.gathering.c_str(), wanted.path.c_str()) != 0) {
    return WriteError(errno, wanted.path);
  }
  if (wanted.verify_kept && wanted.checksum.kind == DigestKind::kSha256) {
    KeepDigest(wanted.path, wanted.checksum.hex);
  }
  return OkStatus();
}

}  // namespace weft::hub
