// The seam between the engine and whatever computes.
//
//   Backend     a kind of device; says whether it can be used and what it can do; loads weights.
//   Weights     one model's weights, packed for one device; immutable, shared.
//   StateStore  the memory of one engine's pages and slots on that device (state_store.h).
//   Executor    scratch and threads; begins steps over a StateStore. A StepRun is a step on its
//               way through the model.
//
// Threads: Backend and Weights may be used from any thread. A StateStore, its Executor and
// their runs belong to the one thread that runs the engine; no method of them locks.
//
// The same-bits rule: the logits of a sequence depend on nothing but the weights,
// the sequence's tokens and rows and the store's KV type. Not on the other sequences of
// a step, on how a prompt is cut into steps, on the number of threads, or on which
// page ids the state lies in. A backend that cannot promise this says so in its
// capabilities.
#ifndef WEFT_BACKEND_BACKEND_H_
#define WEFT_BACKEND_BACKEND_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/state_store.h"
#include "base/best_tokens.h"
#include "base/dtype.h"
#include "base/function_ref.h"
#include "base/state_ids.h"
#include "base/status.h"
#include "base/tokens.h"
#include "formats/model_file.h"
#include "model/model_spec.h"

namespace weft {

struct BackendCapabilities {
  std::vector<DType> kv_types;       // what keys and values can be stored in
  std::vector<int> page_tokens;      // allowed page sizes, the preferred one first
  std::vector<SlotKind> slot_kinds;  // recurrent states it can advance
  int64_t max_step_tokens = 0;       // rows of one step
  int64_t max_best = 0;              // the most that StepSequence::n_best may be; 0: none
  bool changes_rows = false;         // StepSequence::changes, temperature, and StepRun::ReadRow
  bool rows = false;                 // StepSequence::rows
  bool prediction_heads = false;     // StepSequence::hidden, and hidden values as vectors
  bool same_bits = false;
  bool host_experts = false;  // ExecutorOptions::experts
};

// A device's memory, as it is now.
struct MemoryInfo {
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;  // what the program may still take without anybody suffering
  // Free bytes that stay with other programs and the driver, if the device has its own memory. 0:
  // it uses the host's memory, and half of the free bytes stay.
  int64_t reserve_bytes = 0;

