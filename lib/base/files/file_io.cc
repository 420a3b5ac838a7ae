#include "base/files/file_io.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/system.h"

namespace weft {
namespace {

constexpr size_t kBufferBytes = size_t{16} << 10;
// What AtomicFile::WriteBehind writes before it starts to send that to the disk.
constexpr size_t kPieceBytes = size_t{8} << 20;

class MemorySource : public ByteSource {
 public:
  explicit MemorySource(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint64_t size() const override { return bytes_.size(); }
  Status Read(uint64_t offset, std::span<std::byte> out) const override {
    WEFT_CHECK(offset <= bytes_.size() && out.size() <= bytes_.size() - offset, "inside the bytes");
    std::ranges::copy(bytes_.subspan(static_cast<size_t>(offset), out.size()), out.begin());
    return OkStatus();
  }

 private:
  const std::span<const std::byte> bytes_;
};

class FileSource : public ByteSource {
 public:
  FileSource(FileDescriptor fd, std::string path, uint64_t size)
      : fd_(std::move(fd)), path_(std::move(path)), size_(size) {}
  uint64_t size() const override { return size_; }
  Status Read(uint64_t offset, std::span<std::byte> out) const override {
    return ReadAt(fd_.get(), offset, out, path_);
  }

 private:
  const FileDescriptor fd_;
  const std::string path_;
  const uint64_t size_;
};

std::string NewTempName() {
  static std::atomic<uint64_t> counter{0};
  return StrCat(AtomicFile::kTempPrefix, getpid(), "-", counter.fetch_add(1));
}

}  // namespace

std::unique_ptr<ByteSource> NewMemorySource(std::span<const std::byte> bytes) {
  return std::make_unique<MemorySource>(bytes);
}

StatusOr<std::unique_ptr<ByteSource>> OpenFileSource(int dir_fd, const std::string& name,
                                                     const std::string& path) {
  // Without O_NONBLOCK, opening a pipe of that name would block.
  FileDescriptor fd(openat(dir_fd, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.ok()) return ErrnoStatus(errno, StrCat("cannot open ", Printable(path, 300)));
  struct stat info;
  if (fstat(fd.get(), &info) != 0) {
    return ErrnoStatus(errno, StrCat("cannot read ", Printable(path, 300)));
  }
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument(Printable(path, 300), " is not a regular file");
  }
  return std::make_unique<FileSource>(std::move(fd), path, static_cast<uint64_t>(info.st_size));
}

StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(int dir_fd, const std::string& name,
                                                         const std::string& path) {
  while (true) {
    const std::string temp_name = NewTempName();
    const int fd = openat(dir_fd, temp_name.c_str(),
                          O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0) {
      return std::unique_ptr<AtomicFile>(new AtomicFile(dir_fd, name, path, temp_name, fd));
    }
    if (errno != EEXIST && errno != EINTR) {
      return ErrnoStatus(errno, StrCat("cannot write ", Printable(path, 300)));
    }
  }
}

AtomicFile::~AtomicFile() {
  if (!temp_name_.empty()) unlinkat(dir_fd_, temp_name_.c_str(), 0);
}

Status AtomicFile::Failed(int error_number, std::string_view doing) const {
  const Status status =
      ErrnoStatus(error_number, StrCat("cannot ", doing, " ", Printable(path_, 300)));
  if (error_number != ENOSPC && error_number != EDQUOT && error_number != EFBIG) return status;
  return ResourceExhausted(Message(status), "; free some space and try again");
}

void AtomicFile::WriteBehind(bool stays_cached) {
  writes_behind_ = true;
  stays_cached_ = stays_cached;
}

Status AtomicFile::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (buffer_.empty() && bytes.size() >= kBufferBytes) {
      const auto piece = bytes.first(std::min(bytes.size(), kPieceBytes));
      WEFT_RETURN_IF_ERROR(Write(piece));
      bytes = bytes.subspan(piece.size());
      continue;
    }
    const size_t n = std::min(bytes.size(), kBufferBytes - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
    bytes = bytes.subspan(n);
    if (buffer_.size() == kBufferBytes) WEFT_RETURN_IF_ERROR(Flush());
  }
  return OkStatus();
}

Status AtomicFile::Flush() {
  WEFT_RETURN_IF_ERROR(Write(buffer_));
  buffer_.clear();
  return OkStatus();
}

Status AtomicFile::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed(errno, "write");
    bytes = bytes.subspan(static_cast<size_t>(n));
    written_ += n;
  }
  if (writes_behind_ && written_ - sent_ >= static_cast<int64_t>(kPieceBytes)) SendToDisk();
  return OkStatus();
}

// The disk works on the last piece while the next one is written; the one before it has to be
// there.
void AtomicFile::SendToDisk() {
  StartWriteback(fd_.get(), sent_, written_ - sent_);
  if (!stays_cached_) {
    DropCachedPages(fd_.get(), dropped_, sent_ - dropped_);
    dropped_ = sent_;
  }
  sent_ = written_;
}

