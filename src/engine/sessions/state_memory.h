// The memory of all sessions of an engine: the pools of pages and slots, the prefix index and the
// backend's memory behind them, under one budget of bytes.
//
// Sessions own pages through their tables, and a slot; the index owns pages and checkpoints; this
// class connects them. When the budget is used up it evicts prefixes that no session holds; taking
// memory from sessions is the engine's decision. Engine thread only.
//
// Slots, like pages, are shared and copied on write: forks and the index take references, and
// Prepare makes the copy. So a checkpoint is just a reference to a session's slot taken at the
// right moment: steps must end there (RowsToCheckpoint). A slot cannot be cut: a session that goes
// back to a position without exact state restarts from the nearest earlier checkpoint or, if there
// is none, from the beginning. A step with guesses therefore advances a copy (PrepareGuessed).
#ifndef WEFT_ENGINE_SESSIONS_STATE_MEMORY_H_
#define WEFT_ENGINE_SESSIONS_STATE_MEMORY_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "compute/state_store.h"
#include "engine/sessions/session.h"
#include "engine/sessions/session_table.h"
#include "engine/state/page_pool.h"
#include "engine/state/prefix_index.h"
#include "model/model_spec.h"
#include "weft/events.h"

namespace weft {

class StateMemory {
 public:
  struct Options {
    int64_t budget_bytes = 0;
    bool prefix_cache = true;
    bool share_across_domains = false;
    double checkpoint_share = 0;    // share of the budget
    int64_t checkpoint_tokens = 0;  // distance between two; 0: automatic
  };
  // RESOURCE_EXHAUSTED if the budget does not hold one page of every group and a slot. `store`
  // must outlive the object.
  static StatusOr<std::unique_ptr<StateMemory>> Create(const ModelSpec& spec, StateStore* store,
                                                       const Options& options);

  int page_tokens() const { return layout_.page_tokens; }
  // Whether other sessions can find computed state again.
  bool keeps_prefixes() const {
    return prefix_cache_ && (slots_ == nullptr || max_checkpoints_ > 0);
  }

  // --- one session -------------------------------------------------------------
  // Takes the longest prefix of the session's tokens that the index holds, if it is longer than
  // what the session has computed; at most `limit` tokens.
  void Reuse(Session* session, int64_t limit);
  // How many of the tokens, at most `limit`, it would take for a session of the domain.
  int64_t Reusable(std::string_view domain, std::span<const TokenId> tokens, int64_t limit) const {
    return prefix_cache_ ? index_->MatchLength(domain, tokens, limit) : 0;
  }
  // How many of the session's tokens, at most `limit`, the prefix cache knows, and why it starts
  // before them.
  struct KnownPrefix {
    int64_t n_tokens = 0;
    PrefixLoss loss = PrefixLoss::kNone;
  };
  KnownPrefix KnownOf(const Session& session, int64_t limit) const;
  // The same from another session that shares the first `common` tokens: it also has the positions
  // of its last page, which are not in the index yet.
  void ReuseFrom(const Session& other, int64_t common, Session* session);
  // Makes room for `n` tokens after session->computed(): allocates pages, copies a shared last page
  // and a shared slot, appends to the tables. RESOURCE_EXHAUSTED if sessions hold the whole budget.
  // After any error the session's state is unchanged.
  Status Prepare(Session* session, int64_t n);
  // The prepared tokens are not computed, and no step has touched their state.
  void TakeBack(Session* session);
  // The prepared tokens are computed: adds complete new pages and checkpoints to the index and
  // frees pages that fell out of their window.
  void Commit(Session* session);
  // Like Prepare, for rows that end with guesses; but takes only free memory and leaves
  // `spare_bytes` of it. If there is not enough, returns false and changes nothing.
  // With recurrent state the step works on a copy of the slot. REQUIRES: n <=
  // RowsToGuess(*session).
  bool PrepareGuessed(Session* session, int64_t n, int64_t spare_bytes);
  // Like Commit, but keeps only the first `n` of the prepared tokens and discards the state of the
  // others. Recurrent state cannot be cut: then the session goes back to where it was before
  // Prepare, and computes the n tokens again.
  void CommitFirst(Session* session, int64_t n);
  // The most rows in a step with guesses, such that checkpoints stay where they are without
  // guesses.
  int64_t RowsToGuess(const Session& session) const;
  int64_t BytesToPrepare(const Session& session, int64_t n) const {
    return BytesOf(AmountToPrepare(session, n));
  }
  // The session pauses: adds its partly filled last page to the index too, with a checkpoint for
  // models with recurrent state. Without one, the session takes the page back when it continues.
  void KeepTail(Session* session);
  // Discards the state after the first `n_tokens`, and anything prepared. If the exact state no
  // longer exists (a window has freed what would be needed, or a slot moved on), falls back to the
  // longest known prefix. Does not change the tokens.
  void Truncate(Session* session, int64_t n_tokens);
  void Drop(Session* session) { Truncate(session, 0); }
  // Gives `to`, which has these tokens but no state, the state of `from`'s first `n_tokens`,
  // shared; or that of the longest known prefix.
  void Share(const Session& from, int64_t n_tokens, Session* to);

