// Turns a model's blocks into kernel launches.
//
// A Builder writes the launches of a step of a given size into parts, one graph each: the inputs
// before the first block, then one part per block. A part may also end within a block, where the
// host computes a mixture's experts. Arguments point into the step's buffer, the state's pools and
// scratch memory. None of these move, so the next step of that size only replays the graphs.
//
// Owner thread only; a Builder lives only while it builds.
#ifndef WEFT_COMPUTE_GPU_BUILDER_H_
#define WEFT_COMPUTE_GPU_BUILDER_H_

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "compute/device/runtime.h"
#include "compute/gpu/best_finder.h"
#include "compute/gpu/gpu_state.h"
#include "compute/gpu/gpu_weights.h"
#include "compute/gpu/mixture_exchange.h"
#include "compute/gpu/step_buffer.h"
#include "compute/kernels_gpu/attention.h"
#include "compute/kernels_gpu/experts.h"

namespace weft::gpu {

using device::Rows;

// Scratch memory for one step's rows, reused from the beginning for each block.
class Arena {
 public:
  // Null `begin`: hands out invalid addresses, to measure how much memory is needed.
  explicit Arena(std::byte* begin)
      : begin_(begin != nullptr ? reinterpret_cast<uintptr_t>(begin) : 256) {}
  template <typename T>
  T* Take(int64_t n) {
    const uintptr_t at = begin_ + static_cast<uintptr_t>(used_);
    used_ += (n * static_cast<int64_t>(sizeof(T)) + 255) / 256 * 256;
    max_ = std::max(max_, used_);
    return reinterpret_cast<T*>(at);
  }
  // Rows of quantized activations.
  device::Int8View TakeBytes(int64_t n_rows, int64_t width) {
    const int n_blocks = device::CeilDiv(width, device::kBlockInputs);
    int8_t* const q = Take<int8_t>(n_rows * width);
    return {q, Take<uint32_t>(n_rows * device::MetaWords(n_blocks))};
  }
  int64_t used() const { return used_; }
  void BackTo(int64_t used) { used_ = used; }
  int64_t most() const { return max_; }

 private:
  const uintptr_t begin_;
  int64_t used_ = 0, max_ = 0;
};

// The size a program is built for: the max of each quantity.
struct ProgramSize {
  int64_t rows = 0;
  int64_t sequences = 0;
  int64_t row_items = 0;   // attention items (attend_list.h) of single rows
  int64_t tile_items = 0;  // attention items of several rows
  // Rows of logits, and the candidates wanted. Set only for steps of up to kMaxWholeRows rows.
  int64_t logits = 0;
  Asked asked;
  auto operator<=>(const ProgramSize&) const = default;  // NOLINT(modernize-use-nullptr)
};

// Device memory that a step uses in addition to its buffer and its scratch memory.
struct StepMemory {
  // Builder::n_arrivals() counters: how many blocks of a product have finished. The last block
  // resets its counter, so all are zero again after each step.
  int32_t* arrivals = nullptr;
  Rows hidden;  // a prediction head's input: the model's hidden values
};

// Launches that run without a pause, as one graph.
struct ProgramPart {
  std::unique_ptr<device::Graph> graph;
  std::optional<HostMixture> then;  // computed before the next part
};

// Steps of more rows may pause between two blocks, so each block is a graph of its own.
inline constexpr int64_t kMaxWholeRows = 32;

// The target of launches: a stream or a graph.
class Launches {
 public:
  explicit Launches(device::Stream* stream) : stream_(stream) {}
  explicit Launches(device::Graph* graph) : graph_(graph) {}
  template <typename Args>
  void Add(const device::KernelOf<Args>& kernel, const device::LaunchShape& shape,
           const Args& args) const {
    if (graph_ != nullptr) {
      graph_->Add(kernel, shape, args);
    } else {
      stream_->Launch(kernel, shape, args);
    }
  }

