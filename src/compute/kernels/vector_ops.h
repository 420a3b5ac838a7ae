// The rest of a forward pass on the CPU: norms, rotations, activations, softmax
// attention over pages, recurrent state. Row by row, head by head; no result here
// depends on two sequences, which is half of the same-bits rule. The other half: every
// sum is taken in an order that depends on absolute positions and widths alone.
//
// The kernels are written once, over a vector of 16 floats, and built once per
// instruction set; every operation is lane-wise and exactly rounded, so all
// instruction sets give the same bits.
//
// Pure functions over caller memory; any thread. Pointers need no alignment beyond
// their type's unless said so. Outputs may be the inputs themselves; otherwise they
// do not overlap.
#ifndef WEFT_COMPUTE_KERNELS_VECTOR_OPS_H_
#define WEFT_COMPUTE_KERNELS_VECTOR_OPS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "compute/kernels/isa.h"
#include "compute/kernels/kv_types.h"

namespace weft {

// --- keys and values in memory -------------------------------------------------

// Keys and values of one (layer, kv head) lie in tiles of 16 positions: the keys
// transposed (dimension major), so that one register holds 16 scores, then the
// values position major, each padded with zeros to a multiple of 16. Tile i of a
// sequence holds its positions [16 i, 16 i + 16).
//
// Q8_0, Q5_0, Q4_0: levels with one F16 scale for 32 dimensions of one position; scales
// follow the levels of the keys, and those of the values. Functions take and give heads that are
// not rotated, whatever the type.
inline constexpr int kKvTileTokens = 16;

struct KvShape {
  KvTypes type = DType::kF32;
  int64_t k_dim = 0;
  int64_t v_dim = 0;
};
// F32, F16 or BF16 for both, or any two of Q8_0, Q5_0 and Q4_0.
bool IsKvType(KvTypes type);
// Bytes of one tile; a multiple of 64, which is also a tile's alignment.
int64_t KvTileBytes(const KvShape& shape);
// One position (0..15 in its tile) as floats, of the key, and unless `value` is null of the value.
void ReadKv(const KvShape& shape, const std::byte* tile, int index, float* key, float* value);
// Zeroes the positions of a tile from `n_tokens` (0..16) on, and its padding.
void ClearKvTail(const KvShape& shape, int n_tokens, std::byte* tile);

// --- attention -------------------------------------------------------------------

// Softmax attention of some queries over one kv head. A query sees the positions
// [first, last], at least one; memory outside of them never affects its result.
// Scores are computed in blocks of kAttentionBlock positions at multiples of that number,
// in ascending order. Each span of kAttentionSpan positions is summed separately, then
// spans are joined in ascending order.
// So the operations for a query depend only on its range and the shape, and several
// threads may compute the spans of a long history.
inline constexpr int kAttentionBlock = 64;
inline constexpr int kAttentionSpan = 512;

struct AttentionQuery {
  const float* values = nullptr;  // k_dim
  float* output = nullptr;        // v_dim, or a part
  // Tile of positions [16 (first_tile + i), ...) at tiles[i], first_tile being the job's;
  // those that the query does not see may be null. Queries with the same tiles must be
  // adjacent, so that shared tiles are read once.
  const std::byte* const* tiles = nullptr;
  int64_t first = 0, last = 0;
  float sink = -INFINITY;  // a logit that takes its share of the softmax and adds nothing
  // Taken from the score of each position, for its distance from the query's own.
  float slope = 0;
  int64_t position = 0;  // read where the slope is not 0
};

struct AttentionJob {
  KvShape shape;
  int64_t first_tile = 0;
  std::span<const AttentionQuery> queries;
  float scale = 1;
  float softcap = 0;  // scores become c tanh(score / c) when > 0
  // Whether outputs are parts, for join_attention: AttentionPartFloats each, aligned to 64.
  // All queries then see positions of the same span alone.
  bool in_parts = false;
};
// Floats of a query's partial result over one span.
int64_t AttentionPartFloats(int64_t v_dim);
int64_t AttentionScratchFloats(const KvShape& shape, int64_t n_queries);

// --- recurrent state ---------------------------------------------------------------

// Floats of a state of n_rows rows and n_columns columns. Its columns lie in tiles of
// 16: tile i holds columns [16 i, 16 i + 16) of row 0, then of row 1, and so on; columns
// beyond the last are zero.
inline constexpr int64_t kStateTileColumns = 16;
constexpr int64_t StateFloats(int64_t n_rows, int64_t n_columns) {
  return n_rows * ((n_columns + kStateTileColumns - 1) / kStateTileColumns * kStateTileColumns);
}

// Some tokens of one sequence through whole tiles of one head's state. Pointers are to
// the first token's values, strides in floats.
struct RecurrentJob {
  float* state = nullptr;  // aligned to 64
  int64_t n_rows = 0;
  int64_t n_columns = 0;
  int64_t n_tokens = 0;         // at least one
  const float* keys = nullptr;  // n_rows each
  const float* queries = nullptr;
  const float* values = nullptr;  // n_columns each
  int64_t stride = 0;             // for keys, queries and values
  float* outputs = nullptr;       // n_columns each; may be the values
  int64_t output_stride = 0;
  const float* decays = nullptr;  // one per token
  const float* gains = nullptr;
  int64_t gate_stride = 0;
  float skip = 0;  // advance_state_space only
  // advance_channel_delta_net only, instead of decays: n_rows each.
  const float* row_decays = nullptr;
  int64_t row_decay_stride = 0;
};

// Some tokens of one sequence through some channels, each with a state of state_dim values.
// Pointers are to the first token's values, strides in floats.
struct ScanJob {
  float* state = nullptr;  // (channel, state_dim)
  int64_t n_channels = 0;
  int64_t state_dim = 0;
  int64_t n_tokens = 0;
  const float* steps = nullptr;  // n_channels each
  int64_t step_stride = 0;
  float* values = nullptr;  // likewise; overwritten by the channels' outputs
  int64_t value_stride = 0;
  const float *b = nullptr, *c = nullptr;  // state_dim each
  int64_t bc_stride = 0;
  const float* rate = nullptr;  // (channel, state_dim)
  const float* skip = nullptr;  // per channel
};

// --- activations -------------------------------------------------------------------

// Those of model/operations.h, with their numbers.
enum class ActivationKind {
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
struct ActivationShape {
  ActivationKind kind;
  float limit = 0;
  float rise = 0, fall = 0, slope = 0;
};

// --- the table ---------------------------------------------------------------------

struct VectorKernels {
  // out = x / sqrt(mean(x^2) + epsilon) * factor [* weight]. `weight` may be null.
  void (*rms_norm)(const float* x, int64_t n, float epsilon, float factor, const float* weight,
                   float* out);
  // out = (x - mean) / sqrt(variance + epsilon) * factor [* weight] [+ bias].
  void (*layer_norm)(const float* x, int64_t n, float epsilon, float factor, const float* weight,
                     const float* bias, float* out);

