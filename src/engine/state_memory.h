// The memory of all sessions of an engine: the pools of pages and slots, the prefix
// index and the backend's memory behind them, under one budget of bytes.
//
// Sessions own pages through their tables and a slot; the index owns pages and
// checkpoints of its own; this class is where they meet. When the budget is used up it
// evicts prefixes that no session holds; taking memory from sessions is the engine's
// decision, not made here. Engine thread only.
//
// A slot is shared and copied before it is written, as a page is: forks and the index
// take references, and Prepare makes the copy. So a checkpoint is one more reference to
// a session's slot at the right moment, which is after exactly a whole number of pages:
// steps must end there (RowsToCheckpoint). A slot cannot be cut: a session that goes
// back to where it has no exact state starts from the nearest checkpoint before, or, if
// there is none, from the beginning.
#ifndef WEFT_ENGINE_STATE_MEMORY_H_
#define WEFT_ENGINE_STATE_MEMORY_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"
#include "engine/session.h"
#include "engine/session_table.h"
#include "model/model_spec.h"
#include "state/page_pool.h"
#include "state/prefix_index.h"

namespace weft {

class StateMemory {
 public:
  struct Options {
    int64_t budget_bytes = 0;
    bool prefix_cache = true;
    bool share_across_domains = false;
    double checkpoint_share = 0;    // of the budget, for checkpoints
    int64_t checkpoint_tokens = 0;  // between two of them; 0: chosen here
  };
  // RESOURCE_EXHAUSTED when the budget does not hold a page of every group and a slot.
  // `executor` must outlive the object.
  static StatusOr<std::unique_ptr<StateMemory>> Create(const ModelSpec& spec, Executor* executor,
                                                       const Options& options);

  int page_tokens() const { return layout_.page_tokens; }
  // Whether anything computed can be found again by another session.
  bool keeps_prefixes() const {
    return prefix_cache_ && (slots_ == nullptr || max_checkpoints_ > 0);
  }

  // --- one session -------------------------------------------------------------
  // Takes the longest prefix of the session's tokens that the index holds, if it is
  // longer than what the session has computed; at most `limit` tokens.
  void Reuse(Session* session, int64_t limit);
  // The same from another session, of whose tokens the first `common` are the session's
  // too: it has the positions of its last page that are not in the index yet.
  void ReuseFrom(const Session& other, int64_t common, Session* session);
  // Makes room for `n` tokens after session->computed: allocates pages, copies a
  // shared last page and a shared slot, appends to the tables. RESOURCE_EXHAUSTED when
  // the budget is used up by what sessions hold. After any error the session's state is as
  // it was.
  Status Prepare(Session* session, int64_t n);
  // The prepared tokens are computed: whole new pages and checkpoints go to the index,
  // pages behind windows go back.
  void Commit(Session* session);
  // Nothing more is computed for now: the partly filled last page goes to the index too, of
  // models without recurrent state. When the session goes on it has the page back.
  void KeepTail(Session* session);
  // Forgets the state after the first `n_tokens`, and what was prepared. Where there is
  // none of exactly these any more (a window has given back what would be needed, a slot
  // went on), the longest known prefix takes its place. Tokens are not touched.
  void Truncate(Session* session, int64_t n_tokens);
  void Drop(Session* session) { Truncate(session, 0); }
  // Gives `to`, which has these tokens and no state, that of `from`'s first `n_tokens`,
  // shared; or that of the longest known prefix.
  void Share(const Session& from, int64_t n_tokens, Session* to);

  // --- checkpoints of models with recurrent state; no-ops for others ----------------
  // A turn begins: chooses what it leaves behind for others to start from. Where its
  // tokens leave a known prefix, at the end of its prompt (a page before it: whoever asks
  // the same has one token to compute), and every so many tokens between.
  void PlanCheckpoints(Session* session) const;
  // Somebody needs the session's state after its first `n_tokens`, which it has not
  // reached yet. REQUIRES: a multiple of page_tokens().
  void WantCheckpoint(Session* session, int64_t n_tokens) const;
  // Rows after which a step of the session must end, at the most.
  int64_t RowsToCheckpoint(const Session& session) const;

  // Evicts prefixes until Prepare(session, n) would find room; RESOURCE_EXHAUSTED when
  // there are not enough of them.
  Status EvictFor(const Session& session, int64_t n);
  // Bytes that a session of `n_tokens` cannot do without while its last one is computed.
  int64_t LeastBytes(int64_t n_tokens) const;
  // Bytes of the session's pages and slot, shared or not; and how many pages.
  int64_t BytesOf(const Session& session) const;
  int64_t SlotBytesOf(const Session& session) const;
  int64_t PagesOf(const Session& session) const;
  // How many of them other sessions hold too, and how many others hold the one that most do.
  struct Sharing {
    int64_t pages = 0;
    int64_t sessions = 0;
    bool operator==(const Sharing&) const = default;
  };
  Sharing SharingOf(const Session& session) const;
  // The session is nobody's conversation: what it holds counts as shared with nobody, until it
  // is told again with -1. REQUIRES: its pages stay what they are meanwhile.
  void CountAsKeeper(const Session& session, int32_t n);

  // --- in and out, for session files ----------------------------------------------
  struct GroupPages {
    int64_t first_page = 0;  // entries before are absent
    std::vector<std::vector<std::byte>> pages;
  };
  struct SavedCheckpoint {
    int64_t n_tokens = 0;  // it is after so many
    std::vector<std::byte> slot;
  };
  // A session's state apart from the backend's memory.
  struct SavedState {
    int64_t n_tokens = 0;  // 0: none, and the rest is empty
    std::vector<GroupPages> groups;
    std::vector<std::byte> slot;               // empty without recurrent state
    std::vector<SavedCheckpoint> checkpoints;  // ascending
  };
  // Most checkpoints that go with one session's state.
  static constexpr int64_t kMostSavedCheckpoints = 32;
  // With the session's own state come the fewest of the checkpoints before it that leave
  // no more than the regular distance between two of them, as far as there are any; where
  // these are more than kMostSavedCheckpoints, the last ones.
  StatusOr<SavedState> ReadState(const Session& session);
  // The checkpoints go to the prefix index, as far as there is room for them.
  // REQUIRES: the session holds no state. Leaves none on error.
  Status WriteState(Session* session, const SavedState& state);

