// An open file descriptor, closed by its owner's destructor, and reads at an offset.
#ifndef WEFT_BASE_FILES_FILE_DESCRIPTOR_H_
#define WEFT_BASE_FILES_FILE_DESCRIPTOR_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace weft {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor();

  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// Fills `out` from `offset`, ignoring the file's own position. DATA_LOSS if the file ends too
// early; `name` is used in errors.
Status ReadAt(int fd, uint64_t offset, std::span<std::byte> out, std::string_view name);

}  // namespace weft

#endif  // WEFT_BASE_FILES_FILE_DESCRIPTOR_H_
