#include "compute/kernels_gpu/recurrent.h"

#include "compute/device/dialect.h"
#include "compute/kernels_gpu/math.h"
#include "compute/kernels_gpu/slot_device.h"

namespace weft::device {

WEFT_KERNEL(ConvolveRows, ConvolveArgs) {
  const int row = BlockY();
  if (row >= *a.step.n_rows) return;
  const int sequence = a.step.sequences[row];
  const int begin = a.step.first_rows[sequence];
  const float* const old = SlotStateOf(a.step, a.state, sequence);
  for (int i = 0; i < kColumnsEach; ++i) {
    const int c = BlockX() * kColumnsPerBlock + i * kColumnThreads + ThreadIndex();
    if (c >= a.n_channels) return;
    float sum = a.bias != nullptr ? a.bias[c] : 0.0f;
    for (int tap = 0; tap < a.n_taps; ++tap) {
      const int source = row - (a.n_taps - 1) + tap;
      const float input =
          source >= begin
              ? a.x.values[source * a.x.stride + c]
              : old[static_cast<int64_t>(source - begin + a.n_taps - 1) * a.n_channels + c];
      sum = Fma(a.kernel[static_cast<int64_t>(tap) * a.n_channels + c], input, sum);
    }
    a.out.values[row * a.out.stride + c] = a.silu != 0 ? sum / (1.0f + Exp(-sum)) : sum;
  }
}

WEFT_KERNEL(KeepInputs, ConvolveArgs) {
  const int sequence = BlockY();
  if (sequence >= *a.step.n_sequences) return;
  const int begin = a.step.first_rows[sequence], end = a.step.first_rows[sequence + 1];
  const int n_old = a.n_taps - 1;
  float* const old = SlotStateOf(a.step, a.state, sequence);
  for (int i = 0; i < kColumnsEach; ++i) {
    const int c = BlockX() * kColumnsPerBlock + i * kColumnThreads + ThreadIndex();
    if (c >= a.n_channels) return;
    for (int j = 0; j < n_old; ++j) {
      const int source = end - n_old + j;
      old[static_cast<int64_t>(j) * a.n_channels + c] =
          source >= begin ? a.x.values[source * a.x.stride + c]
                          : old[static_cast<int64_t>(j + end - begin) * a.n_channels + c];
    }
  }
}

WEFT_KERNEL(ComputeGates, GatesArgs) {
  const int row = BlockY(), head = BlockX() * 32 + ThreadIndex();
  if (row >= *a.n_rows || head >= a.n_heads) return;
  const float* const betas = a.betas.values + row * a.betas.stride;
  float input = 0.0f, beta = 0.0f;
  if (a.interleaved > 0) {
    const int at = head / a.interleaved * 2 * a.interleaved + head % a.interleaved;
    beta = betas[at];
    input = betas[at + a.interleaved];
  } else {
    input = a.steps.values[row * a.steps.stride + head];
    if (a.betas.values != nullptr) beta = betas[head];
  }
  const float step = Softplus(input + a.bias[head]);
  const int64_t at = static_cast<int64_t>(row) * a.n_heads + head;
  a.decays[at] = Exp(step * a.rate[head]);
  a.gains[at] = a.betas.values != nullptr ? Sigmoid(beta) : step;
}

// A row's inputs to a column, and the destination of its result.
struct ColumnRow {
  const float *key, *query;
  float* value;
  float decay, gain;
};

// A column of one head's state, and the rows that advance it.
struct Column {
  int begin, end;  // rows of the step
  int head, key_head, column;
  float* state;  // of the column; the stride between state rows is n_columns
  WEFT_DEVICE bool Find(const AdvanceArgs& a) {
    const int sequence = BlockZ();
    column = BlockX() * kAdvanceThreads + ThreadIndex();
    if (sequence >= *a.step.n_sequences || column >= a.n_columns) return false;
    begin = a.step.first_rows[sequence];
    end = a.step.first_rows[sequence + 1];
    head = BlockY();
    key_head = a.tiled != 0 ? head % a.n_key_heads : head / (a.n_heads / a.n_key_heads);
    state = SlotStateOf(a.step, a.state, sequence) +
            static_cast<int64_t>(head) * a.n_rows * a.n_columns + column;
    return true;
  }
  WEFT_DEVICE ColumnRow At(const AdvanceArgs& a, int row) const {
    const int64_t gate = static_cast<int64_t>(row) * a.n_heads + head;
    return {a.keys.values + row * a.keys.stride + key_head * a.n_rows,
            a.queries.values + row * a.queries.stride + key_head * a.n_rows,
            a.values.values + row * a.values.stride + head * a.n_columns + column, a.decays[gate],
            a.gains[gate]};
  }
};

WEFT_KERNEL(AdvanceDeltaNet, AdvanceArgs) {
  Column c;
  if (!c.Find(a)) return;
  for (int row = c.begin; row < c.end; ++row) {
    const ColumnRow t = c.At(a, row);
    float projected = 0.0f;
    for (int r = 0; r < a.n_rows; ++r) {
      projected = Fma(c.state[static_cast<int64_t>(r) * a.n_columns], t.key[r], projected);
    }
    const float delta = t.gain * Fma(-t.decay, projected, *t.value);
    float sum = 0.0f;
    for (int r = 0; r < a.n_rows; ++r) {
      float* const s = c.state + static_cast<int64_t>(r) * a.n_columns;
      *s = Fma(t.key[r], delta, t.decay * *s);
      sum = Fma(*s, t.query[r], sum);
    }
    *t.value = sum;
  }
}

WEFT_KERNEL(AdvanceStateSpace, AdvanceArgs) {
  Column c;
  if (!c.Find(a)) return;
  for (int row = c.begin; row < c.end; ++row) {
    const ColumnRow t = c.At(a, row);
    const float input = t.gain * *t.value;
    float sum = 0.0f;
    for (int r = 0; r < a.n_rows; ++r) {
      float* const s = c.state + static_cast<int64_t>(r) * a.n_columns;
      *s = Fma(t.key[r], input, t.decay * *s);
      sum = Fma(*s, t.query[r], sum);
    }
    *t.value = Fma(a.skip[c.head], *t.value, sum);
  }
}

WEFT_KERNEL(AdvanceChannelDeltaNet, AdvanceArgs) {
  Column c;
  if (!c.Find(a)) return;
  for (int row = c.begin; row < c.end; ++row) {
    const float* const key = a.keys.values + row * a.keys.stride + c.head * a.n_rows;
    const float* const query = a.queries.values + row * a.queries.stride + c.head * a.n_rows;
    const float* const decays = a.row_decays.values + row * a.row_decays.stride + c.head * a.n_rows;
    float* const value = a.values.values + row * a.values.stride + c.head * a.n_columns + c.column;
    float projected = 0.0f;
    for (int r = 0; r < a.n_rows; ++r) {
      projected =
          Fma(decays[r] * c.state[static_cast<int64_t>(r) * a.n_columns], key[r], projected);
    }
    const float delta =
        a.gains[static_cast<int64_t>(row) * a.n_heads + c.head] * (*value - projected);
    float sum = 0.0f;
    for (int r = 0; r < a.n_rows; ++r) {
      float* const s = c.state + static_cast<int64_t>(r) * a.n_columns;
      *s = Fma(key[r], delta, decays[r] * *s);
      sum = Fma(*s, query[r], sum);
    }
    *value = sum;
  }
}

WEFT_KERNEL(ComputeChannelGates, ChannelGatesArgs) {
  const int row = BlockY();
  if (row >= *a.n_rows) return;
  float* const decays = a.decays.values + row * a.decays.stride;
  const float* const betas = a.betas.values + row * a.betas.stride;
  for (int i = 0; i < kColumnsEach; ++i) {
    const int c = BlockX() * kColumnsPerBlock + i * kColumnThreads + ThreadIndex();
    if (c >= a.n_heads * a.head_dim) return;
    decays[c] = Exp(Softplus(decays[c] + a.bias[c]) * a.rate[c / a.head_dim]);
    if (c < a.n_heads) a.gains[static_cast<int64_t>(row) * a.n_heads + c] = Sigmoid(betas[c]);
  }
}

WEFT_KERNEL(ScanChannels, ScanArgs) {
  const int sequence = BlockY(), channel = BlockX() * kAdvanceThreads + ThreadIndex();
  if (sequence >= *a.step.n_sequences || channel >= a.n_channels) return;
  float* const state = SlotStateOf(a.step, a.state, sequence) + channel;
  for (int row = a.step.first_rows[sequence]; row < a.step.first_rows[sequence + 1]; ++row) {
    const float step = Softplus(a.steps.values[row * a.steps.stride + channel]);
    float* const value = a.values.values + row * a.values.stride + channel;
    const float* const b = a.b.values + row * a.b.stride;
    const float* const c = a.c.values + row * a.c.stride;
    const float input = step * *value;
    float sum = 0.0f;
    for (int r = 0; r < a.state_dim; ++r) {
      const int64_t at = static_cast<int64_t>(r) * a.n_channels;
      const float decay = Exp(step * a.rate[at + channel]);
      state[at] = Fma(b[r], input, decay * state[at]);
      sum = Fma(state[at], c[r], sum);
    }
    *value = Fma(a.skip[channel], *value, sum);
  }
}

}  // namespace weft::device
