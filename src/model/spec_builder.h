// The reader that the functions of model/arch/ use: hyper-parameters with their bounds, and tensors
// by name with their shapes.
//
// The first error is kept as the builder's status, and every later call still returns a harmless
// value (the lower bound, an empty reference), so an architecture reads as a list of facts without
// an error check per line. Finish() returns the error or the spec. Sizes are bounded so that no
// product of two of them overflows 64 bits, and loops over layers are bounded by the file's tensor
// count.
//
// One builder, one thread, one file, which must outlive it.
#ifndef WEFT_MODEL_SPEC_BUILDER_H_
#define WEFT_MODEL_SPEC_BUILDER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "model/formats/model_file.h"
#include "model/model_spec.h"
#include "model/rope.h"

namespace weft {

// "blk.3.attn_q" for (3, "attn_q").
std::string LayerName(int64_t layer, std::string_view tensor);

// Sizes that nearly all architectures declare. Vectors have one value per layer.
struct Dims {
  int64_t n_layers = 0;  // without the layers that predict further tokens
  int64_t d_model = 0;
  std::vector<int64_t> n_heads;
  std::vector<int64_t> n_kv_heads;
  std::vector<int64_t> n_ff;  // 0 if the file does not say
  int64_t k_dim = 0;          // per head
  int64_t v_dim = 0;
  int64_t n_rot = 0;  // rotated values of a head; even, <= k_dim
  NormKind norms = NormKind::kRms;
  float epsilon = 0;  // epsilon of the norms
};

// Norms of each head's query and key; kIfAny: if the file has them.
enum class HeadNorms { kNone, kAlways, kIfAny };

// The sizes of one layer's attention.
struct AttentionShape {
  int64_t n_heads = 0;
  int64_t n_kv_heads = 0;
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  int64_t window = 0;  // 0: all
  int rope = -1;
  bool gated_query = false;  // q's matrix holds a gate after each head's query
  HeadNorms norms = HeadNorms::kNone;
};

// Whether every layer has attention heads, or 0 heads mark a layer without attention.
enum class HeadCounts { kAlways, kMayBeZero };

// The file's state spaces, which are all the same.
struct StateSpaceShape {
  int64_t n_heads = 1;
  int64_t n_groups = 1;
  int64_t head_dim = 1;
  int64_t state_dim = 1;
  int64_t n_taps = 2;  // taps of the convolution before it
};

struct MoeDefaults {
  RouterWeights weights = RouterWeights::kSoftmax;
  bool renormalize = false;
  Activation activation = Activation::kSilu;
};

// The feed-forward of layers with experts.
struct ExpertLayers {
  MixtureOfExperts experts;   // without tensors
  std::vector<int64_t> n_ff;  // per expert, by layer
  int64_t n_ff_shared = 0;    // width of the shared expert, which sees every token; 0: none
  int64_t n_dense = 0;        // number of first layers without experts
};

class SpecBuilder {
 public:
  static constexpr int64_t kMaxSize = int64_t{1} << 24;  // max of any one dimension
  static constexpr int64_t kMaxHeadDim = int64_t{1} << 16;
  static constexpr int64_t kMaxTaps = 64;  // max taps of a convolution
  static constexpr int64_t kMaxContext = int64_t{1} << 30;

  SpecBuilder(const ModelFile& file, const SpecOptions& options, std::string_view architecture);
  SpecBuilder(const SpecBuilder&) = delete;
  SpecBuilder& operator=(const SpecBuilder&) = delete;

  bool ok() const { return status_.ok(); }
  // Keeps `status` if it is the first error.
  void Fail(const Status& status);
  void FailKey(std::string_view key, std::string_view what);
  void FailTensor(std::string_view tensor, std::string_view what);

  const std::string& architecture() const { return spec_.architecture; }
  // Layers of the file, including those that do not run. Known once the Dims are read.
  int64_t n_blocks() const { return n_blocks_; }
  // The context that decides between sets of rope factors, in tokens.
  int64_t context_tokens() const;
  ModelSpec& spec() { return spec_; }

