// Recurrent state: convolutions, delta nets, state spaces.
//
// A head's state is stored row by row in its sequence's slot, so that the threads of a block, one
// column each, read adjacent addresses. A sequence's tokens are computed one after the other, and a
// state in memory has the same bits as in registers, so splitting a prompt changes nothing.
#ifndef WEFT_COMPUTE_KERNELS_GPU_RECURRENT_H_
#define WEFT_COMPUTE_KERNELS_GPU_RECURRENT_H_

#include "compute/kernels_gpu/kernels.h"

namespace weft::device {

// One state in all slots.
struct SlotView {
  PoolView pool;
  int64_t offset = 0;  // bytes within a slot
};

// out = bias, then one fused multiply-add per tap, the oldest first; with `silu`, silu(out). Inputs
// from before the step come from the state, which holds the latest n_taps - 1, oldest first. x:
// columns, y: rows.
struct ConvolveArgs {
  StepView step;
  SlotView state;
  Rows x, out;
  const float* kernel = nullptr;  // (tap, channel)
  const float* bias = nullptr;
  int32_t n_channels = 0, n_taps = 0;
  int32_t silu = 0;
};
WEFT_DECLARE_KERNEL(ConvolveRows, ConvolveArgs);
// Saves each sequence's latest inputs to its state, after all rows are convolved. x: columns, y:
// sequences.
WEFT_DECLARE_KERNEL(KeepInputs, ConvolveArgs);

// Per row and head: decay = exp(rate * step), step = softplus(steps + bias); the gain is the step,
// or with `betas` sigmoid(beta). If `interleaved` is not 0, `betas` holds both: for each of n_heads
// / interleaved runs, first that many betas and then as many steps. x: runs of 32 heads, y: rows.
struct GatesArgs {
  Rows betas, steps;
  const float* bias = nullptr;
  const float* rate = nullptr;
  int32_t n_heads = 0;
  int32_t interleaved = 0;
  float* gains = nullptr;  // (row, head)
  float* decays = nullptr;
  const int32_t* n_rows = nullptr;
};
WEFT_DECLARE_KERNEL(ComputeGates, GatesArgs);

// Advances the heads' states by the rows of each sequence. x: runs of 32 columns, y: heads, z:
// sequences.
struct AdvanceArgs {
  StepView step;
  SlotView state;
  Rows queries, keys;  // key head k at k * n_rows
  Rows values;         // head h at h * n_columns; overwritten by the outputs
  const float* gains = nullptr;
  const float* decays = nullptr;
  const float* skip = nullptr;  // state spaces: per head
  Rows row_decays;              // channel delta nets, instead of decays: head h at h * n_rows
  int32_t n_heads = 0, n_rows = 0, n_columns = 0;
  int32_t tiled = 0;  // head h reads key head h % n_key_heads, else h / (n_heads / n_key_heads)
  int32_t n_key_heads = 1;
};
inline constexpr int kAdvanceThreads = 32;
WEFT_DECLARE_KERNEL(AdvanceDeltaNet, AdvanceArgs);
WEFT_DECLARE_KERNEL(AdvanceStateSpace, AdvanceArgs);
WEFT_DECLARE_KERNEL(AdvanceChannelDeltaNet, AdvanceArgs);

// Per row: decays = exp(rate[head] * softplus(decays + bias)), in place, head_dim for each head;
// gains = sigmoid(betas), one per head. x: columns, y: rows.
struct ChannelGatesArgs {
  Rows decays, betas;
  const float* bias = nullptr;
  const float* rate = nullptr;
  int32_t n_heads = 0, head_dim = 0;
  float* gains = nullptr;  // (row, head)
  const int32_t* n_rows = nullptr;
};
WEFT_DECLARE_KERNEL(ComputeChannelGates, ChannelGatesArgs);

// Advances the channels' states, stored by state value, by the rows of each sequence. With d =
// softplus(steps): h = exp(d rate) h + d values b; values = c . h + skip values. x: runs of
// kAdvanceThreads channels, y: sequences.
struct ScanArgs {
  StepView step;
  SlotView state;
  Rows steps, values, b, c;
  const float* rate = nullptr;  // (state value, channel)
  const float* skip = nullptr;  // per channel
  int32_t n_channels = 0, state_dim = 0;
};
WEFT_DECLARE_KERNEL(ScanChannels, ScanArgs);

}  // namespace weft::device

#endif  // WEFT_COMPUTE_KERNELS_GPU_RECURRENT_H_
