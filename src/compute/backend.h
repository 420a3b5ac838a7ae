// The interface between the engine and the code that computes.
//
//   Backend     a kind of device; says whether it is available and what it can do; loads weights.
//   Weights     one model's weights, packed for one device; immutable, shared.
//   StateStore  the memory of one engine's pages and slots on that device (state_store.h).
//   Executor    scratch memory and threads; begins steps over a StateStore. A StepRun is a step in
//               progress.
//
// Threads: Backend and Weights may be used from any thread. A StateStore, its Executor and their
// runs belong to the one thread that runs the engine; none of their methods locks.
//
// The same-bits rule: a sequence's logits depend only on the weights, the sequence's tokens and
// input embeddings, and the store's KV type. They do not depend on the other sequences of a step,
// on how a prompt is cut into steps, on the number of threads, or on page ids. A backend that
// cannot promise this says so in its capabilities.
#ifndef WEFT_COMPUTE_BACKEND_H_
#define WEFT_COMPUTE_BACKEND_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/adapter_use.h"
#include "base/best_tokens.h"
#include "base/dtype.h"
#include "base/function_ref.h"
#include "base/state_ids.h"
#include "base/status.h"
#include "base/tokens.h"
#include "compute/state_store.h"
#include "model/adapter_spec.h"
#include "model/formats/model_file.h"
#include "model/model_spec.h"

namespace weft {

struct BackendCapabilities {
  std::vector<KvTypes> kv_types;     // types that keys and values can be stored in
  std::vector<int> page_tokens;      // allowed page sizes, the preferred one first
  std::vector<SlotKind> slot_kinds;  // recurrent states it can advance
  int64_t max_step_tokens = 0;       // rows of one step
  int64_t max_best = 0;              // max StepSequence::n_best; 0: none
  bool changes_rows = false;         // StepSequence::changes, temperature, and StepRun::ReadRow
  bool rows = false;                 // StepSequence::rows
  // ModelSpec::row_input, StepSequence::axes, and input embeddings of several parts.
  bool row_input = false;
  bool mutual = false;            // StepSequence::mutual
  bool prediction_heads = false;  // StepSequence::hidden, and hidden values as vectors
  bool same_bits = false;
  bool host_experts = false;  // ExecutorOptions::experts
  bool adapters = false;      // LoadOptions::adapters, StepSequence::adapters
};

// A device's memory at the moment.
struct MemoryInfo {
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;  // that this program can take without harm to others
  // Free bytes to leave to other programs and the driver, if the device has its own memory. 0: it
  // uses the host's memory, and half of the free bytes are left.
  int64_t reserve_bytes = 0;