  // The spec, if nothing failed and every tensor of the file was used: ignoring a weight would
  // silently give wrong answers.
  StatusOr<ModelSpec> Finish();

  // --- metadata: `key` without its "<architecture>." --------------------------
  bool HasKey(std::string_view key) const;
  int64_t Int(std::string_view key, int64_t min, int64_t max = kMaxSize);
  int64_t IntOr(std::string_view key, int64_t absent, int64_t min, int64_t max = kMaxSize);
  std::vector<int64_t> IntsOr(std::string_view key, int64_t n, int64_t absent, int64_t min,
                              int64_t max = kMaxSize);
  // The first n numbers of an array that may be longer.
  std::vector<int64_t> FirstInts(std::string_view key, int64_t n, int64_t min, int64_t max);
  double Float(std::string_view key, double min, double max);
  double FloatOr(std::string_view key, double absent, double min, double max);
  // One value per layer, from an array or a number.
  std::vector<float> FloatsOr(std::string_view key, int64_t n, float absent, double min,
                              double max);
  // The same for a required key without the architecture's prefix.
  std::vector<float> PlainFloats(std::string_view full_key, int64_t n, double min, double max);
  // A factor, which must be finite and within sane bounds. Absent and 0 both mean `absent`.
  float ScaleOr(std::string_view key, float absent);
  bool BoolOr(std::string_view key, bool absent);
  std::string_view StringOr(std::string_view key, std::string_view absent);

  // Block count, widths, heads, epsilon, context length, for a causal model with norms of this
  // kind.
  Dims ReadDims(HeadCounts head_counts = HeadCounts::kAlways, NormKind norms = NormKind::kRms);
  // The same for a head in a file of its own, whose layers all predict.
  Dims ReadHeadDims();
  // The same for an encoder, whose tokens see later ones.
  Dims ReadEncoderDims(NormKind norms);
  // For each layer, whether it attends only to a window, from attention.sliding_window_pattern. An
  // array has a flag per layer. A number p means that one of every p layers sees everything (the
  // last of the p, or the first if first_sees_all), and the others a window; 0: all layers have a
  // window.
  std::vector<bool> ReadWindowPattern(int64_t n_layers, int64_t period_if_absent,
                                      bool first_sees_all = false);
  RopeScaling ReadRopeScaling();
  RopeShape ReadRopeShape(RopePairs pairs, const Dims& dims);
  // Divisors of the frequencies, from rope_factors_long or _short by the context length, otherwise
  // from rope_freqs; empty if the file has none.
  std::vector<float> ReadRopeDivisors(const Dims& dims);
  // ssm.* keys.
  StateSpaceShape ReadStateSpaceShape();
  // expert_* keys: everything of a mixture but its tensors.
  MixtureOfExperts ReadMoe(const MoeDefaults& defaults);
  // The same with leading_dense_block_count and the width of experts, which defaults to that of the
  // whole feed-forward. The caller reads the shared expert.
  ExpertLayers ReadExpertLayers(const Dims& dims, const MoeDefaults& defaults);

