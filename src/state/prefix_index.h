// Which prefixes are computed already, and in which pages their state lies: a tree
// with one node per page of tokens. A node is a prefix; the path from the root to it is
// that prefix's tokens, page by page. The last page of what was inserted may be partly
// filled: such a node is a leaf, and grows when more of the same is inserted.
//
// A node holds one reference to a page of every layer group. Of groups with a window
// the page may be missing, because a long session has given it back. For models with
// recurrent state a node may also hold a checkpoint: a slot with the state after
// exactly the node's tokens. So not every node is a place where a session can start:
//
//   a position is a resume point iff every windowed group has the pages that the next
//   token can see, and, for models with slots, it is the end of a node with a checkpoint.
//
// Without slots that is any position inside a node's page too. So where a prompt leaves
// what is known in the middle of a page, it finds everything up to there: children stand
// in the order of their tokens, and the one that has most in common is a neighbour of
// where the prompt would stand.
//
// Match finds the deepest resume point of a prompt, and hands out page tables that
// share its pages; whoever goes on from the middle of one copies it first, as forks do
// (PageTable::MakeWritable). Insert adds what a session has computed. Two sessions that
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
  int64_t n_tokens = 0;           // 0: nothing found
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
  int64_t compared_tokens = 0;   // since the start, by all look-ups: what they cost
  int64_t eviction_visits = 0;   // likewise the nodes that evictions looked at
  // Since the start.
  int64_t evicted_nodes = 0, evicted_pages = 0, evicted_checkpoints = 0;
};

class PrefixIndex {
 public:
  explicit PrefixIndex(PrefixIndexOptions options);
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // The longest resume point among the first `max_tokens` of `tokens`. O(its length), and
  // per page the logarithm of how many pages follow the same one. Where windowed pages were
  // evicted it may be a shorter one, because not more than kMostTried pages that begin alike
  // are tried.
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

  // Adds the pages of the first `n_tokens` of `tokens`, whose state lies in `tables` (one
  // per group). Nodes that are there already stay as they are, and get the windowed pages
  // that they lacked. A node of a partly filled page that goes on like the tokens grows: it
  // holds the table's page then instead of its own. With `adopt`, the tables' whole pages
  // that the index holds too are exchanged for the index's. Of models with slots a partly
  // filled page is of use with a checkpoint at its end only, and is left out without.
  // `checkpoint`, if not kNoSlot, is the state after exactly `n_tokens`; the index
  // takes a reference of its own, unless the node has one already. The slot must not
  // be written from then on.
  // REQUIRES: n_tokens <= tokens.size(); every table holds n_tokens or more; tables of
  // groups without window are complete; with a checkpoint, n_tokens is positive.
  PrefixInsert Insert(std::string_view domain, std::span<const TokenId> tokens, int64_t n_tokens,
                      std::span<PageTable* const> tables, bool adopt, SlotId checkpoint = kNoSlot);

  // Whoever holds `tables` goes on after exactly these tokens and would have to copy the
  // partly filled last page only because the index holds it too. Lets go of it where that
  // loses nothing once the page is inserted again: it ends where the tokens do and nothing
  // resumes at its checkpoint. `at_any_price`: also where it loses what came after.
  void GiveBackTail(std::string_view domain, std::span<const TokenId> tokens,
                    std::span<PageTable* const> tables, bool at_any_price);

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

  // How many references to the page are the index's.
  int32_t HoldersOf(size_t group, PageId page) const {
    const auto& holders = holders_[group];
    return static_cast<size_t>(page) < holders.size() ? holders[static_cast<size_t>(page)] : 0;
  }
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

  // Nodes down to a resume point: the last one holds the last of the n_tokens.
  struct Found {
    std::vector<Node*> path;
    int64_t n_tokens = 0;
  };
  static constexpr int kMostTried = 32;

