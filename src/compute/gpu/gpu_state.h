// KV cache and recurrent state of all sequences, in a device's memory.
//
// A page of a group holds, for each KvLayer of the group, the keys and then the values, in the
// layout of compute/kernels_gpu/attention.h. A slot holds its states one after the other. Copies
// and clearing are enqueued on the state's own stream, which every step waits for when it begins.
// After a caller has waited for a step's end, the pages that the step used may be reused. Pages are
// exported and imported through pinned memory on a second stream, in parallel with computation.
#ifndef WEFT_COMPUTE_GPU_GPU_STATE_H_
#define WEFT_COMPUTE_GPU_GPU_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "compute/device/runtime.h"
#include "compute/gpu/gpu_weights.h"
#include "compute/gpu/slab_pool.h"
#include "compute/kernels_gpu/attention.h"
#include "compute/kernels_gpu/recurrent.h"
#include "compute/state_store.h"

namespace weft::gpu {

class GpuState final : public StateStore {
 public:
  // REQUIRES: the options were checked against the backend's capabilities.
  static StatusOr<std::unique_ptr<GpuState>> New(const GpuWeights& weights,
                                                 const StateOptions& options);
  ~GpuState() override;

  int64_t n_pages(int group) const override { return pages_[group]->n_items(); }
  Status GrowPages(int group, int64_t n_pages) override;
  void DiscardPages(int group, std::span<const PageId> pages) override;
  Status CopyPage(int group, PageId from, PageId to, int n_tokens) override;
  Status ReadPage(int group, PageId page, int n_tokens, std::span<std::byte> out) const override;
  Status WritePage(int group, PageId page, std::span<const std::byte> in) override;

  int64_t n_slots() const override { return slots_ != nullptr ? slots_->n_items() : 0; }
  Status GrowSlots(int64_t n_slots) override;
  Status ClearSlot(SlotId slot) override;
  Status CopySlot(SlotId from, SlotId to) override;
  Status ReadSlot(SlotId slot, std::span<std::byte> out) const override;
  Status WriteSlot(SlotId slot, std::span<const std::byte> in) override;

  int64_t held_bytes() const override;

  // Allocates memory for every page and slot that the step writes to. If this fails, no visible
  // state has changed. REQUIRES: the step is valid.
  Status HoldFor(const Step& step);
  // Makes `stream` wait for everything enqueued so far. Returns an earlier error of the state's
  // stream.
  Status LetWait(device::Stream* stream);
  device::KvType kv_type() const { return kv_type_; }
  device::KvView kv(int kv_layer) const;
  device::SlotView slot(int index) const { return {slots_->view(), slot_offsets_[index]}; }
  int group(int kv_layer) const { return layers_[kv_layer].group; }

 private:
  struct LayerPlace {
    int group = 0;
    int n_heads = 0;
    device::KvPlane keys, values;
    int32_t k_dim = 0, v_dim = 0;  // v_dim: of the values that are summed
    bool has_values = false;       // otherwise values are the first part of the keys
  };

  GpuState(const GpuWeights& weights, const StateOptions& options);
  // Lays out a group's page. Returns its size in bytes.
  int64_t LayOut(const ModelSpec& spec, int group);
  // Places a layer's keys or values at `*offset`, and advances the offset past them.
  device::KvPlane LayOutPlane(int n_heads, int64_t dims, bool by_dim, int64_t* offset) const;
  Status Start(const ModelSpec& spec);
  // Downloads and uploads bytes, in order with the work enqueued before.
  Status Fetch(const std::byte* from, std::span<std::byte> out) const;
  Status Send(std::byte* to, std::span<const std::byte> in);
  // Zeroes positions from `n_tokens` on in a page on the host.
  void ClearFrom(int group, int n_tokens, std::byte* page) const;
  void ClearPlane(const device::KvPlane& plane, int n_heads, int64_t dims, int n_tokens,
                  std::byte* page) const;

  const std::shared_ptr<device::Device> device_;  // outlives its allocations
  const device::KvType kv_type_;
  std::vector<LayerPlace> layers_;  // per KvLayer
  std::vector<std::vector<int>> layers_of_group_;
  std::vector<int64_t> slot_offsets_;  // bytes, per state
  std::unique_ptr<device::Stream> stream_, transfers_;
  std::unique_ptr<device::Event> enqueued_, transferred_;
  std::unique_ptr<device::Memory> staging_;
  std::vector<std::unique_ptr<SlabPool>> pages_;  // per group
  std::unique_ptr<SlabPool> slots_;               // null if the model has no recurrent state
};

}  // namespace weft::gpu

#endif  // WEFT_COMPUTE_GPU_GPU_STATE_H_