  // --- tensors: `name` without ".weight" ---------------------------------------
  bool HasTensor(std::string_view full_name) const;
  // Rows of the matrix `name`; 0 if the file has none.
  int64_t RowsOf(const std::string& name) const;
  // F32 values, by full name.
  TensorRef Vector(const std::string& full_name, int64_t n);
  TensorRef OptionalVector(const std::string& full_name, int64_t n);
  // F32 values of any shape, by full name.
  TensorRef Values(const std::string& full_name, const std::vector<int64_t>& dims);
  // A matrix of n_out rows, with its bias if the file has one.
  Linear Matrix(const std::string& name, int64_t n_in, int64_t n_out);
  // `n_out` rows from `first_row` of a matrix of `n_rows` rows.
  Linear MatrixRows(const std::string& name, int64_t n_in, int64_t n_rows, int64_t first_row,
                    int64_t n_out);
  StackedLinear Stack(const std::string& name, int64_t n_in, int64_t n_out, int64_t count);
  StackedLinear StackRows(const std::string& name, int64_t n_in, int64_t n_rows, int64_t first_row,
                          int64_t n_out, int64_t count);
  Norm RmsNorm(const std::string& name, int64_t width, float epsilon);
  Norm OptionalRmsNorm(const std::string& name, int64_t width, float epsilon);
  // With the file's bias, if it has one.
  Norm LayerNorm(const std::string& name, int64_t width, float epsilon);
  Norm OptionalLayerNorm(const std::string& name, int64_t width, float epsilon);
  // A norm of the model's kind, over the stream: RmsNorm(LayerName(layer, name), dims.d_model,
  // ...).
  Norm StreamNorm(int64_t layer, std::string_view name, const Dims& dims);
  // A layer norm per head, with separate weights for each of `n_heads` heads, without biases.
  Norm HeadLayerNorm(const std::string& name, int64_t k_dim, int64_t n_heads, float epsilon);
  // An F32 vector of at least n finite non-zero values; empty if the file has no such tensor.
  std::vector<float> OptionalDivisors(const std::string& full_name, int64_t n);
  // n_rows rows of n_in values of any type, by full name.
  TensorRef Table(const std::string& full_name, int64_t n_in, int64_t n_rows);
  // The same of I32 numbers, each from 0 to below `limit`.
  TensorRef NumberTable(const std::string& full_name, int64_t n_in, int64_t n_rows, int64_t limit);
  // Marks a tensor that files of this architecture may contain but Weft does not use.
  void Ignore(std::string_view full_name);

  // Reads embedding, final norm, output (the embedding's own matrix if the file has none), and the
  // size of the vocabulary.
  void ReadEnds(const Dims& dims, const std::string& norm = "output_norm");
  // The same with a final norm that the file does not name.
  void ReadEndsWithNorm(const Dims& dims, const Norm& norm);
  // Reads the embedding without an output; learned positions, token types and the norm of their
  // sum, if the file has them.
  void ReadEncoderInput(const Dims& dims);
  // Reads the pooling of texts (pooling_type) and its head, if the file has them. Call it after the
  // architecture's own parts.
  void ReadTextVector();
  int AddRope(const Rope& rope);
  // Which of the rope's pairs turn by the rows and columns of pictures, if the file says so.
  // `interleaved`: the axes take turns, instead of one run of pairs each.
  void ReadRopeAxes(bool interleaved, Rope* rope);
  // What pictures add to the first layers, if the file says so. Call it after the layers.
  void ReadRowParts();
  // Registers a layer's KV cache, in the group of its window.
  int AddKvLayer(int64_t window, int64_t n_heads, int64_t k_dim, int64_t v_dim);
  // Registers one layer's recurrent state.
  int AddSlot(SlotKind kind, int64_t n_floats);
  AttentionShape ShapeOf(const Dims& dims, int64_t layer) const;
  // Reads the head that predicts the token after the next, from a layer after those that run.
  // `read_layer` adds this layer to spec() like any other. An incomplete or unknown head is not an
  // error: the spec says why it has none. Call it after the layers that run.
  void ReadPredictionHead(const Dims& dims, bool before_output_norm,
                          FunctionRef<void(int64_t layer)> read_layer);
  // q, k, v (in one matrix or three) and output of a layer with its own KV cache; scale
  // 1/sqrt(k_dim).
  Attention MakeAttention(int64_t layer, const Dims& dims, const AttentionShape& shape);
  // The same among all tokens of a text. With a reach, shape.window counts in both directions.
  BidirectionalAttention MakeBidirectionalAttention(int64_t layer, const Dims& dims,
                                                    const AttentionShape& shape);
  // Kernel and bias, if the file has one; with its own slot.
  Convolution MakeConvolution(const std::string& name, int64_t n_channels, int64_t n_taps);
  // ssm_in, ssm_conv1d, ssm_out and the tensors between them; with its own slots.
  StateSpace MakeStateSpace(int64_t layer, const Dims& dims, const StateSpaceShape& shape);
  // ffn_gate, ffn_up, ffn_down, their names ending in `suffix`.
  DenseFfn MakeFfn(int64_t layer, const Dims& dims, int64_t n_ff,
                   Activation activation = Activation::kSilu, std::string_view suffix = "");
  // The same from one matrix ffn_up whose first half is the gate.
  DenseFfn MakeFusedFfn(int64_t layer, const Dims& dims, int64_t n_ff,
                        std::string_view suffix = "");
  DenseFfn MakeFfnWithoutGate(int64_t layer, const Dims& dims, int64_t n_ff, Activation activation);
  // Adds router and experts of `n_ff` values to a mixture from ReadMoe().
  void AddExperts(int64_t layer, const Dims& dims, int64_t n_ff, MixtureOfExperts* moe);
  // The paths of a layer: dense if it is one of the first `n_dense`; otherwise experts and a shared
  // expert of n_shared * n_ff_expert values (n_shared 0: none).
  void AddDenseOrExperts(int64_t layer, const Dims& dims, int64_t n_dense, int64_t n_ff_expert,
                         int64_t n_shared, const MixtureOfExperts& experts, Block* block);
  // Dense in the first layers; experts and the shared one in the others.
  void AddFfnPaths(int64_t layer, const Dims& dims, const ExpertLayers& layers, Block* block);
  // Experts of n_ff_expert values, and a shared one of n_ff_shared values with a gate.
  void AddExpertsBesideGated(int64_t layer, const Dims& dims, int64_t n_ff_expert,
                             int64_t n_ff_shared, const MixtureOfExperts& experts, Block* block);

