// One product, several times over, for those who count its instructions
// (kernel_instructions.py).
//
//   kernel_instructions ISA TYPE ROWS TIMES
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "compute/kernels/matmul/matmul.h"

namespace weft {
namespace {

constexpr int64_t kInputs = 2048, kOutputs = 16;

int Run(Isa isa, DType type, int64_t n_rows, int times) {
  // Zeros will do: the instructions do not depend on the values.
  const std::vector<std::byte> weights(static_cast<size_t>(RowBytes(type, kInputs) * kOutputs));
  AlignedBuffer tile(static_cast<size_t>(PackedTileBytes(type, kInputs)));
  PackTile(type, weights.data(), kOutputs, kInputs, tile.data());
  const std::vector<float> values(static_cast<size_t>(kInputs * n_rows), 1.0f);
  const auto panels = static_cast<size_t>(PanelCount(n_rows));
  const int64_t blocks_per_panel = kInputs / 32;
  std::vector<ActivationBlock> blocks(panels * static_cast<size_t>(blocks_per_panel));
  const MatmulKernels& kernels = MatmulKernelsFor(isa);
  for (int64_t row = 0; row < n_rows; ++row) {
    kernels.quantize_row(values.data() + row * kInputs, kInputs, static_cast<int>(row % kPanelRows),
                         blocks.data() + row / kPanelRows * blocks_per_panel);
  }
  std::vector<float> out(static_cast<size_t>(kOutputs * n_rows));
  const PackedMatrix matrix = {type, kInputs, kOutputs, tile.data()};
  const ActivationRows rows = {values.data(), kInputs, {blocks.data()}};
  for (int i = 0; i < times; ++i) {
    kernels.matmul(matrix, rows, n_rows, 0, 1, out.data(), kOutputs);
  }
  return out[0] == out[0] ? 0 : 1;
}

int Main(int argc, char** argv) {
  const DType* type = nullptr;
  if (argc == 5) {
    if (const DTypeInfo* info = FindDTypeByName(argv[2])) type = &info->type;
  }
  if (type == nullptr) {
    std::fprintf(stderr, "usage: kernel_instructions ISA TYPE ROWS TIMES\n");
    return 2;
  }
  for (const Isa isa : AvailableIsas()) {
    if (NameOf(isa) == argv[1]) return Run(isa, *type, std::atoi(argv[3]), std::atoi(argv[4]));
  }
  std::fprintf(stderr, "kernel_instructions: there is no %s here\n", argv[1]);
  return 2;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::Main(argc, argv); }
