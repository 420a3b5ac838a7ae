// The memory of all sessions of an engine: page pools, the prefix index and the
// backend's memory behind them, under one budget of bytes.
//
// Sessions own pages through their tables, the index owns pages of its own; this
// class is where they meet. When the budget is used up it evicts prefixes that no
// session holds; taking memory from sessions is the engine's decision, not made
// here. Engine thread only.
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
  };
  // RESOURCE_EXHAUSTED when the budget does not hold a page of every group.
  // `executor` must outlive the object.
  static StatusOr<std::unique_ptr<StateMemory>> Create(const ModelSpec& spec, Executor* executor,
                                                       const Options& options);

  int page_tokens() const { return layout_.page_tokens; }

  // --- one session -------------------------------------------------------------
  // Takes the longest prefix of the session's tokens that the index holds, if it is
  // longer than what the session has computed; at most `limit` tokens.
  void Reuse(Session* session, int64_t limit);
  // Makes room for `n` tokens after session->computed: allocates pages, copies a
  // shared last page, appends to the tables. RESOURCE_EXHAUSTED when the budget is used
  // up by what sessions hold; nothing has changed then. After an error of the backend
  // the session may have lost its partly filled last page.
  Status Prepare(Session* session, int64_t n);
  // The prepared tokens are computed: computed advances to the tables' length, whole
  // new pages go to the index, pages behind windows go back.
  void Commit(Session* session);
  // Forgets the state after the first `n_tokens`; may forget more where a window has
  // given back what would be needed to go on from there. Tokens are not touched.
  void Truncate(Session* session, int64_t n_tokens);
  void Drop(Session* session) { Truncate(session, 0); }
  // Gives `to`, which has none, the state of `from`'s first `n_tokens`, shared.
  void Share(const Session& from, int64_t n_tokens, Session* to);

  // Evicts prefixes until Prepare(session, n) would find room; RESOURCE_EXHAUSTED when
  // there are not enough of them.
  Status EvictFor(const Session& session, int64_t n);
  // Bytes that a session of `n_tokens` cannot do without while its last one is computed.
  int64_t LeastBytes(int64_t n_tokens) const;
  // Bytes of pages and slots in the session's tables, shared or not; and how many
  // pages, and how many of them others hold too.
  int64_t BytesOf(const Session& session) const;
  int64_t PagesOf(const Session& session) const;
  int64_t SharedPagesOf(const Session& session) const;

  // --- in and out, for session files ----------------------------------------------
  struct GroupPages {
    int64_t first_page = 0;  // entries before are absent
    std::vector<std::vector<std::byte>> pages;
  };
  StatusOr<std::vector<GroupPages>> ReadPages(const Session& session);
  // REQUIRES: the session holds no state. Leaves none on error.
  Status WritePages(Session* session, int64_t n_tokens, std::span<const GroupPages> groups);

  // --- the whole --------------------------------------------------------------------
  int64_t used_bytes() const;  // of pages and slots that somebody holds
  int64_t budget_bytes() const { return budget_bytes_; }
  int64_t free_bytes() const { return budget_bytes_ - used_bytes(); }
  int64_t pages_used() const;
  int64_t page_budget() const;
  int64_t pages_in_index() const;
  int64_t index_nodes() const;
  int64_t index_evicted_pages() const;
  int64_t pages_copied() const { return pages_copied_; }
  const StateLayout& layout() const { return layout_; }

  void DropPrefixes() { index_->ClearAll(); }
  // Tells the backend which pages are no longer needed.
  void ReturnFreed();
  // Compares every count with what the sessions and the index hold.
  Status CheckIntegrity(const SessionTable& sessions) const;

 private:
  StateMemory(const ModelSpec& spec, Executor* executor, const Options& options);

  size_t n_groups() const { return pools_.size(); }
  void EnsureTables(Session* session) const;
  std::vector<PageTable*> TablesOf(Session* session) const;
  std::vector<int64_t> PagesToPrepare(const Session& session, int64_t n) const;
  Status MakeRoom(std::span<const int64_t> pages);
  Status AppendAll(Session* session, int64_t n);
  Status GrowFor(size_t group, const PageTable& table, size_t first_entry);

  Executor* const executor_;
  const StateLayout layout_;
  const int64_t budget_bytes_;
  const bool prefix_cache_;
  std::vector<GroupShape> shapes_;
  std::vector<std::unique_ptr<PagePool>> pools_;  // one per group
  std::vector<int64_t> grown_;                    // per group: pages that the backend has
  std::unique_ptr<PrefixIndex> index_;
  int64_t pages_copied_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_STATE_MEMORY_H_