  int64_t usable_bytes() const {
    return reserve_bytes > 0 ? std::max<int64_t>(0, free_bytes - reserve_bytes) : free_bytes / 2;
  }
};

// The most that a device does in a second.
struct DeviceLimits {
  double read_bytes_per_s = 0;  // of its memory
  double int8_macs_per_s = 0;
};

class Weights;

// Where packed weights are kept for later starts, by a backend that packs them on the host.
struct PackedCopyOptions {
  std::string dir = {};   // empty: nowhere
  int64_t max_bytes = 0;  // of all copies in it
};

struct LoadOptions {
  int device = 0;     // below Backend::device_count()
  int n_threads = 0;  // for packing; 0: one per core
  // Weights of the same backend, device and file: what both name need not be there twice.
  std::shared_ptr<const Weights> beside = {};
  PackedCopyOptions packed_copies = {};
  // Called now and then with the fraction done; may be empty.
  std::function<void(double fraction)> progress;
};

// A model's weights on a backend. Holds the file's mapping only as far as it
// still reads from it.
class Weights {
 public:
  virtual ~Weights() = default;
  virtual const ModelSpec& spec() const = 0;
  // Where they lie, and so everything that is made of them.
  virtual int device() const = 0;
  // Bytes held beside the file's mapping.
  virtual int64_t memory_bytes() const = 0;
  // How many of them are a mapped file's, which the system counts as free though steps need them.
  virtual int64_t mapped_bytes() const { return 0; }
  // DATA_LOSS once a file that they read from, beside the model's own, has changed.
  virtual Status CheckUnchanged() const { return OkStatus(); }
};

class Executor;
class HostExperts;

struct ExecutorOptions {
  int n_threads = 0;              // 0: one per core
  int64_t max_step_tokens = 512;  // scratch is sized for steps up to this
  // Rows of a step that is computed while another is paused; at most max_step_tokens.
  int64_t max_beside_tokens = 64;
  // Another executor whose threads this one uses too. Both belong to one thread and never compute
  // at the same time; either may be destroyed first.
  const Executor* shares_threads_with = nullptr;
  // Computes the mixtures whose experts the weights' spec lacks (host_experts.h). REQUIRES: there
  // is one if there are such mixtures, and the backend has host_experts.
  std::shared_ptr<HostExperts> experts = {};
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
  // Multiply-adds: by quantized weights (of 8-bit values), by other weights, and of attention
  // in floats and in 8-bit values.
  int64_t int8_macs = 0, float_macs = 0, attention_macs = 0, attention_int8_macs = 0;
};

// What happens to a row of logits before its best tokens are looked for.
struct RowChanges {
  std::span<const LogitChange> logits = {};  // each token once
  // Then all but those tokens become minus infinity whose bit, id % 32 of word id / 32, is set;
  // empty: none.
  std::span<const uint32_t> allowed = {};
};

// One session's part of a step.
struct StepSequence {
  // At least one. An id with IsRow stands for the next of `rows`.
  std::span<const TokenId> tokens;
  // Vectors in place of tokens: d_model values each, as the embedding's table has them for a token.
  // What the model does to those (its scale, what positions, types and norms add) is still to be
  // done. So the table's values give the same bits as the token.
  std::vector<std::span<const float>> rows;
  // With ModelSpec::hidden_input: d_model values for each token, one row after the other. Empty
  // otherwise.
  std::span<const float> hidden = {};
  int64_t position = 0;  // absolute position of tokens[0]
  // Per KvGroup, the session's page table: entry i holds the positions
  // [i * page_tokens, (i + 1) * page_tokens). Every page that the tokens are
  // written to or can see must be there; entries wholly behind the group's window
  // may be kNoPage. Pages that are written must belong to this sequence alone.
  std::vector<std::span<const PageId>> page_tables;
  SlotId slot = kNoSlot;  // required when the spec has slots
  // Which of the tokens' logits are wanted: the last `n_logits` of them.
  int64_t n_logits = 0;
  // If not 0, only the best tokens of each such row are, so many: what a greedy or a top-k draw
  // chooses from, so that a device need not send a vocabulary to the host.
  int64_t n_best = 0;
  // Then either empty, or what happens to each such row before.
  std::span<const RowChanges> changes = {};
  // And if not 0, each such row's weight at this temperature, to draw from all tokens.
  float temperature = 0;
  // And whose vectors: what is behind the output norm; or before it, for prediction heads that
  // take that.
  int64_t n_vectors = 0;
  bool vectors_before_norm = false;

  // The last rows of which anything is wanted.
  int64_t n_wanted() const { return n_logits > n_vectors ? n_logits : n_vectors; }
};

// A step, and where its results go. Each kind of result has a span of its own, which the step
// fills in the order of sequences and rows, and a sequence says which it wants. Another kind is a
// member of StepSequence, a span here, a check in ValidateStep and, where not every backend has it,
// a capability.
struct Step {
  std::span<const StepSequence> sequences;  // at least one; no two share a written page
  std::span<float> logits = {};             // n_vocab floats for each row without n_best
  // For each row with n_best so many tokens, as FindBest orders them. Where a row is not sound, or
  // has fewer tokens above minus infinity, the first that there is not has a logit of NaN, and
  // what follows is undefined. A sound row in which changes left nothing above minus infinity has
  // a first one of minus infinity.
  std::span<TokenLogit> best = {};
  // For each row with a temperature TotalWeight(row, its best token's logit, temperature).
  std::span<double> weights = {};
  std::span<float> vectors = {};  // d_model floats for each wanted row
};

// A step on its way through the model. Where and when it is computed is the backend's choice:
//
//   The CPU computes in Advance, with the caller as one of its threads, and pauses between two
//   blocks. A device may have begun when Begin returns: Advance hands it more of the step or
//   waits for it. What it was handed may go on between two calls, so it works while the engine
//   samples another step's rows or has a step computed beside.
//
// The engine takes the time spent in Advance as the cost of a step, by which it plans the next
// ones: a device that is far ahead of Advance makes a step look cheap. A few blocks are enough.
//
// Destroying a run that is not done gives it up: whatever computes it has stopped when the
// destructor returns, and the state of its sequences is undefined from their `position` on.
class StepRun {
 public:
  virtual ~StepRun() = default;
  // Computes, or waits, until the step is done (true: its results are there) or until `pause`
  // says true (false: call again). `pause` is asked between two parts of the model, and every
  // few milliseconds while this waits; it takes no lock and no time. After an error, which may
  // be that of a part begun earlier, the state is undefined as above, and the run can only be
  // destroyed.
  virtual StatusOr<bool> Advance(FunctionRef<bool()> pause) = 0;
  // The whole of a row with n_best, changed, where the best tokens were not enough; `row` counts
  // all rows whose logits were wanted. REQUIRES: the run is done, the backend has changes_rows, and
  // `logits` has n_vocab values.
  virtual Status ReadRow(int64_t row, std::span<float> logits);
};

// A run that asks for no pause: `compute` does the whole step.
std::unique_ptr<StepRun> RunInOneGo(std::function<Status()> compute);

class Executor {
 public:
  virtual ~Executor() = default;

