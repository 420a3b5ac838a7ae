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

// A row's queries normed and rotated in place; its keys likewise, and its values normed, and both
// stored where its position belongs. Each part may be absent: queries where n_heads is 0, values
// (only keys are stored), norms, the rotation of as many pairs of the table as RopeArgs has.
// x: runs of kHeadWarps heads of q, k and v, y: rows; kHeadWarps warps.
struct HeadsArgs {
  StepView step;
  KvView kv;
  Rows q, k, v;  // head h of k and v at h * k_dim, h * v_dim
  int64_t q_head = 0;
  int32_t n_heads = 0, n_kv_heads = 0;
  NormPart q_norm, k_norm, v_norm;  // of heads of up to kMostHeadNorm values
  int32_t norms_last = 0;           // those of queries and keys come after the rotation
  const float* rope = nullptr;
  int32_t n_pairs = 0, adjacent = 0;
};
inline constexpr int kHeadWarps = 4;
inline constexpr int kMostHeadDims = 1024;
inline constexpr int kMostHeadNorm = 256;
static_assert(NormThreads(kMostHeadNorm) == 32, "a warp norms a head in the order of NormRows");
WEFT_DECLARE_KERNEL(FinishHeadsF32, HeadsArgs);
WEFT_DECLARE_KERNEL(FinishHeadsF16, HeadsArgs);
WEFT_DECLARE_KERNEL(FinishHeadsBF16, HeadsArgs);
WEFT_DECLARE_KERNEL(FinishHeadsQ8_0, HeadsArgs);

// Softmax attention of query heads of rows to the positions that these see.
//
// The order of sums: positions in splits of kSplitTokens at multiples of that number, in a split
// blocks of 32. A block's scores are each one fused multiply-add per dimension, ascending; its
// maximum and the sum of its weights are a tree over the 32 positions; its values enter one by
// one, ascending. Splits are merged in order. Which rows and heads are computed together, and which
// splits one after the other, changes nothing.
//
// Work comes as a list of items (AttendItem, in the step's buffer): rows that see the same pages,
// and some of their splits. A block takes an item for one head of keys and values, with as many of
// its query heads and rows as it has queries; so keys and values are read once for all of them.
// What it has summed up is a part, which MergeParts joins with the row's other parts. An item with
// the first splits of its rows gives one part for all of them up to the row's cut; all others have
// one split.
inline constexpr int kSplitTokens = 128;
struct AttendArgs {
  StepView step;
  KvView kv;
  Rows q;  // head h at h * q_head
  int64_t q_head = 0;
  Rows out;  // head h at h * v_dim
  int32_t n_heads = 0, heads_per_kv_head = 1;
  int32_t window = 0;     // causal attention; 0: from the first position on
  int32_t chunk = 0;      // and from the first of a row's own run of so many; 0: no such limit
  int32_t both_ways = 0;  // or to the whole text
  int32_t reach = -1;     // then, as far; -1: to the ends
  float scale = 1, softcap = 0;
  const float* sinks = nullptr;  // per query head
  const float* slopes = nullptr;
  Int8View bytes;             // of the merged rows; with them no floats, without `out`
  float* partials = nullptr;  // (part, head, PartFloats): a row's from RowParts::base on
  int32_t list = 0;           // which of the group's lists of items
};
constexpr int PartFloats(int v_dim) { return (v_dim + 3) / 4 * 4 + 4; }

// The kernels of each type of keys and values, by how many vectors of 32 dimensions a value has at
// most, and by how many queries a warp has: few, so that there are more warps for few items; some,
// where there are many items of a row; many, for the rows of a prompt. x: heads of keys and values,
// as often as an item's queries take blocks; y: items.
enum class AttendKind { kFew, kSome, kMany };
constexpr int AttendQueries(int vectors, AttendKind kind) {  // of a warp
  if (kind != AttendKind::kMany) return kind == AttendKind::kFew ? 2 : 4;
  return vectors <= 4 ? 8 : vectors == 8 ? 4 : 2;
}
constexpr int AttendStages(int vectors, AttendKind kind) {
  return kind != AttendKind::kFew ? 2 : vectors <= 4 ? 4 : 3;
}
inline constexpr int kMostAttendWarps = 4;
inline constexpr int kMostItemRows = 16;
inline constexpr int kMostSomeVectors = 4;
// A block's shared memory, in words, and what of it is taken by a stage, by places in pages, by
// facts of the queries.
constexpr int AttendWords(AttendKind kind) { return kind == AttendKind::kSome ? 6656 : 11520; }
inline constexpr int kStageWords = 2304;
inline constexpr int kSplitsKnown = 4, kUnitTokens = 16, kSplitUnits = kSplitTokens / kUnitTokens;
inline constexpr int kUnitWords = 4, kUnitsWords = kSplitsKnown * kSplitUnits * kUnitWords;
inline constexpr int kMostBlockQueries = 32, kQueryFactWords = 8;
inline constexpr int kFactWords = kMostBlockQueries * kQueryFactWords;
constexpr int AttendWarpWords(int vectors, AttendKind kind, int k_dim) {
  return AttendQueries(vectors, kind) * ((k_dim + 3) / 4 * 4 + 2 * 32);
}
constexpr int AttendWarps(int vectors, AttendKind kind, int k_dim) {
  const int left =
      AttendWords(kind) - AttendStages(vectors, kind) * kStageWords - kUnitsWords - kFactWords;
  const int warps = left / AttendWarpWords(vectors, kind, k_dim);
  return warps < kMostAttendWarps ? warps : kMostAttendWarps;
}
// Pages of fewer positions are those of texts, which have one.
inline constexpr int kLeastPageShift = 4;

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
// Joins the parts of a row's head. x: query heads, y: rows; a thread for four dimensions. Into
// bytes only where a value is a multiple of 32 dimensions.
WEFT_DECLARE_KERNEL(MergeParts, AttendArgs);
inline constexpr int kMostValueDims = 512;

}  // namespace weft::device

#endif  // WEFT_KERNELS_GPU_ATTENTION_H_
