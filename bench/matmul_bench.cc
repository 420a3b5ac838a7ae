// Speed of the matrix kernels by weight type, instruction set, rows and threads.
//
//   matmul_bench --benchmark_filter='avx512/Q4_K/rows:1/'
//
// Counters: bytes_per_second is that of packed weights (the reading limit of one
// row is the memory's), MAC/s that of multiply-adds. The matrices together exceed
// the caches: every run of the loop takes the next one. The arguments of a name
// are the rows and the threads.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/half.h"
#include "compute/kernels/matmul/matmul.h"
#include "compute/kernels/quants/quants.h"

namespace weft {
namespace {

constexpr int64_t kInputs = 2048;
constexpr int64_t kOutputs = 8192;
constexpr int64_t kMaxRows = 512;
constexpr int64_t kAllBytes = 192 << 20;  // well above a last-level cache

constexpr DType kTypes[] = {DType::kQ4_0,  DType::kQ4_1, DType::kQ5_0,   DType::kQ5_1,
                            DType::kQ8_0,  DType::kQ2_K, DType::kQ3_K,   DType::kQ4_K,
                            DType::kQ5_K,  DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS,
                            DType::kMXFP4, DType::kF16,  DType::kBF16,   DType::kF32};

// Enough equal matrices to fill kAllBytes, with random levels and small scales. All packed tiles
// are copies of one, since only speed matters here.
struct Weights {
  Weights(DType type) : type(type), tile_bytes(PackedTileBytes(type, kInputs)) {
    const int64_t matrix_bytes = tile_bytes * TileCount(kOutputs);
    matrices = kAllBytes / matrix_bytes + 1;
    tiles = AlignedBuffer(static_cast<size_t>(matrices * matrix_bytes));
    const int64_t row_bytes = RowBytes(type, kInputs);
    std::mt19937 random(1);
    std::vector<std::byte> rows(static_cast<size_t>(kTileOutputs * row_bytes));
    // Bytes whose halves, floats and exponents are all normal: subnormal arithmetic
    // would be measured instead.
    const bool exponents = type == DType::kMXFP4;
    for (std::byte& byte : rows) {
      byte = static_cast<std::byte>(exponents ? 0x78 + random() % 8 : 0x20 + random() % 16);
    }
    PackTile(type, rows.data(), kTileOutputs, kInputs, tiles.data());
    for (int64_t t = 1; t < matrices * TileCount(kOutputs); ++t) {
      std::memcpy(tiles.data() + t * tile_bytes, tiles.data(), static_cast<size_t>(tile_bytes));
    }
  }

  PackedMatrix Matrix(int64_t i) const {
    return {type, kInputs, kOutputs,
            tiles.data() + i % matrices * tile_bytes * TileCount(kOutputs)};
  }

  DType type;
  int64_t tile_bytes;
  int64_t matrices = 0;
  AlignedBuffer tiles;
};

// The weights of one type at a time, kept between the benchmarks that share it.
const Weights& WeightsOf(DType type) {
  static std::unique_ptr<Weights> weights;
  if (weights == nullptr || weights->type != type) {
    weights.reset();
    weights = std::make_unique<Weights>(type);
  }
  return *weights;
}

struct Activations {
  explicit Activations(const MatmulKernels& kernels)
      : values(kMaxRows * kInputs), blocks(PanelCount(kMaxRows) * (kInputs / 32)) {
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    for (float& value : values) value = normal(random);
    for (int64_t r = 0; r < kMaxRows; ++r) {
      kernels.quantize_row(&values[r * kInputs], kInputs, static_cast<int>(r % kPanelRows),
                           &blocks[r / kPanelRows * (kInputs / 32)]);
    }
  }
  ActivationRows Rows() const { return {values.data(), kInputs, {blocks.data()}}; }
  std::vector<float> values;
  std::vector<ActivationBlock> blocks;
};

void BM_Matmul(benchmark::State& state, Isa isa, DType type) {
  const MatmulKernels& kernels = MatmulKernelsFor(isa);
  const int64_t rows = state.range(0), threads = state.range(1);
  const Weights& weights = WeightsOf(type);
  const Activations activations(kernels);
  const ActivationRows x = activations.Rows();
  std::vector<float> out(static_cast<size_t>(rows * kOutputs));
  // Threads take whole matrices' halves, many per iteration, so that starting them
  // costs little.
  const int64_t repeats = rows == 1 ? weights.matrices : (63 + rows) / rows;
  const int64_t tiles = TileCount(kOutputs);
  int64_t first = 0;
  for (auto _ : state) {
    auto work = [&](int64_t part) {
      for (int64_t i = 0; i < repeats; ++i) {
        kernels.matmul(weights.Matrix(first + i), x, rows, tiles * part / threads,
                       tiles * (part + 1) / threads, out.data(), kOutputs);
      }
    };
    std::vector<std::thread> others;
    for (int64_t part = 1; part < threads; ++part) others.emplace_back(work, part);
    work(0);
    for (std::thread& other : others) other.join();
    first += repeats;
    benchmark::ClobberMemory();
  }
  const double runs = static_cast<double>(state.iterations() * repeats);
  state.SetBytesProcessed(static_cast<int64_t>(runs * weights.tile_bytes * tiles));
  state.counters["MAC/s"] =
      benchmark::Counter(runs * rows * kInputs * kOutputs, benchmark::Counter::kIsRate);
}

void BM_QuantizeRow(benchmark::State& state, Isa isa) {
  const MatmulKernels& kernels = MatmulKernelsFor(isa);
  Activations a(kernels);
  for (auto _ : state) {
    kernels.quantize_row(a.values.data(), kInputs, 0, a.blocks.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kInputs);
}

void RegisterAll() {
  for (Isa isa : AvailableIsas()) {
    const std::string isa_name(NameOf(isa));
    benchmark::RegisterBenchmark((isa_name + "/quantize_row").c_str(), BM_QuantizeRow, isa);
    for (DType type : kTypes) {
      const std::string name = isa_name + "/" + std::string(NameOf(type));
      benchmark::RegisterBenchmark(name.c_str(), BM_Matmul, isa, type)
          ->ArgsProduct({{1, 2, 4, 6, 8, 16, 32, kMaxRows}, {1, 2}})
          ->ArgNames({"rows", "threads"})
          ->UseRealTime()
          ->MinTime(0.1);
    }
  }
}

[[maybe_unused]] const bool kRegistered = (RegisterAll(), true);

}  // namespace
}  // namespace weft
