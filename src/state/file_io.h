// The few file operations that session files need, with errors as values.
//
//   ByteSource      something that can be read at any offset: a file, or memory.
//   AtomicFile      a file that appears whole under its name, or not at all.
//
// Threads: an object belongs to one thread at a time.
#ifndef WEFT_STATE_FILE_IO_H_
#define WEFT_STATE_FILE_IO_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
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
// The regular file `name` in the directory `dir_fd`, not through a symbolic link.
// NOT_FOUND when there is none. `path` names it in messages.
StatusOr<std::unique_ptr<ByteSource>> OpenFileSource(int dir_fd, const std::string& name,
                                                     const std::string& path);

// Written aside in the directory of its final name, with mode 0600; Commit makes it
// durable and gives it its name, in place of what had that name before. Without a
// successful Commit nothing of it remains and the former file is untouched.
class AtomicFile {
 public:
  // Temporary files are named so; leftovers of a process that died may be removed
  // by whoever holds the directory's lock.
  static constexpr char kTempPrefix[] = ".tmp-";

  // `dir_fd` must stay open as long as the file. `path` names the file in messages.
  static StatusOr<std::unique_ptr<AtomicFile>> Create(int dir_fd, const std::string& name,
                                                      const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  Status Append(std::span<const std::byte> bytes);
  // After an error of the last step, making the directory durable, the new file may
  // be in place or, after a crash, the former one; each is whole.
  Status Commit();
  // The same without waiting for the disk: it outlives the process, but after a crash of the
  // machine it may have any contents. For what is checked when it is read and can be lost.
  Status CommitLoosely();

 private:
  AtomicFile(int dir_fd, std::string name, std::string path, std::string temp_name, int fd)
      : dir_fd_(dir_fd),
        name_(std::move(name)),
        path_(std::move(path)),
        temp_name_(std::move(temp_name)),
        fd_(fd) {}
  Status Flush();
  Status PutInPlace();
  Status Failed(int error_number, std::string_view doing) const;

  const int dir_fd_;
  const std::string name_;
  const std::string path_;
  std::string temp_name_;  // empty once renamed
  FileDescriptor fd_;
  std::vector<std::byte> buffer_;
};

// The names in a directory, sorted, without "." and "..".
StatusOr<std::vector<std::string>> NamesIn(int dir_fd, const std::string& path);

// fsync of a directory; file systems that cannot do that count as durable.
Status SyncDirectory(int dir_fd, const std::string& path);

}  // namespace weft

#endif  // WEFT_STATE_FILE_IO_H_