  // Begins a step that advances every sequence by its tokens: stores their state and computes
  // what they want. Nothing was touched when this fails.
  //
  // One more step, of up to max_beside_tokens() rows, may be begun and finished while a run is
  // open, and the store may be used as state_store.h says. Until a run is done or destroyed its
  // sequences' tokens, tables and slots belong to it, and what `step` points to must stay where
  // it is. The executor outlives its runs.
  virtual StatusOr<std::unique_ptr<StepRun>> Begin(const Step& step) = 0;
  // The whole step at once.
  Status Forward(const Step& step);

  virtual int64_t max_beside_tokens() const = 0;
  // How often a run asks whether to pause, at about equal distances of work.
  virtual int pause_points() const { return 0; }
  virtual int64_t scratch_bytes() const = 0;
  // What steps may take of the device's memory beside that, in time: captured launches.
  virtual int64_t later_bytes() const { return 0; }
  virtual StageStats stage_stats() const { return {}; }
};

// How a backend holds the matrices of a type: in words, and what a weight takes.
struct HeldAs {
  std::string form;
  double bits_per_weight = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  virtual const BackendCapabilities& capabilities() const = 0;
  // Of matrices, or of stacks of them: experts, or heads. By default as the file has them.
  // REQUIRES: CanDequantize(type).
  virtual HeldAs FormOf(DType type, bool is_stack) const;

  // Whether this machine has what it needs; if not, the status says what is missing. Everything
  // below may be called only if it has.
  virtual Status Available() const = 0;
  // Devices are numbered from 0; at least one.
  virtual int device_count() const = 0;
  // What it is, for people. REQUIRES: 0 <= device < device_count().
  virtual std::string NameOfDevice(int device) const;
  // What its maker says. Nothing where the host's processor computes, which can be measured.
  // REQUIRES: 0 <= device < device_count().
  virtual std::optional<DeviceLimits> LimitsOf(int device) const;
  // INVALID_ARGUMENT if there is no such device.
  virtual StatusOr<MemoryInfo> MemoryOf(int device) const = 0;

  // Binds and packs the weights once. Refuses a spec it cannot execute, naming
  // what is missing, and a device that there is not.
  virtual StatusOr<std::shared_ptr<const Weights>> Load(std::shared_ptr<const ModelFile> file,
                                                        ModelSpec spec,
                                                        const LoadOptions& options) const = 0;

  // Both on the weights' device. REQUIRES: `weights` was loaded by this backend. The store takes
  // memory only as it grows.
  virtual StatusOr<std::unique_ptr<StateStore>> NewState(const Weights& weights,
                                                         const StateOptions& options) const = 0;
  // REQUIRES: `state` was made by this backend for these weights, has no other executor, and
  // outlives this one.
  virtual StatusOr<std::unique_ptr<Executor>> NewExecutor(std::shared_ptr<const Weights> weights,
                                                          StateStore* state,
                                                          const ExecutorOptions& options) const = 0;
  // The experts of another backend's executor, for its options. REQUIRES: `weights` was loaded by
  // this backend, of a spec in which every path is a mixture. UNIMPLEMENTED unless it says more.
  virtual StatusOr<std::shared_ptr<HostExperts>> NewHostExperts(
      std::shared_ptr<const Weights> weights, const ExecutorOptions& options) const;
};

// The backend of that name ("cpu", "cuda", "mlx"), or an error that lists those
// compiled in. The object lives forever.
StatusOr<const Backend*> FindBackend(std::string_view name);
std::vector<std::string_view> BackendNames();
// The names that a program can have which was built where more was found, and what FindBackend
// says of each.
std::vector<std::string_view> BackendNamesNotCompiledIn();

}  // namespace weft

#endif  // WEFT_BACKEND_BACKEND_H_
