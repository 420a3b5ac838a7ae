// The cache of the hub's own tools, in their layout:
//
//   models--OWNER--REPO/blobs/CHECKSUM           the bytes
//   models--OWNER--REPO/refs/REVISION            the commit that a branch pointed to
//   models--OWNER--REPO/snapshots/COMMIT/PATH    symbolic links to the blobs
//   .locks/models--OWNER--REPO/CHECKSUM.lock     held while a blob is downloaded
//
// The root and a repository's folder may be links that somebody made to put them on another disk.
// Links below are never followed to write, list or remove, except those of snapshots to blobs: who
// else may write into a shared cache could aim them at any file.
//
// Models that those tools downloaded are found here, and vice versa. Holds only the path; any
// thread.
#ifndef WEFT_MODEL_HUB_HUB_CACHE_H_
#define WEFT_MODEL_HUB_HUB_CACHE_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "model/hub/hub_api.h"
#include "model/hub/net/download.h"

namespace weft::hub {

class HubCache {
 public:
  explicit HubCache(std::string root) : root_(std::move(root)) {}

  // Where LoadFile should put a file of the hub; without its URL. Creates the folder.
  StatusOr<WantedFile> Place(const std::string& repo, const HubFile& file) const;
  // Links a downloaded file into a snapshot and returns its path there.
  StatusOr<std::string> Link(const std::string& repo, const std::string& commit,
                             const HubFile& file) const;
  Status WriteRef(const std::string& repo, const std::string& revision,
                  const std::string& commit) const;

  // The files present in one snapshot.
  struct Snapshot {
    std::string repo;
    std::string folder;
    bool is_main = false;            // is the target of refs/main
    std::vector<std::string> files;  // relative paths, sorted
  };
  // All repositories' snapshots; for each, main's first and then the newest.
  std::vector<Snapshot> Snapshots() const;
  // The last downloaded state of a branch, tag or commit; without files if there is none.
  Snapshot SnapshotOf(const std::string& repo, const std::string& revision) const;

  // FAILED_PRECONDITION if blobs or snapshots of a repository are links.
  Status CheckLinks(const std::string& repo) const;
  // Removes these files from all snapshots of the repository, and blobs that are no longer used.
  // Returns the number of bytes freed.
  StatusOr<int64_t> Remove(const std::string& repo, const std::vector<std::string>& files) const;

 private:
  std::string FolderOf(std::string_view repo) const;

  const std::string root_;
};

}  // namespace weft::hub

#endif  // WEFT_MODEL_HUB_HUB_CACHE_H_
