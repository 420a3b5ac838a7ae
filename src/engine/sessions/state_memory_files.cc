// Copies a session's state out of the backend's memory and back.
#include <algorithm>

#include "base/check.h"
#include "engine/sessions/state_memory.h"

namespace weft {

std::vector<PrefixIndex::Checkpoint> StateMemory::KnownCheckpoints(const Session& session,
                                                                   int64_t limit) const {
  auto known = index_->Checkpoints(session.DomainOf(limit), session.tokens, limit);
  if (limit <= session.invoked_at) return known;
  const auto before = index_->Checkpoints(session.DomainOf(0), session.tokens, session.invoked_at);
  known.insert(known.begin(), before.begin(), before.end());
  return known;
}

std::vector<PrefixIndex::Checkpoint> StateMemory::CheckpointsToSave(const Session& session) const {
  if (slots_ == nullptr || !keeps_prefixes()) return {};
  std::vector<PrefixIndex::Checkpoint> known = KnownCheckpoints(session, session.computed() - 1);
  // Where a window has freed pages, the file would lack what the next token sees. Files have
  // checkpoints at the ends of pages only.
  std::erase_if(known, [&](const PrefixIndex::Checkpoint& checkpoint) {
    return checkpoint.n_tokens % page_tokens() != 0 || !HoldsPagesAt(session, checkpoint.n_tokens);
  });
  // Backwards from the end, each time the farthest that is close enough.
  std::vector<PrefixIndex::Checkpoint> chosen;
  int64_t from = session.computed();
  for (size_t i = known.size(); i-- > 0 && std::ssize(chosen) < kMaxSavedCheckpoints;) {
    const int64_t former = i > 0 ? known[i - 1].n_tokens : 0;
    if (from - former <= checkpoint_tokens_) continue;
    chosen.push_back(known[i]);
    from = known[i].n_tokens;
  }
  std::reverse(chosen.begin(), chosen.end());
  return chosen;
}

StatusOr<StateMemory::SavedState> StateMemory::ReadState(const Session& session) {
  SavedState state;
  state.n_tokens = session.computed();
  if (state.n_tokens == 0) return state;
  state.groups.resize(n_groups());
  for (size_t g = 0; g < n_groups(); ++g) {
    const PageTable& table = session.state.tables_[g];
    state.groups[g].first_page = table.first_present();
    const int64_t n_pages = static_cast<int64_t>(table.pages().size());
    for (int64_t i = table.first_present(); i < n_pages; ++i) {
      const int64_t tokens =
          std::min<int64_t>(page_tokens(), session.computed() - i * page_tokens());
      std::vector<std::byte> bytes(static_cast<size_t>(layout_.page_bytes[g]));
      WEFT_RETURN_IF_ERROR(store_->ReadPage(static_cast<int>(g),
                                            table.pages()[static_cast<size_t>(i)],
                                            static_cast<int>(tokens), bytes));
      state.groups[g].pages.push_back(std::move(bytes));
    }
  }
  if (slots_ != nullptr) {
    state.slot.resize(static_cast<size_t>(layout_.slot_bytes));
    WEFT_RETURN_IF_ERROR(store_->ReadSlot(session.state.slot_.id(), state.slot));
  }
  for (const PrefixIndex::Checkpoint& checkpoint : CheckpointsToSave(session)) {
    std::vector<std::byte> bytes(static_cast<size_t>(layout_.slot_bytes));
    WEFT_RETURN_IF_ERROR(store_->ReadSlot(checkpoint.slot, bytes));
    state.checkpoints.push_back({checkpoint.n_tokens, std::move(bytes)});
  }
  return state;
}

Status StateMemory::CheckFits(const SavedState& state) const {
  if (state.groups.size() != n_groups()) {
    return DataLoss("the saved state has ", state.groups.size(), " layer groups, the model has ",
                    n_groups());
  }
  for (size_t g = 0; g < n_groups(); ++g) {
    const GroupPages& group = state.groups[g];
    const int64_t entries = shapes_[g].PagesFor(state.n_tokens);
    const int64_t count = static_cast<int64_t>(group.pages.size());
    if (group.first_page < 0 || group.first_page + count != entries ||
        group.first_page * page_tokens() > shapes_[g].VisibleFrom(state.n_tokens)) {
      return DataLoss("the saved pages of layer group ", g, " do not fit ", state.n_tokens,
                      " tokens");
    }
    for (const auto& page : group.pages) {
      if (static_cast<int64_t>(page.size()) != layout_.page_bytes[g]) {
        return DataLoss("a saved page of layer group ", g, " has ", page.size(), " bytes, not ",
                        layout_.page_bytes[g]);
      }
    }
  }
  if (static_cast<int64_t>(state.slot.size()) != layout_.slot_bytes) {
    return DataLoss("the saved recurrent state has ", state.slot.size(), " bytes, not ",
                    layout_.slot_bytes);
  }
  for (const SavedCheckpoint& checkpoint : state.checkpoints) {
    if (checkpoint.n_tokens <= 0 || checkpoint.n_tokens >= state.n_tokens ||
        checkpoint.n_tokens % page_tokens() != 0 ||
        static_cast<int64_t>(checkpoint.slot.size()) != layout_.slot_bytes) {
      return DataLoss("the saved checkpoint after ", checkpoint.n_tokens,
                      " tokens does not fit the state of ", state.n_tokens);
    }
  }
  return OkStatus();
}

Status StateMemory::FillFrom(const SavedState& state, Session* session) {
  for (size_t g = 0; g < n_groups(); ++g) {
    const GroupPages& group = state.groups[g];
    PageTable& table = session->state.tables_[g];
    WEFT_RETURN_IF_ERROR(table.Refill(state.n_tokens, group.first_page));
    WEFT_RETURN_IF_ERROR(GrowFor(g, table, static_cast<size_t>(group.first_page)));
    for (size_t i = 0; i < group.pages.size(); ++i) {
      const PageId page = table.pages()[static_cast<size_t>(group.first_page) + i];
      WEFT_RETURN_IF_ERROR(store_->WritePage(static_cast<int>(g), page, group.pages[i]));
    }
  }
  if (slots_ == nullptr) return OkStatus();
  WEFT_RETURN_IF_ERROR(OwnSlot(session));
  return store_->WriteSlot(session->state.slot_.id(), state.slot);
}

Status StateMemory::TakeCheckpoint(const SavedCheckpoint& checkpoint, Session* session) {
  const int64_t n = checkpoint.n_tokens;
  const bool known = index_->MatchLength(session->DomainOf(n), session->tokens, n) == n;
  if (known || !HoldsPagesAt(*session, n)) return OkStatus();
  Amount one_slot;
  one_slot.pages.resize(n_groups());
  one_slot.slots = 1;
  WEFT_RETURN_IF_ERROR(MakeRoom(one_slot));
  WEFT_ASSIGN_OR_RETURN(const PoolRef slot, NewSlot());
  WEFT_RETURN_IF_ERROR(store_->WriteSlot(slot.id(), checkpoint.slot));
  const std::vector<PageTable*> tables = TablesOf(session);
  index_->Insert(session->DomainOf(n), session->tokens, n, tables, /*adopt=*/true, slot.id());
  index_->LimitCheckpoints(max_checkpoints_);
  session->state.indexed_ = n;
  return OkStatus();
}

Status StateMemory::WriteState(Session* session, const SavedState& state) {
  WEFT_CHECK(session->computed() == 0, "restoring over a session that has state");
  WEFT_RETURN_IF_ERROR(CheckFits(state));
  Amount amount;
  for (const GroupPages& group : state.groups) {
    amount.pages.push_back(static_cast<int64_t>(group.pages.size()));
  }
  amount.slots = slots_ != nullptr ? 1 : 0;
  WEFT_RETURN_IF_ERROR(MakeRoom(amount));
  session->state.tables_.clear();
  EnsureTables(session);
  const Status status = FillFrom(state, session);
  if (!status.ok()) {
    session->state.tables_.clear();
    session->state.slot_.Reset();
    return status;
  }
  session->state.computed_ = session->state.prepared_ = state.n_tokens;
  session->state.indexed_ = 0;
  if (slots_ == nullptr || !keeps_prefixes()) return OkStatus();
  // Last ones last, so that they become the most recently used. A checkpoint without room is merely
  // missing.
  for (const SavedCheckpoint& checkpoint : state.checkpoints) {
    if (!TakeCheckpoint(checkpoint, session).ok()) break;
  }
  return OkStatus();
}

}  // namespace weft
