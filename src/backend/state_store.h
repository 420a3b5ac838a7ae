// The memory of an engine's state on a device: pages of keys and values, slots of recurrent
// state, by id. A backend makes it (Backend::NewState); whoever gives ids to sessions grows,
// copies, saves and discards what they name; an Executor's steps read and write it.
//
// In order with steps: a step sees what calls before its Begin left, and a call after a step is
// done sees what it stored. While a step is open, its sequences' slots and the positions that it
// writes belong to it; everything else may be grown, copied, read, written and discarded, and
// that includes earlier positions of a page that it writes to. A device may carry out a copy, a
// clearing or a discarding later, as long as nobody can tell; an error that comes too late for
// its call is that of the next step or call. Reading and writing are done with their spans when
// they return.
//
// Threads: belongs to the one thread that runs the engine; no method locks.
#ifndef WEFT_BACKEND_STATE_STORE_H_
#define WEFT_BACKEND_STATE_STORE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/state_ids.h"
#include "base/status.h"

namespace weft {

struct StateOptions {
  DType kv_type = DType::kF16;
  int page_tokens = 0;  // 0: the backend's preferred size
};

// The sizes of state, for accounting, and what its bytes mean.
struct StateLayout {
  int page_tokens = 0;
  std::vector<int64_t> page_bytes;  // per KvGroup of the spec
  int64_t slot_bytes = 0;           // all SlotStates of one session together
  // Raised where the same bytes of a page or a slot come to mean something else: what an
  // earlier build has kept on disk is then computed again.
  int form = 1;
};

// Raised when a change of kernels changes any bit that some model computes: what an earlier
// build has kept on disk of prompts is not mixed with it. Not where the layout's form says so
// already.
inline constexpr int kBitsVersion = 1;

class StateStore {
 public:
  StateStore() = default;
  virtual ~StateStore() = default;
  StateStore(const StateStore&) = delete;
  StateStore& operator=(const StateStore&) = delete;

  const StateLayout& layout() const { return layout_; }

  // --- pages, per KvGroup ----------------------------------------------------------
  // Ids below these are usable.
  virtual int64_t n_pages(int group) const = 0;
  // Makes ids [0, n_pages) of the group usable; what the new ones hold is undefined.
  // RESOURCE_EXHAUSTED when the memory cannot be had; nothing has changed then.
  virtual Status GrowPages(int group, int64_t n_pages) = 0;
  // The contents of these pages are no longer needed; their memory may go back to
  // the system until they are written again.
  virtual void DiscardPages(int group, std::span<const PageId> pages) = 0;
  // Copies the first `n_tokens` positions of a page.
  virtual Status CopyPage(int group, PageId from, PageId to, int n_tokens) = 0;
  // Page contents in and out, for session files: layout().page_bytes bytes in a
  // form that is stable for this backend, KV type and page size. Positions from
  // `n_tokens` on are zero in what is read.
  virtual Status ReadPage(int group, PageId page, int n_tokens, std::span<std::byte> out) const = 0;
  virtual Status WritePage(int group, PageId page, std::span<const std::byte> in) = 0;

  // --- slots: the same for recurrent state; UNIMPLEMENTED in a model without ----------
  virtual int64_t n_slots() const = 0;
  virtual Status GrowSlots(int64_t n_slots) = 0;
  // Makes it the state before the first token, which holds no memory until a step
  // writes it: also for slots that nobody needs any more.
  virtual Status ClearSlot(SlotId slot) = 0;
  virtual Status CopySlot(SlotId from, SlotId to) = 0;
  virtual Status ReadSlot(SlotId slot, std::span<std::byte> out) const = 0;
  virtual Status WriteSlot(SlotId slot, std::span<const std::byte> in) = 0;

  // Bytes now held from the device's memory.
  virtual int64_t held_bytes() const = 0;

 protected:
  StateLayout layout_;  // constructors fill it
};

}  // namespace weft

#endif  // WEFT_BACKEND_STATE_STORE_H_
