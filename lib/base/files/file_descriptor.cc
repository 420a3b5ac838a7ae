#include "base/files/file_descriptor.h"

#include <unistd.h>

#include <cerrno>

#include "base/strings.h"

namespace weft {

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

Status ReadAt(int fd, uint64_t offset, std::span<std::byte> out, std::string_view name) {
  while (!out.empty()) {
    const ssize_t n = pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, StrCat("cannot read ", Printable(name, 300)));
    if (n == 0) return DataLoss(Printable(name, 300), " became shorter while it was read");
    offset += static_cast<uint64_t>(n);
    out = out.subspan(static_cast<size_t>(n));
  }
  return OkStatus();
}

}  // namespace weft
