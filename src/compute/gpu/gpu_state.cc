#include "compute/gpu/gpu_state.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace weft::gpu {

using device::KvPlane;
using device::KvType;

namespace {

constexpr int64_t kPlaneAlignment = 256;
int64_t PlaneAligned(int64_t bytes) {
  return (bytes + kPlaneAlignment - 1) / kPlaneAlignment * kPlaneAlignment;
}

KvType KvTypeOf(DType type) {
  switch (type) {
    case DType::kF32:
      return KvType::kF32;
    case DType::kF16:
      return KvType::kF16;
    case DType::kBF16:
      return KvType::kBF16;
    default:
      return KvType::kQ8_0;
  }
}

int64_t ElementBytes(KvType type) {
  return type == KvType::kF32 ? 4 : type == KvType::kQ8_0 ? 1 : 2;
}

}  // namespace

GpuState::GpuState(const GpuWeights& weights, const StateOptions& options)
    : device_(weights.gpu()),
      kv_type_(KvTypeOf(options.kv_type.keys)),
      layers_(weights.spec().kv_layers.size()) {
  layout_.page_tokens = options.page_tokens;
}

StatusOr<std::unique_ptr<GpuState>> GpuState::New(const GpuWeights& weights,
                                                  const StateOptions& options) {
  std::unique_ptr<GpuState> state(new GpuState(weights, options));
  WEFT_RETURN_IF_ERROR(state->Start(weights.spec()));
  return state;
}

GpuState::~GpuState() {
  if (transfers_ != nullptr) static_cast<void>(transfers_->Synchronize());
  if (stream_ != nullptr) static_cast<void>(stream_->Synchronize());
}

KvPlane GpuState::LayOutPlane(int n_heads, int64_t dims, bool by_dim, int64_t* offset) const {
  const int64_t n_tokens = layout_.page_tokens;
  const int64_t groups = device::CeilDiv(dims, device::kScaleDims);
  KvPlane plane;
  plane.offset = *offset;
  plane.head = dims * n_tokens;
  plane.token = by_dim ? 1 : dims;
  plane.dim = by_dim ? n_tokens : 1;
  *offset += PlaneAligned(n_heads * plane.head * ElementBytes(kv_type_));
  if (kv_type_ != KvType::kQ8_0) return plane;
  plane.scale_offset = *offset;
  plane.scale_head = groups * n_tokens;
  plane.scale_token = by_dim ? 1 : groups;
  plane.scale_group = by_dim ? n_tokens : 1;
  *offset += PlaneAligned(n_heads * plane.scale_head * 2);
  return plane;
}

int64_t GpuState::LayOut(const ModelSpec& spec, int group) {
  const std::vector<int64_t> v_dims = ValueDims(spec);
  int64_t bytes = 0;
  for (const int index : spec.kv_groups[group].kv_layers) {
    const KvLayer& layer = spec.kv_layers[index];
    LayerPlace& place = layers_[index];
    place.group = group;
    place.n_heads = layer.n_heads;
    place.k_dim = static_cast<int32_t>(layer.k_dim);
    place.v_dim = static_cast<int32_t>(v_dims[index]);
    place.has_values = layer.v_dim > 0;
    place.keys = LayOutPlane(layer.n_heads, layer.k_dim, true, &bytes);
    place.values = place.keys;
    if (place.has_values) place.values = LayOutPlane(layer.n_heads, layer.v_dim, false, &bytes);
  }
  return bytes;
}

Status GpuState::Start(const ModelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(stream_, device_->NewStream());
  WEFT_ASSIGN_OR_RETURN(transfers_, device_->NewStream());
  WEFT_ASSIGN_OR_RETURN(enqueued_, device_->NewEvent());
  WEFT_ASSIGN_OR_RETURN(transferred_, device_->NewEvent());
  int64_t largest = 1;
  for (size_t group = 0; group < spec.kv_groups.size(); ++group) {
    const int64_t bytes = std::max(kPlaneAlignment, LayOut(spec, static_cast<int>(group)));
    layout_.page_bytes.push_back(bytes);
    layers_of_group_.push_back(spec.kv_groups[group].kv_layers);
    largest = std::max(largest, bytes);
    WEFT_ASSIGN_OR_RETURN(
        auto pool, SlabPool::New(device_.get(), stream_.get(), bytes, SlabPool::Fresh::kUndefined));
    pages_.push_back(std::move(pool));
  }
  for (const SlotState& slot : spec.slots) {
    slot_offsets_.push_back(layout_.slot_bytes);
    layout_.slot_bytes += PlaneAligned(slot.n_floats * 4);
  }
  if (!spec.slots.empty()) {
    layout_.slot_bytes = std::max(kPlaneAlignment, layout_.slot_bytes);
    largest = std::max(largest, layout_.slot_bytes);
    WEFT_ASSIGN_OR_RETURN(slots_, SlabPool::New(device_.get(), stream_.get(), layout_.slot_bytes,
                                                SlabPool::Fresh::kZeros));
  }
  WEFT_ASSIGN_OR_RETURN(staging_, device_->AllocatePinned(largest));
  return OkStatus();
}

