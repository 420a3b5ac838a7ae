// The kernels of the gpu backend and their arguments.
//
// Rows of floats are given by a pointer to row 0 and a stride in floats. Every kernel is launched
// for the max number of rows and reads the actual number from the step, so that one captured launch
// serves every step of its size. The comments of arguments give the shape of a launch: "x: columns,
// y: rows" says what the grid's dimensions count.
#ifndef WEFT_COMPUTE_KERNELS_GPU_KERNELS_H_
#define WEFT_COMPUTE_KERNELS_GPU_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "compute/kernels_gpu/weight_form.h"
#if !defined(__CUDACC__)
#include "compute/device/kernel.h"
#define WEFT_DECLARE_KERNEL(Name, Args) extern const KernelOf<Args> Name
#else
#define WEFT_DECLARE_KERNEL(Name, Args)
#endif

namespace weft::device {

struct Rows {
  float* values = nullptr;
  int64_t stride = 0;
};

// --- a step, in a buffer on the device -----------------------------------------------------

// A part of a step's attention (attention.h): n_rows rows that see the same pages, from index
// `rows` of StepView::item_rows on; splits [first, end); the index of their page table in
// StepView::pages.
struct AttendItem {
  int32_t rows, n_rows, first, end, table;
};
struct ItemList {
  int32_t first, n;  // indices into StepView::items
};
// A row's sums: its first part, and the split before which all splits share that part.
struct RowParts {
  int32_t base, cut;
};

// The step's arrays, filled before it begins. Their addresses never change.
struct StepView {
  const int32_t* n_rows = nullptr;  // one number each
  const int32_t* n_sequences = nullptr;
  const int32_t* tokens = nullptr;  // per row
  const int32_t* types = nullptr;
  const int32_t* positions = nullptr;
  const int32_t* sequences = nullptr;
  const int32_t* first_rows = nullptr;    // per sequence, and the end
  const int32_t* slots = nullptr;         // per sequence
  const int32_t* pages = nullptr;         // all page tables
  const int32_t* table_begins = nullptr;  // into pages: [group][sequence]
  int32_t max_sequences = 0;              // stride of table_begins' groups
  // Attention: items by group of layers, in two lists: single rows, and several rows.
  const AttendItem* items = nullptr;
  const ItemList* item_lists = nullptr;  // [group][single rows, several rows]
  const int32_t* item_rows = nullptr;
  const RowParts* row_parts = nullptr;  // [group][row]
  int32_t max_rows = 0;                 // stride of row_parts' groups
};

// Memory by id: item i is at slabs[i >> shift] + (i & (1 << shift) - 1) * bytes.
struct PoolView {
  std::byte* const* slabs = nullptr;
  int32_t shift = 0;
  int64_t bytes = 0;
};

// Activations in blocks of 32: q = round(x * (127 / max)), scale = max / 127.
struct Int8View {
  int8_t* q = nullptr;       // (row, n_in)
  uint32_t* meta = nullptr;  // (row, MetaWords(n_in / 32))
};
// For each four blocks, `meta` has their scales; the sums of their first and last 16 q, in the low
// and high halves of words; and their whole sums, as floats. Blocks beyond the row's end have
// zeros.
inline constexpr int kMetaWords = 12;
constexpr int MetaWords(int n_blocks) { return CeilDiv(n_blocks, 4) * kMetaWords; }
constexpr int64_t MetaAt(int n_blocks, int64_t row, int block) {
  return row * MetaWords(n_blocks) + block / 4 * kMetaWords + block % 4;
}

// --- elements -----------------------------------------------------------------------------

// Thread counts of elementwise kernels.
inline constexpr int kColumnThreads = 128;
inline constexpr int kColumnsEach = 4;
inline constexpr int kColumnsPerBlock = kColumnThreads * kColumnsEach;

// to = from, head by head; without `from`, zeros. With `index`, row i is read from row index[i]. x:
// columns of a head, y: rows, z: heads.
struct CopyArgs {
  Rows from, to;
  int64_t from_head = 0, to_head = 0;  // floats between heads
  int32_t width = 0;
  const int32_t* index = nullptr;
  const int32_t* n_rows = nullptr;
};
WEFT_DECLARE_KERNEL(CopyRows, CopyArgs);

// sum += x; or sum *= x; x: columns, y: rows.
struct CombineArgs {
  Rows x, sum;
  int32_t width = 0;
  const int32_t* n_rows = nullptr;
};
WEFT_DECLARE_KERNEL(AddRows, CombineArgs);
WEFT_DECLARE_KERNEL(MultiplyRows, CombineArgs);

// stream = (stream + y * y_scale) * scale; without y: stream * scale, softcapped.
// x: columns, y: rows.
struct ScaleArgs {
  Rows stream, y;
  int32_t width = 0;
  float y_scale = 1, scale = 1, softcap = 0;
  const int32_t* n_rows = nullptr;
};
WEFT_DECLARE_KERNEL(ScaleRows, ScaleArgs);

// Max rows counted by a grid's y. With more rows, z counts runs of this many.
inline constexpr int kMaxRunRows = 32768;

// out = act(gate) * up, or act(gate); x: columns, y and z: rows. The kinds are
// model/operations.h's.
enum class Act : int32_t {
  kSilu,
  kGeluTanh,
  kGeluErf,
  kRelu,
  kReluSquared,
  kClampedSwiglu,
  kClampedSilu,
  kSiluOfClamped,
  kXielu
};
struct ActivateArgs {
  Rows gate, up, out;  // `up` may be absent
  int32_t width = 0;
  Act kind = Act::kSilu;
  float limit = 0, rise = 0, fall = 0, slope = 0;
  const float* factors = nullptr;  // per row, of gate and up; absent: 1
  const int32_t* n_rows = nullptr;
};
WEFT_DECLARE_KERNEL(ActivateRows, ActivateArgs);

// The same, quantized to n_blocks blocks per row; `rows.out` is absent. x: runs of kQuantizeBlocks
// blocks, y and z: rows; kQuantizeThreads threads.
struct ActivateBytesArgs {
  ActivateArgs rows;
  Int8View out;
  int32_t n_blocks = 0;
};
WEFT_DECLARE_KERNEL(ActivateBytes, ActivateBytesArgs);

// x = x * sigmoid(gate) or x * softplus(gate), head by head; gate_step 0: one gate per head. x:
// columns of a head, y: rows, z: heads.
struct GateArgs {
  Rows x, gate;
  int64_t x_head = 0, gate_head = 0;
  int32_t gate_step = 1;
  int32_t softplus = 0;
  int32_t width = 0;
  const int32_t* n_rows = nullptr;
};
WEFT_DECLARE_KERNEL(GateRows, GateArgs);

// Multiplies a row by 1 + scale * ln(floor((position + offset) / length) + 1). x: columns, y: rows.
struct WarmArgs {
  Rows x;
  int32_t width = 0;
  float scale = 0;
  int32_t length = 1, offset = 0;
  const int32_t* positions = nullptr;  // per row
  const int32_t* n_rows = nullptr;
};
WEFT_DECLARE_KERNEL(WarmRows, WarmArgs);

// Rotates the first 2 n_pairs values of each head. `table`: for each row n_pairs cosines, then as
// many sines. x: pairs, y: rows, z: heads.
struct RopeArgs {
  Rows x;
  int64_t head = 0;
  const float* table = nullptr;
  int32_t n_pairs = 0;
  int32_t adjacent = 0;
  const int32_t* n_rows = nullptr;
};
WEFT_DECLARE_KERNEL(RotateRows, RopeArgs);

// A norm of each group of `width` values. In other kernels' arguments, width 0 means no norm.
struct NormPart {
  const float* weight = nullptr;
  const float* bias = nullptr;
  int32_t weight_values = 0;  // of one group, or of all groups
  int32_t width = 0;
  int32_t layer = 0;  // 1: layer norm, 0: RMS norm
  float epsilon = 0, factor = 1;
};

// Norms each group, optionally in place. x: groups, y: rows; NormThreads(norm.width) threads.
struct NormArgs {
  Rows x, out;
  int64_t group = 0;  // floats between groups
  NormPart norm;
  const int32_t* n_rows = nullptr;
};
inline constexpr int kMaxNormThreads = 128;
constexpr int NormThreads(int64_t width) { return width <= 256 ? 32 : kMaxNormThreads; }
WEFT_DECLARE_KERNEL(NormRows, NormArgs);

// The work between two products, one row per block:
//   x = y, or post(y), of a path, added to the stream: stream = (stream + x * y_scale) * scale
//   out, bytes = norm(stream)
// Without y, norms x or its row index[r]; without `norm`, copies. Writes floats and bytes if their
// destination is set. width: a multiple of 32, up to the kernel's max. x: 1, y: rows;
// StreamThreads(width) threads.
struct StreamArgs {
  Rows x, y;
  const int32_t* index = nullptr;
  NormPart post, norm;
  float y_scale = 1, scale = 1;
  Rows out;
  Int8View bytes;
  int32_t width = 0;
  const int32_t* n_rows = nullptr;
};
inline constexpr int kStreamEach = 4;  // contiguous values per thread
inline constexpr int kMaxStreamThreads = 256;
inline constexpr int kShortRow = 4096, kLongRow = 11264;
constexpr int StreamThreads(int64_t width) {
  const auto wanted = static_cast<int>((width + 127) / 128 * 32);
  const int least = NormThreads(width);
  return wanted < least ? least : wanted > kMaxStreamThreads ? kMaxStreamThreads : wanted;
}
WEFT_DECLARE_KERNEL(AdvanceShortRows, StreamArgs);
WEFT_DECLARE_KERNEL(AdvanceLongRows, StreamArgs);

// Scales each head of `width` values to `length`; shorter if its length is below epsilon. x: heads,
// y: rows; 32 threads.
struct LengthArgs {
  Rows x;
  int32_t width = 0;
  float epsilon = 0, length = 1;
  const int32_t* n_rows = nullptr;
};
WEFT_DECLARE_KERNEL(SetLengths, LengthArgs);

// --- products -----------------------------------------------------------------------------

// Quantizes rows; row r of head h becomes row h * head_rows + r. x: runs of kQuantizeBlocks blocks
// of a row, y: rows, z: heads.
struct QuantizeArgs {
  Rows x;
  int64_t x_head = 0;
  Int8View out;
  int32_t n_blocks = 0;
  int32_t head_rows = 0;
  const int32_t* n_rows = nullptr;
};
inline constexpr int kQuantizeThreads = 128;
inline constexpr int kQuantizeBlocks = kQuantizeThreads / 8;
WEFT_DECLARE_KERNEL(QuantizeRows, QuantizeArgs);

// Rows that are multiplied by one member of a stack.
struct MemberTile {
  int32_t member, first, count;
};

// out = (W x + bias) * scale. x: runs of outputs, y: runs of rows, or tiles; z: members, each over
// all rows.
struct MatmulArgs {
  MatrixView matrix;
  Rows x;                // for float weights
  Int8View q;            // for quantized ones
  int64_t member_x = 0;  // floats between members, in x and out
  int64_t member_out = 0;
  int32_t member_rows = 0;  // rows of q between members
  Rows out;
  const float* bias = nullptr;   // (member, n_out)
  const float* scale = nullptr;  // per member
  const int32_t* n_rows = nullptr;
  const MemberTile* tiles = nullptr;  // instead of y and z
  const int32_t* n_tiles = nullptr;
  const int32_t* sources = nullptr;  // each row's source row in the activations; absent: itself
  int32_t lanes = 32;                // lanes per output, a power of two; used only by Multiply
  // For feed-forward networks: also computes act(gate) * up as bytes. The outputs are the columns
  // of `up` followed by those of `gate`, or of `gate` alone. The last block to write one of the
  // outputs that a group of 32 activations needs computes their bytes. `arrivals` counts these
  // outputs, per run of rows and 32 activations; zeros before and after the launch. Null: no
  // activation.
  ActivateBytesArgs then;
  int32_t* arrivals = nullptr;
};
inline constexpr int kMatmulThreads = 128;
inline constexpr int kMatmulRows = 8;  // per run or tile
// With tensor-core tiles, a block has one band of outputs and up to kMatmulRows rows (MultiplyFew)
// or kTileRows rows (MultiplyTiles); or kTileBands bands and kTileRows rows (MultiplyMany).
inline constexpr int kTileRows = 32;
inline constexpr int kTileBands = kMatmulThreads / 32;
// Max lanes that an output of n_in inputs can keep busy.
constexpr int MatmulLanes(int64_t n_in) {
  int lanes = 1;
  while (lanes < 32 && lanes * kChunkInputs < n_in) lanes *= 2;
  return lanes;
}

// Copies row[index[r]] of a table to row r of out, times `scale`, or adds it. A negative index
// leaves the row unchanged. x: blocks of 32 values, y: rows.
struct EmbedArgs {
  MatrixView table;
  const int32_t* index = nullptr;
  Rows out;
  float scale = 1;
  int32_t add = 0;
  const int32_t* n_rows = nullptr;
};
inline constexpr int kEmbedThreads = 32;

// Kernels of each form: a product of one row, one of runs of kMatmulRows rows (or tiles), and a
// table lookup; for quantized forms also products with tensor-core tiles.
#define WEFT_DECLARE_FORM_(name, ...)                 \
  WEFT_DECLARE_KERNEL(MultiplyOne##name, MatmulArgs); \
  WEFT_DECLARE_KERNEL(Multiply##name, MatmulArgs);    \
  WEFT_DECLARE_KERNEL(Embed##name, EmbedArgs);
#define WEFT_DECLARE_TILES_(name, ...)                  \
  WEFT_DECLARE_KERNEL(MultiplyFew##name, MatmulArgs);   \
  WEFT_DECLARE_KERNEL(MultiplyTiles##name, MatmulArgs); \
  WEFT_DECLARE_KERNEL(MultiplyMany##name, MatmulArgs);
WEFT_QUANT_FORMS(WEFT_DECLARE_FORM_)
WEFT_QUANT_FORMS(WEFT_DECLARE_TILES_)
WEFT_FLOAT_FORMS(WEFT_DECLARE_FORM_)

}  // namespace weft::device

#endif  // WEFT_COMPUTE_KERNELS_GPU_KERNELS_H_