  void (*add)(const float* x, int64_t n, float* sum);                      // sum += x
  void (*add_scaled)(const float* x, int64_t n, float scale, float* sum);  // sum += scale * x
  void (*scale)(float factor, int64_t n, float* x);                        // x *= factor
  void (*multiply)(const float* factors, int64_t n, float* x);             // x *= factors
  void (*multiply_sigmoid)(const float* gate, int64_t n, float* x);        // x *= sigmoid(gate)
  void (*softcap)(float cap, int64_t n, float* x);                         // x = cap tanh(x / cap)
  void (*softmax)(int64_t n, float* x);
  void (*sigmoid)(int64_t n, float* x);

  // out = activation(gate) * up, or activation(gate) where `up` is null (not with kinds that clamp
  // it; always with kXielu).
  void (*activate)(const ActivationShape& form, const float* gate, const float* up, int64_t n,
                   float* out);

  // Rotates pairs of x by angles given as cosines and sines: (i, i + n_pairs), or
  // (2 i, 2 i + 1) for `rotate_adjacent`.
  void (*rotate_halves)(const float* cosines, const float* sines, int64_t n_pairs, float* x);
  void (*rotate_adjacent)(const float* cosines, const float* sines, int64_t n_pairs, float* x);

  // Puts one position (0..15 in its tile) of key and value.
  void (*store_kv)(const KvShape& shape, const float* key, const float* value, int index,
                   std::byte* tile);
  // `scratch`: AttentionScratchFloats of the job, aligned to 64.
  void (*attend)(const AttentionJob& job, float* scratch);
  // What a query that sees these spans, in ascending order, would have got from one job.
  // Overwrites the parts.
  void (*join_attention)(float* parts, int64_t n_parts, int64_t v_dim, float sink, float* output);

  // steps = log(1 + e^(x + bias)), decays = e^(rate * steps).
  void (*steps_and_decays)(const float* x, const float* bias, const float* rate, int64_t n,
                           float* steps, float* decays);
  // x *= length / max(|x|, epsilon).
  void (*set_length)(int64_t n, float epsilon, float length, float* x);
  // out = bias + sum over taps j:  kernel[j] * rows[j], channel by channel; kernel is
  // (n_taps, n), bias may be null.
  void (*convolve)(const float* const* rows, int64_t n_taps, const float* kernel, const float* bias,
                   int64_t n, float* out);
  // Per token, with S the state: S = decay S; S = S + key (gain (value - S^T key))^T;
  // output = S^T query.
  void (*advance_delta_net)(const RecurrentJob& job);
  // Per token: S = decay S + key (gain value)^T; output = S^T query + skip value.
  void (*advance_state_space)(const RecurrentJob& job);

  // As advance_delta_net, with a decay for each row of S.
  void (*advance_channel_delta_net)(const RecurrentJob& job);
  // Per token and channel: h = e^(step rate) h + step value b; output = c . h + skip value.
  void (*scan_channels)(const ScanJob& job);
  // x = log(1 + e^x).
  void (*softplus)(int64_t n, float* x);

  // Lane-wise exp and tanh, for tests of their accuracy.
  void (*exp)(int64_t n, float* x);
  void (*tanh)(int64_t n, float* x);
};

// REQUIRES: `isa` is available.
const VectorKernels& VectorKernelsFor(Isa isa);

}  // namespace weft

#endif  // WEFT_COMPUTE_KERNELS_VECTOR_OPS_H_
