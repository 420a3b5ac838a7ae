// Which prefixes are already computed, and which pages hold their state: a tree with one node per
// page of tokens. A node stands for a prefix; the path from the root to it spells that prefix's
// tokens, page by page. The last page of an inserted sequence may be partly filled: such a node is
// a leaf, and grows when a continuation is inserted.
//
// A node holds one reference to a page of every layer group. In groups with a window the page may
// be missing, because a long session has freed it. For models with recurrent state a node may also
// hold a checkpoint: a slot with the state after exactly the node's tokens. So a session cannot
// start at every node:
//
//   a position is a resume point iff every windowed group has the pages that the next
//   token can see, and, for models with slots, it is the end of a node with a checkpoint.
//
// Without slots, positions inside a node's page qualify too. So a prompt that diverges from known
// tokens in the middle of a page finds everything up to there (siblings.h).
//
// Match finds the deepest resume point of a prompt and returns page tables that share its pages; a
// session that continues in the middle of a page copies it first, as forks do
// (PageTable::MakeWritable). Insert adds what a session has computed. Two sessions that computed
// the same prefix side by side hold duplicate pages; Insert can replace the later one's with the
// index's.
//
// Isolation: every domain (e.g. an API key's name) has its own tree. One domain never finds what
// another inserted, unless the operator enabled sharing; then there is one tree for all.
//
// Eviction is least recently used by a counter, not by time, so that the same operations always
// evict the same nodes. Within a domain, claims come first (see "claims" below).
//
// Threads: as PagePool. The pools must outlive the index.
#ifndef WEFT_ENGINE_STATE_PREFIX_INDEX_H_
#define WEFT_ENGINE_STATE_PREFIX_INDEX_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/state_ids.h"
#include "base/status.h"
#include "base/tokens.h"
#include "engine/state/history.h"
#include "engine/state/page_pool.h"
#include "engine/state/page_table.h"
#include "engine/state/prefix_domain.h"
#include "engine/state/prefix_log.h"

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
  // The table of the rows among the tokens; nodes hold the rows. Null: there are none.
  const RowTable* rows = nullptr;
  // One tree for all domains. Response times then reveal to every client what others asked.
  bool share_across_domains = false;
};

// A resume point: the state that a new session starts with.
struct PrefixMatch {
  int64_t n_tokens = 0;           // 0: nothing found
  std::vector<PageTable> tables;  // per group, each of n_tokens; windowed: only visible pages
  // For models with slots, if n_tokens > 0: the state after n_tokens. Shared like the pages: copy
  // it before writing.
  PoolRef checkpoint;
};

struct PrefixInsert {
  int64_t new_nodes = 0;
  int64_t adopted_pages = 0;  // the caller's duplicates, exchanged and released
  bool checkpoint_kept = false;
};

struct EvictionWish {
  std::vector<int64_t> pages;  // per group, how many to free
  int64_t slots = 0;
};

struct PrefixIndexStats {
  int64_t domains = 0, nodes = 0, checkpoints = 0, claims = 0;
  int64_t lone_checkpoints = 0;  // whose slot has no other holder
  std::vector<int64_t> pages;    // per group
  int64_t memory_bytes = 0;      // the index itself, roughly; excludes pages
  int64_t compared_tokens = 0;   // since the start, by all look-ups; a measure of cost
  int64_t eviction_visits = 0;   // since the start, nodes visited by evictions
  // Since the start.
  int64_t evicted_nodes = 0, evicted_pages = 0, evicted_checkpoints = 0;
};

class PrefixIndex {
 public:
  explicit PrefixIndex(PrefixIndexOptions options);
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // The longest resume point among the first `max_tokens` of `tokens`. Linear in its length, plus
  // per page the logarithm of the number of siblings. If windowed pages were evicted it may miss
  // the longest, because of the pages with the same beginning it tries Siblings::kMaxTried at most.
  // A caller that needs logits passes max_tokens = tokens.size() - 1, so that one token is left to
  // compute.
  PrefixMatch Match(std::string_view domain, std::span<const TokenId> tokens, int64_t max_tokens);

  // The length of that match, without taking references or counting as a use.
  int64_t MatchLength(std::string_view domain, std::span<const TokenId> tokens,
                      int64_t max_tokens) const;

  // How many of the first `max_tokens` are known, whether or not a session can resume there.
  int64_t KnownLength(std::string_view domain, std::span<const TokenId> tokens,
                      int64_t max_tokens) const;

  // The pages of a known whole page of tokens, the last of these, by group; kNoPage where it has
  // none, and empty if it does not know all of them. Takes no references.
  std::vector<PageId> PagesAtEnd(std::string_view domain, std::span<const TokenId> tokens) const;