  int64_t usable_bytes() const {
    return reserve_bytes > 0 ? std::max<int64_t>(0, free_bytes - reserve_bytes) : free_bytes / 2;
  }
};

// A device's peak rates.
struct DeviceLimits {
  double read_bytes_per_s = 0;  // of the device's memory
  double int8_macs_per_s = 0;
};

class Weights;

// Where a backend that packs weights on the host keeps them for later starts.
struct PackedCopyOptions {
  std::string dir = {};   // empty: no copies are kept
  int64_t max_bytes = 0;  // total of all copies in `dir`
  // Nobody asked for them: small models get none, and a folder that cannot be is no error.
  bool is_default = false;
};

struct LoadOptions {
  int device = 0;     // below Backend::device_count()
  int n_threads = 0;  // for packing; 0: one per core
  // Weights of the same backend and device. Tensors that both use are shared, unless the weights
  // are of another file.
  std::shared_ptr<const Weights> beside = {};
  bool beside_is_same_file = true;
  PackedCopyOptions packed_copies = {};
  // Adapters that steps may use, by their number. Those of `beside` are not shared.
  std::vector<Adapter> adapters = {};
  // Called from time to time with the fraction done; may be empty.
  std::function<void(double fraction)> progress;
};

// A model's weights on a backend. Keeps the file mapped only as long as it still reads from it.
class Weights {
 public:
  virtual ~Weights() = default;
  virtual const ModelSpec& spec() const = 0;
  // The device of the weights, and so of all state and executors made for them.
  virtual int device() const = 0;
  // Bytes held in addition to the file's mapping.
  virtual int64_t memory_bytes() const = 0;
  // The part of these bytes that is a mapped file: the system counts it as free, but steps need it.
  virtual int64_t mapped_bytes() const { return 0; }
  // How much of the load's time went into writing a packed copy for later starts.
  virtual int64_t copy_write_us() const { return 0; }
  // DATA_LOSS once another file that the weights are read from (not the model's own) has changed.
  virtual Status CheckUnchanged() const { return OkStatus(); }
};

class Executor;
class HostExperts;

struct ExecutorOptions {
  int n_threads = 0;              // 0: one per core
  int64_t max_step_tokens = 512;  // scratch is sized for steps up to this
  // Max rows of a step that runs while another one is paused; at most max_step_tokens.
  int64_t max_beside_tokens = 64;
  // Another executor whose threads this one shares. Both belong to one thread and never compute at
  // the same time; either may be destroyed first.
  const Executor* shares_threads_with = nullptr;
  // Computes the mixtures whose experts the weights' spec lacks (host_experts.h). REQUIRES: set if
  // the spec has such mixtures; the backend has host_experts.
  std::shared_ptr<HostExperts> experts = {};
};

// Where an executor's steps spent their time, summed since it was created: wall time of its thread,
// and bytes that a stage had to read from memory. All zero if the backend does not measure.
struct StageStats {
  int64_t steps = 0;
  int64_t rows = 0;
  int64_t total_ns = 0;
  int64_t matmul_ns = 0;
  int64_t attention_ns = 0;  // and recurrent state; the rest is norms, activations and the like
  int64_t weight_bytes = 0;  // weights, once per product
  int64_t kv_bytes = 0;      // KV cache, once per block of queries; recurrent state
  // Multiply-adds: with quantized weights (8-bit products), with other weights, and of attention in
  // floats and in 8-bit products.
  int64_t int8_macs = 0, float_macs = 0, attention_macs = 0, attention_int8_macs = 0;
};

// Changes to a row of logits before its best tokens are found.
struct RowChanges {
  std::span<const LogitChange> logits = {};  // each token once
  // Token mask, applied last: tokens whose bit, id % 32 of word id / 32, is not set become minus
  // infinity. Empty: no mask.
  std::span<const uint32_t> allowed = {};
};

// Positions of a row that a rope with axes rotates by (Rope::axes): for example time, row and
// column of a picture's patch.
inline constexpr int kRopeAxes = 3;
using AxisPositions = std::array<int32_t, kRopeAxes>;

// One session's part of a step.
struct StepSequence {
  // At least one. A token for which IsRow is true stands for the next of `rows`.
  std::span<const TokenId> tokens;
  // Input embeddings: d_model values each, in the form of the embedding table, before the model
  // scales them or adds positions, types and norms. So a row of the table gives the same bits as
  // its token. With ModelSpec::row_input, or with what blocks add (Block::row_part),
  // RowWidth(spec) values.
  std::vector<std::span<const float>> rows;
  // For ropes with axes: each token's positions. Empty: its position in the sequence, on all axes.
  std::span<const AxisPositions> axes = {};
  // Runs whose tokens attend to each other, also to later ones: the rows of a picture, in models
  // that see one as a whole. Ascending and apart. A run ends in the step. It may begin in an
  // earlier one whose tokens saw its end, so that this step goes on with them: see
  // History::MutualIn.
  std::span<const TokenRun> mutual = {};
  // With ModelSpec::hidden_input: HiddenWidth(spec) values for each token, row after row. Otherwise
  // empty.
  std::span<const float> hidden = {};
  // The adapters of the weights that its rows are computed with, ascending and each once. Their
  // changes are added in this order. Input embeddings are taken as they are.
  std::span<const AdapterUse> adapters = {};
  int64_t position = 0;  // absolute position of tokens[0]
  // Per KvGroup, the session's page table: entry i holds the positions [i * page_tokens, (i + 1) *
  // page_tokens). Every page that the tokens are written to or can see must be present; entries
  // entirely before the group's window may be kNoPage. Pages that are written must belong to this
  // sequence alone.
  std::vector<std::span<const PageId>> page_tables;
  SlotId slot = kNoSlot;  // required when the spec has slots
  // How many rows of logits are wanted: those of the last `n_logits` tokens.
  int64_t n_logits = 0;
  // If not 0, only this many best tokens of each of these rows are returned. Greedy and top-k
  // sampling need no more, so a device need not send the whole vocabulary to the host.
  int64_t n_best = 0;
  // With n_best: empty, or the changes to each of these rows.
  std::span<const RowChanges> changes = {};
  // With n_best, if not 0: also returns each row's total weight at this temperature, to sample from
  // all tokens.
  float temperature = 0;
  // How many rows of vectors are wanted: the stream after the output norm, or before it, for
  // prediction heads that take that.
  int64_t n_vectors = 0;
  bool vectors_before_norm = false;

