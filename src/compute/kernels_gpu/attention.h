// The KV cache in pages, and attention to it: the kernels' arguments.
//
// For each layer, a page of a group holds the keys (head by head, dimension by dimension, with the
// page's positions adjacent) and the values (head by head, position by position). So the lanes of a
// warp read adjacent addresses: 32 positions of keys, 32 dimensions of values. In Q8_0, keys and
// values are signed bytes, with a half as the scale of 32 dimensions of one position.
#ifndef WEFT_COMPUTE_KERNELS_GPU_ATTENTION_H_
#define WEFT_COMPUTE_KERNELS_GPU_ATTENTION_H_

#include "compute/kernels_gpu/kernels.h"

namespace weft::device {

// The layout of one layer's keys, or values, in a page: offsets in bytes, all strides in elements
// (or in scales).
struct KvPlane {
  int64_t offset = 0, head = 0, token = 0, dim = 0;
  int64_t scale_offset = 0, scale_head = 0, scale_token = 0, scale_group = 0;
};
inline constexpr int kScaleDims = 32;

struct KvView {
  PoolView pool;
  KvPlane keys, values;
  int32_t page_shift = 0;  // log2 of the positions per page
  int32_t group = 0;       // selects the page tables
  int32_t k_dim = 0, v_dim = 0;
};

enum class KvType : int32_t { kF32, kF16, kBF16, kQ8_0 };
inline constexpr int kKvTypes = 4;

// Norms and rotates a row's queries in place; norms and rotates its keys, norms its values, and
// stores both at the row's position. Each part is optional: queries (n_heads is 0), values (only
// keys are stored), norms, and the rotation of n_pairs pairs, as in RopeArgs. x: runs of kHeadWarps
// heads of q, k and v, y: rows; kHeadWarps warps.
struct HeadsArgs {
  StepView step;
  KvView kv;
  Rows q, k, v;  // head h of k and v at h * k_dim, h * v_dim
  int64_t q_head = 0;
  int32_t n_heads = 0, n_kv_heads = 0;
  NormPart q_norm, k_norm, v_norm;  // for heads of up to kMaxHeadNorm values
  int32_t norms_last = 0;           // norm queries and keys after the rotation
  const float* rope = nullptr;
  int32_t n_pairs = 0, adjacent = 0;
};
inline constexpr int kHeadWarps = 4;
inline constexpr int kMaxHeadDims = 1024;
inline constexpr int kMaxHeadNorm = 256;
static_assert(NormThreads(kMaxHeadNorm) == 32, "a warp norms a head in the order of NormRows");
WEFT_DECLARE_KERNEL(FinishHeadsF32, HeadsArgs);
WEFT_DECLARE_KERNEL(FinishHeadsF16, HeadsArgs);
WEFT_DECLARE_KERNEL(FinishHeadsBF16, HeadsArgs);
WEFT_DECLARE_KERNEL(FinishHeadsQ8_0, HeadsArgs);

// Softmax attention of the rows' query heads to the positions that each row sees.
//
// The order of sums: positions are divided into splits of kSplitTokens at multiples of that number,
// and splits into blocks of 32. Each score is one fused multiply-add per dimension, ascending. A
// block's maximum and its sum of weights are trees over the 32 positions; its values are added one
// by one, ascending. Splits are merged in order. Which rows and heads are computed together, and
// which splits one after the other, does not change the result.
//
// Work is a list of items (AttendItem, in the step's buffer): rows that see the same pages, and
// some of their splits. A thread block computes an item for one kv head, with as many of the item's
// queries (query heads of all rows) as fit, so it reads keys and values once for all of them. Its
// sums form a part, which MergeParts merges with the row's other parts. An item with several splits
// (the first ones of its rows, up to the row's cut) yields one part; all other items have one
// split.
inline constexpr int kSplitTokens = 128;
struct AttendArgs {
  StepView step;
  KvView kv;
  Rows q;  // head h at h * q_head
  int64_t q_head = 0;
  Rows out;  // head h at h * v_dim
  int32_t n_heads = 0, heads_per_kv_head = 1;
  int32_t window = 0;     // causal attention; 0: from the first position on
  int32_t chunk = 0;      // and only within the row's chunk of this many positions; 0: no chunks
  int32_t both_ways = 0;  // sees the whole text instead
  int32_t reach = -1;     // then up to this distance; -1: no limit
  float scale = 1, softcap = 0;
  const float* sinks = nullptr;  // per query head
  const float* slopes = nullptr;
  Int8View bytes;             // merged rows as bytes; without `out`, only bytes are written
  float* partials = nullptr;  // (part, head, PartFloats): a row's from RowParts::base on
  int32_t list = 0;           // which list of the group's items
};
constexpr int PartFloats(int v_dim) { return (v_dim + 3) / 4 * 4 + 4; }

// The kernels of each KV type, by the max number of vectors of 32 dimensions per value, and by the
// number of queries per warp: few, for more warps if there are few items; some, if there are many
// items of single rows; many, for the rows of a prompt. x: kv heads, times the blocks that an
// item's queries need; y: items.
enum class AttendKind { kFew, kSome, kMany };
constexpr int AttendQueries(int vectors, AttendKind kind) {  // per warp
  if (kind != AttendKind::kMany) return kind == AttendKind::kFew ? 2 : 4;
  return vectors <= 4 ? 8 : vectors == 8 ? 4 : 2;
}
constexpr int AttendStages(int vectors, AttendKind kind) {
  return kind != AttendKind::kFew ? 2 : vectors <= 4 ? 4 : 3;
}
inline constexpr int kMaxAttendWarps = 4;
inline constexpr int kMaxItemRows = 16;
inline constexpr int kMaxSomeVectors = 4;
// A block's shared memory in words, and the words for a stage, for addresses in pages, and for
// facts about queries.
constexpr int AttendWords(AttendKind kind) { return kind == AttendKind::kSome ? 6656 : 11520; }
inline constexpr int kStageWords = 2304;
inline constexpr int kSplitsKnown = 4, kUnitTokens = 16, kSplitUnits = kSplitTokens / kUnitTokens;
inline constexpr int kUnitWords = 4, kUnitsWords = kSplitsKnown * kSplitUnits * kUnitWords;
inline constexpr int kMaxBlockQueries = 32, kQueryFactWords = 8;
inline constexpr int kFactWords = kMaxBlockQueries * kQueryFactWords;
constexpr int AttendWarpWords(int vectors, AttendKind kind, int k_dim) {
  return AttendQueries(vectors, kind) * ((k_dim + 3) / 4 * 4 + 2 * 32);
}
constexpr int AttendWarps(int vectors, AttendKind kind, int k_dim) {
  const int left =
      AttendWords(kind) - AttendStages(vectors, kind) * kStageWords - kUnitsWords - kFactWords;
  const int warps = left / AttendWarpWords(vectors, kind, k_dim);
  return warps < kMaxAttendWarps ? warps : kMaxAttendWarps;
}
// Smaller pages belong to texts; they hold one position.
inline constexpr int kMinPageShift = 4;

#define WEFT_KV_KERNELS(X, type) X(type, 2) X(type, 4) X(type, 8) X(type, 16)
#define WEFT_ALL_KV_KERNELS(X) \
  WEFT_KV_KERNELS(X, F32) WEFT_KV_KERNELS(X, F16) WEFT_KV_KERNELS(X, BF16) WEFT_KV_KERNELS(X, Q8_0)
#define WEFT_SOME_KV_KERNELS(X) \
  X(F32, 2) X(F32, 4) X(F16, 2) X(F16, 4) X(BF16, 2) X(BF16, 4) X(Q8_0, 2) X(Q8_0, 4)
#define WEFT_DECLARE_ATTEND_(type, vectors)                     \
  WEFT_DECLARE_KERNEL(AttendFew##type##_##vectors, AttendArgs); \
  WEFT_DECLARE_KERNEL(AttendMany##type##_##vectors, AttendArgs);
#define WEFT_DECLARE_ATTEND_SOME_(type, vectors) \
  WEFT_DECLARE_KERNEL(AttendSome##type##_##vectors, AttendArgs);
WEFT_ALL_KV_KERNELS(WEFT_DECLARE_ATTEND_)
WEFT_SOME_KV_KERNELS(WEFT_DECLARE_ATTEND_SOME_)
// Merges the parts of a row's head. x: query heads, y: rows; one thread per four dimensions. Writes
// bytes only if a value's dimensions are a multiple of 32.
WEFT_DECLARE_KERNEL(MergeParts, AttendArgs);
inline constexpr int kMaxValueDims = 512;

}  // namespace weft::device

#endif  // WEFT_COMPUTE_KERNELS_GPU_ATTENTION_H_
