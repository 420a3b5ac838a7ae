// File operations with errors as values.
//
//   ByteSource      can be read at any offset: a file, or memory.
//   AtomicFile      a file that appears complete under its name, or not at all.
//
// Threads: an object belongs to one thread at a time.
#ifndef WEFT_BASE_FILES_FILE_IO_H_
#define WEFT_BASE_FILES_FILE_IO_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/files/file_descriptor.h"
#include "base/status.h"

namespace weft {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual uint64_t size() const = 0;
  // Fills `out` from `offset`. REQUIRES: offset + out.size() <= size().
  virtual Status Read(uint64_t offset, std::span<std::byte> out) const = 0;
};

// `bytes` must outlive the source.
std::unique_ptr<ByteSource> NewMemorySource(std::span<const std::byte> bytes);
// Opens the regular file `name` in the directory `dir_fd`, without following symbolic links.
// NOT_FOUND if there is none. `path` names it in messages.
StatusOr<std::unique_ptr<ByteSource>> OpenFileSource(int dir_fd, const std::string& name,
                                                     const std::string& path);

// Written under a temporary name in the target directory, with mode 0600; Commit makes it durable
// and renames it, replacing any previous file. Without a successful Commit nothing remains of it
// and the previous file is untouched.
class AtomicFile {
 public:
  // Prefix of temporary files; the holder of the directory's lock may remove those left by a dead
  // process.
  static constexpr char kTempPrefix[] = ".tmp-";

  // `dir_fd` must stay open as long as the file. `path` names the file in messages.
  static StatusOr<std::unique_ptr<AtomicFile>> Create(int dir_fd, const std::string& name,
                                                      const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // For a large file, before the first Append: its pages go to the disk while it is written, so
  // that memory does not fill with pages that cannot be given back. Unless `stays_cached`, they
  // also leave memory then.
  void WriteBehind(bool stays_cached);
  Status Append(std::span<const std::byte> bytes);
  // If the last step, making the directory durable, fails, the new file may be in place or, after a
  // crash, the previous one; each is complete.
  Status Commit();
  // The same without waiting for the disk: survives the process, but after a machine crash the file
  // may have any contents. For data that is verified on reading and can be lost.
  Status CommitLoosely();

 private:
  AtomicFile(int dir_fd, std::string name, std::string path, std::string temp_name, int fd)
      : dir_fd_(dir_fd),
        name_(std::move(name)),
        path_(std::move(path)),
        temp_name_(std::move(temp_name)),
        fd_(fd) {}
  Status Flush();
  Status Write(std::span<const std::byte> bytes);
  void SendToDisk();
  Status PutInPlace();
  Status Failed(int error_number, std::string_view doing) const;

  const int dir_fd_;
  const std::string name_;
  const std::string path_;
  std::string temp_name_;  // empty after renaming
  FileDescriptor fd_;
  std::vector<std::byte> buffer_;
  bool writes_behind_ = false, stays_cached_ = true;
  int64_t written_ = 0, sent_ = 0, dropped_ = 0;  // bytes from the begin of the file
};

// The names in a directory, sorted, without "." and "..".
StatusOr<std::vector<std::string>> NamesIn(int dir_fd, const std::string& path);

// Opens the directory `name` in the directory `dir_fd`. A symbolic link is followed only if this
// process's user or root made it, as operators do to put a part on another disk; anybody else's, or
// one to a directory that is missing, is FAILED_PRECONDITION. `path` names it in messages.
StatusOr<FileDescriptor> OpenOwnDirectory(int dir_fd, const std::string& name,
                                          const std::string& path);

// Creates a directory, durably, and those above it that are missing: itself with mode 0700, these
// with the user's usual mode.
Status CreateDirectories(const std::string& path);

// Locks the file `name` in a directory, creating it, until the result is closed; a result that is
// not ok() if another holder has it. `path` names the directory in messages.
StatusOr<FileDescriptor> TryLock(int dir_fd, const char* name, const std::string& path);

// What a user may still write to the file system of this file or directory.
StatusOr<int64_t> FreeDiskBytes(const std::string& path);

// fsync of a directory; succeeds on file systems that do not support it.
Status SyncDirectory(int dir_fd, const std::string& path);

}  // namespace weft

#endif  // WEFT_BASE_FILES_FILE_IO_H_
