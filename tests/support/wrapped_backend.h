// Wrappers of a real backend's parts. Each does the same as the real one; a test overrides what it
// wants to change.
#ifndef WEFT_TESTS_SUPPORT_WRAPPED_BACKEND_H_
#define WEFT_TESTS_SUPPORT_WRAPPED_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "compute/backend.h"
#include "compute/host_experts.h"

namespace weft::testing {

class WrappedRun : public StepRun {
 public:
  // `after` is called with the step's status, and its result is the run's status. `before`, if any,
  // is called whenever the run continues, `between` wherever it can pause.
  WrappedRun(std::unique_ptr<StepRun> inner, std::function<Status(Status)> after,
             std::function<void()> between = {}, std::function<void()> before = {})
      : inner_(std::move(inner)),
        after_(std::move(after)),
        between_(std::move(between)),
        before_(std::move(before)) {}

  StatusOr<bool> Advance(FunctionRef<bool()> pause) override {
    if (before_) before_();
    const StatusOr<bool> done = inner_->Advance([&] {
      if (between_) between_();
      return pause();
    });
    if (done.ok() && !*done) return false;
    WEFT_RETURN_IF_ERROR(after_(done.status()));
    return true;
  }
  Status ReadRow(int64_t row, std::span<float> logits) override {
    return inner_->ReadRow(row, logits);
  }

 private:
  const std::unique_ptr<StepRun> inner_;
  const std::function<Status(Status)> after_;
  const std::function<void()> between_;
  const std::function<void()> before_;
};

class WrappedState : public StateStore {
 public:
  explicit WrappedState(std::unique_ptr<StateStore> inner) : inner_(std::move(inner)) {
    layout_ = inner_->layout();
  }
  StateStore* inner() const { return inner_.get(); }

  int64_t n_pages(int group) const override { return inner_->n_pages(group); }
  Status GrowPages(int group, int64_t n_pages) override {
    return inner_->GrowPages(group, n_pages);
  }
  void DiscardPages(int group, std::span<const PageId> pages) override {
    inner_->DiscardPages(group, pages);
  }
  Status CopyPage(int group, PageId from, PageId to, int n_tokens) override {
    return inner_->CopyPage(group, from, to, n_tokens);
  }
  Status ReadPage(int group, PageId page, int n_tokens, std::span<std::byte> out) const override {
    return inner_->ReadPage(group, page, n_tokens, out);
  }
  Status WritePage(int group, PageId page, std::span<const std::byte> in) override {
    return inner_->WritePage(group, page, in);
  }
  int64_t n_slots() const override { return inner_->n_slots(); }
  Status GrowSlots(int64_t n_slots) override { return inner_->GrowSlots(n_slots); }
  Status ClearSlot(SlotId slot) override { return inner_->ClearSlot(slot); }
  Status CopySlot(SlotId from, SlotId to) override { return inner_->CopySlot(from, to); }
  Status ReadSlot(SlotId slot, std::span<std::byte> out) const override {
    return inner_->ReadSlot(slot, out);
  }
  Status WriteSlot(SlotId slot, std::span<const std::byte> in) override {
    return inner_->WriteSlot(slot, in);
  }
  int64_t held_bytes() const override { return inner_->held_bytes(); }

 private:
  const std::unique_ptr<StateStore> inner_;
};

class WrappedExecutor : public Executor {
 public:
  explicit WrappedExecutor(std::unique_ptr<Executor> inner) : inner_(std::move(inner)) {}

  StatusOr<std::unique_ptr<StepRun>> Begin(const Step& step) override {
    return inner_->Begin(step);
  }
  int64_t max_beside_tokens() const override { return inner_->max_beside_tokens(); }
  int pause_points() const override { return inner_->pause_points(); }
  int64_t scratch_bytes() const override { return inner_->scratch_bytes(); }
  int64_t later_bytes() const override { return inner_->later_bytes(); }
  StageStats stage_stats() const override { return inner_->stage_stats(); }

 private:
  const std::unique_ptr<Executor> inner_;
};

// For tests that change rows of logits, which would invalidate best tokens found before.
inline BackendCapabilities WithoutBest(BackendCapabilities capabilities) {
  capabilities.max_best = 0;
  capabilities.changes_rows = false;
  return capabilities;
}

class WrappedBackend : public Backend {
 public:
  // `inner`, by default the cpu backend, must outlive this object and everything made from it.
  explicit WrappedBackend(const Backend* inner = nullptr)
      : inner_(inner != nullptr ? inner : *FindBackend("cpu")) {}

  std::string_view name() const override { return inner_->name(); }
  const BackendCapabilities& capabilities() const override { return inner_->capabilities(); }
  HeldAs FormOf(DType type, bool is_stack) const override { return inner_->FormOf(type, is_stack); }
  Status Available() const override { return inner_->Available(); }
  int device_count() const override { return inner_->device_count(); }
  StatusOr<MemoryInfo> MemoryOf(int device) const override { return inner_->MemoryOf(device); }
  StatusOr<std::shared_ptr<const Weights>> Load(std::shared_ptr<const ModelFile> file,
                                                ModelSpec spec,
                                                const LoadOptions& options) const override {
    return inner_->Load(std::move(file), std::move(spec), options);
  }
  StatusOr<std::unique_ptr<StateStore>> NewState(const Weights& weights,
                                                 const StateOptions& options) const override {
    return inner_->NewState(weights, options);
  }
  StatusOr<std::unique_ptr<Executor>> NewExecutor(std::shared_ptr<const Weights> weights,
                                                  StateStore* state,
                                                  const ExecutorOptions& options) const override {
    return inner_->NewExecutor(std::move(weights), state, options);
  }

 private:
  const Backend* const inner_;
};

// A real backend's experts; counts calls, and fails the call of number `fail_call` (from 0).
class WatchedExperts : public HostExperts {
 public:
  explicit WatchedExperts(std::shared_ptr<HostExperts> inner) : inner_(std::move(inner)) {}
  Status Compute(int64_t mixture, const RoutedRows& rows, float* out) override {
    if (n_calls++ == fail_call) return Internal("the experts failed");
    return inner_->Compute(mixture, rows, out);
  }
  int64_t scratch_bytes() const override { return inner_->scratch_bytes(); }

  int64_t n_calls = 0, fail_call = -1;

 private:
  const std::shared_ptr<HostExperts> inner_;
};

// A device whose experts are computed by a WatchedExperts.
class WatchedDevice : public WrappedBackend {
 public:
  using WrappedBackend::WrappedBackend;
  StatusOr<std::unique_ptr<Executor>> NewExecutor(std::shared_ptr<const Weights> weights,
                                                  StateStore* state,
                                                  const ExecutorOptions& options) const override {
    ExecutorOptions watched = options;
    if (options.experts != nullptr) {
      watched.experts = experts = std::make_shared<WatchedExperts>(options.experts);
    }
    return WrappedBackend::NewExecutor(std::move(weights), state, watched);
  }
  mutable std::shared_ptr<WatchedExperts> experts;  // the latest executor's
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_WRAPPED_BACKEND_H_
