// Runs steps on the CPU: see backend.h for the contract.
#ifndef WEFT_BACKEND_CPU_CPU_EXECUTOR_H_
#define WEFT_BACKEND_CPU_CPU_EXECUTOR_H_

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/compute.h"
#include "backend/cpu/cpu_weights.h"
#include "backend/cpu/kv_pages.h"
#include "backend/cpu/step_context.h"
#include "backend/slot_memory.h"

namespace weft::cpu {

class CpuExecutor : public Executor {
 public:
  // REQUIRES: the options are within the backend's capabilities, none left at 0 but
  // the number of threads.
  static StatusOr<std::unique_ptr<Executor>> New(std::shared_ptr<const CpuWeights> weights,
                                                 const ExecutorOptions& options);

  const StateLayout& layout() const override { return layout_; }
  StatusOr<std::unique_ptr<StepRun>> Begin(const Step& step, std::span<float> logits) override;
  int64_t max_beside_tokens() const override { return max_beside_tokens_; }
  int pause_points() const override {
    return static_cast<int>(weights_->model().blocks.size()) - 1;
  }

  Status GrowPages(int group, int64_t n_pages) override { return kv_.Grow(group, n_pages); }
  void DiscardPages(int group, std::span<const PageId> pages) override {
    kv_.Discard(group, pages);
  }
  Status CopyPage(int group, PageId from, PageId to, int n_tokens) override {
    return kv_.Copy(group, from, to, n_tokens);
  }
  Status ReadPage(int group, PageId page, int n_tokens, std::span<std::byte> out) override {
    return kv_.Read(group, page, n_tokens, out);
  }
  Status WritePage(int group, PageId page, std::span<const std::byte> in) override {
    return kv_.Write(group, page, in);
  }

  Status GrowSlots(int64_t n_slots) override { return slots_.Grow(n_slots); }
  Status ClearSlot(SlotId slot) override { return slots_.Clear(slot); }
  Status CopySlot(SlotId from, SlotId to) override { return slots_.Copy(from, to); }
  Status ReadSlot(SlotId slot, std::span<std::byte> out) override { return slots_.Read(slot, out); }
  Status WriteSlot(SlotId slot, std::span<const std::byte> in) override {
    return slots_.Write(slot, in);
  }

  int64_t state_bytes() const override { return kv_.held_bytes() + slots_.held_bytes(); }
  int64_t scratch_bytes() const override { return scratch_bytes_; }

  StageStats stage_stats() const override { return compute_.stats(); }

 private:
  CpuExecutor(std::shared_ptr<const CpuWeights> weights, const ExecutorOptions& options,
              Scratch scratch, Scratch beside);

  const std::shared_ptr<const CpuWeights> weights_;
  const int64_t max_step_tokens_;
  const int64_t max_beside_tokens_;
  StateLayout layout_;
  int64_t scratch_bytes_ = 0;
  KvPages kv_;
  SlotMemory slots_;
  Scratch scratch_, beside_scratch_;
  Compute compute_;
  std::vector<Workspace> workspaces_;
  StepContext context_;
  StepContext beside_;  // of a step while another is paused
};

}  // namespace weft::cpu

#endif  // WEFT_BACKEND_CPU_CPU_EXECUTOR_H_
