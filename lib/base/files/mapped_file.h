// A whole file mapped read-only into memory.
//
// The mapping and the open file live as long as the object. Nothing here locks: once open, a
// MappedFile may be read from any thread.
//
// Files in use should be replaced by renaming, never rewritten. If one is truncated anyway, its
// readers see zeros (MappingGuard); if it is overwritten, they see other bytes. So results computed
// from bytes() are valid only if CheckUnchanged is OK after the bytes were read.
#ifndef WEFT_BASE_FILES_MAPPED_FILE_H_
#define WEFT_BASE_FILES_MAPPED_FILE_H_

#include <sys/stat.h>

#include <atomic>
#include <cstddef>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/files/file_descriptor.h"
#include "base/files/mapping_guard.h"
#include "base/status.h"

namespace weft {

class MappedFile {
 public:
  // Errors name the path. An empty file maps to an empty span; directories, pipes and devices are
  // refused.
  static StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  // Another one for every other file, and for this one once it has been written to: which file it
  // is to the system, its size, and when it was written. Not its name.
  const std::string& stamp() const { return stamp_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Copies at least the first `n` bytes into private memory, out of reach of later changes to the
  // file. Returns how many bytes are held so far. REQUIRES: nobody else reads bytes() yet.
  StatusOr<size_t> Hold(size_t n);

  // DATA_LOSS once the file has changed since it was opened, or could not be read.
  Status CheckUnchanged() const;

  // Copies `bytes`, a part of bytes(), to `out` of the same length by reading the file: it touches
  // no mapped pages, and reports an error if the file has become shorter.
  Status Read(std::span<const std::byte> bytes, std::span<std::byte> out) const;

  // Hints to the kernel; both are advice and cannot fail. `bytes` is a part of bytes(). WillNeed
  // starts reading it; Release drops the pages that lie wholly inside it (they are read from the
  // file again when touched).
  void WillNeed(std::span<const std::byte> bytes) const;
  void Release(std::span<const std::byte> bytes) const;

 private:
  MappedFile(std::string path, FileDescriptor fd, const struct stat& info, const std::byte* data,
             size_t size);

  const std::string path_;
  const std::string stamp_;
  const FileDescriptor fd_;
  const timespec written_;  // modification time when it was opened
  const std::byte* const data_;
  const size_t size_;
  const MappingGuard guard_;
  size_t held_ = 0;
  mutable std::atomic<bool> has_changed_{false};
};

// Reads a whole file into memory. Errors name the path and the reason; more than `max_bytes` is an
// error.
StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes);
// Reads an open descriptor, which stays open; `name` is used in errors.
StatusOr<std::string> ReadDescriptor(int fd, std::string_view name, size_t max_bytes);

// Writes `contents` to `path`, replacing it. Not atomic; for command-line output.
Status WriteFile(const std::string& path, std::span<const std::byte> contents);

}  // namespace weft

#endif  // WEFT_BASE_FILES_MAPPED_FILE_H_