  Node* FindRoot(std::string_view domain) const;
  Node* MakeRoot(std::string_view domain);
  int64_t Common(const Node* node, std::span<const TokenId> page) const;
  // Calls visit(child) for the children whose tokens are the first of `page`, or all of
  // them, the longest first, until it returns true.
  template <typename Visit>
  void ForEachBeginning(const Node* parent, std::span<const TokenId> page, Visit visit) const;
  // The same for those whose tokens begin with all of `page`, the shortest or smallest first.
  template <typename Visit>
  void ForEachLonger(const Node* parent, std::span<const TokenId> page, Visit visit) const;
  Node* AddChild(Node* parent, std::span<const TokenId> page);
  // The child that stands for a page of the tables, for its tokens may be one that goes on
  // after them; a new one if need be.
  Node* PlaceChild(Node* parent, std::span<const TokenId> page, std::span<PageTable* const> tables,
                   int64_t entry, bool ends_here, PrefixInsert* result);
  void Grow(Node* node, std::span<const TokenId> page, std::span<PageTable* const> tables,
            int64_t entry);
  // Gives the node the pages it lacks; returns how many were exchanged instead.
  int64_t TakePages(Node* node, std::span<PageTable* const> tables, int64_t entry, bool adopt);
  void TakeCheckpoint(Node* node, SlotId slot);
  // The nodes of the whole pages among the first `max_tokens`, as far as they are known.
  std::vector<Node*> KnownPath(std::string_view domain, std::span<const TokenId> tokens,
                               int64_t max_tokens) const;
  // The deepest resume point.
  Found FindPath(std::string_view domain, std::span<const TokenId> tokens,
                 int64_t max_tokens) const;
  // The child in which most of `page`, which follows its parent, can be resumed, and how much.
  std::pair<Node*, int64_t> BestChild(const Node* parent, std::span<const TokenId> page) const;
  // The node that ends exactly with the tokens, or null.
  Node* FindEnd(std::string_view domain, std::span<const TokenId> tokens) const;

  // The last entry that the token after the first `n_tokens` sees, or that it is written to,
  // and in which some group has no page; -1: none. `node` holds the last of the n_tokens.
  int64_t LastAbsent(const Node* node, int64_t n_tokens) const;
  GroupShape shape(size_t group) const {
    return {options_.page_tokens, options_.groups[group].window};
  }
  bool IsResumePoint(const Node* node) const;
  static bool HoldsNothing(const Node* node);
  // Counts as a use of the nodes, and of the last one as a resume point.
  void Use(const Found& found);
  void SetUsed(Node* node);
  void SetWindowUsed(Node* node);

  // Whether nobody but nodes of the index holds the page.
  bool IsLone(size_t group, PageId page) const;
  bool EvictingHelps(const Node* node, const EvictionWish& wish, const EvictionWish& freed) const;
  // A leaf, or a node with windowed pages, is set aside from its order while others hold all
  // of its pages that count there: whoever evicts need not look at it again and again.
  bool MayBeSetAside(const Node* node, bool windowed) const;
  void SetAside(Node* node, bool windowed);
  void PutBack(Node* node, bool windowed);
  // Those of whose pages somebody has let go.
  void PutReleasedBack();
  bool CountsIn(bool windowed, size_t group) const {
    return (options_.groups[group].window > 0) == windowed;
  }
  void EvictLeaves(const EvictionWish& wish, EvictionWish* freed);
  void EvictWindowed(const EvictionWish& wish, EvictionWish* freed);
  void EvictCheckpoints(const EvictionWish& wish, EvictionWish* freed);
  void EvictCheckpoint(Node* node, EvictionWish* freed);
  void HoldPage(Node* node, size_t group, PageId page);
  // True when nobody holds it any more.
  bool UnholdPage(size_t group, PageId page);
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
  Status CheckAside(const Node* node) const;
  Status CheckTotals() const;

  const PrefixIndexOptions options_;
  int64_t max_window_ = 0;
  uint64_t clock_ = 0;
  uint64_t next_serial_ = 1;
  uint64_t next_pin_ = 1;
  std::unordered_map<std::string, std::unique_ptr<Node>> roots_;
  std::unordered_map<uint64_t, std::unique_ptr<Node>> nodes_;  // all but the roots, by serial
  LruOrder leaves_;        // nodes without children, by last use; but those set aside
  LruOrder windowed_;      // likewise those with windowed pages, by last use as what is seen
  LruOrder checkpointed_;  // nodes with checkpoints, by last use as resume points
  std::unordered_map<uint64_t, Node*> pins_;
  // Per group and page, how many nodes hold it: of those that share a page, tokens begin
  // alike. And how many pages are held.
  std::vector<std::vector<int32_t>> holders_;
  std::vector<int64_t> n_pages_;
  // Per group, the nodes that were set aside, by page.
  std::vector<std::unordered_multimap<PageId, Node*>> aside_;
  int64_t eviction_visits_ = 0;
  mutable int64_t compared_tokens_ = 0;
  int64_t evicted_nodes_ = 0, evicted_pages_ = 0, evicted_checkpoints_ = 0;
};

}  // namespace weft

#endif  // WEFT_STATE_PREFIX_INDEX_H_
