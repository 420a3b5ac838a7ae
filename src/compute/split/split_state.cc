#include "compute/split/split_state.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace weft::split {

SplitState::SplitState(const SplitSpec& spec, std::unique_ptr<StateStore> front,
                       std::unique_ptr<StateStore> back)
    : parts_{{{std::move(front), spec.front.groups}, {std::move(back), spec.back.groups}}} {
  layout_.page_tokens = this->front()->layout().page_tokens;
  layout_.page_bytes.resize(spec.front.groups.size(), 0);
  // Increases whenever one of theirs does.
  layout_.form = this->front()->layout().form + this->back()->layout().form - 1;
  for (const Part& part : parts_) {
    const StateLayout& layout = part.store->layout();
    layout_.slot_bytes += layout.slot_bytes;
    for (size_t g = 0; g < part.groups.size(); ++g) {
      if (part.groups[g] < 0) continue;
      layout_.page_bytes[g] += layout.page_bytes[static_cast<size_t>(part.groups[g])];
    }
  }
}

template <typename Fn>
Status SplitState::ForPages(int group, Fn fn) const {
  WEFT_RETURN_IF_ERROR(CheckGroup(group));
  for (const Part& part : parts_) {
    const int own = part.groups[static_cast<size_t>(group)];
    if (own < 0) continue;
    const int64_t bytes = part.store->layout().page_bytes[static_cast<size_t>(own)];
    WEFT_RETURN_IF_ERROR(fn(part.store.get(), own, static_cast<size_t>(bytes)));
  }
  return OkStatus();
}

template <typename Fn>
Status SplitState::ForSlots(Fn fn) const {
  if (layout_.slot_bytes == 0) return Unimplemented("this model has no recurrent state");
  for (const Part& part : parts_) {
    const int64_t bytes = part.store->layout().slot_bytes;
    if (bytes > 0) WEFT_RETURN_IF_ERROR(fn(part.store.get(), static_cast<size_t>(bytes)));
  }
  return OkStatus();
}

// --- pages -----------------------------------------------------------------------------

// Ids that both parts have: one of them may have grown alone.
int64_t SplitState::n_pages(int group) const {
  int64_t n = std::numeric_limits<int64_t>::max();
  const Status status = ForPages(group, [&](const StateStore* store, int own, size_t) {
    n = std::min(n, store->n_pages(own));
    return OkStatus();
  });
  WEFT_CHECK(status.ok(), "page group out of range");
  return n;
}

Status SplitState::GrowPages(int group, int64_t n_pages) {
  return ForPages(group, [&](StateStore* store, int own, size_t) {
    return n_pages > store->n_pages(own) ? store->GrowPages(own, n_pages) : OkStatus();
  });
}

void SplitState::DiscardPages(int group, std::span<const PageId> pages) {
  const Status status = ForPages(group, [&](StateStore* store, int own, size_t) {
    store->DiscardPages(own, pages);
    return OkStatus();
  });
  WEFT_CHECK(status.ok(), "page group out of range");
}

Status SplitState::CopyPage(int group, PageId from, PageId to, int n_tokens) {
  return ForPages(group, [&](StateStore* store, int own, size_t) {
    return store->CopyPage(own, from, to, n_tokens);
  });
}

Status SplitState::ReadPage(int group, PageId page, int n_tokens, std::span<std::byte> out) const {
  WEFT_RETURN_IF_ERROR(CheckGroup(group));
  WEFT_RETURN_IF_ERROR(CheckPageBytes(group, out.size()));
  return ForPages(group, [&](const StateStore* store, int own, size_t bytes) {
    return store->ReadPage(own, page, n_tokens,
                           std::exchange(out, out.subspan(bytes)).first(bytes));
  });
}

Status SplitState::WritePage(int group, PageId page, std::span<const std::byte> in) {
  WEFT_RETURN_IF_ERROR(CheckGroup(group));
  WEFT_RETURN_IF_ERROR(CheckPageBytes(group, in.size()));
  return ForPages(group, [&](StateStore* store, int own, size_t bytes) {
    return store->WritePage(own, page, std::exchange(in, in.subspan(bytes)).first(bytes));
  });
}

// --- slots -----------------------------------------------------------------------------

int64_t SplitState::n_slots() const {
  int64_t n = std::numeric_limits<int64_t>::max();
  const Status status = ForSlots([&](const StateStore* store, size_t) {
    n = std::min(n, store->n_slots());
    return OkStatus();
  });
  return status.ok() ? n : 0;
}

Status SplitState::GrowSlots(int64_t n_slots) {
  if (n_slots == 0) return OkStatus();
  return ForSlots([&](StateStore* store, size_t) {
    return n_slots > store->n_slots() ? store->GrowSlots(n_slots) : OkStatus();
  });
}

Status SplitState::ClearSlot(SlotId slot) {
  return ForSlots([&](StateStore* store, size_t) { return store->ClearSlot(slot); });
}

Status SplitState::CopySlot(SlotId from, SlotId to) {
  return ForSlots([&](StateStore* store, size_t) { return store->CopySlot(from, to); });
}

Status SplitState::ReadSlot(SlotId slot, std::span<std::byte> out) const {
  if (layout_.slot_bytes > 0) {
    WEFT_RETURN_IF_ERROR(CheckSlotBytes(out.size()));
  }
  return ForSlots([&](const StateStore* store, size_t bytes) {
    return store->ReadSlot(slot, std::exchange(out, out.subspan(bytes)).first(bytes));
  });
}

Status SplitState::WriteSlot(SlotId slot, std::span<const std::byte> in) {
  if (layout_.slot_bytes > 0) {
    WEFT_RETURN_IF_ERROR(CheckSlotBytes(in.size()));
  }
  return ForSlots([&](StateStore* store, size_t bytes) {
    return store->WriteSlot(slot, std::exchange(in, in.subspan(bytes)).first(bytes));
  });
}

int64_t SplitState::held_bytes() const { return front()->held_bytes() + back()->held_bytes(); }

}  // namespace weft::split
