// Accounts of session memory, and their integrity checks.
#include <algorithm>
#include <numeric>

#include "base/clock.h"
#include "engine/sessions/state_memory.h"

namespace weft {

namespace {

// Memory that the backend has refused is asked for again after this.
constexpr int64_t kShrunkUs = 10'000'000;
// This fraction of the budget always stays for a session to try.
constexpr int64_t kMinShare = 16;

}  // namespace

int64_t StateMemory::BytesOf(const Session& session) const {
  int64_t bytes = SlotBytesOf(session);
  for (size_t g = 0; g < session.state.tables_.size(); ++g) {
    bytes += session.state.tables_[g].pages_held() * layout_.page_bytes[g];
  }
  return bytes;
}

int64_t StateMemory::BytesOf(const Amount& amount) const {
  int64_t bytes = amount.slots * layout_.slot_bytes;
  for (size_t g = 0; g < n_groups(); ++g) bytes += amount.pages[g] * layout_.page_bytes[g];
  return bytes;
}

StateMemory::Amount StateMemory::AmountToPrepare(const Session& session, int64_t n) const {
  Amount amount;
  for (size_t g = 0; g < n_groups(); ++g) {
    amount.pages.push_back(session.state.tables_.empty()
                               ? shapes_[g].PagesFor(n)
                               : session.state.tables_[g].PagesToAppend(n));
  }
  const bool owns = session.state.slot_ && slots_->use_count(session.state.slot_.id()) == 1;
  amount.slots = slots_ != nullptr && !owns ? 1 : 0;
  return amount;
}

int64_t StateMemory::BytesToCopy(const Session& session) const {
  int64_t bytes = 0;
  for (size_t g = 0; g < session.state.tables_.size(); ++g) {
    if (session.state.tables_[g].SharesTailWithOne()) bytes += layout_.page_bytes[g];
  }
  const bool shares_slot = session.state.slot_ && slots_->use_count(session.state.slot_.id()) == 2;
  return bytes + (shares_slot ? layout_.slot_bytes : 0);
}

int64_t StateMemory::MinBytes(int64_t n_tokens) const {
  int64_t bytes = n_tokens > 0 ? layout_.slot_bytes : 0;
  for (size_t g = 0; g < n_groups() && n_tokens > 0; ++g) {
    const int64_t gone = shapes_[g].VisibleFrom(n_tokens - 1) / page_tokens();
    bytes += (shapes_[g].PagesFor(n_tokens) - gone) * layout_.page_bytes[g];
  }
  return bytes;
}

int64_t StateMemory::SlotBytesOf(const Session& session) const {
  return session.state.slot_ ? layout_.slot_bytes : 0;
}

int64_t StateMemory::PagesOf(const Session& session) const {
  int64_t pages = 0;
  for (const PageTable& table : session.state.tables_) pages += table.pages_held();
  return pages;
}

StateMemory::Sharing StateMemory::SharingOf(const Session& session) const {
  Sharing sharing;
  for (size_t g = 0; g < session.state.tables_.size(); ++g) {
    const PageTable& table = session.state.tables_[g];
    for (const PageId page : table.pages().subspan(static_cast<size_t>(table.first_present()))) {
      const auto i = static_cast<size_t>(page);
      const int32_t kept = i < keepers_[g].size() ? keepers_[g][i] : 0;
      const int64_t others = pools_[g]->use_count(page) - pools_[g]->cached_count(page) - kept - 1;
      if (others <= 0) continue;
      ++sharing.pages;
      sharing.sessions = std::max(sharing.sessions, others);
    }
  }
  return sharing;
}

void StateMemory::CountAsKeeper(const Session& session, int32_t n) {
  for (size_t g = 0; g < session.state.tables_.size(); ++g) {
    const PageTable& table = session.state.tables_[g];
    for (const PageId page : table.pages().subspan(static_cast<size_t>(table.first_present()))) {
      const auto i = static_cast<size_t>(page);
      if (keepers_[g].size() <= i) keepers_[g].resize(i + 1);
      keepers_[g][i] += n;
    }
  }
}

int64_t StateMemory::page_bytes() const {
  int64_t bytes = 0;
  for (size_t g = 0; g < n_groups(); ++g) bytes += pools_[g]->in_use() * layout_.page_bytes[g];
  return bytes;
}

int64_t StateMemory::pages_used() const {
  int64_t pages = 0;
  for (const auto& pool : pools_) pages += pool->in_use();
  return pages;
}

void StateMemory::Shrink() {
  const auto part_of = [](int64_t n) { return std::max<int64_t>(1, n / 8); };
  Amount amount;
  for (const auto& pool : pools_) amount.pages.push_back(part_of(pool->in_use()));
  amount.slots = slots_ != nullptr ? part_of(slots_->in_use()) : 0;
  ShrinkBy(amount);
}

// Evicts so much of each kind, as far as there are prefixes.
void StateMemory::ShrinkBy(const Amount& amount) {
  const int64_t used = used_bytes();
  shrunk_until_us_ = NowMicros() + kShrunkUs;
  shrunk_bytes_ = used;
  static_cast<void>(MakeRoom(amount));
  shrunk_bytes_ = std::clamp(used, budget_bytes_ / kMinShare, budget_bytes_);
}

int64_t StateMemory::limit_bytes() const {
  return NowMicros() < shrunk_until_us_ ? shrunk_bytes_ : budget_bytes_;
}

void StateMemory::FillStats(EngineStats* stats) const {
  const PrefixIndexStats index = index_->Stats();
  int64_t bytes_of_each = 0;  // one page of every group
  for (const int64_t page : layout_.page_bytes) bytes_of_each += page;
  stats->pages_used = pages_used();
  stats->pages_in_index = std::accumulate(index.pages.begin(), index.pages.end(), int64_t{0});
  stats->pages_evictable =
      std::accumulate(pools_.begin(), pools_.end(), int64_t{0},
                      [](int64_t n, const auto& pool) { return n + pool->only_cached(); });
  stats->page_budget =
      bytes_of_each == 0 ? 0 : limit_bytes() / bytes_of_each * static_cast<int64_t>(n_groups());
  stats->page_tokens = bytes_of_each == 0 ? 0 : page_tokens();
  stats->token_budget =
      bytes_of_each == 0 ? 0 : limit_bytes() / bytes_of_each * int64_t{page_tokens()};
  stats->page_bytes = page_bytes();
  stats->row_bytes = rows_.bytes();
  stats->checkpoint_bytes = index.lone_checkpoints * layout_.slot_bytes;
  stats->slots_used = slots_used();
  stats->slot_bytes = stats->slots_used * layout_.slot_bytes - stats->checkpoint_bytes;
  stats->checkpoints = index.checkpoints;
  stats->evicted_checkpoints = index.evicted_checkpoints;
  stats->index_nodes = index.nodes;
  stats->index_evicted_pages = index.evicted_pages;
  stats->pages_copied = pages_copied_;
  stats->slots_copied = slots_copied_;
}

Status StateMemory::CheckSession(const Session& session) const {
  for (const PageTable& table : session.state.tables_) {
    WEFT_RETURN_IF_ERROR(table.CheckIntegrity());
    if (table.n_tokens() != session.state.prepared_) {
      return Internal("a session prepared ", session.state.prepared_, " tokens, but a table holds ",
                      table.n_tokens());
    }
  }
  if (session.state.prepared_ != session.computed() && session.stage != SessionStage::kInStep) {
    return Internal("a session is prepared for tokens that nobody computes");
  }
  if (session.computed() > static_cast<int64_t>(session.tokens.size())) {
    return Internal("a session computed more tokens than it has");
  }
  const bool needs_slot = slots_ != nullptr && session.state.prepared_ > 0;
  if (needs_slot != static_cast<bool>(session.state.slot_)) {
    return Internal("a session that prepared ", session.state.prepared_, " tokens ",
                    needs_slot ? "has no slot" : "holds a slot");
  }
  return OkStatus();
}

Status StateMemory::CheckIntegrity(const SessionTable& sessions) const {
  Status status = index_->CheckIntegrity();
  sessions.ForEach([&](Session* session) {
    if (status.ok()) status = CheckSession(*session);
  });
  for (size_t g = 0; g < n_groups() && status.ok(); ++g) {
    std::vector<int32_t> counts;
    index_->AddPageCounts(static_cast<int>(g), &counts);
    sessions.ForEach([&](Session* session) {
      if (!session->state.tables_.empty()) session->state.tables_[g].AddCounts(&counts);
    });
    status = pools_[g]->CheckIntegrity(counts);
  }
  if (slots_ == nullptr || !status.ok()) return status;
  std::vector<int32_t> counts;
  index_->AddSlotCounts(&counts);
  sessions.ForEach([&](Session* session) {
    if (session->state.slot_) AddCount(&counts, session->state.slot_.id());
  });
  return slots_->CheckIntegrity(counts);
}

}  // namespace weft
