// Host memory for slots: the recurrent states of sessions by slot id, each state a run
// of floats at the same place in every slot.
//
// For backends whose state lies in ordinary memory; how a state's floats are laid out
// is theirs. A cleared slot is all zeros and holds no memory until it is written, so
// clearing is also how memory goes back to the system.
//
// Threads: as PageMemory. State() may be called by helper threads.
#ifndef WEFT_BACKEND_SLOT_MEMORY_H_
#define WEFT_BACKEND_SLOT_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/page_memory.h"
#include "base/state_ids.h"
#include "base/status.h"

namespace weft {

class SlotMemory {
 public:
  // `n_floats[i]` floats for state i; none: a model without recurrent state.
  explicit SlotMemory(const std::vector<int64_t>& n_floats);

  // The floats of one state, aligned to 64 bytes. REQUIRES: slot and index in range;
  // Touch(slot) before writing.
  float* State(SlotId slot, int index) const {
    return reinterpret_cast<float*>(memory_.page(slot) + offsets_[static_cast<size_t>(index)]);
  }
  // Counts the slot as held: it is about to be written. REQUIRES: slot is in range.
  void Touch(SlotId slot) { memory_.Touch(slot); }

  // The executor's slot calls; see backend.h. UNIMPLEMENTED in a model without state.
  Status Grow(int64_t n_slots);
  Status Clear(SlotId slot);
  Status Copy(SlotId from, SlotId to);
  Status Read(SlotId slot, std::span<std::byte> out) const;
  Status Write(SlotId slot, std::span<const std::byte> in);

  int64_t slot_bytes() const { return slot_bytes_; }  // 0 in a model without state
  int64_t n_slots() const { return memory_.n_pages(); }
  int64_t held_bytes() const { return memory_.held_bytes(); }

 private:
  Status CheckSlot(SlotId slot) const;
  Status CheckSize(size_t n_bytes) const;

  std::vector<int64_t> offsets_;  // bytes, per state
  int64_t slot_bytes_ = 0;
  PageMemory memory_;
};

}  // namespace weft

#endif  // WEFT_BACKEND_SLOT_MEMORY_H_