  // The checkpoints after up to `max_tokens` of `tokens`, ascending; takes no references.
  struct Checkpoint {
    int64_t n_tokens = 0;
    SlotId slot = kNoSlot;
  };
  std::vector<Checkpoint> Checkpoints(std::string_view domain, std::span<const TokenId> tokens,
                                      int64_t max_tokens) const;

  // Adds the pages of the first `n_tokens` of `tokens`, whose state is in `tables` (one per group).
  // Existing nodes stay as they are and receive the windowed pages they lacked. A node with a
  // partly filled page that the tokens continue grows: it then holds the table's page instead of
  // its own. With `adopt`, the tables' whole pages that the index also holds are replaced by the
  // index's. For models with slots a partly filled page is useful only with a checkpoint at its
  // end, and is otherwise left out.
  //
  // `checkpoint`, if not kNoSlot, is the state after exactly `n_tokens`; the index takes its own
  // reference, unless the node has a checkpoint already. The slot must not be written from then on.
  //
  // REQUIRES: n_tokens <= tokens.size(); every table holds n_tokens or more; tables of groups
  // without window are complete; with a checkpoint, n_tokens is positive.
  PrefixInsert Insert(std::string_view domain, std::span<const TokenId> tokens, int64_t n_tokens,
                      std::span<PageTable* const> tables, bool adopt, SlotId checkpoint = kNoSlot);

  // The holder of `tables` continues after exactly these tokens and would have to copy the partly
  // filled last page only because the index holds it too. Releases the index's page if that loses
  // nothing once the page is inserted again: the page ends where the tokens do, and nothing resumes
  // at its checkpoint. `at_any_price`: also if tokens after it are lost.
  void GiveBackTail(std::string_view domain, std::span<const TokenId> tokens,
                    std::span<PageTable* const> tables, bool at_any_price);

  // Releases the checkpoint after exactly these tokens, if any: its owner has a better one, or
  // needs the memory.
  void ForgetCheckpoint(std::string_view domain, std::span<const TokenId> tokens);
  // Releases the least recently used checkpoints until at most `most` are left.
  void LimitCheckpoints(int64_t most);

  // --- claims (prefix_index_lineage.cc) ----------------------------------------------------
  // A conversation whose turn ended with a tool call expects to go on: it claims its prefix. The
  // conversations that begin in its domain until then are its children, and each use of theirs
  // counts as a use of the parent's prefix, a little later. So parents are evicted after their
  // children, and later ones before earlier ones. A client can also mark a prefix: until the mark
  // lapses, each use of the domain counts as a use of that prefix.
  //
  // A claim only orders the evictions within its domain: a domain that nobody uses grows old with
  // all its claims. A conversation's claim ends with its next turn, after kMaxChildTurns turns of
  // its children, or when kMaxClaims later ones exist.
  static constexpr size_t kMaxClaims = 16;  // per domain: of conversations, and of marks
  static constexpr int kMaxChildTurns = 256;

  // A turn of these tokens begins. Returns when its conversation began, by the order of use: now,
  // unless the tokens begin with the whole prompt of an earlier turn.
  uint64_t BeginTurn(std::string_view domain, std::span<const TokenId> tokens);
  // A conversation that began then has just used its prefix (Match or Insert).
  void NoteUse(std::string_view domain, uint64_t begun);
  // The turn ended, and the tokens that the index holds of it are these, the first `n_prompt` from
  // its prompt. `owner` is for ForEachParent.
  void EndTurn(std::string_view domain, std::span<const TokenId> tokens, int64_t n_prompt,
               uint64_t begun, uint64_t turn, uint64_t owner);
  // The conversation of the turn, which has ended, expects to go on.
  void ExpectMore(std::string_view domain, uint64_t turn);
  // Visits the claims of a conversation's parents: their owners, and functions that return the
  // tokens of their prefixes.
  using Tokens = FunctionRef<std::vector<TokenId>()>;
  void ForEachParent(std::string_view domain, uint64_t begun,
                     FunctionRef<void(uint64_t owner, Tokens tokens)> visit) const;
  // Marks the prefix of these tokens, as far as it is known, until then; and lets older marks of
  // the domain lapse.
  void Mark(std::string_view domain, std::span<const TokenId> tokens, int64_t now_us,
            int64_t until_us);

  // Evicts the least recently used until the wish is fulfilled or nothing left would help: leaves
  // first (freeing their pages of every group), then windowed pages and checkpoints of older resume
  // points. Only items without other holders count as freed, and leaves that would free nothing
  // stay. Returns how much was freed, possibly more than wished for.
  EvictionWish EvictLru(const EvictionWish& wish);

