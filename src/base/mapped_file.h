// A whole file mapped read-only into memory.
//
// The mapping lives and the file stays open as long as the object. Nothing here locks: a
// MappedFile may be read from any thread once it is open. Whoever cuts the file short
// meanwhile ends the program (SIGBUS) where the mapping is read: files in use are replaced
// by renaming, never rewritten.
#ifndef WEFT_BASE_MAPPED_FILE_H_
#define WEFT_BASE_MAPPED_FILE_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace weft {

class MappedFile {
 public:
  // Errors name the path. An empty file maps to an empty span; a directory, a
  // pipe or a device is refused.
  static StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Copies a part of bytes() to `out`, as long as it, by reading the file: without pages
  // of the mapping, and with an error where the file has become shorter.
  Status Read(std::span<const std::byte> bytes, std::span<std::byte> out) const;

  // Hints to the kernel; both are advice and cannot fail. `bytes` is a part of
  // bytes(). WillNeed starts reading it, Release drops the pages that lie wholly
  // inside it (they are read again from the file when touched).
  void WillNeed(std::span<const std::byte> bytes) const;
  void Release(std::span<const std::byte> bytes) const;

 private:
  MappedFile(std::string path, FileDescriptor fd, const std::byte* data, size_t size)
      : path_(std::move(path)), fd_(std::move(fd)), data_(data), size_(size) {}

  const std::string path_;
  const FileDescriptor fd_;
  const std::byte* const data_;
  const size_t size_;
};

// Reads a whole file into memory. Errors name the path and the reason; more than
// `max_bytes` is an error.
StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes);
// The same with what is open already, which stays open; `name` is for errors.
StatusOr<std::string> ReadDescriptor(int fd, std::string_view name, size_t max_bytes);

// Writes `contents` to `path`, replacing it. Not atomic; for command-line output.
Status WriteFile(const std::string& path, std::span<const std::byte> contents);

}  // namespace weft

#endif  // WEFT_BASE_MAPPED_FILE_H_
