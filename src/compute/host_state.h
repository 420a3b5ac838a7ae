// A StateStore in host memory: one PageMemory per group for pages, and another for slots. Each
// state has the same offset in every slot.
//
// The backend defines how a position's keys and values are stored in a page, and so how positions
// are copied and cleared. A cleared slot is all zeros and holds no memory until it is written, so
// clearing also returns its memory to the system.
//
// Threads: as StateStore; page() and SlotValues() may be called by helper threads too.
#ifndef WEFT_COMPUTE_HOST_STATE_H_
#define WEFT_COMPUTE_HOST_STATE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/state_ids.h"
#include "base/status.h"
#include "compute/page_memory.h"
#include "compute/state_store.h"

namespace weft {

class HostState : public StateStore {
 public:
  int page_tokens() const { return layout_.page_tokens; }
  // Marks a page or slot as held, before it is written. REQUIRES: it is in range.
  void TouchPage(int group, PageId page) { pages_[group].Touch(page); }
  void TouchSlot(SlotId slot) { slots_.Touch(slot); }
  // The floats of one state, aligned to 64 bytes. REQUIRES: slot and index in range;
  // TouchSlot(slot) before writing.
  float* SlotValues(SlotId slot, int index) const {
    return reinterpret_cast<float*>(slots_.page(slot) + slot_offsets_[static_cast<size_t>(index)]);
  }

  int64_t n_pages(int group) const override { return pages_[group].n_pages(); }
  Status GrowPages(int group, int64_t n_pages) override;
  void DiscardPages(int group, std::span<const PageId> pages) override;
  Status CopyPage(int group, PageId from, PageId to, int n_tokens) override;
  Status ReadPage(int group, PageId page, int n_tokens, std::span<std::byte> out) const override;
  Status WritePage(int group, PageId page, std::span<const std::byte> in) override;

  int64_t n_slots() const override { return slots_.n_pages(); }
  Status GrowSlots(int64_t n_slots) override;
  Status ClearSlot(SlotId slot) override;
  Status CopySlot(SlotId from, SlotId to) override;
  Status ReadSlot(SlotId slot, std::span<std::byte> out) const override;
  Status WriteSlot(SlotId slot, std::span<const std::byte> in) override;

  int64_t held_bytes() const override;

 protected:
  // State i has `slot_floats[i]` floats; empty for a model without recurrent state.
  HostState(int page_tokens, const std::vector<int64_t>& slot_floats);
  // Adds the next group. The constructor calls it for each group.
  void AddGroup(int64_t page_bytes);

  std::byte* page(int group, PageId page) const { return pages_[group].page(page); }
  // Copies the first `n_tokens` positions, at least one, from one page to another.
  virtual void CopyTokens(int group, const std::byte* from, std::byte* to, int n_tokens) const = 0;
  // Zeroes positions from `n_tokens` on in a copy of a page.
  virtual void ClearFrom(int group, int n_tokens, std::byte* page) const = 0;

 private:
  std::vector<PageMemory> pages_;      // per group
  std::vector<int64_t> slot_offsets_;  // bytes, per state; finally the end of a slot
  PageMemory slots_;
};

}  // namespace weft

#endif  // WEFT_COMPUTE_HOST_STATE_H_