 private:
  device::Stream* stream_ = nullptr;
  device::Graph* graph_ = nullptr;
};

// Input rows of a product: as floats, and as bytes if some product wants them.
struct Input {
  Rows x;
  device::Int8View q;
};

class Builder {
 public:
  // REQUIRES: all arguments outlive the builder.
  Builder(const GpuWeights& weights, const GpuState& state, const StepBuffer& buffer,
          const ProgramSize& size, Arena* arena, const StepMemory& memory);

  // Builds the whole step into `*parts`; `add_results` may add launches to the last part. With null
  // `device` nothing is built, but the arena still learns how much memory is needed.
  Status Build(device::Device* device, std::vector<ProgramPart>* parts,
               FunctionRef<void(const Launches&)> add_results);
  // The residual stream, from which results are computed.
  Rows stream() const { return stream_; }
  int64_t n_launches() const { return n_launches_; }
  int64_t n_arrivals() const { return n_arrivals_; }

 private:
  // --- launches (builder.cc) -----------------------------------------------------------------
  template <typename Args>
  void Launch(const device::KernelOf<Args>& kernel, const device::LaunchShape& shape,
              const Args& args) {
    ++n_launches_;
    if (part_.graph != nullptr) part_.graph->Add(kernel, shape, args);
  }
  RowSet step_rows() const { return {buffer_.view().n_rows, size_.rows}; }
  Rows NewRows(int64_t width, int64_t n_rows = 0);
  // A range of columns of each row.
  static Rows Columns(const Rows& rows, int64_t first) {
    return {rows.values + first, rows.stride};
  }
  void Embed(const BoundLinear& table, const int32_t* index, float scale, bool add,
             const Rows& out);
  // Prepares rows of `width` values; also as bytes if one of the linears wants them.
  Input Prepare(const Rows& x, int64_t width, std::initializer_list<const BoundLinear*> linears,
                const RowSet& rows);
  // How many of the latest keys a row of this layer sees; 0: all.
  int32_t WindowOf(int kv_layer) const {
    return static_cast<int32_t>(
        spec_.kv_groups[static_cast<size_t>(state_.group(kv_layer))].window);
  }
  Input Prepare(const Rows& x, const BoundLinear& linear) {
    return Prepare(x, linear.matrix.n_in, {&linear}, step_rows());
  }
  void Activate(device::ActivateArgs args, int64_t width, int64_t max_rows);
  device::ActivateBytesArgs ActivateBytesOf(const device::ActivateArgs& args, int64_t width,
                                            int64_t max_rows);
  // act(gate) * up, or act(gate), in the form that the linear wants; args.out has room for floats.
  Input PrepareActivated(const device::ActivateArgs& args, const BoundLinear& linear,
                         int64_t max_rows);
  void Multiply(const BoundLinear& linear, const Input& x, const Rows& out);
  // Products of one input with several matrices, each into rows of its own. Joined matrices take a
  // single launch. An absent matrix yields no rows.
  template <typename... Linears>
  std::array<Rows, sizeof...(Linears)> MultiplyAll(const Input& x, const Linears&... linears) {
    std::array<Rows, sizeof...(Linears)> outs;
    MultiplyJoined(x, {&linears...}, outs);
    return outs;
  }
  void MultiplyJoined(const Input& x, std::initializer_list<const BoundLinear*> linears,
                      std::span<Rows> outs);
  // Multiplies head h of x by member h of the stack, into head h of `out`.
  void MultiplyHeads(const BoundStack& stack, const Rows& x, int64_t x_head, const Rows& out,
                     int64_t out_head);
  // Norms into `out`, which may be x. Without a norm, returns x itself.
  Rows Norm(const BoundNorm& norm, const Rows& x, int64_t width, const Rows& out);
  void NormGroups(const BoundNorm& norm, const Rows& x, int64_t n_groups, int64_t group,
                  const Rows& out);
  void Rotate(int rope, const Rows& x, int64_t n_heads, int64_t head);
  void Copy(const Rows& from, int64_t from_head, const Rows& to, int64_t to_head, int64_t n_heads,
            int64_t width);
  void Add(const Rows& x, int64_t width, const Rows& sum, float scale = 1);
  void Multiply(const Rows& x, int64_t width, const Rows& product);
  void Scale(float factor, int64_t width, const Rows& x);
  void Warm(const QueryTemperature& temperature, const Rows& x, int64_t width);