  // --- turns: whose prefixes are evicted last (PrefixIndex, "claims") -------------------
  void BeginTurn(Session* session) {
    session->state.begun_ = index_->BeginTurn(session->DomainOf(0), session->tokens);
  }
  // The turn's tail is kept, or it has none. `owner`: its session, if that stays.
  void EndTurn(const Session& session, int64_t n_prompt, uint64_t turn, SessionId owner);
  void ExpectMore(std::string_view domain, uint64_t turn) { index_->ExpectMore(domain, turn); }
  // Visits what waits while this session's conversation is used: the session, if it is still there,
  // and its tokens in memory.
  void ForEachParent(const Session& session,
                     FunctionRef<void(SessionId, PrefixIndex::Tokens)> visit) const;
  void Mark(const Session& session, int64_t n_tokens, std::chrono::seconds keep_for);

  // --- checkpoints of models with recurrent state ------------------------------------
  // Other models take none; the positions tell the disk which windows are worth keeping.
  // Called when a turn begins; chooses its checkpoints for others to start from: where its tokens
  // leave a known prefix, at `marks` (positions where other prompts are likely to leave this one),
  // before its last token, which an identical prompt must compute, and at regular distances in
  // between. Of several that lie close together it takes the first.
  void PlanCheckpoints(Session* session, std::span<const int64_t> marks) const;
  // The same ones as the other session's.
  void PlanAs(const Session& other, Session* session) const {
    session->state.checkpoints_wanted_ = other.state.checkpoints_wanted_;
  }
  // Where another session with these first tokens should start: exactly there with recurrent state,
  // else after the last whole page, because the rest need not wait for a step of its own.
  int64_t HandOverAt(int64_t common) const {
    return slots_ != nullptr ? common : common / page_tokens() * page_tokens();
  }
  // Another session needs the state after the first `n_tokens`, which this session has not reached
  // yet.
  void WantCheckpoint(Session* session, int64_t n_tokens) const;
  // The most rows a step may compute for the session: up to a checkpoint, or to where another
  // adapter begins to act.
  int64_t RowsToCheckpoint(const Session& session) const;

  // Evicts prefixes until Prepare(session, n) would find room; RESOURCE_EXHAUSTED if there are not
  // enough.
  Status EvictFor(const Session& session, int64_t n);
  // The least memory in which a session of `n_tokens` can compute its last one.
  int64_t MinBytes(int64_t n_tokens) const;
  // Bytes of the session's pages and slot, shared or not; and the number of pages.
  int64_t BytesOf(const Session& session) const;
  int64_t SlotBytesOf(const Session& session) const;
  int64_t PagesOf(const Session& session) const;
  // How many of its pages other sessions hold too, and how many others hold the most widely shared.
  struct Sharing {
    int64_t pages = 0;
    int64_t sessions = 0;
    bool operator==(const Sharing&) const = default;
  };
  Sharing SharingOf(const Session& session) const;
  // Marks (n = 1) or unmarks (n = -1) the session as a keeper rather than a conversation: its pages
  // do not count as shared. REQUIRES: its pages do not change in between.
  void CountAsKeeper(const Session& session, int32_t n);

