// The engine thread's view of computed state blocks on disk: finds those that a prompt can use, and
// decides which are written, how fast and within which limits.
//
// The catalogue is here; the files belong to the worker. Room in the budget is made before a block
// is handed over, and the worker works in order, so the disk never exceeds the budget. The bytes in
// the worker's hands are bounded too: when Keep returns kLater, the caller keeps the block where it
// is. A failed write loses only that block; after a full disk, writing pauses for a while.
// Engine thread only.
#ifndef WEFT_ENGINE_STORAGE_DISK_TIER_H_
#define WEFT_ENGINE_STORAGE_DISK_TIER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "base/tokens.h"
#include "compute/state_store.h"
#include "engine/state/block_catalog.h"
#include "engine/state/block_files.h"
#include "engine/state/hourly_writes.h"
#include "engine/state/prefix_domain.h"
#include "engine/state/prefix_log.h"
#include "engine/storage/worker.h"
#include "weft/engine.h"

namespace weft {

class DiskTier {
 public:
  struct Options {
    std::string path;      // directory of all models' blocks
    std::string identity;  // everything the state's bits depend on
    StateLayout layout;
    std::vector<int64_t> windows;  // per layer group
    bool share_across_domains = false;
    int64_t budget_bytes = 0;    // 0: the smaller of 10 GB and a tenth of the free space
    int64_t bytes_per_hour = 0;  // 0: half of the budget
    int64_t file_bytes = 0;      // see SetFileBytes
    std::function<void(const std::string&)> notice;
  };
  using PostBack = std::function<void(std::function<void()>)>;

  // `worker` must outlive the object.
  static StatusOr<std::unique_ptr<DiskTier>> Open(Options options, Worker* worker,
                                                  PostBack post_back);

  // --- reading --------------------------------------------------------------------------
  BlockMatch Match(std::string_view domain, std::span<const TokenId> tokens,
                   int64_t max_tokens) const {
    return catalog_.Match(TreeName(domain), tokens, max_tokens);
  }
  // A block's contents, outside the backend's memory.
  struct Loaded {
    BlockInfo info;
    std::vector<std::byte> payload;
  };
  // Reads the blocks ahead of queued writes and answers with the intact ones, in order, up to the
  // first that could not be read, and why. DATA_LOSS: it was damaged or missing and is forgotten.
  // Other errors are the system's, and the block stays. Tenants take turns.
  void Read(const std::string& tenant, const std::string& domain, std::span<const Fingerprint> keys,
            std::function<void(std::vector<Loaded>, Status)> done);
  // Records a use of blocks that are about to be read.
  void Use(const BlockMatch& match, int64_t n_uses = 1);

  // --- writing --------------------------------------------------------------------------
  Fingerprint Root(std::string_view domain) const { return BlockRoot(TreeName(domain)); }
  // Whether the block is on disk or being written, and pages of these groups would add nothing.
  bool Has(const Fingerprint& key, uint64_t groups) const {
    const BlockInfo* const info = catalog_.Find(key);
    if (info == nullptr) return false;
    const bool adds = (info->groups & ~groups) == 0 && (groups & ~info->groups) != 0;
    return !adds || !catalog_.IsWritten(key);
  }
  bool Covers(const Fingerprint& parent, std::span<const TokenId> tokens, uint64_t groups) const {
    return catalog_.Covers(parent, tokens, groups);
  }
  void UseForSession(const Fingerprint& key);
  enum class Answer {
    kYes,    // it will be written
    kLater,  // too much is in flight, for the worker or for the budget
    kNo,     // worth less than the blocks to evict, hourly limit reached, disk full, or not read
  };
  using Payload = StatusOr<std::vector<std::byte>>;
  // Writes a new block. `read` copies it, once there is room.
  Answer Keep(BlockInfo info, const std::string& domain, FunctionRef<Payload()> read);
  // Writes a block that comes from a shared store, at once. `done` is told whether prompts can use
  // it; false, without calling `done`, if there is no room.
  bool Adopt(BlockInfo info, const std::string& domain, std::vector<std::byte> payload,
             std::function<void(bool)> done);
  // Called with every block that is on disk from now on, but for adopted ones.
  void WatchWritten(std::function<void(const Fingerprint&)> written) {
    on_written_ = std::move(written);
  }
  // Whose prefixes the domain's sessions share.
  std::string TreeName(std::string_view domain) const {
    return std::string(TreeOf(domain, options_.share_across_domains));
  }
  const BlockFiles* files() const { return files_.get(); }
  // Drops the blocks that the worker has not begun to write; their state will be recomputed.
  void GiveUpWrites() { *given_up_ = true; }
  // Removes the block unless a prompt has used it.
  void RemoveUnused(const Fingerprint& key);
  // Session files count towards the budget; blocks give way to them.
  void SetFileBytes(int64_t bytes);
  // RESOURCE_EXHAUSTED if a new file of `bytes` would not fit next to the others.
  Status MakeRoomForFile(int64_t bytes);
  // When Keep may stop returning kLater without an answer from the worker; in NowMicros time.
  int64_t next_write_us() const { return next_write_us_; }
  bool awaits_answers() const { return in_flight_bytes_ > 0; }

  // As BlockCatalog's.
  void Watch(std::string_view domain, PrefixLog* log) { catalog_.Watch(TreeName(domain), log); }
  bool TellWatched(int64_t max_blocks) { return catalog_.TellWatched(max_blocks); }

  // Writes an index of all blocks, so that the next start is fast.
  void WriteIndex();
  int64_t PayloadBytes(const BlockInfo& info) const;
  void FillStats(EngineStats* stats) const;
  Status CheckIntegrity() const { return catalog_.CheckIntegrity(); }

 private:
  DiskTier(Options options, std::unique_ptr<BlockFiles> files, BlockCatalog::Options catalog,
           Worker* worker, PostBack post_back);
  // With kYes, room is reserved.
  Answer Ask(BlockInfo info, const std::string& domain);
  void Write(const BlockInfo& info, const std::string& domain, std::vector<std::byte> payload);
  void Remove(const Fingerprint& key);
  void RemoveFiles(BlockCatalog::Victims victims);
  void FinishWrite(const Fingerprint& key, int64_t bytes, const Status& status);
  bool MayWrite(int64_t bytes, bool session);
  void FailRead(const Fingerprint& key, const Status& status);
  void Notice(const std::string& text) const;

  const Options options_;
  const std::shared_ptr<BlockFiles> files_;  // used by the worker
  Worker* const worker_;
  const PostBack post_back_;
  const int64_t bytes_per_hour_;
  const std::shared_ptr<std::atomic<bool>> given_up_ = std::make_shared<std::atomic<bool>>(false);
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::function<void(const Fingerprint&)> on_written_;
  BlockCatalog catalog_;
  int64_t file_bytes_ = 0;
  int64_t in_flight_bytes_ = 0;
  int64_t next_write_us_ = 0;
  HourlyWrites writes_;           // by this process and those before it, for all models
  int64_t resting_until_us_ = 0;  // after a failed write
  bool told_failure_ = false, told_failed_read_ = false;
  int64_t changes_ = 0;  // since the index was written
  int64_t index_us_ = 0;
  // Since the start.
  int64_t written_bytes_ = 0, read_bytes_ = 0, skipped_bytes_ = 0;
  int64_t damaged_blocks_ = 0, failed_writes_ = 0;
  int64_t writes_under_way_ = 0;
  int64_t foreign_blocks_ = 0;  // other models' or KV types', found at opening
};

}  // namespace weft

#endif  // WEFT_ENGINE_STORAGE_DISK_TIER_H_