device::KvView GpuState::kv(int kv_layer) const {
  const LayerPlace& place = layers_[kv_layer];
  device::KvView view;
  view.pool = pages_[place.group]->view();
  view.keys = place.keys;
  view.values = place.values;
  view.page_shift = std::countr_zero(static_cast<unsigned>(layout_.page_tokens));
  view.group = place.group;
  view.k_dim = place.k_dim;
  view.v_dim = place.v_dim;
  return view;
}

// --- pages ------------------------------------------------------------------------------------

Status GpuState::GrowPages(int group, int64_t n_pages) {
  WEFT_RETURN_IF_ERROR(CheckGroup(group));
  return pages_[group]->Grow(n_pages);
}

void GpuState::DiscardPages(int group, std::span<const PageId> pages) {
  for (const PageId page : pages) {
    WEFT_CHECK(CheckPage(group, page).ok(), "a discarded page is in the pool");
    pages_[group]->Release(page);
  }
}

// Copies the whole page: positions after the wanted ones are undefined anyway.
Status GpuState::CopyPage(int group, PageId from, PageId to, int n_tokens) {
  WEFT_RETURN_IF_ERROR(CheckPage(group, from));
  WEFT_RETURN_IF_ERROR(CheckPage(group, to));
  WEFT_RETURN_IF_ERROR(CheckTokens(n_tokens));
  SlabPool& pool = *pages_[group];
  if (n_tokens == 0 || from == to || !pool.holds(from)) return OkStatus();
  WEFT_RETURN_IF_ERROR(pool.Hold(to));
  stream_->CopyOnDevice(pool.at(to), pool.at(from), layout_.page_bytes[group]);
  return OkStatus();
}

void GpuState::ClearPlane(const KvPlane& plane, int n_heads, int64_t dims, int n_tokens,
                          std::byte* page) const {
  const int64_t size = ElementBytes(kv_type_);
  for (int head = 0; head < n_heads; ++head) {
    for (int64_t token = n_tokens; token < layout_.page_tokens; ++token) {
      for (int64_t dim = 0; dim < dims; ++dim) {
        const int64_t at = head * plane.head + token * plane.token + dim * plane.dim;
        std::memset(page + plane.offset + at * size, 0, static_cast<size_t>(size));
      }
      if (kv_type_ != KvType::kQ8_0) continue;
      for (int64_t group = 0; group < device::CeilDiv(dims, device::kScaleDims); ++group) {
        const int64_t at =
            head * plane.scale_head + token * plane.scale_token + group * plane.scale_group;
        std::memset(page + plane.scale_offset + at * 2, 0, 2);
      }
    }
  }
}

void GpuState::ClearFrom(int group, int n_tokens, std::byte* page) const {
  for (const int index : layers_of_group_[group]) {
    const LayerPlace& place = layers_[index];
    ClearPlane(place.keys, place.n_heads, place.k_dim, n_tokens, page);
    if (place.has_values) ClearPlane(place.values, place.n_heads, place.v_dim, n_tokens, page);
  }
}

Status GpuState::Fetch(const std::byte* from, std::span<std::byte> out) const {
  stream_->Record(enqueued_.get());
  transfers_->WaitFor(*enqueued_);
  transfers_->CopyToHost(staging_->data(), from, static_cast<int64_t>(out.size()));
  transfers_->Record(transferred_.get());
  WEFT_RETURN_IF_ERROR(device::WaitFor(*device_, transferred_.get()));
  WEFT_RETURN_IF_ERROR(stream_->TakeError());
  WEFT_RETURN_IF_ERROR(transfers_->TakeError());
  std::memcpy(out.data(), staging_->data(), out.size());
  return OkStatus();
}

