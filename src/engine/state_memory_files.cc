// The state of a session, out of the backend's memory and back.
#include <algorithm>

#include "base/check.h"
#include "engine/state_memory.h"

namespace weft {

StatusOr<StateMemory::SavedState> StateMemory::ReadState(const Session& session) {
  SavedState state;
  state.n_tokens = session.computed;
  if (state.n_tokens == 0) return state;
  state.groups.resize(n_groups());
  for (size_t g = 0; g < n_groups(); ++g) {
    const PageTable& table = session.tables[g];
    state.groups[g].first_page = table.first_present();
    const int64_t n_pages = static_cast<int64_t>(table.pages().size());
    for (int64_t i = table.first_present(); i < n_pages; ++i) {
      const int64_t tokens = std::min<int64_t>(page_tokens(), session.computed - i * page_tokens());
      std::vector<std::byte> bytes(static_cast<size_t>(layout_.page_bytes[g]));
      WEFT_RETURN_IF_ERROR(executor_->ReadPage(static_cast<int>(g),
                                               table.pages()[static_cast<size_t>(i)],
                                               static_cast<int>(tokens), bytes));
      state.groups[g].pages.push_back(std::move(bytes));
    }
  }
  if (slots_ != nullptr) {
    state.slot.resize(static_cast<size_t>(layout_.slot_bytes));
    WEFT_RETURN_IF_ERROR(executor_->ReadSlot(session.slot.id(), state.slot));
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
  return OkStatus();
}

Status StateMemory::FillFrom(const SavedState& state, Session* session) {
  for (size_t g = 0; g < n_groups(); ++g) {
    const GroupPages& group = state.groups[g];
    PageTable& table = session->tables[g];
    WEFT_RETURN_IF_ERROR(table.Refill(state.n_tokens, group.first_page));
    WEFT_RETURN_IF_ERROR(GrowFor(g, table, static_cast<size_t>(group.first_page)));
    for (size_t i = 0; i < group.pages.size(); ++i) {
      const PageId page = table.pages()[static_cast<size_t>(group.first_page) + i];
      WEFT_RETURN_IF_ERROR(executor_->WritePage(static_cast<int>(g), page, group.pages[i]));
    }
  }
  if (slots_ == nullptr) return OkStatus();
  WEFT_RETURN_IF_ERROR(OwnSlot(session));
  return executor_->WriteSlot(session->slot.id(), state.slot);
}

Status StateMemory::WriteState(Session* session, const SavedState& state) {
  WEFT_CHECK(session->computed == 0, "restoring over a session that has state");
  WEFT_RETURN_IF_ERROR(CheckFits(state));
  Amount amount;
  for (const GroupPages& group : state.groups) {
    amount.pages.push_back(static_cast<int64_t>(group.pages.size()));
  }
  amount.slots = slots_ != nullptr ? 1 : 0;
  WEFT_RETURN_IF_ERROR(MakeRoom(amount));
  session->tables.clear();
  EnsureTables(session);
  const Status status = FillFrom(state, session);
  if (!status.ok()) {
    session->tables.clear();
    session->slot.Reset();
    return status;
  }
  session->computed = session->prepared = state.n_tokens;
  session->indexed = 0;
  return OkStatus();
}

}  // namespace weft
