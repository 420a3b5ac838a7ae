#include "cli/bench/machine_limits.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <mutex>
#include <variant>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "kernels/peak.h"

namespace weft::cli {
namespace {

constexpr size_t kReadBytes = size_t{512} << 20;
constexpr double kSeconds = 0.4;

double BytesPerValue(const ModelFile& file, TensorRef tensor) {
  const DTypeInfo& info = InfoOf(file.tensors()[static_cast<size_t>(tensor.index)].type);
  return static_cast<double>(info.block_bytes) / static_cast<double>(info.block_values);
}

// Adds up the cost of an op's matrices.
class CostCounter {
 public:
  CostCounter(const ModelFile& file, ModelCost* cost) : file_(file), cost_(cost) {}

  void operator()(const Attention& op) {
    for (const Linear* linear : {&op.q, &op.k, &op.v, &op.out}) Add(*linear);
  }
  void operator()(const LatentAttention& op) {
    for (const Linear* linear : {&op.q, &op.q_a, &op.q_b, &op.kv_a, &op.out}) Add(*linear);
    for (const StackedLinear* heads : {&op.k_b, &op.v_b}) {
      AddDense(heads->weight, static_cast<double>(heads->count * heads->n_in * heads->n_out));
    }
  }
  void operator()(const ShortConvolution& op) {
    Add(op.in);
    Add(op.out);
  }
  void operator()(const GatedDeltaNet& op) {
    for (const Linear* linear : {&op.qkv, &op.gate, &op.beta, &op.decay, &op.beta_decay, &op.out}) {
      Add(*linear);
    }
  }
  void operator()(const StateSpace& op) {
    Add(op.in);
    Add(op.out);
  }
  void operator()(const DenseFfn& op) {
    for (const Linear* linear : {&op.gate, &op.up, &op.down}) Add(*linear);
  }
  void operator()(const MixtureOfExperts& op) {
    Add(op.router);
    cost_->n_experts = op.n_experts;
    cost_->n_used = op.n_used;
    for (const StackedLinear* experts : {&op.gate, &op.up, &op.down}) {
      if (!*experts) continue;
      const double values = static_cast<double>(experts->n_in * experts->n_out);
      cost_->macs_per_row += values * op.n_used;
      cost_->expert_bytes += values * BytesPerValue(file_, experts->weight);
    }
  }
  void operator()(const PerLayerGate& op) {
    Add(op.gate);
    Add(op.proj);
  }

 private:
  void Add(const Linear& linear) {
    if (linear) AddDense(linear.weight, static_cast<double>(linear.n_in * linear.n_out));
  }
  void AddDense(TensorRef weight, double values) {
    if (!weight) return;
    cost_->macs_per_row += values;
    cost_->dense_bytes += values * BytesPerValue(file_, weight);
  }

  const ModelFile& file_;
  ModelCost* const cost_;
};

}  // namespace

MachineLimits MeasureMachineLimits(int n_threads) {
  ThreadPool pool(n_threads);
  AlignedBuffer memory(kReadBytes);
  MachineLimits limits;
  if (memory.data() != nullptr) std::memset(memory.data(), 1, memory.size());
  std::mutex mutex;
  const auto on_all = [&](double* sum, auto measure) {
    pool.RunOnAll([&](int worker) {
      const double rate = measure(worker);
      std::lock_guard<std::mutex> lock(mutex);
      *sum += rate;
    });
  };
  const size_t share = memory.size() / static_cast<size_t>(pool.n_threads());
  if (memory.data() != nullptr) {
    on_all(&limits.read_bytes_per_s, [&](int worker) {
      return MeasureReadBytesPerSecond({memory.data() + static_cast<size_t>(worker) * share, share},
                                       kSeconds);
    });
  }
  on_all(&limits.int8_macs_per_s,
         [](int) { return MeasureInt8MacsPerSecond(PreferredIsa(), kSeconds); });
  return limits;
}

int64_t ResidentBytes() {
  int64_t total = 0, resident = 0;
  std::ifstream statm("/proc/self/statm");
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

double ModelCost::StepBytes(double rows) const {
  if (n_experts == 0) return dense_bytes;
  const double touched = n_experts * (1 - std::pow(1 - n_used / n_experts, rows));
  return dense_bytes + expert_bytes * touched;
}

ModelCost CostOf(const ModelFile& file, const ModelSpec& spec) {
  ModelCost cost;
  CostCounter counter(file, &cost);
  const Path* const last = LastToWriteState(spec);
  for (const Layer& layer : spec.layers) {
    for (const Block& block : layer.blocks) {
      for (const Path& path : block.paths) {
        std::visit(counter, path.op);
        if (&path != last) continue;
        cost.macs_without_logits = cost.macs_per_row;
        const auto* attention = std::get_if<Attention>(&path.op);
        if (attention == nullptr) continue;
        for (const Linear* linear : {&attention->q, &attention->out}) {
          cost.macs_without_logits -= static_cast<double>(linear->n_in * linear->n_out);
        }
      }
    }
  }
  if (last == nullptr) cost.macs_without_logits = cost.macs_per_row;
  cost.output_macs = static_cast<double>(spec.output.n_in * spec.output.n_out);
  cost.dense_bytes += cost.output_macs * BytesPerValue(file, spec.output.weight);
  return cost;
}

double DecodeLimit(const ModelCost& cost, const MachineLimits& limits, double rows,
                   double kv_bytes_per_row) {
  const double read_s = (cost.StepBytes(rows) + rows * kv_bytes_per_row) / limits.read_bytes_per_s;
  const double compute_s = rows * (cost.macs_per_row + cost.output_macs) / limits.int8_macs_per_s;
  return rows / std::max(read_s, compute_s);
}

double PromptLimit(const ModelCost& cost, const MachineLimits& limits) {
  return limits.int8_macs_per_s / cost.macs_without_logits;
}

}  // namespace weft::cli
