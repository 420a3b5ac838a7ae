#include "compute/host_state.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace weft {

namespace {

// The beginning of each state, and finally the end of the slot.
std::vector<int64_t> Offsets(const std::vector<int64_t>& n_floats) {
  constexpr int64_t kAlignment = 64;
  std::vector<int64_t> offsets = {0};
  for (const int64_t n : n_floats) {
    const int64_t end = offsets.back() + n * static_cast<int64_t>(sizeof(float));
    offsets.push_back((end + kAlignment - 1) / kAlignment * kAlignment);
  }
  return offsets;
}

}  // namespace

HostState::HostState(int page_tokens, const std::vector<int64_t>& slot_floats)
    : slot_offsets_(Offsets(slot_floats)), slots_(std::max<int64_t>(1, slot_offsets_.back())) {
  layout_.page_tokens = page_tokens;
  layout_.slot_bytes = slot_offsets_.back();
}

void HostState::AddGroup(int64_t page_bytes) {
  layout_.page_bytes.push_back(page_bytes);
  pages_.emplace_back(std::max<int64_t>(1, page_bytes));
}

// --- pages -----------------------------------------------------------------------------

Status HostState::GrowPages(int group, int64_t n_pages) {
  WEFT_RETURN_IF_ERROR(CheckGroup(group));
  return pages_[group].Grow(n_pages);
}

void HostState::DiscardPages(int group, std::span<const PageId> pages) {
  WEFT_CHECK(CheckGroup(group).ok(), "page group out of range");
  pages_[group].Discard(pages);
}

Status HostState::CopyPage(int group, PageId from, PageId to, int n_tokens) {
  WEFT_RETURN_IF_ERROR(CheckPage(group, from));
  WEFT_RETURN_IF_ERROR(CheckPage(group, to));
  WEFT_RETURN_IF_ERROR(CheckTokens(n_tokens));
  if (from == to || n_tokens == 0) return OkStatus();
  TouchPage(group, to);
  CopyTokens(group, page(group, from), page(group, to), n_tokens);
  return OkStatus();
}

Status HostState::ReadPage(int group, PageId page, int n_tokens, std::span<std::byte> out) const {
  WEFT_RETURN_IF_ERROR(CheckPage(group, page));
  WEFT_RETURN_IF_ERROR(CheckTokens(n_tokens));
  WEFT_RETURN_IF_ERROR(CheckPageBytes(group, out.size()));
  std::memcpy(out.data(), pages_[group].page(page), out.size());
  ClearFrom(group, n_tokens, out.data());
  return OkStatus();
}

Status HostState::WritePage(int group, PageId page, std::span<const std::byte> in) {
  WEFT_RETURN_IF_ERROR(CheckPage(group, page));
  WEFT_RETURN_IF_ERROR(CheckPageBytes(group, in.size()));
  TouchPage(group, page);
  std::memcpy(pages_[group].page(page), in.data(), in.size());
  return OkStatus();
}

// --- slots -----------------------------------------------------------------------------

Status HostState::GrowSlots(int64_t n_slots) {
  if (layout_.slot_bytes == 0 && n_slots > 0) {
    return Unimplemented("this model has no recurrent state");
  }
  return slots_.Grow(n_slots);
}

Status HostState::ClearSlot(SlotId slot) {
  WEFT_RETURN_IF_ERROR(CheckSlot(slot));
  slots_.Zero(slot);
  return OkStatus();
}

Status HostState::CopySlot(SlotId from, SlotId to) {
  WEFT_RETURN_IF_ERROR(CheckSlot(from));
  WEFT_RETURN_IF_ERROR(CheckSlot(to));
  if (from == to) return OkStatus();
  TouchSlot(to);
  std::memcpy(slots_.page(to), slots_.page(from), static_cast<size_t>(layout_.slot_bytes));
  return OkStatus();
}

Status HostState::ReadSlot(SlotId slot, std::span<std::byte> out) const {
  WEFT_RETURN_IF_ERROR(CheckSlot(slot));
  WEFT_RETURN_IF_ERROR(CheckSlotBytes(out.size()));
  std::memcpy(out.data(), slots_.page(slot), out.size());
  return OkStatus();
}

Status HostState::WriteSlot(SlotId slot, std::span<const std::byte> in) {
  WEFT_RETURN_IF_ERROR(CheckSlot(slot));
  WEFT_RETURN_IF_ERROR(CheckSlotBytes(in.size()));
  TouchSlot(slot);
  std::memcpy(slots_.page(slot), in.data(), in.size());
  return OkStatus();
}

int64_t HostState::held_bytes() const {
  int64_t bytes = slots_.held_bytes();
  for (const PageMemory& memory : pages_) bytes += memory.held_bytes();
  return bytes;
}

}  // namespace weft
