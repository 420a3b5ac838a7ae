// The seam between the engine and whatever computes.
//
//   Backend   a kind of device; says what it can do; loads weights.
//   Weights   one model's weights, packed for the backend; immutable, shared.
//   Executor  one engine's state memory (pages and slots), scratch and threads;
//             begins steps; a StepRun is one on its way through the model.
//
// Threads: Backend and Weights may be used from any thread. An Executor belongs to
// the one thread that runs the engine; no method of it locks.
//
// The same-bits rule: the logits of a sequence depend on nothing but the weights,
// the sequence's tokens and the executor's KV type. Not on the other sequences of
// a step, on how a prompt is cut into steps, on the number of threads, or on which
// page ids the state lies in. A backend that cannot promise this says so in its
// capabilities.
#ifndef WEFT_BACKEND_BACKEND_H_
#define WEFT_BACKEND_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/function_ref.h"
#include "base/state_ids.h"
#include "base/status.h"
#include "base/tokens.h"
#include "formats/model_file.h"
#include "model/model_spec.h"

namespace weft {

struct BackendCapabilities {
  std::vector<DType> kv_types;       // what an Executor can store keys and values in
  std::vector<int> page_tokens;      // allowed page sizes, the preferred one first
  std::vector<SlotKind> slot_kinds;  // recurrent states it can advance
  int64_t max_step_tokens = 0;       // rows of one Forward
  bool same_bits = false;
};

struct LoadOptions {
  int n_threads = 0;  // for packing; 0: one per core
  // Called now and then with the fraction done; may be empty.
  std::function<void(double fraction)> progress;
};

// A model's weights on a backend. Holds the file's mapping only as far as it
// still reads from it.
class Weights {
 public:
  virtual ~Weights() = default;
  virtual const ModelSpec& spec() const = 0;
  // Bytes held beside the file's mapping.
  virtual int64_t memory_bytes() const = 0;
};

struct ExecutorOptions {
  DType kv_type = DType::kF16;
  int page_tokens = 0;            // 0: the backend's preferred size
  int n_threads = 0;              // 0: one per core
  int64_t max_step_tokens = 512;  // scratch is sized for steps up to this
  // Rows of a step that is computed while another is paused; at most max_step_tokens.
  int64_t max_beside_tokens = 64;
};

// The sizes of an executor's state, for accounting.
struct StateLayout {
  int page_tokens = 0;
  std::vector<int64_t> page_bytes;  // per KvGroup of the spec
  int64_t slot_bytes = 0;           // all SlotStates of one session together
};

// Where the time of an executor's steps went, summed since it was made: wall time of
// its thread, and the bytes that a stage had to read from memory. All zero where the
// backend does not measure.
struct StageStats {
  int64_t steps = 0;
  int64_t rows = 0;
  int64_t total_ns = 0;
  int64_t matmul_ns = 0;
  int64_t attention_ns = 0;  // and recurrent state; the rest is norms, activations and the like
  int64_t weight_bytes = 0;  // weights, once per product
  int64_t kv_bytes = 0;      // keys and values, once per block of queries; recurrent state
};

// One session's part of a step.
struct StepSequence {
  std::span<const TokenId> tokens;  // at least one
  int64_t position = 0;             // absolute position of tokens[0]
  // Per KvGroup, the session's page table: entry i holds the positions
  // [i * page_tokens, (i + 1) * page_tokens). Every page that the tokens are
  // written to or can see must be there; entries wholly behind the group's window
  // may be kNoPage. Pages that are written must belong to this sequence alone.
  std::vector<std::span<const PageId>> page_tables;
  SlotId slot = kNoSlot;  // required when the spec has slots
  // Which of the tokens' logits are wanted: the last `n_logits` of them.
  int64_t n_logits = 0;
};

struct Step {
  std::span<const StepSequence> sequences;  // at least one; no two share a written page
};

// A step on its way through the model. Destroying one that is not done gives it up: the
// state of its sequences is then undefined from their `position` on.
class StepRun {
 public:
  virtual ~StepRun() = default;
  // Computes until the step is done (true: its logits are there) or until `pause`, asked
  // between two parts of the model, says true (false: call again). After an error the state
  // is undefined as above, and the run can only be destroyed.
  virtual StatusOr<bool> Advance(FunctionRef<bool()> pause) = 0;
};

// A run that asks for no pause: `compute` does the whole step.
std::unique_ptr<StepRun> RunInOneGo(std::function<Status()> compute);

// Raised when a change of kernels changes any bit that some model computes: what an earlier
// build has kept on disk of prompts is not mixed with it.
inline constexpr int kBitsVersion = 1;

class Executor {
 public:
  virtual ~Executor() = default;

