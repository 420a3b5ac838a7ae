// Converts the blocks of model files to the forms that MLX multiplies: affine groups of 32 levels,
// or MXFP4.
//
// Every weight keeps its exact value. MLX computes scale * level + bias with 32-bit floats, which
// hold the product of a half and a small integer, and so the scales of K types. Types with a scale
// per 16 inputs are "spread": each 16 weights become a group of 32 whose second half is zero, and
// inputs are spread in the same way. Levels that index a table become the table's entries, as
// bytes.
//
// Pure functions; any thread.
#ifndef WEFT_COMPUTE_MLX_PACKING_H_
#define WEFT_COMPUTE_MLX_PACKING_H_

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace weft::mlx {

// A packed matrix's representation.
enum class Form {
  kFloat,   // as in the file
  kAffine,  // levels, and per 32 of them a scale and a bias
  kMxfp4,   // MLX's own mode
};

struct Packing {
  Form form = Form::kFloat;
  int bits = 0;         // per level
  bool spread = false;  // a group of 32 holds 16 weights
  // 32-bit words of levels, and groups, in a row of n weights.
  int64_t Words(int64_t n) const { return Levels(n) * bits / 32; }
  int64_t Groups(int64_t n) const { return Levels(n) / 32; }
  double BitsPerWeight() const;

 private:
  int64_t Levels(int64_t n) const { return spread ? 2 * n : n; }
};

// REQUIRES: CanDequantize(type).
Packing PackingOf(DType type);

// Destination of a packed row. For kMxfp4, `scales` holds a byte per group and `biases` is null.
struct PackedRow {
  uint32_t* words;
  void* scales;  // floats in kAffine
  float* biases;
};

// REQUIRES: the type's form is not kFloat; n is a multiple of its block.
void PackRow(DType type, const std::byte* row, int64_t n, const PackedRow& out);

}  // namespace weft::mlx

#endif  // WEFT_COMPUTE_MLX_PACKING_H_
