// Everything between the products of queries, keys and values and attention: norms of heads, their
// rotation, and storing them in pages. One warp per head.
#include "compute/device/dialect.h"
#include "compute/kernels_gpu/attention.h"
#include "compute/kernels_gpu/kv_device.h"
#include "compute/kernels_gpu/math.h"

namespace weft::device {

// Norms a head's values in shared memory, adding in the order of a NormRows of 32 threads.
template <typename Shared>
WEFT_DEVICE void NormHead(const NormPart& norm, int head, Shared& values, int base) {
  const int lane = ThreadIndex() % 32;
  const float width = static_cast<float>(norm.width);
  float mean = 0.0f;
  if (norm.layer != 0) {
    float sum = 0.0f;
    for (int i = lane; i < norm.width; i += 32) sum = sum + values[base + i];
    mean = WarpSum(sum) / width;
  }
  float squares = 0.0f;
  for (int i = lane; i < norm.width; i += 32) {
    const float v = values[base + i] - mean;
    squares = Fma(v, v, squares);
  }
  const float scale = norm.factor / SquareRoot(WarpSum(squares) / width + norm.epsilon);
  const int offset = norm.weight_values > 0 ? head * norm.width % norm.weight_values : 0;
  for (int i = lane; i < norm.width; i += 32) {
    float v = (values[base + i] - mean) * scale;
    if (norm.weight != nullptr) v = v * norm.weight[offset + i];
    if (norm.bias != nullptr) v = v + norm.bias[offset + i];
    values[base + i] = v;
  }
}

// The same as RotateRows.
template <typename Shared>
WEFT_DEVICE void RotateHead(const HeadsArgs& a, int row, Shared& values, int base) {
  const float* const cosines = a.rope + static_cast<int64_t>(row) * 2 * a.n_pairs;
  const float* const sines = cosines + a.n_pairs;
  for (int i = ThreadIndex() % 32; i < a.n_pairs; i += 32) {
    const int first = base + (a.adjacent != 0 ? 2 * i : i);
    const int second = a.adjacent != 0 ? first + 1 : first + a.n_pairs;
    const float u = values[first], v = values[second];
    values[first] = Fma(-v, sines[i], u * cosines[i]);
    values[second] = Fma(u, sines[i], v * cosines[i]);
  }
}

// The head of one warp: first the queries' heads, then those of keys, then those of values.
struct Head {
  const float* from = nullptr;
  float* to = nullptr;  // for queries, null if nothing changes
  int number = 0, width = 0;
  bool is_key = false, is_value = false;

  WEFT_DEVICE Head(const HeadsArgs& a, int row, int index) {
    number = index;
    if (number < a.n_heads) {
      to = a.q.values + row * a.q.stride + number * a.q_head;
      from = to;
      width = a.kv.k_dim;
      return;
    }
    number -= a.n_heads;
    if (number < a.n_kv_heads) {
      is_key = true;
      width = a.kv.k_dim;
      from = a.k.values + row * a.k.stride + number * width;
      return;
    }
    number -= a.n_kv_heads;
    if (a.v.values == nullptr || number >= a.n_kv_heads) return;  // beyond the last head
    is_value = true;
    width = a.kv.v_dim;
    from = a.v.values + row * a.v.stride + number * width;
  }
};

template <typename Kv, typename Shared>
WEFT_DEVICE void FinishHead(const HeadsArgs& a, Shared& values) {
  const int row = BlockY(), warp = ThreadIndex() / 32, lane = ThreadIndex() % 32;
  if (row >= *a.step.n_rows) return;
  const int base = warp * kMaxHeadDims;
  const Head head(a, row, BlockX() * kHeadWarps + warp);
  const NormPart& norm = head.is_value ? a.v_norm : head.is_key ? a.k_norm : a.q_norm;
  const bool turns = !head.is_value && head.width > 0 && a.rope != nullptr;
  for (int i = lane; i < head.width; i += 32) values[base + i] = head.from[i];
  Barrier();
  const bool normed = head.width > 0 && norm.width != 0;
  const bool norms_last = a.norms_last != 0 && turns;
  if (normed && !norms_last) NormHead(norm, head.number, values, base);
  Barrier();
  if (turns) RotateHead(a, row, values, base);
  Barrier();
  if (normed && norms_last) NormHead(norm, head.number, values, base);
  Barrier();
  if (head.to != nullptr) {
    for (int i = lane; i < head.width; i += 32) head.to[i] = values[base + i];
    return;
  }
  if (!head.is_key && !head.is_value) return;
  const int position = a.step.positions[row];
  std::byte* const page = PageOf(a.step, a.kv, a.step.sequences[row], position);
  const int token = position & ((1 << a.kv.page_shift) - 1);
  for (int dim = 0; dim < head.width; dim += kScaleDims) {
    const bool there = dim + lane < head.width;
    Kv::Put(page, head.is_key ? a.kv.keys : a.kv.values, head.number, token, dim, there,
            there ? static_cast<float>(values[base + dim + lane]) : 0.0f);
  }
}

#define WEFT_FINISH_HEADS_(type)                                           \
  WEFT_COOPERATIVE_KERNEL(FinishHeads##type, HeadsArgs, kHeadWarps * 32) { \
    WEFT_SHARED(float, values, kHeadWarps* kMaxHeadDims);                  \
    FinishHead<KvOf##type>(a, values);                                     \
  }
WEFT_FINISH_HEADS_(F32)
WEFT_FINISH_HEADS_(F16)
WEFT_FINISH_HEADS_(BF16)
WEFT_FINISH_HEADS_(Q8_0)

}  // namespace weft::device
