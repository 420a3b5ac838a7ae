// Keys and values in pages, and attention to them: the kernels' arguments.
//
// A page of a group holds, for each layer, its keys, head by head, dimension by dimension, the
// page's positions side by side; and its values, head by head, position by position. So the
// lanes of a warp read neighbours: of keys 32 positions, of values 32 dimensions. Keys and
// values of Q8_0 are signed bytes with a half as scale for 32 dimensions of one position.
#ifndef WEFT_KERNELS_GPU_ATTENTION_H_
#define WEFT_KERNELS_GPU_ATTENTION_H_

#include "kernels_gpu/kernels.h"

namespace weft::device {

// Where one layer's keys, or its values, lie in a page: offsets in bytes, the rest in elements
// (and in scales) from one to the next.
struct KvPlane {
  int64_t offset = 0, head = 0, token = 0, dim = 0;
  int64_t scale_offset = 0, scale_head = 0, scale_token = 0, scale_group = 0;
};
inline constexpr int kScaleDims = 32;

struct KvView {
  PoolView pool;
  KvPlane keys, values;
  int32_t page_shift = 0;  // log2 of a page's positions
  int32_t group = 0;       // whose page tables they are
  int32_t k_dim = 0, v_dim = 0;
};

enum class KvType : int32_t { kF32, kF16, kBF16, kQ8_0 };
inline constexpr int kKvTypes = 4;

// Stores a row's keys and values where its position belongs. x: runs of kColumnThreads groups of
// 32 dimensions (of all heads, keys before values), y: rows.
struct StoreArgs {
  StepView step;
  KvView kv;
  Rows k, v;  // head h at h * k_dim, h * v_dim; v absent: only keys are stored
  int32_t n_heads = 0;
};
WEFT_DECLARE_KERNEL(StoreKvF32, StoreArgs);
WEFT_DECLARE_KERNEL(StoreKvF16, StoreArgs);
WEFT_DECLARE_KERNEL(StoreKvBF16, StoreArgs);
WEFT_DECLARE_KERNEL(StoreKvQ8_0, StoreArgs);

// Softmax attention of one query head of a row, a warp for each; of rows that begin with the same
// pages first a warp for all of them, which reads these keys and values once (AttendTogether).
//
// The order of sums: positions in splits of kSplitTokens at multiples of that number, in a split
// blocks of 32. A block's scores are each one fused multiply-add per dimension, ascending; its
// maximum and the sum of its weights are a tree over the 32 positions; its values enter one by
// one, ascending. Splits are merged in order. Whether one warp takes all splits of a row
// (Attend) or each its own (AttendSplits, then MergeSplits), and with how many other rows
// (AttendTogether before either), changes nothing.
inline constexpr int kSplitTokens = 128;
struct AttendArgs {
  StepView step;
  KvView kv;
  Rows q;  // head h at h * q_head
  int64_t q_head = 0;
  Rows out;  // head h at h * v_dim
  int32_t n_heads = 0, heads_per_kv_head = 1;
  int32_t window = 0;     // causal attention; 0: from the first position on
  int32_t both_ways = 0;  // or to the whole text
  int32_t reach = -1;     // then, as far; -1: to the ends
  float scale = 1, softcap = 0;
  const float* sinks = nullptr;  // per query head
  const float* slopes = nullptr;
  // Sums of splits, to be merged: (row, head, split, 2 + v_dim); with n_splits 0 one for a row and
  // head, of all splits that are shared.
  float* partials = nullptr;
  int32_t n_splits = 0;  // that there is room for, from a row's first one on
  int32_t together = 0;  // whether AttendTogether came before
};
// Rows that a group has at most, and those of them that a warp takes at once, if their values are
// so many vectors long.
inline constexpr int kMostTogether = 8;
constexpr int TogetherAtOnce(int vectors) { return vectors <= 4 ? 8 : vectors == 8 ? 4 : 2; }
// The kernels of each type of keys and values, by how many vectors of 32 dimensions a value has
// at most. x: query heads, y: rows, or groups of them; z: splits of AttendSplits, and of
// AttendTogether before it.
#define WEFT_KV_KERNELS(X, type) X(type, 2) X(type, 4) X(type, 8) X(type, 16)
#define WEFT_ALL_KV_KERNELS(X) \
  WEFT_KV_KERNELS(X, F32) WEFT_KV_KERNELS(X, F16) WEFT_KV_KERNELS(X, BF16) WEFT_KV_KERNELS(X, Q8_0)
#define WEFT_DECLARE_ATTEND_(type, vectors)                        \
  WEFT_DECLARE_KERNEL(Attend##type##_##vectors, AttendArgs);       \
  WEFT_DECLARE_KERNEL(AttendSplits##type##_##vectors, AttendArgs); \
  WEFT_DECLARE_KERNEL(AttendTogether##type##_##vectors, AttendArgs);
WEFT_ALL_KV_KERNELS(WEFT_DECLARE_ATTEND_)
WEFT_DECLARE_KERNEL(MergeSplits2, AttendArgs);
WEFT_DECLARE_KERNEL(MergeSplits4, AttendArgs);
WEFT_DECLARE_KERNEL(MergeSplits8, AttendArgs);
WEFT_DECLARE_KERNEL(MergeSplits16, AttendArgs);
inline constexpr int kMostValueDims = 512;

}  // namespace weft::device

#endif  // WEFT_KERNELS_GPU_ATTENTION_H_
