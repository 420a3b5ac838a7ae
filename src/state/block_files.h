// The files of blocks: one file each, below a directory for all models, with a folder for each
// combination of model and form of its state. docs/STATE.md describes the format.
//
// A file is written aside and renamed, without waiting for the disk: what a crash of the
// machine damages fails its checksum and is as if it were not there. Whether it is what the
// name says is checked by its contents: prefix, tokens, domain.
//
// Threads: belongs to one at a time; its own and foreign processes' are kept apart by the lock
// of the state directory.
#ifndef WEFT_STATE_BLOCK_FILES_H_
#define WEFT_STATE_BLOCK_FILES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "state/block_catalog.h"

namespace weft {

class BlockFiles {
 public:
  // `path` is the directory of all models' blocks, made if need be; `folder` the one of this
  // model's in it.
  static StatusOr<std::unique_ptr<BlockFiles>> Open(const std::string& path,
                                                    const std::string& folder);

  struct Listing {
    std::vector<BlockInfo> own;
    std::vector<BlockCatalog::ForeignFile> foreign;
  };
  // What is there. The folder's index tells most of it in one read; files that it does not know
  // are opened. What is no whole block is removed.
  StatusOr<Listing> List();
  // Makes the next List fast. Losing it loses nothing but time.
  Status WriteIndex(const std::vector<BlockInfo>& blocks) const;

  // Of the budget: the file and what the file system and we need beside it.
  static int64_t BytesOf(const BlockInfo& info, std::string_view domain, int64_t payload_bytes);
  // RESOURCE_EXHAUSTED when the disk is full; nothing of it stays then.
  Status Write(const BlockInfo& info, std::string_view domain,
               std::span<const std::byte> payload) const;
  // DATA_LOSS for anything but the block of just that prefix with so many bytes.
  StatusOr<std::vector<std::byte>> Read(const BlockInfo& info, std::string_view domain,
                                        int64_t payload_bytes) const;
  // A path of the catalog's.
  void Remove(const std::string& path) const;

  int64_t files_opened() const { return files_opened_; }  // by List

 private:
  BlockFiles(std::string folder_name, FileDescriptor root, FileDescriptor folder)
      : folder_name_(std::move(folder_name)), root_(std::move(root)), folder_(std::move(folder)) {}
  void ListOwn(Listing* listing);
  void ListForeign(const std::string& name, Listing* listing) const;
  std::vector<BlockInfo> ReadIndex() const;
  // One of its own as messages name it, which clients of a server may see: without the place
  // of the state directory.
  std::string PathOf(const std::string& file) const;

  const std::string folder_name_;
  const FileDescriptor root_;
  const FileDescriptor folder_;
  int64_t files_opened_ = 0;
};

}  // namespace weft

#endif  // WEFT_STATE_BLOCK_FILES_H_