  // How many of the last rows have any result.
  int64_t n_wanted() const { return n_logits > n_vectors ? n_logits : n_vectors; }
};

// A step and the destination of its results. Each kind of result has its own span, filled in the
// order of sequences and rows; each sequence says which kinds it wants. To add a kind, add a member
// to StepSequence, a span here, a check to ValidateStep and, if not every backend has it, a
// capability.
struct Step {
  std::span<const StepSequence> sequences;  // at least one; no two share a written page
  std::span<float> logits = {};             // n_vocab floats for each row without n_best
  // n_best tokens for each row with n_best, in the order of FindBest. If a row is not sound, or has
  // fewer tokens above minus infinity, the first missing entry has a logit of NaN, and the entries
  // after it are undefined. If a sound row's changes left no token above minus infinity, its first
  // entry is minus infinity.
  std::span<TokenLogit> best = {};
  // For each row with a temperature: TotalWeight(row, its best token's logit, temperature).
  std::span<double> weights = {};
  std::span<float> vectors = {};  // d_model floats for each wanted row
};

// A step in progress. The backend chooses where and when it computes:
//
//   The CPU computes in Advance, with the caller as one of its threads, and pauses between two
//   blocks. A device may have begun when Begin returns: Advance enqueues more of the step or waits
//   for it. Enqueued work may run between two calls, so the device computes while the engine
//   samples another step's rows or runs a second step.
//
// The engine takes the time spent in Advance as the cost of a step, and plans the next steps by it.
// A device that runs far ahead of Advance makes a step look cheap; a few blocks ahead are enough.
//
// Destroying a run that is not done cancels it: no work on it is running when the destructor
// returns, and the state of its sequences is undefined from their `position` on.
class StepRun {
 public:
  virtual ~StepRun() = default;
  // Computes, or waits, until the step is done and its results are written (true), or until `pause`
  // returns true (false: call again). `pause` is called between two parts of the model, and every
  // few milliseconds during a wait; it must be cheap and take no lock. After an error, which may be
  // that of a part enqueued earlier, the state is undefined as above, and the run can only be
  // destroyed.
  virtual StatusOr<bool> Advance(FunctionRef<bool()> pause) = 0;
  // The whole row, after its changes, of a row with n_best whose best tokens were not enough. `row`
  // counts all rows with wanted logits. REQUIRES: the run is done, the backend has changes_rows,
  // and `logits` has n_vocab values.
  virtual Status ReadRow(int64_t row, std::span<float> logits);
};

// A run that never pauses: `compute` does the whole step.
std::unique_ptr<StepRun> RunInOneGo(std::function<Status()> compute);

class Executor {
 public:
  virtual ~Executor() = default;

