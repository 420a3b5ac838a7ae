// Speed of the recurrent kernels by instruction set: delta nets, state spaces and short
// convolutions, all heads or channels of one layer on one thread.
//
//   recurrent_bench --benchmark_filter='avx512/delta_net/tokens:1/'
//
// The arguments of a name are the tokens of one call (1: a session decodes; more: a part of
// a prompt) and the sequences that take turns (32: more state than a core's own caches
// hold). The counter MAC/s is that of multiply-adds; bytes_per_second that of states read
// and written, or of a convolution's inputs and outputs.
#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "compute/kernels/vector_ops.h"

namespace weft {
namespace {

// One layer's recurrent heads: a state of n_rows by n_columns each. Some share a key and a
// query.
struct Heads {
  int64_t n_heads, n_key_heads, n_rows, n_columns;
  // Per value of the state and token: a delta net's products with key and query and its
  // update; a state space has no product with the key.
  int64_t macs;
  void (*VectorKernels::*advance)(const RecurrentJob& job);
};
constexpr Heads kDeltaNet = {16, 16, 128, 128, 3, &VectorKernels::advance_delta_net};
constexpr Heads kStateSpace = {32, 1, 128, 64, 2, &VectorKernels::advance_state_space};

constexpr int64_t kChannels = 2048;  // convolution channels
constexpr int64_t kTaps = 4;

AlignedBuffer RandomFloats(int64_t n, float scale) {
  AlignedBuffer buffer(sizeof(float) * static_cast<size_t>(n));
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, scale);
  for (float& value : buffer.As<float>()) value = normal(random);
  return buffer;
}

double Rate(const benchmark::State& state, int64_t per_iteration) {
  return static_cast<double>(state.iterations()) * static_cast<double>(per_iteration);
}

void BM_Advance(benchmark::State& state, Isa isa, const Heads& heads) {
  const VectorKernels& kernels = VectorKernelsFor(isa);
  const int64_t n_tokens = state.range(0), n_sequences = state.range(1);
  const int64_t state_floats = StateFloats(heads.n_rows, heads.n_columns);
  AlignedBuffer states = RandomFloats(n_sequences * heads.n_heads * state_floats, 0.1f);
  // A token's keys, queries and values. Keys are short, so that states stay of the size that
  // they have.
  const int64_t n_keys = heads.n_key_heads * heads.n_rows;
  const int64_t width = 2 * n_keys + heads.n_heads * heads.n_columns;
  AlignedBuffer inputs = RandomFloats(n_tokens * width, 0.05f);
  std::vector<float> outputs(static_cast<size_t>(n_tokens * heads.n_heads * heads.n_columns));
  const std::vector<float> decays(static_cast<size_t>(n_tokens), 0.9f), gains(decays.size(), 0.5f);

  RecurrentJob job;
  job.n_rows = heads.n_rows;
  job.n_columns = heads.n_columns;
  job.n_tokens = n_tokens;
  job.stride = width;
  job.output_stride = heads.n_heads * heads.n_columns;
  job.decays = decays.data();
  job.gains = gains.data();
  job.gate_stride = 1;
  job.skip = 1;
  int64_t sequence = 0;
  for (auto _ : state) {
    for (int64_t head = 0; head < heads.n_heads; ++head) {
      job.state = states.As<float>().data() + (sequence * heads.n_heads + head) * state_floats;
      job.keys =
          inputs.As<float>().data() + head * heads.n_key_heads / heads.n_heads * heads.n_rows;
      job.queries = job.keys + n_keys;
      job.values = inputs.As<float>().data() + 2 * n_keys + head * heads.n_columns;
      job.outputs = outputs.data() + head * heads.n_columns;
      (kernels.*heads.advance)(job);
    }
    sequence = (sequence + 1) % n_sequences;
    benchmark::ClobberMemory();
  }
  const int64_t layer_floats = heads.n_heads * state_floats;
  state.SetBytesProcessed(state.iterations() * layer_floats * 2 *
                          static_cast<int64_t>(sizeof(float)));
  state.counters["MAC/s"] = benchmark::Counter(Rate(state, layer_floats * n_tokens * heads.macs),
                                               benchmark::Counter::kIsRate);
}

void BM_Convolve(benchmark::State& state, Isa isa) {
  const VectorKernels& kernels = VectorKernelsFor(isa);
  const int64_t n_tokens = state.range(0), n_sequences = state.range(1);
  AlignedBuffer kernel = RandomFloats(kTaps * kChannels, 1);
  const int64_t n_rows = n_tokens + kTaps - 1;
  AlignedBuffer inputs = RandomFloats(n_sequences * n_rows * kChannels, 1);
  std::vector<float> outputs(static_cast<size_t>(n_tokens * kChannels));
  int64_t sequence = 0;
  for (auto _ : state) {
    const float* const first = inputs.As<float>().data() + sequence * n_rows * kChannels;
    for (int64_t token = 0; token < n_tokens; ++token) {
      const float* rows[kTaps];
      for (int64_t tap = 0; tap < kTaps; ++tap) rows[tap] = first + (token + tap) * kChannels;
      kernels.convolve(rows, kTaps, kernel.As<float>().data(), nullptr, kChannels,
                       outputs.data() + token * kChannels);
    }
    sequence = (sequence + 1) % n_sequences;
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * (n_rows + n_tokens) * kChannels *
                          static_cast<int64_t>(sizeof(float)));
  state.counters["MAC/s"] =
      benchmark::Counter(Rate(state, n_tokens * kTaps * kChannels), benchmark::Counter::kIsRate);
}

void RegisterAll() {
  const auto with_arguments = [](benchmark::internal::Benchmark* bench) {
    bench->ArgsProduct({{1, 2, 8, 64, 512}, {1, 32}})
        ->ArgNames({"tokens", "sequences"})
        ->MinTime(0.1);
  };
  for (Isa isa : AvailableIsas()) {
    const std::string name(NameOf(isa));
    with_arguments(
        benchmark::RegisterBenchmark((name + "/delta_net").c_str(), BM_Advance, isa, kDeltaNet));
    with_arguments(benchmark::RegisterBenchmark((name + "/state_space").c_str(), BM_Advance, isa,
                                                kStateSpace));
    with_arguments(benchmark::RegisterBenchmark((name + "/convolution").c_str(), BM_Convolve, isa));
  }
}

[[maybe_unused]] const bool kRegistered = (RegisterAll(), true);

}  // namespace
}  // namespace weft
