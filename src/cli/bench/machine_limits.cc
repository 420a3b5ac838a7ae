#include "cli/bench/machine_limits.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <variant>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "compute/kernels/peak.h"

namespace weft::cli {
namespace {

constexpr size_t kReadBytes = size_t{512} << 20;
constexpr double kSeconds = 0.4;

double BytesPerValue(const ModelFile& file, TensorRef tensor) {
  const DTypeInfo& info = InfoOf(file.tensors()[static_cast<size_t>(tensor.index)].type);
  return static_cast<double>(info.block_bytes) / static_cast<double>(info.block_values);
}

// Adds up the cost of an operation's matrices; all else is small.
class CostCounter : public OperationVisitor {
 public:
  CostCounter(const ModelFile& file, ModelCost* cost) : file_(file), cost_(cost) {}

  using OperationVisitor::Tensor;
  void Tensor(const Linear& linear, const Shape&) {
    if (linear) Add(linear.weight, linear.n_in * linear.n_out, 1, 1);
  }
  void Tensor(const StackedLinear& stack, const Shape& shape) {
    if (stack) Add(stack.weight, stack.n_in * stack.n_out, shape.count, shape.n_used);
  }

 private:
  // `count` matrices of which a row goes through `n_used`.
  void Add(TensorRef weight, int64_t n_values, int64_t count, int64_t n_used) {
    const double values = static_cast<double>(n_values);
    const double bytes = values * BytesPerValue(file_, weight);
    cost_->macs_per_row += values * static_cast<double>(n_used);
    if (n_used == count) {  // every step reads all
      cost_->dense_bytes += bytes * static_cast<double>(count);
      return;
    }
    cost_->n_experts = static_cast<double>(count);
    cost_->n_used = static_cast<double>(n_used);
    cost_->expert_bytes += bytes;
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
  on_all(&limits.float_macs_per_s,
         [](int) { return MeasureFloatMacsPerSecond(PreferredIsa(), kSeconds / 2); });
  return limits;
}

std::string_view NameOf(LimitKind kind) {
  switch (kind) {
    case LimitKind::kReading:
      return "reading";
    case LimitKind::kMultiplying:
      return "multiplying";
    case LimitKind::kUnknown:
      break;
  }
  return "unknown";
}

StageLimit LimitOfStage(const MachineLimits& limits, double seconds, double bytes, double int8_macs,
                        double float_macs) {
  const bool known = limits.read_bytes_per_s > 0 &&
                     (limits.int8_macs_per_s > 0 || int8_macs == 0) &&
                     (limits.float_macs_per_s > 0 || float_macs == 0);
  if (!known || seconds <= 0 || int8_macs + float_macs <= 0) return {};
  const double read_s = bytes / limits.read_bytes_per_s;
  double multiply_s = 0;
  if (int8_macs > 0) multiply_s += int8_macs / limits.int8_macs_per_s;
  if (float_macs > 0) multiply_s += float_macs / limits.float_macs_per_s;
  if (read_s > multiply_s) return {LimitKind::kReading, read_s / seconds};
  return {LimitKind::kMultiplying, multiply_s / seconds};
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
  ForEachPath(spec, [&](const Path& path) {
    std::visit([&](const auto& op) { op.Visit(spec.d_model, counter); }, path.op);
    if (&path != last) return;
    cost.macs_without_logits = cost.macs_per_row;
    const auto* attention = std::get_if<Attention>(&path.op);
    if (attention == nullptr) return;
    // Only its keys and values are needed.
    for (const Linear* linear : {&attention->q, &attention->out}) {
      cost.macs_without_logits -= static_cast<double>(linear->n_in * linear->n_out);
    }
  });
  if (last == nullptr) cost.macs_without_logits = cost.macs_per_row;
  if (!spec.output) return cost;
  cost.output_macs = static_cast<double>(spec.output.n_in * spec.output.n_out);
  cost.dense_bytes += cost.output_macs * BytesPerValue(file, spec.output.weight);
  return cost;
}

RateLimit DecodeLimit(const ModelCost& cost, const MachineLimits& limits, double rows,
                      double kv_bytes_per_row) {
  const double read_s = (cost.StepBytes(rows) + rows * kv_bytes_per_row) / limits.read_bytes_per_s;
  const double compute_s = rows * (cost.macs_per_row + cost.output_macs) / limits.int8_macs_per_s;
  if (read_s > compute_s) return {rows / read_s, LimitKind::kReading};
  return {rows / compute_s, LimitKind::kMultiplying};
}

RateLimit PromptLimit(const ModelCost& cost, const MachineLimits& limits) {
  return {limits.int8_macs_per_s / cost.macs_without_logits, LimitKind::kMultiplying};
}

}  // namespace weft::cli
