// The memory of an engine's state on a device: pages of the KV cache and slots of recurrent state,
// by id. A backend creates it (Backend::NewState); the owner of the ids grows, copies, saves and
// discards pages and slots; an Executor's steps read and write them.
//
// Calls are ordered with steps: a step sees the effect of calls before its Begin, and a call after
// a step is done sees what it stored. While a step is open, its sequences' slots and the positions
// that it writes belong to it. Everything else may be grown, copied, read, written and discarded,
// including earlier positions of a page that the step writes to. A device may execute a copy, clear
// or discard later, as long as nobody can tell; an error that arrives too late is reported by the
// next step or call. Reads and writes are done with their spans when they return.
//
// Threads: belongs to the one thread that runs the engine; no method locks.
#ifndef WEFT_COMPUTE_STATE_STORE_H_
#define WEFT_COMPUTE_STATE_STORE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/state_ids.h"
#include "base/status.h"
#include "compute/kernels/kv_types.h"

namespace weft {

struct StateOptions {
  KvTypes kv_type;
  int page_tokens = 0;  // 0: the backend's preferred size
};

// Sizes of state, for accounting, and the version of its byte format.
struct StateLayout {
  int page_tokens = 0;
  std::vector<int64_t> page_bytes;  // per KvGroup of the spec
  int64_t slot_bytes = 0;           // all SlotStates of one session together
  // Increased when the bytes of a page or slot change their meaning: state on disk from an earlier
  // build is then recomputed.
  int form = 1;
};

// Increased when a change of kernels changes any bit of any model's results: state on disk from an
// earlier build is then not mixed with new state. Not needed if the layout's form increases.
inline constexpr int kBitsVersion = 1;

class StateStore {
 public:
  StateStore() = default;
  virtual ~StateStore() = default;
  StateStore(const StateStore&) = delete;
  StateStore& operator=(const StateStore&) = delete;

  const StateLayout& layout() const { return layout_; }

  // Ids [0, n_pages) are usable.
  virtual int64_t n_pages(int group) const = 0;
  // Makes ids [0, n_pages) of the group usable; new pages are undefined. RESOURCE_EXHAUSTED, with
  // nothing changed, if there is no memory.
  virtual Status GrowPages(int group, int64_t n_pages) = 0;
  // The contents of these pages are no longer needed; their memory may be returned to the system
  // until they are written again.
  virtual void DiscardPages(int group, std::span<const PageId> pages) = 0;
  // Copies the first `n_tokens` positions of a page.
  virtual Status CopyPage(int group, PageId from, PageId to, int n_tokens) = 0;
  // Export and import of pages, for session files: layout().page_bytes bytes in a form that is
  // stable for this backend, KV type and page size. In exports, positions from `n_tokens` on are
  // zero.
  virtual Status ReadPage(int group, PageId page, int n_tokens, std::span<std::byte> out) const = 0;
  virtual Status WritePage(int group, PageId page, std::span<const std::byte> in) = 0;

  // --- slots: the same for recurrent state; UNIMPLEMENTED in a model without ----------
  virtual int64_t n_slots() const = 0;
  virtual Status GrowSlots(int64_t n_slots) = 0;
  // Resets the slot to the state before the first token, which holds no memory until a step writes
  // it. Call it also for slots that are no longer needed.
  virtual Status ClearSlot(SlotId slot) = 0;
  virtual Status CopySlot(SlotId from, SlotId to) = 0;
  virtual Status ReadSlot(SlotId slot, std::span<std::byte> out) const = 0;
  virtual Status WriteSlot(SlotId slot, std::span<const std::byte> in) = 0;

  // Bytes of device memory held now.
  virtual int64_t held_bytes() const = 0;

 protected:
  // Errors that name what is out of range.
  Status CheckGroup(int group) const;
  Status CheckPage(int group, PageId page) const;
  Status CheckTokens(int n_tokens) const;
  Status CheckPageBytes(int group, size_t n_bytes) const;
  Status CheckSlot(SlotId slot) const;
  Status CheckSlotBytes(size_t n_bytes) const;

  StateLayout layout_;  // constructors fill it
};

}  // namespace weft

#endif  // WEFT_COMPUTE_STATE_STORE_H_
