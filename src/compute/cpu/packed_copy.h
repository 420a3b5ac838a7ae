// Copies of packed weights on disk, which later starts map instead of packing the weights again.
// Processes that use the same copy share its memory.
//
//   DIR/KEY.packed   the copy for one model file; KEY identifies the file and the packed form
//   DIR/lock         held while a copy is written
//
// A copy is a head, the hash of each piece of the body, and the body: the tiles of all matrices,
// one after the other. Nothing in the file is trusted: the whole copy is verified before it is
// used.
//
// Threads: one at a time.
#ifndef WEFT_COMPUTE_CPU_PACKED_COPY_H_
#define WEFT_COMPUTE_CPU_PACKED_COPY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/files/file_descriptor.h"
#include "base/files/mapped_file.h"
#include "base/thread_pool.h"
#include "compute/backend.h"
#include "model/formats/model_file.h"

namespace weft::cpu {

// One copy, mapped.
class PackedCopy {
 public:
  // Verifies the copy with all threads of the pool. DATA_LOSS for a damaged one.
  static StatusOr<std::unique_ptr<PackedCopy>> Open(const std::string& path, ThreadPool* pool);

  // The writer's hash of the matrices' order.
  uint64_t layout() const { return layout_; }
  std::span<const std::byte> body() const { return body_; }
  Status CheckUnchanged() const { return file_->CheckUnchanged(); }

 private:
  PackedCopy() = default;
  Status Parse(const std::string& path, ThreadPool* pool);

  std::unique_ptr<MappedFile> file_;
  uint64_t layout_ = 0;
  std::span<const std::byte> body_;
};

// The folder of packed copies, for one model file.
class PackedCopies {
 public:
  // Creates the folder if it is missing, and removes what writers that were killed left there.
  // Nothing is found or written if the options name no folder, if the model is not in a file, or if
  // nobody asked for copies and the model is small or the folder cannot be made, of which the log
  // tells.
  static StatusOr<PackedCopies> Open(const PackedCopyOptions& options, const ModelFile& file);

  // The model's copy; null if there is none. A damaged one is removed, and the log says so.
  std::unique_ptr<PackedCopy> Find(ThreadPool* pool) const;

  // Whether Write may write anything.
  bool are_kept() const { return !name_.empty(); }
  // Writes the model's copy, whose body is `tiles`. Evicts the least recently used copies to make
  // room. Logs what was written, or why nothing was. Tells `progress`, unless it is empty, which
  // fraction is written.
  using Progress = std::function<void(double fraction)>;
  void Write(uint64_t layout, std::span<const std::span<const std::byte>> tiles,
             const Progress& progress) const;

 private:
  PackedCopies() = default;
  std::string path() const;
  Status TryToWrite(uint64_t layout, std::span<const std::span<const std::byte>> tiles,
                    uint64_t body_bytes, const Progress& progress) const;
  Status MakeRoom(int64_t bytes) const;

  PackedCopyOptions options_;
  FileDescriptor dir_;
  std::string name_;  // of the model's copy; empty: none is kept
};

// For people who look after a folder of copies. The folder need not exist, and is not created.
// What the model's copy takes on the disk; 0 without one.
int64_t PackedCopyBytes(const std::string& dir, const ModelFile& file);
// Remove the model's copy, or all copies and what writers that died left, and return the bytes that
// they took. Programs that have mapped a copy keep it until they end.
StatusOr<int64_t> RemovePackedCopy(const std::string& dir, const ModelFile& file);
StatusOr<int64_t> RemovePackedCopies(const std::string& dir);

}  // namespace weft::cpu

#endif  // WEFT_COMPUTE_CPU_PACKED_COPY_H_
