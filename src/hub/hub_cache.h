// The folder in which the hub's own tools keep what they load, in their layout:
//
//   models--OWNER--REPO/blobs/CHECKSUM           the bytes
//   models--OWNER--REPO/refs/REVISION            the commit that a branch was at
//   models--OWNER--REPO/snapshots/COMMIT/PATH    symbolic links to the blobs
//   .locks/models--OWNER--REPO/CHECKSUM.lock     held by who loads a blob
//
// What they have loaded is found here, and the other way round. Holds nothing but the path; any
// thread.
#ifndef WEFT_HUB_HUB_CACHE_H_
#define WEFT_HUB_HUB_CACHE_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "hub/download.h"
#include "hub/hub_api.h"

namespace weft::hub {

class HubCache {
 public:
  explicit HubCache(std::string root) : root_(std::move(root)) {}

  // Where LoadFile is to put a file of the hub, without its address.
  WantedFile Place(const std::string& repo, const HubFile& file) const;
  // Gives a loaded file its name in a snapshot; the path of it.
  StatusOr<std::string> Link(const std::string& repo, const std::string& commit,
                             const HubFile& file) const;
  Status WriteRef(const std::string& repo, const std::string& revision,
                  const std::string& commit) const;

  // The files of one snapshot that are there.
  struct Snapshot {
    std::string repo;
    std::string folder;
    bool is_main = false;            // what refs/main points to
    std::vector<std::string> files;  // paths within it, sorted
  };
  // Of all repositories; of each, main's first and then the newest.
  std::vector<Snapshot> Snapshots() const;
  // What a branch, tag or commit was when it was loaded last; without files where it never was.
  Snapshot SnapshotOf(const std::string& repo, const std::string& revision) const;

  // Removes these files from all snapshots of the repository, and the blobs that nothing points
  // to any more. The bytes that became free.
  StatusOr<int64_t> Remove(const std::string& repo, const std::vector<std::string>& files) const;

 private:
  std::string FolderOf(std::string_view repo) const;

  const std::string root_;
};

}  // namespace weft::hub

#endif  // WEFT_HUB_HUB_CACHE_H_
