// Speed of softmax attention over one kv head at a time, by instruction set and KV type.
//
//   attention_bench --benchmark_filter='avx512/F16/dims:128/queries:64/'
//
// MAC/s counts multiply-adds over visible keys and values; bytes_per_second counts keys and values
// once per job, however many queries it has. A benchmark's arguments: head dimensions; queries per
// job (64: a block of prompt rows; fewer: the heads of one decoding row, which see the same
// positions); positions; kv heads used in turn (32 exceed a core's own caches).
#include <benchmark/benchmark.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "compute/kernels/vector_ops.h"

namespace weft {
namespace {

constexpr int64_t kPromptQueries = 64;
constexpr int64_t kHeadsPerKvHead = 4;  // for prompt rows

// The keys and values of some kv heads, tile by tile.
class KvHeads {
 public:
  KvHeads(const VectorKernels& kernels, const KvShape& shape, int64_t n_heads, int64_t n_positions)
      : shape_(shape),
        n_tiles_((n_positions + kKvTileTokens - 1) / kKvTileTokens),
        tiles_(static_cast<size_t>(n_heads * n_tiles_ * KvTileBytes(shape_))) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> key(shape.k_dim), value(shape.v_dim);
    for (int64_t i = 0; i < n_heads * n_tiles_ * kKvTileTokens; ++i) {
      for (float& x : key) x = normal(random);
      for (float& x : value) x = normal(random);
      kernels.store_kv(shape_, key.data(), value.data(), static_cast<int>(i % kKvTileTokens),
                       tiles_.data() + i / kKvTileTokens * KvTileBytes(shape_));
    }
    for (int64_t i = 0; i < n_heads * n_tiles_; ++i) {
      pointers_.push_back(tiles_.data() + i * KvTileBytes(shape_));
    }
  }

  const std::byte* const* TilesOf(int64_t head) const { return &pointers_[head * n_tiles_]; }
  int64_t bytes_of_head() const { return n_tiles_ * KvTileBytes(shape_); }

 private:
  KvShape shape_;
  int64_t n_tiles_;
  AlignedBuffer tiles_;
  std::vector<const std::byte*> pointers_;
};

void BM_Attend(benchmark::State& state, Isa isa, KvTypes type) {
  const VectorKernels& kernels = VectorKernelsFor(isa);
  const int64_t n_dims = state.range(0), n_queries = state.range(1);
  const int64_t n_positions = state.range(2), n_heads = state.range(3);
  const KvShape shape{type, n_dims, n_dims};
  const KvHeads kv(kernels, shape, n_heads, n_positions);

  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n_queries * n_dims)), results(values.size());
  for (float& x : values) x = normal(random);
  std::vector<AttentionQuery> queries(static_cast<size_t>(n_queries));
  int64_t n_seen = 0;
  for (int64_t i = 0; i < n_queries; ++i) {
    const bool prompt = n_queries == kPromptQueries;
    AttentionQuery& query = queries[i];
    query.values = &values[i * n_dims];
    query.output = &results[i * n_dims];
    query.last = n_positions - 1 - (prompt ? (n_queries - 1 - i) / kHeadsPerKvHead : 0);
    n_seen += query.last + 1;
  }
  AttentionJob job;
  job.shape = shape;
  job.queries = queries;
  job.scale = 1 / std::sqrt(static_cast<float>(n_dims));
  AlignedBuffer scratch(sizeof(float) * AttentionScratchFloats(job.shape, n_queries));

  int64_t head = 0;
  for (auto _ : state) {
    for (AttentionQuery& query : queries) query.tiles = kv.TilesOf(head);
    kernels.attend(job, scratch.As<float>().data());
    head = (head + 1) % n_heads;
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kv.bytes_of_head());
  state.counters["MAC/s"] = benchmark::Counter(
      static_cast<double>(state.iterations() * n_seen * 2 * n_dims), benchmark::Counter::kIsRate);
}

void RegisterAll() {
  for (Isa isa : AvailableIsas()) {
    for (const KvTypes type : {KvTypes(DType::kF32), KvTypes(DType::kF16), KvTypes(DType::kQ8_0),
                               KvTypes(DType::kQ5_0, DType::kQ4_0)}) {
      const std::string name = std::string(NameOf(isa)) + "/" + NameOf(type);
      benchmark::RegisterBenchmark(name.c_str(), BM_Attend, isa, type)
          ->ArgsProduct({{64, 128}, {1, 2, 3, 4, 7, 8, 16, kPromptQueries}, {1300, 4096}, {1, 32}})
          ->ArgNames({"dims", "queries", "positions", "kv_heads"})
          ->MinTime(0.1);
    }
  }
}

[[maybe_unused]] const bool kRegistered = (RegisterAll(), true);

}  // namespace
}  // namespace weft
