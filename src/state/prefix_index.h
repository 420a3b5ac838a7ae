// Which prefixes are computed already, and in which pages their state lies: a tree
// with one node per whole page of tokens. A node is a prefix; the path from the root
// to it is that prefix's tokens, page by page.
//
// A node holds one reference to a page of every layer group. Of groups with a window
// the page may be missing, because a long session has given it back. For models with
// recurrent state a node may also hold a checkpoint: a slot with the state after
// exactly the node's tokens. So not every node is a place where a session can start:
//
//   a node is a resume point iff every windowed group has the pages that the next
//   token can see, and, for models with slots, the node has a checkpoint.
//
// Match finds the deepest resume point of a prompt, and hands out page tables that
// share its pages. Insert adds what a session has computed. Two sessions that
// computed the same prefix side by side hold duplicate pages; Insert can exchange
// the later one's for the index's.
//
// Isolation: every domain (an API key's name, say) has a tree of its own. What one
// inserted is never found by another, unless the operator opened sharing; then there
// is one tree for all.
//
// Eviction is least recently used by a counter, not by time, so that the same
// operations always evict the same nodes. Nothing is evicted but by EvictLru and
// Clear; pinned prefixes are evicted by neither.
//
// Threads: as PagePool. The pools must outlive the index.
#ifndef WEFT_STATE_PREFIX_INDEX_H_
#define WEFT_STATE_PREFIX_INDEX_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/state_ids.h"
#include "base/status.h"
#include "base/tokens.h"
#include "state/page_pool.h"
#include "state/page_table.h"

namespace weft {

struct PrefixIndexOptions {
  int page_tokens = 0;
  // One per layer group of the model; window 0 means that every page is needed.
  struct Group {
    PagePool* pool = nullptr;
    int64_t window = 0;
  };
  std::vector<Group> groups;
  // Null for models without recurrent state.
  SlotPool* slots = nullptr;
  // One tree for all domains. Tells every client what others asked, by its speed.
  bool share_across_domains = false;
};

// A resume point found: what a new session starts with.
struct PrefixMatch {
  int64_t n_tokens = 0;           // a multiple of page_tokens; 0: nothing found
  std::vector<PageTable> tables;  // per group, each of n_tokens; windowed: only what is seen
  // For models with slots, when n_tokens > 0: the state after n_tokens. Shared, as the
  // pages are: to be copied before it is written.
  PoolRef checkpoint;
};

struct PrefixInsert {
  int64_t new_nodes = 0;
  int64_t adopted_pages = 0;  // the caller's duplicates, exchanged and given back
  bool checkpoint_kept = false;
};

struct EvictionWish {
  std::vector<int64_t> pages;  // per group, how many to free
  int64_t slots = 0;
};

struct PrefixIndexStats {
  int64_t domains = 0, nodes = 0, checkpoints = 0, pins = 0;
  int64_t lone_checkpoints = 0;  // those whose slot nobody else holds
  std::vector<int64_t> pages;    // per group
  int64_t memory_bytes = 0;      // of the index itself, roughly; not of pages
  // Since the start.
  int64_t evicted_nodes = 0, evicted_pages = 0, evicted_checkpoints = 0;
};

class PrefixIndex {
 public:
  explicit PrefixIndex(PrefixIndexOptions options);
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // The longest resume point among the first `max_tokens` of `tokens`. O(its length).
  // A caller that needs logits passes max_tokens = tokens.size() - 1, so that one
  // token is left to compute.
  PrefixMatch Match(std::string_view domain, std::span<const TokenId> tokens, int64_t max_tokens);

  // How long that would be, without references and without counting as a use.
  int64_t MatchLength(std::string_view domain, std::span<const TokenId> tokens,
                      int64_t max_tokens) const;

  // The whole pages of `tokens` that are known, whether or not a session can start there.
  int64_t KnownLength(std::string_view domain, std::span<const TokenId> tokens,
                      int64_t max_tokens) const;

  // The checkpoints after up to `max_tokens` of `tokens`, ascending; without references.
  struct Checkpoint {
    int64_t n_tokens = 0;
    SlotId slot = kNoSlot;
  };
  std::vector<Checkpoint> Checkpoints(std::string_view domain, std::span<const TokenId> tokens,
                                      int64_t max_tokens) const;

  // Adds the whole pages among the first `n_tokens` of `tokens`, whose state lies in
  // `tables` (one per group). Nodes that are there already stay as they are, and get
  // the windowed pages that they lacked. With `adopt`, the tables' pages that the
  // index holds too are exchanged for the index's.
  // `checkpoint`, if not kNoSlot, is the state after exactly `n_tokens`; the index
  // takes a reference of its own, unless the node has one already. The slot must not
  // be written from then on.
  // REQUIRES: n_tokens <= tokens.size(); every table holds n_tokens or more; tables of
  // groups without window are complete; with a checkpoint, n_tokens is a positive
  // multiple of page_tokens.
  PrefixInsert Insert(std::string_view domain, std::span<const TokenId> tokens, int64_t n_tokens,
                      std::span<PageTable* const> tables, bool adopt, SlotId checkpoint = kNoSlot);

