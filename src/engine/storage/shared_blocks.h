// Blocks of computed state in a shared store: what this server writes to its disk goes there too,
// and what others have computed comes from there, by way of the disk.
//
// A block's name is a hash of its whole prefix, so whoever has a prompt knows the names of the
// blocks to ask for. No answer is needed: the server computes the state of blocks that are missing,
// late or damaged.
// Engine thread only.
#ifndef WEFT_ENGINE_STORAGE_SHARED_BLOCKS_H_
#define WEFT_ENGINE_STORAGE_SHARED_BLOCKS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/tokens.h"
#include "engine/storage/disk_tier.h"
#include "engine/storage/worker.h"
#include "weft/shared_store.h"

namespace weft {

class SharedBlocks {
 public:
  using PostBack = std::function<void(std::function<void()>)>;

  // `folder` names everything that the state's bits depend on. The tier must outlive the object.
  SharedBlocks(std::shared_ptr<ObjectStore> objects, std::string folder, int64_t page_tokens,
               DiskTier* disk, PostBack post_back);
  ~SharedBlocks() { Abandon(); }

  // The block on disk goes to the store, unless that has it already.
  void Offer(const Fingerprint& key);
  // Calls `then` once all offered blocks are there, as far as they will be.
  void AfterUploads(std::function<void()> then);
  int64_t pending() const { return pending_; }

  // A prompt, and the part of it that is on disk.
  struct Wish {
    std::string domain;
    std::vector<TokenId> tokens;
    int64_t n_pages = 0;  // whole pages that the disk has
    // A text ended after these tokens: there may be a page that is not full, and a recurrent state.
    bool ends_here = false;
    bool needs_slot = false;  // pages alone are of no use
  };
  // Brings blocks to the disk, in order, up to the first that is missing; then calls `done`. False,
  // without calling it, if asking is not worth the time now.
  bool Fetch(const Wish& wish, std::function<void()> done);
  // To be called now and then.
  void GiveUpLate();
  // Gives up what is not under way.
  void Abandon() { abandoned_ = true; }

 private:
  struct Expected {
    Fingerprint key;
    BlockInfo::Kind kind = BlockInfo::Kind::kPage;
    int64_t first_token = 0;
  };
  using Arrived = std::optional<BlockFiles::Parsed>;
  struct Fetching {
    std::string domain;
    std::vector<Expected> blocks;
    size_t n_asked = 0, n_taken = 0;
    std::map<size_t, Arrived> arrived;
    int64_t being_written = 0;
    bool is_over = false;  // no more is asked for
    int64_t asked_us = 0;
    std::function<void()> done;
  };
  using FetchingRef = std::shared_ptr<Fetching>;

  std::vector<Expected> ListBlocks(const Wish& wish) const;
  void Ask(const FetchingRef& fetching);
  void Take(const FetchingRef& fetching);
  void FinishIfDone(const FetchingRef& fetching);
  std::string NameOf(const Fingerprint& key) const;
  // A store that fails is left alone for a while.
  bool rests() const;

  const std::shared_ptr<ObjectStore> objects_;
  const std::string folder_;
  const int64_t page_tokens_;
  DiskTier* const disk_;
  const PostBack post_back_;
  std::atomic<bool> abandoned_{false};
  std::atomic<int64_t> rests_until_us_{0};
  std::set<std::pair<uint64_t, uint64_t>> known_;  // keys that the store has, or soon
  // Prompts do not wait for it until then; it may take blocks all the same.
  int64_t asks_again_us_ = 0;
  int64_t n_late_ = 0;                    // first answers in a row that came too late
  std::vector<FetchingRef> first_asked_;  // those that had no answer yet
  int64_t pending_ = 0;
  size_t next_reader_ = 0;
  // Last, so that their threads end first.
  Worker writer_;
  std::array<Worker, 6> readers_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_STORAGE_SHARED_BLOCKS_H_