  // --- the whole (program.cc) ------------------------------------------------------------------
  void BeginPart();
  // Keeps the first error, which Build returns.
  void EndPart();
  void BuildInputs();
  void BuildPerLayerInputs();
  // Builds a prediction head's stream from embeddings and hidden values.
  void JoinHidden(const BoundHiddenInput& input);
  void BuildBlock(const BoundBlock& block);
  // Declares x = norm(from). The launch is deferred until a product asks for floats or bytes, so
  // that it is fused with the pending residual.
  Rows Enter(const BoundNorm& norm, const Rows& from, const Rows& to);
  // The entered rows, in the requested forms.
  Input Entered(bool floats, bool bytes);
  void AddToStream();
  void Advance(const Rows& from, const BoundNorm* norm, const Rows& out,
               const device::Int8View& bytes);
  // The same in several launches, for rows that are too wide for one kernel.
  void AdvanceInSteps(const Rows& from, const BoundNorm* norm, const device::Int8View& bytes);

  // --- operations: out = op(x); `raw` is the block's input before any norm -----------------------
#define WEFT_DECLARE_(Operation) \
  void Run(const Bound<Operation>& op, const Rows& x, const Rows& raw, const Rows& out);
  WEFT_OPERATIONS(WEFT_DECLARE_)
#undef WEFT_DECLARE_

  // Everything between the products and attention, for heads in the layout of the products. `args`
  // names step, kv, rows and heads. Norms that the fused kernel cannot do run first.
  void FinishHeads(device::KvType type, device::HeadsArgs args, int rope,
                   const BoundNorm& q_norm = {}, const BoundNorm& k_norm = {},
                   const BoundNorm& v_norm = {});
  // Attention's output, to args.out; or only as bytes if `next` alone reads it and takes bytes.
  Input Attend(device::KvType type, device::AttendArgs args, const BoundLinear* next);
  Input MultiplyToActivate(const Bound<DenseFfn>& op, const Input& x);
  // Max items of a layer's group that one launch covers.
  int64_t MaxItems(int64_t n, int group) const;
  // Pairs of row and expert, sorted by expert, and the arrays to find them.
  struct Pairs {
    RowSet rows;
    int32_t *places, *sources;
    float* factors;
    device::MemberTile* tiles;
    int32_t* n_tiles;
    int64_t max_tiles;
  };
  // Each row's experts, and the weights of their outputs.
  struct Routes {
    int32_t* experts;
    float* weights;
  };
  Routes Route(const Bound<MixtureOfExperts>& op, const Rows& logits);
  Pairs Sort(const MixtureOfExperts& spec, const Routes& routes);
  void MultiplyPairs(const BoundStack& stack, const Input& x, const int32_t* sources,
                     const Pairs& pairs, const Rows& out);
  // The mixing coefficients of a layer's streams.
  Rows MixStreams(const BoundNorm& norm, const BoundLinear& router, const BoundLinear& coefficients,
                  const Rows& x);
  void MatchLengths(const Rows& like, const Rows& x, int64_t n_heads);
  // x through two matrices; with `bias`, followed by a sigmoid.
  enum class LowActivation { kNone, kTanh, kSigmoid };
  Rows LowRankGate(const BoundLinear& a, const BoundLinear& b, const float* bias, const Rows& x,
                   LowActivation activation);
  // x mixed with the previous token's input, once for each of the n_parts rows of `lerp`.
  Rows Shift(int shift_slot, const float* lerp, int64_t n_parts, const Rows& x);
  void SetLengths(const Rows& heads, int64_t n_heads, int64_t width, float epsilon, float length);
  void Convolve(const BoundConvolution& convolution, const Rows& x, bool silu, const Rows& out);

