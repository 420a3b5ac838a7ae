// Items of one size by id (pages of a group, slots) in slabs of device memory.
//
// Kernels find an item through a table of slab addresses on the device. The table never moves, so
// captured launches stay valid while the pool grows. A slab's memory is freed once none of its
// items is held and the stream has passed all work enqueued before; holding an item again allocates
// memory again.
//
// Threads: only the thread that owns the stream.
#ifndef WEFT_COMPUTE_GPU_SLAB_POOL_H_
#define WEFT_COMPUTE_GPU_SLAB_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "compute/device/runtime.h"
#include "compute/kernels_gpu/kernels.h"

namespace weft::gpu {

class SlabPool {
 public:
  enum class Fresh { kUndefined, kZeros };  // contents of a newly held item

  // REQUIRES: item_bytes > 0 and a multiple of 16; device and stream outlive the pool.
  static StatusOr<std::unique_ptr<SlabPool>> New(device::Device* device, device::Stream* stream,
                                                 int64_t item_bytes, Fresh fresh);
  ~SlabPool();

  int64_t n_items() const { return static_cast<int64_t>(held_.size()); }
  // Makes ids [0, n) usable and allocates their memory. RESOURCE_EXHAUSTED, with nothing changed,
  // if there is none.
  Status Grow(int64_t n);
  // Marks the item as held and allocates its memory if needed. REQUIRES: id is in range.
  Status Hold(int32_t id);
  // The item's contents are no longer needed. REQUIRES: id is in range.
  void Release(int32_t id);

  bool holds(int32_t id) const { return held_[static_cast<size_t>(id)]; }
  // The item's memory on the device. REQUIRES: it is held.
  std::byte* at(int32_t id) const {
    return slabs_[static_cast<size_t>(id >> shift_)].memory->data() +
           (id & ((1 << shift_) - 1)) * item_bytes_;
  }
  device::PoolView view() const;
  // Bytes of the allocated slabs.
  int64_t held_bytes() const { return n_slabs_held_ * slab_bytes(); }

 private:
  struct Slab {
    std::unique_ptr<device::Memory> memory;
    int n_held = 0;
  };
  struct Leaving {
    std::unique_ptr<device::Memory> memory;
    std::unique_ptr<device::Event> passed;
  };

  SlabPool(device::Device* device, device::Stream* stream, int64_t item_bytes, Fresh fresh);
  int64_t slab_bytes() const { return item_bytes_ << shift_; }
  Status GiveMemory(size_t slab);
  void TakeMemory(size_t slab);
  // Writes the slab's address to the kernels' table.
  void PutAddress(size_t slab, std::byte* address);
  // Frees slabs whose last use the stream has passed.
  void FreePassed();

  device::Device& device_;
  device::Stream& stream_;
  const int64_t item_bytes_;
  const Fresh fresh_;
  int shift_ = 0;  // log2 of the items in a slab
  std::unique_ptr<device::Memory> table_, host_table_;
  std::vector<Slab> slabs_;
  std::vector<bool> held_;
  std::vector<Leaving> leaving_;
  int64_t n_slabs_held_ = 0;
};

}  // namespace weft::gpu

#endif  // WEFT_COMPUTE_GPU_SLAB_POOL_H_
