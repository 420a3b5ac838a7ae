#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace weft {
namespace {

uintptr_t PageSize() { return static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  // Not blocking: a pipe without a writer would be waited for before it is refused.
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
  return std::unique_ptr<MappedFile>(new MappedFile(path, std::move(fd), data, size));
}

MappedFile::~MappedFile() {
  if (size_ > 0) munmap(const_cast<std::byte*>(data_), size_);
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
  const uintptr_t first = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t begin = (first + page - 1) / page * page;
  const uintptr_t end = (first + bytes.size()) / page * page;
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