  // Drops the least recently used prefixes with rows until `enough` says so or there are none.
  void EvictRows(FunctionRef<bool()> enough);

  // Drops all prefixes of all domains. Returns the number of nodes dropped.
  int64_t Clear();

  PrefixIndexStats Stats() const;

  // --- watches (prefix_index_watch.cc) -------------------------------------------------------
  // From now on the log is told which whole pages of tokens lead to resume points in the domain's
  // tree; null: no log any more. It outlives that. At most one per tree.
  void Watch(std::string_view domain, PrefixLog* log);
  // Looks at up to `max_nodes` nodes in which something has changed. True if there are more.
  bool TellWatched(int64_t max_nodes);

  // Adds the index's references to the counts by id, for one group or for the slots.
  void AddPageCounts(int group, std::vector<int32_t>* counts) const;
  void AddSlotCounts(std::vector<int32_t>* counts) const;
  // INTERNAL, with a sentence, if nodes, orders and totals contradict each other.
  Status CheckIntegrity() const;

 private:
  struct Node;
  struct Claim;
  struct Family;
  struct Watcher;
  // What is evicted from the least recently used on: nodes without children; windowed pages, by
  // their last use as visible pages; checkpoints, by their last use as resume points.
  enum Order : size_t { kLeaves, kWindows, kCheckpoints };
  static constexpr size_t kOrders = 3;
  enum class Standing : uint8_t { kOutside, kInOrder, kAside };
  // The last use, and a number that makes the order total.
  using LruKey = std::pair<uint64_t, uint64_t>;
  using LruOrder = std::map<LruKey, Node*>;

  // Nodes down to a resume point: the last one holds the last of the n_tokens.
  struct Found {
    std::vector<Node*> path;
    int64_t n_tokens = 0;
  };

  Node* FindRoot(std::string_view domain) const;
  Node* MakeRoot(std::string_view domain);
  // Of these tokens, the page that follows a node's.
  std::span<const TokenId> PageAfter(const Node* node, std::span<const TokenId> tokens) const;
  // The last known whole page of the tokens, or the root; null if there is none.
  Node* LastWhole(std::string_view domain, std::span<const TokenId> tokens) const;
  // The deepest known node of the tokens, or null.
  Node* LastKnown(std::string_view domain, std::span<const TokenId> tokens) const;
  // The node that ends exactly with the tokens, or null.
  Node* FindEnd(std::string_view domain, std::span<const TokenId> tokens) const;
  // The nodes from the first page to this one.
  static std::vector<Node*> PathTo(Node* end);
  void SetTokens(Node* node, std::span<const TokenId> page) const;
  Node* AddChild(Node* parent, std::span<const TokenId> page);
  // The child for a page of the tables: an existing one, which may extend beyond their tokens, or a
  // new one.
  Node* PlaceChild(Node* parent, std::span<const TokenId> page, std::span<PageTable* const> tables,
                   int64_t entry, bool ends_here, PrefixInsert* result);
  void Grow(Node* node, std::span<const TokenId> page, std::span<PageTable* const> tables,
            int64_t entry);
  // Gives the node the pages it lacks; returns how many of the tables' pages were exchanged.
  int64_t TakePages(Node* node, std::span<PageTable* const> tables, int64_t entry, bool adopt);
  void TakeCheckpoint(Node* node, SlotId slot);
  // Finds the deepest resume point.
  Found FindPath(std::string_view domain, std::span<const TokenId> tokens,
                 int64_t max_tokens) const;
  // The child in which the most of `page`, which follows its parent, can be resumed, and how much.
  std::pair<Node*, int64_t> BestChild(const Node* parent, std::span<const TokenId> page) const;

  // The last entry without a page in some group, among those that the token after the first
  // `n_tokens` sees or is written to; -1: none. `node` holds the last of the n_tokens.
  int64_t LastAbsent(const Node* node, int64_t n_tokens) const;
  GroupShape shape(size_t group) const {
    return {options_.page_tokens, options_.groups[group].window};
  }
  bool IsResumePoint(const Node* node) const;

