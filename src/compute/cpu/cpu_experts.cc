#include "compute/cpu/cpu_experts.h"

#include <algorithm>
#include <new>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "compute/cpu/compute.h"
#include "compute/cpu/cpu_executor.h"
#include "compute/cpu/cpu_weights.h"
#include "compute/cpu/experts.h"

namespace weft::cpu {

namespace {

class CpuExperts final : public HostExperts {
 public:
  CpuExperts(std::shared_ptr<const CpuWeights> weights, const ExecutorOptions& options)
      : weights_(std::move(weights)), compute_(CpuExecutor::PoolOf(options), weights_->isa()) {
    size_t most = 0;
    for (const BoundBlock& block : weights_->model().blocks) {
      for (const BoundPath& path : block.paths) {
        mixtures_.push_back(&std::get<Bound<MixtureOfExperts>>(path.op));
        Arena arena(options.max_step_tokens);
        PlanExperts(*mixtures_.back(), &arena);
        most = std::max(most, arena.bytes());
      }
    }
    scratch_ = AlignedBuffer(most);
  }

  bool has_memory() const { return scratch_.data() != nullptr; }

  Status Compute(int64_t mixture, const RoutedRows& rows, float* out) override {
    WEFT_CHECK(mixture >= 0 && mixture < std::ssize(mixtures_), "a mixture of the spec");
    const Bound<MixtureOfExperts>& op = *mixtures_[static_cast<size_t>(mixture)];
    const MixtureOfExperts& spec = *op.spec;
    const std::span<const int32_t> experts(rows.experts, static_cast<size_t>(rows.n * spec.n_used));
    // The experts' numbers come from a device, which may be faulty.
    const bool are_sound = std::ranges::all_of(
        experts, [&](int32_t expert) { return expert >= 0 && expert < spec.n_experts; });
    if (!are_sound) {
      return Internal(
          "the device sent rows to experts that the model does not have; restart, and "
          "test the device if that happens again");
    }
    const int64_t width = weights_->spec().d_model;
    try {
      Arena arena(rows.n, scratch_.As<std::byte>());
      RunExperts(&compute_, op, rows, &arena, {out, width, width});
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("out of memory during a step; use smaller steps");
    }
    return OkStatus();
  }
  int64_t scratch_bytes() const override { return static_cast<int64_t>(scratch_.size()); }

 private:
  const std::shared_ptr<const CpuWeights> weights_;
  cpu::Compute compute_;
  std::vector<const Bound<MixtureOfExperts>*> mixtures_;
  AlignedBuffer scratch_;
};

}  // namespace

StatusOr<std::shared_ptr<HostExperts>> NewHostExperts(std::shared_ptr<const CpuWeights> weights,
                                                      const ExecutorOptions& options) {
  try {
    auto experts = std::make_shared<CpuExperts>(std::move(weights), options);
    if (!experts->has_memory()) {
      return ResourceExhausted("no memory for steps of ", options.max_step_tokens,
                               " tokens; use smaller steps");
    }
    return std::shared_ptr<HostExperts>(std::move(experts));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for the experts of an executor");
  } catch (const std::system_error& error) {
    return ResourceExhausted("cannot start ", options.n_threads, " threads: ", error.what());
  }
}

}  // namespace weft::cpu
