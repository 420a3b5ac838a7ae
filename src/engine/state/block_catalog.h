// Which blocks of computed state a directory holds, which of them a prompt can use, and which are
// evicted first. Accounting only: block_files.h handles the files.
//
// A block is the state of one page of positions after an exactly known prefix, or the recurrent
// state after an exact number of tokens. Its key is a hash of its whole prefix and its owner (the
// root of a domain), so equal prefixes have equal keys: sessions, their forks and prompts with a
// common beginning share blocks without coordination, and a prompt finds usable blocks by hashing
// its tokens page by page.
//
// A page's block may hold fewer tokens than a page; it is removed when a longer one with the same
// beginning is added. Any block serves as far as its tokens agree with the prompt's, since the
// state of a position depends on no later one.
//
// Bytes never exceed the budget: room is made before a block is added. The least useful blocks go
// first, starting at the ends of prefixes: those unused for long, rarely used, or quick to
// recompute. Files of other models count too and go by the time of their last use.
//
// Threads: one at a time.
#ifndef WEFT_ENGINE_STATE_BLOCK_CATALOG_H_
#define WEFT_ENGINE_STATE_BLOCK_CATALOG_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/tokens.h"
#include "engine/state/prefix_log.h"
#include "engine/state/session_file.h"
#include "engine/state/siblings.h"

namespace weft {

struct BlockInfo {
  enum class Kind : uint32_t { kPage = 1, kSlot = 2 };
  Kind kind = Kind::kPage;
  Fingerprint key;
  Fingerprint parent;       // the preceding whole page, or the domain's root
  int64_t first_token = 0;  // a multiple of page_tokens
  // The tokens from first_token on. Page: 1 to page_tokens of them. Slot, which is the state after
  // the last of them: 0 to page_tokens - 1.
  std::vector<TokenId> tokens;
  uint64_t groups = 0;   // bit g: contains the page of layer group g
  int64_t bytes = 0;     // its file's share of the budget
  bool session = false;  // belongs to a named session, not only to a prompt
  // Last use in seconds since 1970, and how often it was used.
  int64_t used_s = 0;
  int64_t uses = 0;

  int64_t end_token() const { return first_token + static_cast<int64_t>(tokens.size()); }
};

// The root of a domain's prefixes, and the keys of blocks that follow a parent.
Fingerprint BlockRoot(std::string_view domain);
Fingerprint PageBlockKey(const Fingerprint& parent, std::span<const TokenId> tokens);
Fingerprint SlotBlockKey(const Fingerprint& parent, std::span<const TokenId> tokens);

// The part of a prompt that can be read.
struct BlockMatch {
  int64_t n_tokens = 0;            // 0: nothing
  std::vector<Fingerprint> pages;  // one per page of these tokens; the last may be used partly
  std::optional<Fingerprint> slot;
};

class BlockCatalog {
 public:
  struct Options {
    int page_tokens = 0;
    std::vector<int64_t> windows;  // per layer group; 0: all positions are visible. At most 64.
    bool slots = false;            // the model has recurrent state
    int64_t budget_bytes = 0;
    std::string folder;  // directory of this model's files, relative to that of all models
  };
  // Files to remove, by path relative to the directory of all models. They no longer count: remove
  // them before writing anything added since.
  using Victims = std::vector<std::string>;

  explicit BlockCatalog(Options options);
  ~BlockCatalog();

  // Bytes that count towards the budget but are not the catalogue's: session files. Evicts blocks
  // that no longer fit.
  void SetOtherBytes(int64_t bytes, Victims* victims);
  // Evicts blocks until `bytes` more of other data have room. False, evicting nothing, if evicting
  // all blocks would not make that room; or if blocks being written are in the way.
  bool MakeRoomForOthers(int64_t bytes, Victims* victims);

  // The directory's contents at startup, in any order; victims if it exceeds the budget.
  struct ForeignFile {
    std::string path;
    int64_t bytes = 0;
    int64_t used_s = 0;
  };
  Victims Load(std::vector<BlockInfo> own, std::vector<ForeignFile> foreign);

  // Makes room for the block and adds it as not yet written: prompts do not find it. False if more
  // useful blocks leave no room. Never evicts the parent. Replaces a block with the same key that
  // holds the pages of fewer groups. REQUIRES: there is no other block with this key, and it is not
  // being written.
  bool Add(BlockInfo info, Victims* victims);
  // From now on prompts find the block. Removes partial blocks that it supersedes.
  void SetWritten(const Fingerprint& key, Victims* victims);
  // Called when a block turns out to be missing or damaged.
  void Remove(const Fingerprint& key);