  virtual const StateLayout& layout() const = 0;

  // Begins a step that advances every sequence by its tokens: stores their state and
  // computes the wanted logits into `logits`, one row of n_vocab floats after the other, in
  // the order of sequences and tokens. REQUIRES: logits has exactly that size. Nothing was
  // touched when this fails.
  //
  // One more step, of up to max_beside_tokens() rows, may be begun and finished while a run
  // is paused, and pages and slots may be grown, copied, read and discarded. Until a run is
  // done or destroyed its sequences' tokens, tables, pages and slots belong to it, and what
  // `step` and `logits` point to must stay where it is. The executor outlives its runs.
  virtual StatusOr<std::unique_ptr<StepRun>> Begin(const Step& step, std::span<float> logits) = 0;
  // The whole step at once.
  Status Forward(const Step& step, std::span<float> logits);

  virtual int64_t max_beside_tokens() const = 0;
  // How often a run asks whether to pause, at about equal distances of work.
  virtual int pause_points() const { return 0; }

  // --- pages: memory by id, grown and given back --------------------------------
  // Makes ids [0, n_pages) of the group usable; what they hold is undefined.
  // RESOURCE_EXHAUSTED when the memory cannot be had; nothing has changed then.
  virtual Status GrowPages(int group, int64_t n_pages) = 0;
  // The contents of these pages are no longer needed; their memory may go back to
  // the system until they are written again.
  virtual void DiscardPages(int group, std::span<const PageId> pages) = 0;
  // Copies the first `n_tokens` positions of a page.
  virtual Status CopyPage(int group, PageId from, PageId to, int n_tokens) = 0;
  // Page contents in and out, for session files: layout().page_bytes bytes in a
  // form that is stable for this backend, KV type and page size. Positions from
  // `n_tokens` on are zero in what is read.
  virtual Status ReadPage(int group, PageId page, int n_tokens, std::span<std::byte> out) = 0;
  virtual Status WritePage(int group, PageId page, std::span<const std::byte> in) = 0;

  // --- slots: the same for recurrent state --------------------------------------
  virtual Status GrowSlots(int64_t n_slots) = 0;
  // Makes it the state before the first token, which holds no memory until a step
  // writes it: also for slots that nobody needs any more.
  virtual Status ClearSlot(SlotId slot) = 0;
  virtual Status CopySlot(SlotId from, SlotId to) = 0;
  virtual Status ReadSlot(SlotId slot, std::span<std::byte> out) = 0;
  virtual Status WriteSlot(SlotId slot, std::span<const std::byte> in) = 0;

  // Bytes of state memory now held from the system, and of scratch.
  virtual int64_t state_bytes() const = 0;
  virtual int64_t scratch_bytes() const = 0;

  virtual StageStats stage_stats() const { return {}; }
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  virtual const BackendCapabilities& capabilities() const = 0;

  // Binds and packs the weights once. Refuses a spec it cannot execute, naming
  // what is missing.
  virtual StatusOr<std::shared_ptr<const Weights>> Load(std::shared_ptr<const ModelFile> file,
                                                        ModelSpec spec,
                                                        const LoadOptions& options) const = 0;

  // REQUIRES: `weights` was loaded by this backend.
  virtual StatusOr<std::unique_ptr<Executor>> NewExecutor(std::shared_ptr<const Weights> weights,
                                                          const ExecutorOptions& options) const = 0;
};

// The backend of that name ("cpu", "reference"), or an error that lists those
// compiled in. The object lives forever.
StatusOr<const Backend*> FindBackend(std::string_view name);
std::vector<std::string_view> BackendNames();

// What every backend checks of a step before it touches anything: sizes, page
// tables long enough, ids inside the pools, tokens inside the vocabulary, no page
// written by two sequences. `n_pages[group]` and `n_slots` are the pool sizes.
Status ValidateStep(const ModelSpec& spec, const StateLayout& layout,
                    std::span<const int64_t> n_pages, int64_t n_slots, int64_t max_step_tokens,
                    const Step& step, size_t n_logit_values);

}  // namespace weft

#endif  // WEFT_BACKEND_BACKEND_H_