  // Begins a step that advances every sequence by its tokens: stores their state and computes the
  // wanted results. If this fails, nothing has changed.
  //
  // While a run is open, one more step of up to max_beside_tokens() rows may be begun and finished,
  // and the store may be used as state_store.h says. Until a run is done or destroyed, its
  // sequences' tokens, tables and slots belong to it, and the data that `step` points to must not
  // move. The executor outlives its runs.
  virtual StatusOr<std::unique_ptr<StepRun>> Begin(const Step& step) = 0;
  // Runs the whole step at once.
  Status Forward(const Step& step);

  virtual int64_t max_beside_tokens() const = 0;
  // How often a run calls `pause`, at roughly equal intervals of work.
  virtual int pause_points() const { return 0; }
  virtual int64_t scratch_bytes() const = 0;
  // Device memory that steps may take later, in addition to scratch: captured launches.
  virtual int64_t later_bytes() const { return 0; }
  virtual StageStats stage_stats() const { return {}; }
};

// How a backend stores matrices of a type.
struct HeldAs {
  std::string form;  // a description
  double bits_per_weight = 0;
  int64_t row_multiple = 1;  // rows are padded to a multiple of so many weights
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  virtual const BackendCapabilities& capabilities() const = 0;
  // The form of matrices, or of stacks of them (experts, heads). By default, the file's form.
  // REQUIRES: CanDequantize(type).
  virtual HeldAs FormOf(DType type, bool is_stack) const;

  // Returns OK if this machine has what the backend needs; otherwise the status says what is
  // missing. The methods below may be called only if it is OK.
  virtual Status Available() const = 0;
  // Number of devices, at least one; they are numbered from 0.
  virtual int device_count() const = 0;
  // The device's name, for people. REQUIRES: 0 <= device < device_count().
  virtual std::string NameOfDevice(int device) const;
  // The vendor's figures. None if the host's CPU computes; its limits can be measured. REQUIRES: 0
  // <= device < device_count().
  virtual std::optional<DeviceLimits> LimitsOf(int device) const;
  // INVALID_ARGUMENT if there is no such device.
  virtual StatusOr<MemoryInfo> MemoryOf(int device) const = 0;

  // Binds and packs the weights once. Fails if it cannot execute the spec, naming the missing
  // operation, or if the device does not exist.
  virtual StatusOr<std::shared_ptr<const Weights>> Load(std::shared_ptr<const ModelFile> file,
                                                        ModelSpec spec,
                                                        const LoadOptions& options) const = 0;

  // State on the weights' device. REQUIRES: `weights` was loaded by this backend. The store
  // allocates memory only as it grows.
  virtual StatusOr<std::unique_ptr<StateStore>> NewState(const Weights& weights,
                                                         const StateOptions& options) const = 0;
  // REQUIRES: `state` was made by this backend for these weights, has no other executor, and
  // outlives this one. Executors of heads that read its model's state (model/head_spec.h) may share
  // it, as long as one computes at a time.
  virtual StatusOr<std::unique_ptr<Executor>> NewExecutor(std::shared_ptr<const Weights> weights,
                                                          StateStore* state,
                                                          const ExecutorOptions& options) const = 0;
  // Computes experts for another backend's executor, as ExecutorOptions::experts. REQUIRES:
  // `weights` was loaded by this backend, from a spec in which every path is a mixture.
  // UNIMPLEMENTED by default.
  virtual StatusOr<std::shared_ptr<HostExperts>> NewHostExperts(
      std::shared_ptr<const Weights> weights, const ExecutorOptions& options) const;
};

// The backend of that name ("cpu", "cuda", "mlx"), or an error that lists the compiled-in names.
// The object lives forever.
StatusOr<const Backend*> FindBackend(std::string_view name);
std::vector<std::string_view> BackendNames();
// Names of backends that this build lacks because a dependency was not found; FindBackend's error
// for each says which.
std::vector<std::string_view> BackendNamesNotCompiledIn();

}  // namespace weft

#endif  // WEFT_COMPUTE_BACKEND_H_