  // --- in and out, for session files ----------------------------------------------
  struct GroupPages {
    int64_t first_page = 0;  // earlier entries are absent
    std::vector<std::vector<std::byte>> pages;
  };
  struct SavedCheckpoint {
    int64_t n_tokens = 0;  // the position it belongs to
    std::vector<std::byte> slot;
  };
  // A session's state, outside the backend's memory.
  struct SavedState {
    int64_t n_tokens = 0;  // 0: none; everything else is empty
    std::vector<GroupPages> groups;
    std::vector<std::byte> slot;               // empty without recurrent state
    std::vector<SavedCheckpoint> checkpoints;  // ascending
  };
  // The most checkpoints saved with one session.
  static constexpr int64_t kMaxSavedCheckpoints = 32;
  // Besides the session's own state, includes the fewest earlier checkpoints that leave no gap
  // larger than the regular distance, as far as they exist; if these exceed kMaxSavedCheckpoints,
  // the last ones.
  StatusOr<SavedState> ReadState(const Session& session);
  // Adds the checkpoints to the prefix index as far as there is room. REQUIRES: the session holds
  // no state. Leaves none on error.
  Status WriteState(Session* session, const SavedState& state);

  // --- in and out, block by block (state_memory_blocks.cc) --------------------------
  // Bit masks: the groups whose pages of an entry the session holds, or for windows in which others
  // are likely to start, the prefix index; and those every state needs.
  uint64_t GroupsAt(const Session& session, int64_t entry) const;
  uint64_t groups_always_needed() const;
  const std::vector<GroupShape>& shapes() const { return shapes_; }
  // The entry's pages of these groups, concatenated, as of session.computed() tokens.
  StatusOr<std::vector<std::byte>> ReadBlock(const Session& session, int64_t entry,
                                             uint64_t groups) const;
  StatusOr<std::vector<std::byte>> ReadSlot(SlotId slot) const;
  // The checkpoints that a file of the session's computed tokens would have, the first and the last
  // planned one, and the last known one.
  std::vector<PrefixIndex::Checkpoint> CheckpointsToKeep(const Session& session) const;
  // Appends the state of `n` tokens from blocks, starting at the entry of session->computed(). With
  // windows or recurrent state it must not be used before FinishBlocks. RESOURCE_EXHAUSTED as in
  // Prepare.
  struct BlockPages {
    uint64_t groups = 0;
    std::span<const std::byte> bytes;
  };
  Status AppendBlocks(Session* session, int64_t n, std::span<const BlockPages> blocks);
  // `slot` is the recurrent state after everything appended; empty if the model has none.
  Status FinishBlocks(Session* session, std::span<const std::byte> slot);
  // Whether the result of AppendBlocks is usable without FinishBlocks.
  bool blocks_stand_alone() const;

  // --- rows ---------------------------------------------------------------------------------
  // What sessions, turns, files and the index hold of input embeddings: part of the
  // memory in use, at most half of the budget.
  RowTable* rows() { return &rows_; }
  int64_t max_row_bytes() const { return budget_bytes_ / 2; }
  // Makes room for this many bytes of new rows (0: for the existing ones), evicting prefixes if
  // need be; RESOURCE_EXHAUSTED if the remaining ones are held.
  Status MakeRoomForRows(int64_t bytes);

  // --- all sessions together ------------------------------------------------------------
  // Memory in use by sessions or the index.
  int64_t used_bytes() const {
    return page_bytes() + slots_used() * layout_.slot_bytes + rows_.bytes();
  }
  int64_t page_bytes() const;
  int64_t slots_used() const { return slots_ != nullptr ? slots_->in_use() : 0; }
  int64_t budget_bytes() const { return budget_bytes_; }
  // Negative if the limit has fallen below the used bytes.
  int64_t free_bytes() const { return limit_bytes() - used_bytes(); }
  // Call when the backend refuses memory that the budget allows, for example because another
  // program took it. Evicts cached prefixes, up to an eighth of the used bytes. For a while the
  // limit is the used bytes or a small part of the budget, then the whole budget is tried again.
  void Shrink();
  // The budget, or what Shrink has left of it.
  int64_t limit_bytes() const;
  int64_t pages_used() const;
  // Memory by use, and counters. A slot shared by a session and a checkpoint counts as the
  // session's.
  void FillStats(EngineStats* stats) const;
  const StateLayout& layout() const { return layout_; }

