// The files of blocks: one each, below a directory for all models, with a subdirectory for each
// combination of model and state layout. docs/file-formats.md describes the format.
//
// A file is written under a temporary name and renamed, without waiting for the disk: if a machine
// crash damages it, its checksum fails and it is treated as absent. Reading verifies that the
// contents (prefix, tokens, domain) match the name.
//
// Threads: one at a time, unless it says otherwise; the state directory's lock keeps other
// processes out.
#ifndef WEFT_ENGINE_STATE_BLOCK_FILES_H_
#define WEFT_ENGINE_STATE_BLOCK_FILES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/files/file_descriptor.h"
#include "base/function_ref.h"
#include "base/status.h"
#include "engine/state/block_catalog.h"
#include "engine/state/hourly_writes.h"

namespace weft {

class BlockFiles {
 public:
  // `path` is the directory of all models' blocks, created if missing; `folder` is this model's
  // directory in it.
  static StatusOr<std::unique_ptr<BlockFiles>> Open(const std::string& path,
                                                    const std::string& folder);

  struct Listing {
    std::vector<BlockInfo> own;
    std::vector<BlockCatalog::ForeignFile> foreign;
    std::vector<std::string> useless;  // paths of files that are no intact blocks, to be removed
    // Files that could not be read now, and why the first one could not.
    int64_t n_unread = 0;
    Status unread;
  };
  // Lists the blocks. The folder's index covers most of them in one read; other files are opened.
  StatusOr<Listing> List();
  // Speeds up the next List. Losing it costs only time.
  Status WriteIndex(const std::vector<BlockInfo>& blocks) const;

  // Its share of the budget: the file, and the overhead of the file system and of our own data.
  static int64_t BytesOf(const BlockInfo& info, std::string_view domain, int64_t payload_bytes);
  // RESOURCE_EXHAUSTED if the disk is full; no partial file remains. `meanwhile` is called after
  // each piece, since a disk may be slow.
  Status Write(
      const BlockInfo& info, std::string_view domain, std::span<const std::byte> payload,
      FunctionRef<void()> meanwhile = [] {}) const;
  // DATA_LOSS if the file is missing, or anything but the block of exactly that prefix and size.
  // Any other error says nothing about the file, for example that no descriptor is left to open it.
  StatusOr<std::vector<std::byte>> Read(const BlockInfo& info, std::string_view domain,
                                        int64_t payload_bytes) const;
  // The same of a file's bytes from elsewhere, whatever block it is.
  struct Parsed {
    BlockInfo info;
    std::vector<std::byte> payload;
  };
  static StatusOr<Parsed> Parse(std::string_view bytes, std::string_view domain);
  // The bytes of a block's file as they are. Any thread. DATA_LOSS as Read.
  StatusOr<std::string> ReadFile(const Fingerprint& key) const;
  // `path` comes from the catalogue.
  void Remove(const std::string& path) const;

  // What processes before this one recorded; nothing if the record is missing or damaged.
  HourlyWrites RecordedWrites() const;
  // Recorded before a block is written, so that a killed process has written no more than that.
  Status RecordWrites(const HourlyWrites& writes) const;

  int64_t files_opened() const { return files_opened_; }  // by List

 private:
  BlockFiles(std::string folder_name, FileDescriptor root, FileDescriptor folder)
      : folder_name_(std::move(folder_name)), root_(std::move(root)), folder_(std::move(folder)) {}
  void ListOwn(Listing* listing);
  void ListForeign(const std::string& name, Listing* listing) const;
  std::vector<BlockInfo> ReadIndex() const;
  // A file's name for messages. Clients of a server may see it, so it leaves out the location of
  // the state directory.
  std::string PathOf(const std::string& file) const;

  const std::string folder_name_;
  const FileDescriptor root_;
  const FileDescriptor folder_;
  int64_t files_opened_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_STATE_BLOCK_FILES_H_
