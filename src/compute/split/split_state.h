// The state of a model that two backends compute: a page, and likewise a slot, is the front's part
// followed by the back's. Both parts use the same id.
//
// Threads: as StateStore.
#ifndef WEFT_COMPUTE_SPLIT_SPLIT_STATE_H_
#define WEFT_COMPUTE_SPLIT_SPLIT_STATE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "compute/split/split_spec.h"
#include "compute/state_store.h"

namespace weft::split {

class SplitState final : public StateStore {
 public:
  // REQUIRES: stores for the parts of the spec, with pages of the same size.
  SplitState(const SplitSpec& spec, std::unique_ptr<StateStore> front,
             std::unique_ptr<StateStore> back);

  StateStore* front() const { return parts_[0].store.get(); }
  StateStore* back() const { return parts_[1].store.get(); }

  int64_t n_pages(int group) const override;
  Status GrowPages(int group, int64_t n_pages) override;
  void DiscardPages(int group, std::span<const PageId> pages) override;
  Status CopyPage(int group, PageId from, PageId to, int n_tokens) override;
  Status ReadPage(int group, PageId page, int n_tokens, std::span<std::byte> out) const override;
  Status WritePage(int group, PageId page, std::span<const std::byte> in) override;

  int64_t n_slots() const override;
  Status GrowSlots(int64_t n_slots) override;
  Status ClearSlot(SlotId slot) override;
  Status CopySlot(SlotId from, SlotId to) override;
  Status ReadSlot(SlotId slot, std::span<std::byte> out) const override;
  Status WriteSlot(SlotId slot, std::span<const std::byte> in) override;

  int64_t held_bytes() const override;

 private:
  struct Part {
    std::unique_ptr<StateStore> store;
    std::vector<int> groups;  // see SpecPart
  };
  // Calls fn(store, the store's number of the group, bytes of its pages) for each part that has
  // layers in the group, until one fails.
  template <typename Fn>
  Status ForPages(int group, Fn fn) const;
  // Calls fn(store, bytes of its slots) for each part that has recurrent state.
  template <typename Fn>
  Status ForSlots(Fn fn) const;

  std::array<Part, 2> parts_;
};

}  // namespace weft::split

#endif  // WEFT_COMPUTE_SPLIT_SPLIT_STATE_H_