  const ModelSpec& spec_;
  const BoundModel& model_;
  const GpuState& state_;
  const StepBuffer& buffer_;
  const ProgramSize size_;
  Arena& arena_;
  device::Device* device_ = nullptr;
  std::vector<ProgramPart>* parts_ = nullptr;
  ProgramPart part_;  // being built
  Status status_;
  int64_t n_host_mixtures_ = 0;
  int64_t n_launches_ = 0;
  const StepMemory memory_;
  int64_t n_arrivals_ = 0;
  Rows stream_, block_input_, path_input_, path_output_, path_sum_, per_layer_, kept_, sides_,
      first_values_;
  // The part of the residual that has not been added to the stream yet.
  struct Residual {
    Rows y;
    const BoundNorm* post;  // norm of y; or null
    float y_scale, scale;
  };
  std::optional<Residual> residual_;
  struct Entry {
    Rows from;
    const BoundNorm* norm = nullptr;
    Rows x;
    bool floats = false, bytes = false;  // which forms have been computed
  };
  Entry entry_;
  device::Int8View entry_bytes_;
};

// `up` may be absent.
device::ActivateArgs ActivateArgsOf(Activation kind, const ActivationNumbers& numbers,
                                    const Rows& gate, const Rows& up, const RowSet& rows);
// Bytes of the text KV cache, which lasts only as long as one operation, for n_rows rows.
int64_t TextKvBytes(const ModelSpec& spec, int64_t n_rows);

void LaunchNorm(const BoundNorm& norm, const Rows& x, int64_t width, const Rows& out,
                const RowSet& rows, const Launches& to);
device::QuantizeArgs QuantizeArgsOf(const Rows& x, int64_t width, const device::Int8View& to,
                                    const RowSet& rows);
device::LaunchShape QuantizeShapeOf(int64_t width, const RowSet& rows, int64_t n_heads);
// One matrix product: kernel, shape and arguments.
struct Product {
  const device::KernelOf<device::MatmulArgs>* kernel;
  device::LaunchShape shape;
  device::MatmulArgs args;
};
// `sorted`: rows are sorted by member, in tiles of up to kMatmulRows; the caller sets the grid's y.
Product ProductOf(const BoundLinear& linear, const Input& x, const Rows& out, const RowSet& rows,
                  bool sorted = false);
// Attention to the items of a list of the step (AttendArgs::list), and the merge after it.
struct AttendLaunch {
  const device::KernelOf<device::AttendArgs>* kernel;
  device::LaunchShape shape;
};
AttendLaunch AttendLaunchOf(device::KvType type, const device::AttendArgs& args, int64_t n_items);
device::LaunchShape MergeShapeOf(const device::AttendArgs& args, int64_t n_rows);
// A norm as an argument of a fused kernel; empty if absent.
device::NormPart PartOf(const BoundNorm& norm);
// The fused kernel for rows of args.width; null if there is none.
const device::KernelOf<device::StreamArgs>* AdvanceKernelOf(const device::StreamArgs& args);
device::NormArgs NormArgsOf(const BoundNorm& norm, const Rows& x, int64_t group, const Rows& out,
                            const RowSet& rows);
inline device::LaunchShape ColumnsShape(int64_t width, int64_t n_rows, int64_t n_heads = 1) {
  return {device::CeilDiv(width, device::kColumnsPerBlock), static_cast<int>(n_rows),
          static_cast<int>(n_heads), device::kColumnThreads};
}
// Splits rows beyond the limit of a grid's y into runs, one per z.
inline device::LaunchShape InRuns(device::LaunchShape shape) {
  shape.grid_z = device::CeilDiv(shape.grid_y, device::kMaxRunRows);
  shape.grid_y = std::min(shape.grid_y, device::kMaxRunRows);
  return shape;
}

}  // namespace weft::gpu

#endif  // WEFT_COMPUTE_GPU_BUILDER_H_
