// Converts a model file's blocks to the forms that kernels read
// (compute/kernels_gpu/weight_form.h), and names the kernels of each form.
#ifndef WEFT_COMPUTE_GPU_WEIGHT_FORMS_H_
#define WEFT_COMPUTE_GPU_WEIGHT_FORMS_H_

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "compute/kernels_gpu/kernels.h"

namespace weft::gpu {

// The kernels for one type of weights.
struct WeightForm {
  const device::KernelOf<device::MatmulArgs>* multiply_one = nullptr;  // a row at a time
  const device::KernelOf<device::MatmulArgs>* multiply = nullptr;      // runs of rows, tiles
  // With tensor-core tiles: up to 8 rows, up to 32, and many; null if the form has none.
  const device::KernelOf<device::MatmulArgs>*multiply_few = nullptr, *multiply_tiles = nullptr,
        *multiply_many = nullptr;
  const device::KernelOf<device::EmbedArgs>* embed = nullptr;
  bool int8 = false;  // takes activations quantized in blocks of bytes
};

// Null if the backend lacks the type.
const WeightForm* FormOf(DType type);

// Bytes of one row of n_in inputs in each of a form's three parts; 0 if it lacks the part.
struct PartBytes {
  int64_t levels = 0, meta = 0, super = 0;
};
PartBytes BytesOfRow(DType type, int64_t n_in);

// Rewrites one row of a file (at `row`) to its place in a band. Exact: no level and no scale
// changes. REQUIRES: FormOf(type) is not null; the band's parts have kBandOutputs times BytesOfRow
// bytes.
void PackRow(DType type, const std::byte* row, int64_t n_in, int place, std::byte* levels,
             std::byte* meta, std::byte* super);

}  // namespace weft::gpu

#endif  // WEFT_COMPUTE_GPU_WEIGHT_FORMS_H_