  // Lets go of the checkpoint after exactly these tokens, if there is one: whoever took
  // it has a better one, or needs the memory.
  void ForgetCheckpoint(std::string_view domain, std::span<const TokenId> tokens);
  // Lets go of the least recently used checkpoints until no more than `most` are left,
  // pinned ones apart.
  void LimitCheckpoints(int64_t most);

  // Keeps the longest resume point of `tokens`, all of its pages and its checkpoint,
  // until Unpin. Pins count. id 0: nothing was found and nothing is pinned.
  struct Pinned {
    uint64_t id = 0;
    int64_t n_tokens = 0;
  };
  Pinned Pin(std::string_view domain, std::span<const TokenId> tokens);
  // NOT_FOUND for an id that is not pinned.
  Status Unpin(uint64_t id);

  // Lets go of the least recently used until the wish is fulfilled or nothing is left
  // that would help: leaves first (their pages of every group are freed), then
  // windowed pages and checkpoints of older resume points. Only what nobody else
  // holds counts as freed, and leaves that would free nothing stay. Returns how much
  // became free; it may be more than was wished.
  EvictionWish EvictLru(const EvictionWish& wish);

  // Forgets the domain's prefixes (with sharing: all of them) but pinned ones.
  // Returns the number of nodes dropped.
  int64_t Clear(std::string_view domain);
  int64_t ClearAll();

  PrefixIndexStats Stats() const;

  // Adds the index's references to the counts by id, of one group or of the slots.
  void AddPageCounts(int group, std::vector<int32_t>* counts) const;
  void AddSlotCounts(std::vector<int32_t>* counts) const;
  // INTERNAL with a sentence when nodes, orders and totals contradict each other.
  Status CheckIntegrity() const;

 private:
  struct Node;
  // When it was last used, and a number that makes the order total.
  using LruKey = std::pair<uint64_t, uint64_t>;
  using LruOrder = std::map<LruKey, Node*>;

  Node* FindRoot(std::string_view domain) const;
  Node* MakeRoot(std::string_view domain);
  Node* FindChild(const Node* parent, std::span<const TokenId> page, uint64_t hash) const;
  Node* AddChild(Node* parent, std::span<const TokenId> page, uint64_t hash);
  // Gives the node the pages it lacks; returns how many were exchanged instead.
  int64_t TakePages(Node* node, std::span<PageTable* const> tables, int64_t entry, bool adopt);
  void TakeCheckpoint(Node* node, SlotId slot);
  // The nodes of the whole pages among the first `max_tokens`, as far as they are known.
  std::vector<Node*> KnownPath(std::string_view domain, std::span<const TokenId> tokens,
                               int64_t max_tokens) const;
  // Those down to the deepest resume point.
  std::vector<Node*> FindPath(std::string_view domain, std::span<const TokenId> tokens,
                              int64_t max_tokens) const;

  bool IsResumePoint(const Node* node) const;
  static bool HoldsNothing(const Node* node);
  // Counts as a use of the nodes, and of the last one as a resume point.
  void Use(std::span<Node* const> path);
  void SetUsed(Node* node);
  void SetWindowUsed(Node* node);

  bool EvictingHelps(const Node* node, const EvictionWish& wish, const EvictionWish& freed) const;
  void EvictLeaves(const EvictionWish& wish, EvictionWish* freed);
  void EvictWindowed(const EvictionWish& wish, EvictionWish* freed);
  void EvictCheckpoints(const EvictionWish& wish, EvictionWish* freed);
  void EvictCheckpoint(Node* node, EvictionWish* freed);
  void DropPage(Node* node, size_t group, EvictionWish* freed);
  void DropCheckpoint(Node* node, EvictionWish* freed);
  // Returns the parent, or null when that is the root (which may be gone then).
  Node* RemoveLeaf(Node* node, EvictionWish* freed);
  // Removes a leaf at which nothing can resume or that holds nothing, and its parents
  // likewise. Returns the first that stays, or null when that is the root.
  Node* PruneDeadLeaf(Node* node, EvictionWish* freed);
  int64_t ClearTree(const Node* root);  // null: all trees

  std::string_view TreeName(std::string_view domain) const {
    return options_.share_across_domains ? std::string_view() : domain;
  }
  Status CheckNode(const Node* node) const;
  Status CheckTotals() const;

  const PrefixIndexOptions options_;
  std::vector<int64_t> seen_pages_;  // per windowed group: pages a resume point needs; else 0
  int64_t max_seen_pages_ = 0;
  uint64_t clock_ = 0;
  uint64_t next_serial_ = 1;
  uint64_t next_pin_ = 1;
  std::unordered_map<std::string, std::unique_ptr<Node>> roots_;
  // All nodes but the roots, by a hash of parent and tokens.
  std::unordered_multimap<uint64_t, std::unique_ptr<Node>> nodes_;
  LruOrder leaves_;        // nodes without children, by last use
  LruOrder windowed_;      // nodes with windowed pages, by last use as pages that are seen
  LruOrder checkpointed_;  // nodes with checkpoints, by last use as resume points
  std::unordered_map<uint64_t, Node*> pins_;
  std::vector<int64_t> n_pages_;  // per group
  int64_t evicted_nodes_ = 0, evicted_pages_ = 0, evicted_checkpoints_ = 0;
};

}  // namespace weft

#endif  // WEFT_STATE_PREFIX_INDEX_H_