  void DropPrefixes() { index_->Clear(); }
  PrefixIndex& prefixes() { return *index_; }
  // Tells the backend which pages and slots are free.
  void ReturnFreed();
  // Compares every count with what the sessions and the index hold.
  Status CheckIntegrity(const SessionTable& sessions) const;

 private:
  StateMemory(const ModelSpec& spec, StateStore* store, const Options& options);

  size_t n_groups() const { return pools_.size(); }
  void EnsureTables(Session* session) const;
  std::vector<PageTable*> TablesOf(Session* session) const;
  // A number of pages of every group, and of slots.
  using Amount = EvictionWish;
  Amount AmountToPrepare(const Session& session, int64_t n) const;
  // The part that is needed only because one other holder, possibly the index, shares it.
  int64_t BytesToCopy(const Session& session) const;
  void GiveBackTail(Session* session, bool at_any_price);
  static void GoBackBeforeGuesses(Session* session);
  void TakeOver(const Session& from, int64_t n_tokens, Session* to) const;
  int64_t BytesOf(const Amount& amount) const;
  Status MakeRoom(const Amount& amount);
  Status TakeRoom(Session* session, int64_t n);
  void ShrinkBy(const Amount& amount);
  Status OwnSlot(Session* session);
  Status AppendAll(Session* session, int64_t n);
  Status GrowFor(size_t group, const PageTable& table, size_t first_entry);
  // Whether it holds the pages that the token after `n_tokens` attends to; and whether it holds
  // everything needed to continue from there.
  // The page of an entry, from the session or else from the prefix index.
  PageId PageAt(const Session& session, size_t group, int64_t entry) const;
  static bool HoldsPagesAt(const Session& session, int64_t n_tokens);
  bool HoldsStateAt(const Session& session, int64_t n_tokens) const;
  // Whether to keep a checkpoint there; whether to take one now.
  bool IsPlanned(const Session& session, int64_t n_tokens) const;
  bool IsCheckpoint(const Session& session) const;
  void ReuseIn(const std::string& domain, int64_t limit, Session* session);
  int64_t KnownLength(const Session& session, int64_t limit) const;
  std::vector<PrefixIndex::Checkpoint> KnownCheckpoints(const Session& session,
                                                        int64_t limit) const;
  void AddToIndex(Session* session);
  void InsertComputed(Session* session, int64_t n_tokens);
  void ForgetCheckpoint(const Session& session, int64_t n_tokens);
  std::vector<PrefixIndex::Checkpoint> CheckpointsToSave(const Session& session) const;
  StatusOr<PoolRef> NewSlot();
  Status FillFrom(const SavedState& state, Session* session);
  Status TakeCheckpoint(const SavedCheckpoint& checkpoint, Session* session);
  Status CheckFits(const SavedState& state) const;
  Status CheckSession(const Session& session) const;

  StateStore* const store_;
  const StateLayout layout_;
  const int64_t budget_bytes_;
  int64_t shrunk_bytes_ = 0, shrunk_until_us_ = 0;  // see Shrink
  const bool prefix_cache_;
  std::vector<GroupShape> shapes_;
  std::vector<std::unique_ptr<PagePool>> pools_;  // one per group
  std::vector<std::vector<int32_t>> keepers_;     // per group and page: see CountAsKeeper
  std::unique_ptr<SlotPool> slots_;               // null without recurrent state
  int64_t checkpoint_tokens_ = 0;  // a multiple of page_tokens(); 0 without recurrent state
  int64_t max_checkpoints_ = 0;
  RowTable rows_;
  std::unique_ptr<PrefixIndex> index_;
  int64_t pages_copied_ = 0;
  int64_t slots_copied_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_SESSIONS_STATE_MEMORY_H_
