// The positions that a row sees, and the parts that its sums go to (attention.h).
#ifndef WEFT_COMPUTE_KERNELS_GPU_ATTEND_ROWS_DEVICE_H_
#define WEFT_COMPUTE_KERNELS_GPU_ATTEND_ROWS_DEVICE_H_

#include "compute/device/dialect.h"
#include "compute/kernels_gpu/attention.h"

namespace weft::device {

constexpr int kBlockTokens = 32;
constexpr int kSplitBlocks = kSplitTokens / kBlockTokens;

// A row's own position, and the first and last position that it sees.
struct Sight {
  int position, first, last;

  WEFT_DEVICE Sight(const AttendArgs& a, int row) {
    position = a.step.positions[row];
    first = a.window > 0 ? Max(0, position - a.window + 1) : 0;
    if (a.chunk > 0) first = Max(first, position - position % a.chunk);
    last = position;
    if (a.both_ways != 0) {
      const int sequence = a.step.sequences[row];
      const int n_tokens = a.step.first_rows[sequence + 1] - a.step.first_rows[sequence];
      first = a.reach < 0 ? 0 : Max(0, position - a.reach);
      last = a.reach < 0 ? n_tokens - 1 : Min(n_tokens - 1, position + a.reach);
    }
  }
};

// The parts of a row's splits: splits before `cut` share one, each other split has its own.
struct PartPlaces {
  int base, first, last, cut;  // the first and the last split that the row sees

  WEFT_DEVICE PartPlaces(const AttendArgs& a, int row, int first_seen, int last_seen) {
    const RowParts parts = a.step.row_parts[a.kv.group * a.step.max_rows + row];
    base = parts.base;
    first = first_seen / kSplitTokens;
    last = last_seen / kSplitTokens;
    cut = Max(parts.cut, first + 1);
  }
  WEFT_DEVICE int Of(int split) const { return split < cut ? 0 : split - cut + 1; }
  WEFT_DEVICE int n() const { return Of(last) + 1; }
};

// A part: the sums of the values, then the maximum and the weight.
WEFT_DEVICE float* PartAt(const AttendArgs& a, int64_t part, int head) {
  return a.partials + (part * a.n_heads + head) * PartFloats(a.kv.v_dim);
}

}  // namespace weft::device

#endif  // WEFT_COMPUTE_KERNELS_GPU_ATTEND_ROWS_DEVICE_H_
