#include "backend/slot_memory.h"

#include <algorithm>
#include <cstring>

namespace weft {

namespace {

// Where each state begins, and at last where the slot ends.
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

SlotMemory::SlotMemory(const std::vector<int64_t>& n_floats)
    : offsets_(Offsets(n_floats)),
      slot_bytes_(offsets_.back()),
      memory_(std::max<int64_t>(1, slot_bytes_)) {}

Status SlotMemory::CheckSlot(SlotId slot) const {
  if (slot_bytes_ == 0) return Unimplemented("this model has no recurrent state");
  if (slot >= 0 && slot < n_slots()) return OkStatus();
  return InvalidArgument("slot ", slot, " of ", n_slots());
}

Status SlotMemory::CheckSize(size_t n_bytes) const {
  if (static_cast<int64_t>(n_bytes) == slot_bytes_) return OkStatus();
  return InvalidArgument("a slot has ", slot_bytes_, " bytes, not ", n_bytes);
}

Status SlotMemory::Grow(int64_t n_slots) {
  if (slot_bytes_ == 0 && n_slots > 0) return Unimplemented("this model has no recurrent state");
  return memory_.Grow(n_slots);
}

Status SlotMemory::Clear(SlotId slot) {
  WEFT_RETURN_IF_ERROR(CheckSlot(slot));
  memory_.Zero(slot);
  return OkStatus();
}

Status SlotMemory::Copy(SlotId from, SlotId to) {
  WEFT_RETURN_IF_ERROR(CheckSlot(from));
  WEFT_RETURN_IF_ERROR(CheckSlot(to));
  if (from == to) return OkStatus();
  memory_.Touch(to);
  std::memcpy(memory_.page(to), memory_.page(from), static_cast<size_t>(slot_bytes_));
  return OkStatus();
}

Status SlotMemory::Read(SlotId slot, std::span<std::byte> out) const {
  WEFT_RETURN_IF_ERROR(CheckSlot(slot));
  WEFT_RETURN_IF_ERROR(CheckSize(out.size()));
  std::memcpy(out.data(), memory_.page(slot), out.size());
  return OkStatus();
}

Status SlotMemory::Write(SlotId slot, std::span<const std::byte> in) {
  WEFT_RETURN_IF_ERROR(CheckSlot(slot));
  WEFT_RETURN_IF_ERROR(CheckSize(in.size()));
  memory_.Touch(slot);
  std::memcpy(memory_.page(slot), in.data(), in.size());
  return OkStatus();
}

}  // namespace weft
