#include "compute/gpu/slab_pool.h"

#include <limits>
#include <utility>

namespace weft::gpu {

namespace {

constexpr int64_t kMaxSlabBytes = int64_t{32} << 20;  // upper limit, unless an item is larger
constexpr int64_t kMaxSlabs = 16384;
constexpr int kMaxShift = 16;

}  // namespace

SlabPool::SlabPool(device::Device* device, device::Stream* stream, int64_t item_bytes, Fresh fresh)
    : device_(*device), stream_(*stream), item_bytes_(item_bytes), fresh_(fresh) {
  while (shift_ < kMaxShift && item_bytes_ << (shift_ + 1) <= kMaxSlabBytes) ++shift_;
}

StatusOr<std::unique_ptr<SlabPool>> SlabPool::New(device::Device* device, device::Stream* stream,
                                                  int64_t item_bytes, Fresh fresh) {
  std::unique_ptr<SlabPool> pool(new SlabPool(device, stream, item_bytes, fresh));
  constexpr int64_t kTableBytes = kMaxSlabs * static_cast<int64_t>(sizeof(std::byte*));
  WEFT_ASSIGN_OR_RETURN(pool->table_, device->Allocate(kTableBytes));
  WEFT_ASSIGN_OR_RETURN(pool->host_table_, device->AllocatePinned(kTableBytes));
  return pool;
}

SlabPool::~SlabPool() {
  // The stream may still use the slabs. Nobody is left to report an error to.
  static_cast<void>(stream_.Synchronize());
}

device::PoolView SlabPool::view() const { return {table_->As<std::byte*>(), shift_, item_bytes_}; }

void SlabPool::PutAddress(size_t slab, std::byte* address) {
  constexpr int64_t kEntryBytes = sizeof(std::byte*);
  host_table_->As<std::byte*>()[slab] = address;
  const int64_t at = static_cast<int64_t>(slab) * kEntryBytes;
  stream_.CopyToDevice(table_->data() + at, host_table_->data() + at, kEntryBytes);
}

Status SlabPool::GiveMemory(size_t slab) {
  auto memory = device_.Allocate(slab_bytes());
  if (memory.status().code() == StatusCode::kResourceExhausted && !leaving_.empty()) {
    // Wait for slabs that are being freed, and try again.
    for (const Leaving& leaving : leaving_) {
      WEFT_RETURN_IF_ERROR(device::WaitFor(device_, leaving.passed.get()));
    }
    FreePassed();
    memory = device_.Allocate(slab_bytes());
  }
  WEFT_RETURN_IF_ERROR(memory.status());
  slabs_[slab].memory = *std::move(memory);
  ++n_slabs_held_;
  PutAddress(slab, slabs_[slab].memory->data());
  return OkStatus();
}

void SlabPool::TakeMemory(size_t slab) {
  auto event = device_.NewEvent();
  if (!event.ok()) return;  // keeps its memory until it is released again
  PutAddress(slab, nullptr);
  stream_.Record(event->get());
  leaving_.push_back({std::move(slabs_[slab].memory), *std::move(event)});
  --n_slabs_held_;
}

void SlabPool::FreePassed() {
  std::erase_if(leaving_, [](const Leaving& leaving) {
    const auto passed = leaving.passed->Poll();
    return passed.ok() && *passed;
  });
}

Status SlabPool::Grow(int64_t n) {
  if (n <= n_items()) return OkStatus();
  FreePassed();
  const int64_t n_slabs = (n + (int64_t{1} << shift_) - 1) >> shift_;
  if (n_slabs > kMaxSlabs || n > std::numeric_limits<int32_t>::max()) {
    return ResourceExhausted("a pool of ", n, " items of ", item_bytes_,
                             " bytes is larger than any device's memory");
  }
  const size_t n_before = slabs_.size();
  while (static_cast<int64_t>(slabs_.size()) < n_slabs) {
    slabs_.emplace_back();
    const Status status = GiveMemory(slabs_.size() - 1);
    if (status.ok()) continue;
    slabs_.pop_back();
    while (slabs_.size() > n_before) {
      if (slabs_.back().memory != nullptr) TakeMemory(slabs_.size() - 1);
      slabs_.pop_back();
    }
    return status;
  }
  held_.resize(static_cast<size_t>(n), false);
  return OkStatus();
}

Status SlabPool::Hold(int32_t id) {
  if (holds(id)) return OkStatus();
  FreePassed();
  const auto slab = static_cast<size_t>(id >> shift_);
  if (slabs_[slab].memory == nullptr) WEFT_RETURN_IF_ERROR(GiveMemory(slab));
  ++slabs_[slab].n_held;
  held_[static_cast<size_t>(id)] = true;
  if (fresh_ == Fresh::kZeros) stream_.Fill(at(id), 0, item_bytes_);
  return OkStatus();
}

void SlabPool::Release(int32_t id) {
  if (!holds(id)) return;
  FreePassed();
  held_[static_cast<size_t>(id)] = false;
  const auto slab = static_cast<size_t>(id >> shift_);
  if (--slabs_[slab].n_held == 0) TakeMemory(slab);
}

}  // namespace weft::gpu
