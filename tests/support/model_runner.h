// Runs token lists through a backend's Executor, for tests: assigns pages (in order, or scattered
// by a seed) and slots to sequences, builds the steps, keeps the logits. An engine without
// policies.
#ifndef WEFT_TESTS_SUPPORT_MODEL_RUNNER_H_
#define WEFT_TESTS_SUPPORT_MODEL_RUNNER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compute/backend.h"

namespace weft::testing {

// A model file loaded on a backend.
struct LoadedModel {
  const Backend* backend = nullptr;
  std::shared_ptr<const Weights> weights;
};
// The backends that are available on this machine.
std::vector<std::string_view> UsableBackends();
StatusOr<LoadedModel> LoadModel(std::string_view backend, const std::string& path,
                                int64_t context_tokens, std::vector<Adapter> adapters = {});

struct RunnerOptions {
  StateOptions state{.kv_type = DType::kF32};
  ExecutorOptions executor{.n_threads = 1, .max_step_tokens = 512};
  // 0: pages and slots are assigned in the order of their ids; otherwise in a random order, and
  // slots hold garbage first.
  uint64_t page_seed = 0;
  // Whether pages before a group's window are discarded and reused.
  bool drop_behind_window = false;
  int64_t pool_pages = 1024;  // per group
  int64_t pool_slots = 16;
};

class ModelRunner {
 public:
  static StatusOr<std::unique_ptr<ModelRunner>> New(const LoadedModel& model,
                                                    const RunnerOptions& options);

  // Adds an empty sequence; returns its number.
  int Add();
  // Adds a sequence with the same tokens. Pages are copied; with `share`, full pages are shared,
  // which requires a runner that discards no pages.
  StatusOr<int> Fork(int sequence, bool share = false);

  // The tokens that one step appends to a sequence. The logits of the last `n_logits` of them are
  // wanted, by default of all.
  struct Part {
    int sequence;
    std::span<const TokenId> tokens;
    int64_t n_logits = static_cast<int64_t>(tokens.size());
    int64_t n_best = 0;                             // this many best tokens instead of whole rows
    std::vector<std::span<const float>> rows = {};  // as StepSequence::rows
    // As StepSequence::axes and mutual.
    std::span<const AxisPositions> axes = {};
    std::span<const TokenRun> mutual = {};
    std::span<const AdapterUse> adapters = {};
  };
  // Runs one step. Returns logits, row after row in the order of parts and tokens. With `between`,
  // the step pauses wherever it can and calls it, for example to run a step of other sequences.
  StatusOr<std::vector<float>> Step(std::span<const Part> parts,
                                    const std::function<void()>& between = {});
  // The same, with the wanted best tokens.
  struct Results {
    std::vector<float> logits;
    std::vector<TokenLogit> best;
  };
  StatusOr<Results> StepFor(std::span<const Part> parts, const std::function<void()>& between = {});

  // Feeds all tokens to the sequence, `chunks[i]` at a time, repeating the last size; an empty list
  // means one step. Returns all tokens' logits.
  StatusOr<std::vector<float>> Feed(int sequence, std::span<const TokenId> tokens,
                                    std::span<const int64_t> chunks = {});

  // Exports every page (and the slot) of the sequence, and imports them into a new sequence of
  // `other`, whose store must have the same layout.
  StatusOr<int> MoveTo(int sequence, ModelRunner* other);

  SlotId SlotOf(int sequence) const { return sequences_[sequence].slot; }
  StateStore& state() { return *state_; }
  Executor& executor() { return *executor_; }
  const ModelSpec& spec() const { return model_.weights->spec(); }

 private:
  struct Sequence {
    int64_t position = 0;
    std::vector<std::vector<PageId>> tables;  // per group
    SlotId slot = kNoSlot;
  };

  ModelRunner(LoadedModel model, const RunnerOptions& options)
      : model_(std::move(model)), options_(options) {}
  Status FillPools();
  Status Extend(Sequence* sequence, int64_t n_tokens);
  void DropBehindWindow(Sequence* sequence);
  // Number of the sequence's tokens in entry `i` of a page table.
  int TokensInPage(const Sequence& sequence, size_t i) const;

  const LoadedModel model_;
  const RunnerOptions options_;
  std::unique_ptr<StateStore> state_;
  std::unique_ptr<Executor> executor_;
  std::vector<std::vector<PageId>> free_pages_;  // per group; the next one is last
  std::vector<SlotId> free_slots_;               // the next one is last
  std::vector<Sequence> sequences_;
};

// A whole run in one call: one sequence, all logits.
StatusOr<std::vector<float>> RunTokens(const LoadedModel& model, std::span<const TokenId> tokens,
                                       std::span<const int64_t> chunks = {},
                                       const RunnerOptions& options = {});

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_MODEL_RUNNER_H_