  const BlockInfo* Find(const Fingerprint& key) const;  // also finds a block that is being written
  bool IsWritten(const Fingerprint& key) const;
  // Whether a block after `parent`, written or being written, begins with these tokens.
  bool Covers(const Fingerprint& parent, std::span<const TokenId> tokens, uint64_t groups) const;
  // Records a use of the match and its prefix, as this many.
  void Use(const BlockMatch& match, int64_t now_s, int64_t n_uses = 1);
  void UseForSession(const Fingerprint& key, int64_t now_s);

  // The longest part of the first `max_tokens` tokens after which a session can resume. If windowed
  // pages are missing it may miss the longest, because of the blocks with the same beginning it
  // tries Siblings::kMaxTried at most.
  BlockMatch Match(std::string_view domain, std::span<const TokenId> tokens,
                   int64_t max_tokens) const;

  // --- watches (block_catalog_watch.cc) ------------------------------------------------------
  // From now on the log is told of the domain's written blocks that are whole pages of tokens and
  // continue one another from the beginning, of models in which a session can start after each:
  // without windows and recurrent state. Null: no log any more. It outlives that. At most one per
  // domain.
  void Watch(std::string_view domain, PrefixLog* log);
  // Tells up to `max_blocks` that it has not told yet. True if there are more.
  bool TellWatched(int64_t max_blocks);

  std::string PathOf(const Fingerprint& key) const;
  std::vector<BlockInfo> Blocks() const;  // written blocks only
  int64_t bytes() const { return bytes_; }
  int64_t budget_bytes() const { return options_.budget_bytes; }
  int64_t size() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t evicted() const { return evicted_; }
  // By all look-ups so far, as a measure of cost.
  int64_t compared_tokens() const { return compared_tokens_; }
  Status CheckIntegrity() const;

 private:
  struct Block;
  struct KeyHash {
    size_t operator()(const Fingerprint& key) const { return static_cast<size_t>(key.low); }
  };
  // The blocks with the same parent.
  struct Children {
    explicit Children(int64_t* compared) : pages(compared), slots(compared) {}
    Siblings<Block>& of(BlockInfo::Kind kind) {
      return kind == BlockInfo::Kind::kPage ? pages : slots;
    }
    // Whether a slot lies beyond the parent's end.
    bool has_end() const;
    Siblings<Block> pages, slots;
  };
  struct Evictable {
    Block* block = nullptr;  // null: a foreign file
    ForeignFile foreign;
  };
  // In order of eviction: the time until which it is worth keeping, and a number that makes the
  // order total.
  using OrderKey = std::pair<int64_t, uint64_t>;

  struct Watcher {
    PrefixLog* log = nullptr;
    // Blocks, or the root, with children that may still have to be told.
    std::deque<Fingerprint> parents;
    std::unordered_map<Fingerprint, uint64_t, KeyHash> told;  // and their numbers
  };

  Block* BlockOf(const Fingerprint& key) const;
  const Children* ChildrenOf(const Fingerprint& parent) const;
  Block* Insert(BlockInfo info);
  void Erase(const Fingerprint& key);
  void NoteUse(const Fingerprint& key, int64_t now_s, int64_t n_uses, bool session);
  int64_t KeepUntil(const BlockInfo& info) const;
  bool IsLeaf(const Block& block) const;
  void Place(Block* block);  // adds it to the order, if it is a leaf and not null
  void Unplace(Block* block);
  int64_t room() const { return options_.budget_bytes - other_bytes_; }
  bool MakeRoom(int64_t bytes, int64_t worth_until, const Fingerprint& parent, Victims* victims);
  bool IsTellable(const Block& block) const;
  void NoteWritten(const Block& block);
  void NoteRemoval(const Fingerprint& key);
  bool TellChildren(const Fingerprint& root, Watcher* watcher, int64_t* max_blocks);
  void Tell(const Fingerprint& root, const Block& block, Watcher* watcher) const;
  void Untell(const Fingerprint& key, Watcher* watcher) const;
  bool SeesEnough(const std::vector<const Block*>& pages, int64_t n_tokens) const;
  // The longest that begins with `pages`, all whole, and goes on with less than a page of `rest`.
  BlockMatch MatchAfter(const Fingerprint& parent, std::vector<const Block*>* pages,
                        std::span<const TokenId> rest) const;

  const Options options_;
  std::unordered_map<Fingerprint, std::unique_ptr<Block>, KeyHash> blocks_;
  std::unordered_map<Fingerprint, Children, KeyHash> children_;  // by parent
  std::map<OrderKey, Evictable> order_;
  std::unordered_map<Fingerprint, Watcher, KeyHash> watchers_;  // by the domain's root
  uint64_t next_serial_ = 1;
  int64_t bytes_ = 0;
  int64_t other_bytes_ = 0;
  int64_t evicted_ = 0;
  mutable int64_t compared_tokens_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_STATE_BLOCK_CATALOG_H_