 private:
  // Reads everything of a prediction head but its layer.
  void ReadHeadEnds(const Dims& dims, int64_t layer, ModelSpec* head);
  std::string Key(std::string_view key) const;
  float ReadEpsilon(NormKind norms);
  bool IsWholeLayer(int64_t layer) const;
  // For both kinds of models; without the epsilon. `all_run`: layers that predict count as others.
  Dims ReadSizes(HeadCounts head_counts, bool all_run = false);
  // Reads the embedding as a matrix, and the size of the vocabulary.
  Linear ReadEmbedding(const Dims& dims);
  // q, k, v (in one matrix or three), output, and norms of q and k.
  template <typename AttentionOp>
  void ReadAttentionTensors(int64_t layer, const Dims& dims, const AttentionShape& shape,
                            AttentionOp* attention);
  void AddHeadLayer(const std::string& name, int64_t n_in, int64_t n_out,
                    HeadActivation activation);
  void ReadClassifier();
  // The factor of a matrix in a type that has too little range (NVFP4), where the file has one.
  TensorRef ReadScale(const std::string& name, int64_t count, bool has_bias);
  // The tensor's index if it exists with these dimensions (`want` padded by ones).
  int Find(const std::string& full_name, std::vector<int64_t> want, bool needs_f32);
  void CheckHeads(const Dims& dims, HeadCounts head_counts);
  bool Ignorable(std::string_view full_name) const;

  const ModelFile& file_;
  const SpecOptions options_;
  ModelSpec spec_;
  Status status_;
  std::vector<bool> used_;
  std::vector<std::string> ignored_;
  // Layers [n_layers_, n_blocks_) of the file predict further tokens and do not run.
  int64_t n_layers_ = 0;
  int64_t n_blocks_ = 0;
};

// A norm of `width` values without weights.
Norm PlainRmsNorm(int64_t width, float epsilon);

// A block of one path, with norms before and after it.
Block MakeBlock(Norm pre, Op op, Norm post = Norm());

}  // namespace weft

#endif  // WEFT_MODEL_SPEC_BUILDER_H_