  // --- in and out, block by block (state_memory_blocks.cc) --------------------------
  // Which groups' pages of an entry the session holds, bit by bit; and which every state needs.
  uint64_t GroupsAt(const Session& session, int64_t entry) const;
  uint64_t groups_always_needed() const;
  const std::vector<GroupShape>& shapes() const { return shapes_; }
  // The entry's pages of these groups, one after the other, as they are after the first
  // session.computed tokens.
  StatusOr<std::vector<std::byte>> ReadBlock(const Session& session, int64_t entry,
                                             uint64_t groups) const;
  StatusOr<std::vector<std::byte>> ReadSlot(SlotId slot) const;
  // Of the session's first computed tokens: those that a file of it would have, and the last
  // that is known.
  std::vector<PrefixIndex::Checkpoint> CheckpointsToKeep(const Session& session) const;
  // Appends the state of `n` tokens from blocks of the entries from session->computed on. With
  // windows or recurrent state nobody may use it until FinishBlocks has ended it.
  // RESOURCE_EXHAUSTED as Prepare.
  struct BlockPages {
    uint64_t groups = 0;
    std::span<const std::byte> bytes;
  };
  Status AppendBlocks(Session* session, int64_t n, std::span<const BlockPages> blocks);
  // `slot` is the recurrent state after all that was appended, empty without such.
  Status FinishBlocks(Session* session, std::span<const std::byte> slot);
  // Whether what AppendBlocks leaves is whole without FinishBlocks.
  bool blocks_stand_alone() const;

  // --- the whole --------------------------------------------------------------------
  // Of what somebody holds.
  int64_t used_bytes() const { return page_bytes() + slots_used() * layout_.slot_bytes; }
  int64_t page_bytes() const;
  int64_t slots_used() const { return slots_ != nullptr ? slots_->in_use() : 0; }
  int64_t budget_bytes() const { return budget_bytes_; }
  int64_t free_bytes() const { return budget_bytes_ - used_bytes(); }
  int64_t pages_used() const;
  // What memory is used for, and what became of it, as the engine tells it. A slot that a
  // session and a checkpoint share is the session's.
  void FillStats(EngineStats* stats) const;
  const StateLayout& layout() const { return layout_; }

  void DropPrefixes() { index_->ClearAll(); }
  // Tells the backend which pages and slots are no longer needed.
  void ReturnFreed();
  // Compares every count with what the sessions and the index hold.
  Status CheckIntegrity(const SessionTable& sessions) const;

 private:
  StateMemory(const ModelSpec& spec, Executor* executor, const Options& options);

  size_t n_groups() const { return pools_.size(); }
  void EnsureTables(Session* session) const;
  std::vector<PageTable*> TablesOf(Session* session) const;
  // So many pages of every group, and slots.
  using Amount = EvictionWish;
  Amount AmountToPrepare(const Session& session, int64_t n) const;
  // Of these, what is needed only because one other shares it, which may be the index.
  int64_t BytesToCopy(const Session& session) const;
  void GiveBackTail(Session* session, bool at_any_price);
  void TakeOver(const Session& from, int64_t n_tokens, Session* to) const;
  int64_t BytesOf(const Amount& amount) const;
  Status MakeRoom(const Amount& amount);
  Status OwnSlot(Session* session);
  Status AppendAll(Session* session, int64_t n);
  Status GrowFor(size_t group, const PageTable& table, size_t first_entry);
  // Whether its pages are those that the token after `n_tokens` sees; whether the session
  // can be continued from there with what it holds.
  static bool HoldsPagesAt(const Session& session, int64_t n_tokens);
  bool HoldsStateAt(const Session& session, int64_t n_tokens) const;
  // Whether a checkpoint is to stay there; whether one is to be taken now.
  bool IsPlanned(const Session& session, int64_t n_tokens) const;
  bool IsCheckpoint(const Session& session) const;
  int64_t TailStart(const Session& session) const;
  void AddToIndex(Session* session);
  std::vector<PrefixIndex::Checkpoint> CheckpointsToSave(const Session& session) const;
  StatusOr<PoolRef> NewSlot();
  Status FillFrom(const SavedState& state, Session* session);
  Status TakeCheckpoint(const SavedCheckpoint& checkpoint, Session* session);
  Status CheckFits(const SavedState& state) const;
  Status CheckSession(const Session& session) const;

  Executor* const executor_;
  const StateLayout layout_;
  const int64_t budget_bytes_;
  const bool prefix_cache_;
  std::vector<GroupShape> shapes_;
  std::vector<std::unique_ptr<PagePool>> pools_;  // one per group
  std::vector<int64_t> grown_;                    // per group: pages that the backend has
  std::vector<std::vector<int32_t>> keepers_;     // per group and page: CountAsKeeper
  std::unique_ptr<SlotPool> slots_;               // null without recurrent state
  int64_t grown_slots_ = 0;
  int64_t checkpoint_tokens_ = 0;  // a multiple of page_tokens(); 0 without recurrent state
  int64_t max_checkpoints_ = 0;
  std::unique_ptr<PrefixIndex> index_;
  int64_t pages_copied_ = 0;
  int64_t slots_copied_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_STATE_MEMORY_H_