Status GpuState::Send(std::byte* to, std::span<const std::byte> in) {
  std::memcpy(staging_->data(), in.data(), in.size());
  stream_->Record(enqueued_.get());
  transfers_->WaitFor(*enqueued_);
  transfers_->CopyToDevice(to, staging_->data(), static_cast<int64_t>(in.size()));
  transfers_->Record(transferred_.get());
  stream_->WaitFor(*transferred_);
  WEFT_RETURN_IF_ERROR(device::WaitFor(*device_, transferred_.get()));
  WEFT_RETURN_IF_ERROR(stream_->TakeError());
  return transfers_->TakeError();
}

Status GpuState::ReadPage(int group, PageId page, int n_tokens, std::span<std::byte> out) const {
  WEFT_RETURN_IF_ERROR(CheckPage(group, page));
  WEFT_RETURN_IF_ERROR(CheckPageBytes(group, out.size()));
  WEFT_RETURN_IF_ERROR(CheckTokens(n_tokens));
  std::ranges::fill(out, std::byte{0});
  if (n_tokens == 0 || !pages_[group]->holds(page)) return OkStatus();
  WEFT_RETURN_IF_ERROR(Fetch(pages_[group]->at(page), out));
  ClearFrom(group, n_tokens, out.data());
  return OkStatus();
}

Status GpuState::WritePage(int group, PageId page, std::span<const std::byte> in) {
  WEFT_RETURN_IF_ERROR(CheckPage(group, page));
  WEFT_RETURN_IF_ERROR(CheckPageBytes(group, in.size()));
  WEFT_RETURN_IF_ERROR(pages_[group]->Hold(page));
  return Send(pages_[group]->at(page), in);
}

// --- slots ------------------------------------------------------------------------------------

Status GpuState::GrowSlots(int64_t n_slots) {
  if (slots_ == nullptr) return Unimplemented("the model has no recurrent state");
  return slots_->Grow(n_slots);
}

// A released slot is all zeros when it is next used.
Status GpuState::ClearSlot(SlotId slot) {
  WEFT_RETURN_IF_ERROR(CheckSlot(slot));
  slots_->Release(slot);
  return OkStatus();
}

Status GpuState::CopySlot(SlotId from, SlotId to) {
  WEFT_RETURN_IF_ERROR(CheckSlot(from));
  WEFT_RETURN_IF_ERROR(CheckSlot(to));
  if (from == to) return OkStatus();
  if (!slots_->holds(from)) return ClearSlot(to);
  WEFT_RETURN_IF_ERROR(slots_->Hold(to));
  stream_->CopyOnDevice(slots_->at(to), slots_->at(from), layout_.slot_bytes);
  return OkStatus();
}

Status GpuState::ReadSlot(SlotId slot, std::span<std::byte> out) const {
  WEFT_RETURN_IF_ERROR(CheckSlot(slot));
  WEFT_RETURN_IF_ERROR(CheckSlotBytes(out.size()));
  if (slots_->holds(slot)) return Fetch(slots_->at(slot), out);
  std::ranges::fill(out, std::byte{0});
  return OkStatus();
}

Status GpuState::WriteSlot(SlotId slot, std::span<const std::byte> in) {
  WEFT_RETURN_IF_ERROR(CheckSlot(slot));
  WEFT_RETURN_IF_ERROR(CheckSlotBytes(in.size()));
  WEFT_RETURN_IF_ERROR(slots_->Hold(slot));
  return Send(slots_->at(slot), in);
}

int64_t GpuState::held_bytes() const {
  int64_t bytes = slots_ != nullptr ? slots_->held_bytes() : 0;
  for (const auto& pool : pages_) bytes += pool->held_bytes();
  return bytes;
}

// --- steps ------------------------------------------------------------------------------------

Status GpuState::HoldFor(const Step& step) {
  const int64_t page_tokens = layout_.page_tokens;
  for (const StepSequence& sequence : step.sequences) {
    const int64_t last = sequence.position + std::ssize(sequence.tokens) - 1;
    for (size_t group = 0; group < pages_.size(); ++group) {
      for (int64_t i = sequence.position / page_tokens; i <= last / page_tokens; ++i) {
        WEFT_RETURN_IF_ERROR(
            pages_[group]->Hold(sequence.page_tables[group][static_cast<size_t>(i)]));
      }
    }
    // A part of a divided model may have none, and a head that reads its model's state names none.
    if (slots_ != nullptr && sequence.slot != kNoSlot) {
      WEFT_RETURN_IF_ERROR(slots_->Hold(sequence.slot));
    }
  }
  return OkStatus();
}

Status GpuState::LetWait(device::Stream* stream) {
  WEFT_RETURN_IF_ERROR(stream_->TakeError());
  stream_->Record(enqueued_.get());
  stream->WaitFor(*enqueued_);
  return OkStatus();
}

}  // namespace weft::gpu