  // Whether a session can start at the node may have changed; `below`: and at those after it whose
  // window reaches it.
  void NoteChange(Node* node, bool below = false) {
    if (!watchers_.empty()) ListChanged(node, below);
  }
  void NoteRemoval(Node* node) {
    if (!watchers_.empty()) Forget(node);
  }
  void ListChanged(Node* node, bool below);
  void Forget(Node* node);
  Watcher* WatcherOf(const Node* node) const;
  static void List(Watcher* watcher, Node* node);
  static void Meet(Watcher* watcher, Node* node);
  void LookAt(Watcher* watcher, Node* node);
  void Lead(Watcher* watcher, Node* node);
  void Tell(Watcher* watcher, Node* node);
  static void Untell(Watcher* watcher, Node* node);
  bool IsTellable(const Node* node) const;
  Status CheckWatched(const Node* node) const;
  static bool HoldsNothing(const Node* node);
  // Leaves room between two uses for those that claims make later.
  static constexpr uint64_t kUseStep = 64;
  static_assert(kUseStep > 3 * kMaxClaims);
  uint64_t Tick() { return clock_ += kUseStep; }
  // Records a use of the nodes, and of the last one as a resume point.
  void Use(const Found& found);
  void SetUsed(Node* node, Order order, uint64_t used);
  void Enter(Node* node, Order order);
  void Leave(Node* node, Order order);

  Family* FindFamily(std::string_view domain) const;
  void AddClaim(std::string_view domain, Claim claim);
  void DropClaim(Claim* claim);
  // The claims on a leaf that goes away are on its parent from now on.
  void MoveClaims(const Node* from, Node* to);
  // Carries out what claims ask for, as of now.
  void UseClaimed();
  void UseAt(Node* end, uint64_t used);

  // Whether only nodes of the index hold the page.
  bool IsLone(size_t group, PageId page) const;
  bool EvictingHelps(const Node* node, const EvictionWish& wish, const EvictionWish& freed) const;
  // A leaf, or a node with windowed pages, is set aside from its order while others hold all of its
  // relevant pages, so that evictions need not visit it again and again.
  bool MayBeSetAside(const Node* node, Order order) const;
  void SetAside(Node* node, Order order);
  void PutBack(Node* node, Order order);
  // Puts back nodes of whose pages another owner has let go.
  void PutReleasedBack();
  // The one in which a node with pages of the group stands for their sake.
  Order OrderOf(size_t group) const {
    return options_.groups[group].window > 0 ? kWindows : kLeaves;
  }
  // Visits its nodes from the least recently used on, until `visit` returns false; it may remove
  // nodes.
  void ForEachOldest(Order order, FunctionRef<bool(Node*)> visit);
  void EvictLeaves(const EvictionWish& wish, EvictionWish* freed);
  void EvictWindowed(const EvictionWish& wish, EvictionWish* freed);
  void EvictCheckpoints(const EvictionWish& wish, EvictionWish* freed);
  void EvictCheckpoint(Node* node, EvictionWish* freed);
  void HoldPage(Node* node, size_t group, PageId page);
  // True if no node holds it any more.
  bool UnholdPage(size_t group, PageId page);
  void DropPage(Node* node, size_t group, EvictionWish* freed);
  void DropCheckpoint(Node* node, EvictionWish* freed);
  // Returns the parent, or null if that is the root (which may be gone then).
  Node* RemoveLeaf(Node* node, EvictionWish* freed);
  // Removes a leaf that holds nothing or at which nothing can resume, and then its parents
  // likewise. Returns the first node that stays, or null if that is the root.
  Node* PruneDeadLeaf(Node* node, EvictionWish* freed);

  std::string_view TreeName(std::string_view domain) const {
    return TreeOf(domain, options_.share_across_domains);
  }
  Status CheckNode(const Node* node) const;
  Status CheckAside(const Node* node) const;
  Status CheckClaims() const;
  Status CheckTotals() const;

  const PrefixIndexOptions options_;
  int64_t max_window_ = 0;
  uint64_t clock_ = 0;
  uint64_t next_serial_ = 1;
  std::unordered_map<std::string, std::unique_ptr<Node>> roots_;
  std::unordered_map<uint64_t, std::unique_ptr<Node>> nodes_;  // all except the roots, by serial
  std::array<LruOrder, kOrders> orders_;                       // without the nodes set aside
  // Per group, how many pages nodes hold. Nodes that share a page have a common beginning.
  std::vector<int64_t> n_pages_;
  // Per group, the nodes set aside, by page.
  std::vector<std::unordered_multimap<PageId, Node*>> aside_;
  // By domain, even if domains share a tree. Those used since their claims were carried out.
  std::map<std::string, std::unique_ptr<Family>, std::less<>> families_;
  std::vector<Family*> used_families_;
  std::unordered_multimap<const Node*, Claim*> claims_at_;
  std::map<std::string, std::unique_ptr<Watcher>, std::less<>> watchers_;  // by tree
  uint32_t last_watcher_ = 0;
  mutable int64_t compared_tokens_ = 0;
  PrefixIndexStats since_start_;  // its counters
};

}  // namespace weft

#endif  // WEFT_ENGINE_STATE_PREFIX_INDEX_H_
