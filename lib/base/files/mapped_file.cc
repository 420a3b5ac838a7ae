#include "base/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/system.h"

namespace weft {
namespace {

// Chunk size of Hold: file heads are read piece by piece. A multiple of any page size.
constexpr size_t kHoldBytes = size_t{256} << 10;

std::string StampOf(const struct stat& info) {
  const timespec written = ModifiedAt(info);
  return StrCat(info.st_dev, " ", info.st_ino, " ", info.st_size, " ", written.tv_sec, " ",
                written.tv_nsec);
}

uintptr_t PageSize() { return static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  // Non-blocking: opening a pipe without a writer would otherwise hang before it is refused.
  FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return ErrnoStatus(errno, StrCat("cannot open ", Printable(path, 300)));
  struct stat info;
  if (fstat(fd.get(), &info) != 0) {
    return ErrnoStatus(errno, StrCat("cannot read ", Printable(path, 300)));
  }
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument(Printable(path, 300), " is not a regular file");
  }
  const size_t size = static_cast<size_t>(info.st_size);
  const std::byte* data = nullptr;
  if (size > 0) {
    void* mapping = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (mapping == MAP_FAILED) {
      return ErrnoStatus(errno, StrCat("cannot map ", Printable(path, 300), " (", size, " bytes)"));
    }
    data = static_cast<const std::byte*>(mapping);
  }
  return std::unique_ptr<MappedFile>(new MappedFile(path, std::move(fd), info, data, size));
}

MappedFile::MappedFile(std::string path, FileDescriptor fd, const struct stat& info,
                       const std::byte* data, size_t size)
    : path_(std::move(path)),
      stamp_(StampOf(info)),
      fd_(std::move(fd)),
      written_(ModifiedAt(info)),
      data_(data),
      size_(size),
      guard_(data, size) {}

MappedFile::~MappedFile() {
  if (size_ > 0) munmap(const_cast<std::byte*>(data_), size_);
}

StatusOr<size_t> MappedFile::Hold(size_t n) {
  if (n <= held_) return held_;
  const size_t page = PageSize();
  const size_t end = std::min(size_, (n + kHoldBytes - 1) / kHoldBytes * kHoldBytes);
  std::byte* const begin = const_cast<std::byte*>(data_) + held_;
  const size_t size = end - held_;
  if (mmap(begin, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
      MAP_FAILED) {
    return ErrnoStatus(errno, StrCat("cannot hold ", size, " bytes of ", Printable(path_, 300)));
  }
  WEFT_RETURN_IF_ERROR(ReadAt(fd_.get(), held_, std::span(begin, size), path_));
  mprotect(begin, size, PROT_READ);
  // The last page is complete in memory even if the file ends inside it.
  held_ = end == size_ ? (end + page - 1) / page * page : end;
  return held_;
}

// Clients see this message, so it leaves out the directory.
Status MappedFile::CheckUnchanged() const {
  const std::string name = Printable(path_.substr(path_.find_last_of('/') + 1), 300);
  struct stat info;
  if (fstat(fd_.get(), &info) != 0) {
    return ErrnoStatus(errno, StrCat("cannot read ", name));
  }
  const timespec modified = ModifiedAt(info);
  const bool is_same = static_cast<size_t>(info.st_size) == size_ &&
                       modified.tv_sec == written_.tv_sec && modified.tv_nsec == written_.tv_nsec;
  if (!is_same || guard_.damaged()) has_changed_ = true;
  if (!has_changed_) return OkStatus();
  if (static_cast<size_t>(info.st_size) < size_) {
    return DataLoss(name, " became shorter while it was in use: it had ", size_, " bytes and has ",
                    info.st_size, "; restore the whole file and restart");
  }
  return DataLoss(name, is_same ? " could not be read" : " was written to",
                  " while it was in use; restart, and in future replace the file by renaming");
}

Status MappedFile::Read(std::span<const std::byte> bytes, std::span<std::byte> out) const {
  return ReadAt(fd_.get(), static_cast<uint64_t>(bytes.data() - data_), out, path_);
}

void MappedFile::WillNeed(std::span<const std::byte> bytes) const {
  if (bytes.empty()) return;
  const uintptr_t page = PageSize();
  const uintptr_t begin = reinterpret_cast<uintptr_t>(bytes.data()) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size();
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

void MappedFile::Release(std::span<const std::byte> bytes) const {
  const uintptr_t page = PageSize();
  // Held bytes are private: once released, they would not come back from the file.
  const uintptr_t first = std::max(reinterpret_cast<uintptr_t>(bytes.data()),
                                   reinterpret_cast<uintptr_t>(data_) + held_);
  const uintptr_t begin = (first + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size()) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return ErrnoStatus(errno, StrCat("cannot open ", Printable(path, 300)));
  return ReadDescriptor(fd.get(), path, max_bytes);
}

StatusOr<std::string> ReadDescriptor(int fd, std::string_view name, size_t max_bytes) {
  std::string contents;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, StrCat("cannot read ", Printable(name, 300)));
    if (n == 0) return contents;
    contents.append(buffer, static_cast<size_t>(n));
    if (contents.size() > max_bytes) {
      return ResourceExhausted(Printable(name, 300), " is larger than ", HumanBytes(max_bytes));
    }
  }
}

Status WriteFile(const std::string& path, std::span<const std::byte> contents) {
  const FileDescriptor fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (fd.get() < 0) return ErrnoStatus(errno, StrCat("cannot create ", Printable(path, 300)));
  while (!contents.empty()) {
    const ssize_t n = write(fd.get(), contents.data(), contents.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, StrCat("cannot write ", Printable(path, 300)));
    contents = contents.subspan(static_cast<size_t>(n));
  }
  return OkStatus();
}

}  // namespace weft
