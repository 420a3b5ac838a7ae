// An open file, closed at the end of its owner's life, and reading from a place in it.
#ifndef WEFT_BASE_FILE_DESCRIPTOR_H_
#define WEFT_BASE_FILE_DESCRIPTOR_H_

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

// Fills `out` from `offset` on, wherever the file's own position is. DATA_LOSS where the
// file ends before; `name` is for errors.
Status ReadAt(int fd, uint64_t offset, std::span<std::byte> out, std::string_view name);

}  // namespace weft

#endif  // WEFT_BASE_FILE_DESCRIPTOR_H_