Status AtomicFile::Commit() {
  WEFT_RETURN_IF_ERROR(Flush());
  if (SyncFile(fd_.get()) != 0) return Failed(errno, "make durable");
  WEFT_RETURN_IF_ERROR(PutInPlace());
  return SyncDirectory(dir_fd_, path_);
}

Status AtomicFile::CommitLoosely() {
  WEFT_RETURN_IF_ERROR(Flush());
  if (!stays_cached_) DropCachedPages(fd_.get(), dropped_, written_ - dropped_);
  return PutInPlace();
}

Status AtomicFile::PutInPlace() {
  // Some file systems report a full disk only here.
  if (close(fd_.Release()) != 0 && errno != EINTR) return Failed(errno, "close");
  if (renameat(dir_fd_, temp_name_.c_str(), dir_fd_, name_.c_str()) != 0) {
    return Failed(errno, "put in place");
  }
  temp_name_.clear();
  return OkStatus();
}

StatusOr<std::vector<std::string>> NamesIn(int dir_fd, const std::string& path) {
  const int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* dir = fd >= 0 ? fdopendir(fd) : nullptr;
  if (dir == nullptr) {
    const int error_number = errno;
    if (fd >= 0) close(fd);
    return ErrnoStatus(error_number, StrCat("cannot list ", Printable(path, 300)));
  }
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  const int error_number = errno;
  closedir(dir);
  if (error_number != 0) {
    return ErrnoStatus(error_number, StrCat("cannot list ", Printable(path, 300)));
  }
  std::sort(names.begin(), names.end());
  return names;
}

StatusOr<FileDescriptor> OpenOwnDirectory(int dir_fd, const std::string& name,
                                          const std::string& path) {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  FileDescriptor fd(openat(dir_fd, name.c_str(), kFlags | O_NOFOLLOW));
  if (fd.ok()) return fd;
  int error_number = errno;
  struct stat info;
  const bool is_link = (error_number == ELOOP || error_number == ENOTDIR) &&
                       fstatat(dir_fd, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                       S_ISLNK(info.st_mode);
  if (is_link) {
    if (info.st_uid != geteuid() && info.st_uid != 0) {
      return FailedPrecondition(Printable(path, 300),
                                " is a symbolic link that another user made, which is not "
                                "followed: remove it, or make it yourself");
    }
    fd = FileDescriptor(openat(dir_fd, name.c_str(), kFlags));
    if (fd.ok()) return fd;
    error_number = errno;
    if (error_number == ENOENT || error_number == ENOTDIR) {
      return FailedPrecondition(Printable(path, 300),
                                " is a link to a directory that is not there: create that, or "
                                "mount its disk");
    }
  }
  return ErrnoStatus(error_number, StrCat("cannot open ", Printable(path, 300)));
}

Status CreateDirectories(const std::string& path) {
  std::vector<std::filesystem::path> missing;
  std::error_code error;
  for (std::filesystem::path each = path; !each.empty() && !std::filesystem::exists(each, error);) {
    missing.push_back(each);
    each = each.parent_path();
  }
  while (!missing.empty()) {
    const std::filesystem::path each = std::move(missing.back());
    missing.pop_back();
    // Parents get the user's usual mode; the last one is private to the user.
    const mode_t mode = missing.empty() ? 0700 : 0777;
    if (mkdir(each.c_str(), mode) != 0 && errno != EEXIST) {
      return ErrnoStatus(errno, StrCat("cannot create ", Printable(path, 300)));
    }
    // Make the new directory's own entry durable before acknowledging anything in it.
    const std::string above = each.has_parent_path() ? each.parent_path().string() : ".";
    const FileDescriptor parent(open(above.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (parent.ok()) WEFT_RETURN_IF_ERROR(SyncDirectory(parent.get(), path));
  }
  return OkStatus();
}

StatusOr<FileDescriptor> TryLock(int dir_fd, const char* name, const std::string& path) {
  FileDescriptor lock(openat(dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  while (lock.ok() && flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return FileDescriptor();
    return ErrnoStatus(errno, StrCat("cannot lock ", Printable(path, 300)));
  }
  if (!lock.ok()) return ErrnoStatus(errno, StrCat("cannot lock ", Printable(path, 300)));
  return lock;
}

StatusOr<int64_t> FreeDiskBytes(const std::string& path) {
  struct statvfs info;
  if (statvfs(path.c_str(), &info) != 0) return ErrnoStatus(errno, Printable(path, 300));
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

Status SyncDirectory(int dir_fd, const std::string& path) {
  if (SyncFile(dir_fd) == 0 || errno == EINVAL || errno == ENOTSUP) return OkStatus();
  return ErrnoStatus(errno,
                     StrCat("cannot make the directory of ", Printable(path, 300), " durable"));
}

}  // namespace weft
