// An architecture as data.
//
// A ModelSpec says which tensors a model has and how they act on a token's residual stream. It
// holds no weights and no code: `model/arch/*.cc` builds it from a file's metadata, a backend
// executes it, and `backend/reference` defines its meaning, block by block. Nothing above model/
// knows an architecture's name.
//
// The structure of every model:
//
//   x = input_norm(embedding(token) * embedding_scale + positions[p] + token_types[t])
//   for layer in layers: for block in layer.blocks:
//     h = block.pre(x)
//     y = sum over paths p:  p.scale * p.post(p.op(p.pre(h)))
//     x = block.stream_norm((x + block.residual_scale * block.post(y)) * block.stream_scale
//                           * block.stream_factor)
//     (or x = block.post(y), if the block replaces the stream)
//   vector = output_norm(x)
//   logits = softcap(output(vector) * logit_scale)
//
// A norm that is absent is the identity. An ordinary transformer layer is two blocks of one path
// each: attention, feed-forward. A block with several paths is, for example, a mixture of experts
// with a shared expert, or attention with a state space.
#ifndef WEFT_MODEL_MODEL_SPEC_H_
#define WEFT_MODEL_MODEL_SPEC_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/formats/model_file.h"
#include "model/operations.h"
#include "model/text_vector.h"

namespace weft {

// --- position -------------------------------------------------------------------

enum class RopePairs {
  kAdjacent,  // rotates (0,1), (2,3), ...
  kHalves,    // rotates (0, n/2), (1, n/2+1), ...
};

// Axes of a row's AxisPositions. A token's are all the same, and so are a picture's on kTimeAxis.
inline constexpr uint8_t kTimeAxis = 0;
inline constexpr uint8_t kRowAxis = 1;
inline constexpr uint8_t kColumnAxis = 2;

// Rotary position embedding of the first 2 * frequencies.size() values of a head (of its rope part,
// in LatentAttention): pair i rotates by position * frequencies[i] radians, and cosine and sine are
// multiplied by `magnitude`. All scalings (linear, YaRN, per-dimension factors) are already in the
// frequencies. `axes` says for each pair by which of a row's AxisPositions it rotates, if the step
// gives them; empty: by the position in the sequence. `ahead` is added to the position.
struct Rope {
  RopePairs pairs = RopePairs::kHalves;
  std::vector<double> frequencies;
  float magnitude = 1;
  std::vector<uint8_t> axes = {};
  int64_t ahead = 0;
  bool operator==(const Rope&) const = default;
};

// --- state ----------------------------------------------------------------------

// The KV cache of one attention layer, per token position. Layers that share a cache name the same
// KvLayer.
struct KvLayer {
  int group = 0;  // index into ModelSpec::kv_groups
  int n_heads = 0;
  int64_t k_dim = 0;  // per head
  int64_t v_dim = 0;  // per head; 0 if values are the first part of the keys
  // Only the last position of each run of `stride` has keys. A power of two, as a page's positions
  // are; a page of fewer positions still has room for one.
  int64_t stride = 1;
  bool exact = false;  // stored as F32, whatever the KV type

  // Of positions [0, n_tokens).
  int64_t n_values(int64_t n_tokens) const { return n_tokens / stride * n_heads * (k_dim + v_dim); }
  // Positions of a page, for each row of keys.
  int64_t RowTokens(int64_t page_tokens) const {
    return stride < page_tokens ? stride : page_tokens;
  }
};

// Layers that share pages, because they see the same window. A page of the group holds a fixed
// number of positions of all its layers.
struct KvGroup {
  int64_t window = 0;          // key j is visible to query i iff i - j < window; 0: all
  std::vector<int> kv_layers;  // indices into ModelSpec::kv_layers
};

// One fixed-size recurrent state per session, in addition to pages. Zero before the first token;
// copied on fork, checkpointed, saved. The backend chooses the layout of its floats.
struct SlotState {
  SlotKind kind;
  int64_t n_floats = 0;
};

// --- blocks -------------------------------------------------------------------------

struct Path {
  Norm pre;
  Op op;
  Norm post;
  float scale = 1;
};

struct Block {
  // MixtureOfExperts::routes_kept, in this block and later ones, reads x as it is at the beginning
  // of this block.
  bool keeps_input = false;
  Norm pre;
  std::vector<Path> paths;
  Norm post;
  float residual_scale = 1;
  TensorRef stream_scale;   // one F32 value that multiplies the whole stream; absent: 1
  float stream_factor = 1;  // the same, as a constant
  Norm stream_norm;         // applied to the stream after the block
  // After the block, the input embedding's part of that number is added to its stream; 0: none.
  int row_part = 0;
  // x = post(y); then the fields from residual_scale on have their defaults.
  bool replaces_stream = false;
};

struct Layer {
  std::vector<Block> blocks;
};

// --- the whole ----------------------------------------------------------------------

// Inputs that layers add to the stream: for layer l and token t,
//   e_l = ( norm(proj(x)_l * proj_scale) + table[t]_l * table_scale ) * sum_scale
// where x is the scaled embedding, and _l the l-th run of `width` values.
struct PerLayerInput {
  TensorRef table;  // rows of n_layers * width values, one per token
  Linear proj;      // n_out = n_layers * width
  Norm norm;        // over `width`
  int64_t width = 0;
  float table_scale = 1;
  float proj_scale = 1;
  float sum_scale = 1;
};

// Adds a row of the table to each token, by its type. If a model takes pairs of texts, a token's
// type is the number of separators before it, at most the last type, so that the two texts have
// different types. Otherwise 0.
struct TokenTypes {
  TensorRef table;  // n_types rows of d_model
  int64_t n_types = 0;
  int64_t separator = -1;  // a token id; -1: every token is of type 0
  explicit operator bool() const { return static_cast<bool>(table); }
  // The type of the token that follows `token`, whose own type is `type`.
  int64_t TypeAfter(int64_t token, int64_t type) const {
    return token == separator && type + 1 < n_types ? type + 1 : type;
  }
};

// A prediction head's input in addition to a token: the hidden values of the row before it,
// computed by the model, or by the head itself if it continues its own draft.
//   x = proj([token_norm(embedding(token)), hidden_norm(hidden)])
// A head without an embedding has a narrower stream than the model. Its hidden input is the model's
// scaled embedding of the token and the model's hidden values, x = proj(hidden), and `back` gives
// the head's own hidden values the model's width. See head_spec.h.
struct HiddenInput {
  Norm token_norm;
  Norm hidden_norm;
  Linear proj;  // n_in = 2 * d_model, or twice the model's
  Linear back;
  // Whether hidden values are taken before the output norm (of the model or the head) instead of
  // after it.
  bool before_output_norm = false;
};

// The input of a model without tokens, for example a picture's patches: every row of a step is an
// input embedding, and
//   x = activation(proj(norm(row)))
// An absent part is the identity.
struct RowInput {
  Norm norm;
  Linear proj;
  std::optional<Activation> activation;
};

struct ModelSpec {
  std::string architecture;  // as the file names it; for messages only
  std::string name;          // general.name, may be empty
  int64_t n_vocab = 0;
  int64_t d_model = 0;
  int64_t context_tokens = 0;  // trained context length

  TensorRef embedding;  // n_vocab rows of d_model; absent with row_input
  // Parts of an input embedding, d_model values each: the embedding itself, then what blocks add to
  // the stream (Block::row_part), which may be left out.
  int64_t n_row_parts = 1;
  std::optional<RowInput> row_input;
  float embedding_scale = 1;
  TensorRef positions;     // context_tokens rows of d_model; only for learned positions
  TokenTypes token_types;  // only if tokens have types
  Norm input_norm;
  std::optional<PerLayerInput> per_layer_input;
  int n_side_streams = 0;  // see side_stream_operations.h
  std::vector<Layer> layers;
  Norm output_norm;
  Linear output;          // may name the embedding's tensor (tied); absent: no logits
  float logit_scale = 1;  // multiplies the logits
  float logit_softcap = 0;

  // The pooling of texts, if the model was made for that.
  std::optional<TextVector> text_vector;

  // Prediction heads only: their x, instead of the embedding alone.
  std::optional<HiddenInput> hidden_input;
  // A prediction head: a small model over tensors of the same file that drafts the token after the
  // next. It is a model of its own, with its own state. Null if the file has none.
  std::shared_ptr<const ModelSpec> prediction_head;
  // Why the file's prediction head cannot be used; otherwise empty.
  std::string no_prediction_head;

  std::vector<Rope> ropes;
  std::vector<KvLayer> kv_layers;
  std::vector<KvGroup> kv_groups;
  std::vector<SlotState> slots;
};

struct SpecOptions {
  // The longest context the caller will use; 0 means the trained length. It decides between the two
  // sets of rope factors that some models (phi3) have.
  int64_t context_tokens = 0;
};

// Builds the spec of a file whose architecture is registered. An unknown architecture is
// UNIMPLEMENTED and lists the known ones; a missing key or tensor, or one of the wrong shape, is an
// error that names it.
StatusOr<ModelSpec> BuildModelSpec(const ModelFile& file, const SpecOptions& options);

// Calls fn(path) for all paths of the spec, in the order of computation.
template <typename Fn>
void ForEachPath(const ModelSpec& spec, Fn fn) {
  for (const Layer& layer : spec.layers) {
    for (const Block& block : layer.blocks) {
      for (const Path& path : block.paths) fn(path);
    }
  }
}

// Passes all operations of the spec to a visitor.
template <typename Visitor>
void VisitOperations(const ModelSpec& spec, Visitor&& visitor) {
  ForEachPath(spec, [&](const Path& path) {
    std::visit([&](const auto& op) { op.Visit(spec.d_model, visitor); }, path.op);
  });
}

// The last path of `spec` whose operation writes state (pages or slots); null if none does. Rows
// without wanted results can be dropped after it.
const Path* LastToWriteState(const ModelSpec& spec);

// For each KvLayer, the number of dimensions that attention sums: of its values, or of the first
// part of its keys.
std::vector<int64_t> ValueDims(const ModelSpec& spec);

// Whether some block keeps its input for later ones.
bool KeepsInputs(const ModelSpec& spec);
// Whether layers read the first layer's values: see TimeMix.
bool SharesFirstValues(const ModelSpec& spec);
// Whether some attention chooses among the visible keys by their contents.
bool ChoosesKeys(const ModelSpec& spec);
// Whether experts are chosen by a token's id.
bool RoutesByToken(const ModelSpec& spec);
// Whether some operation sees later tokens: then all rows of a text must be in one step, and begin
// at position 0.
bool NeedsWholeTexts(const ModelSpec& spec);
// Whether the model takes input embeddings: UNIMPLEMENTED, with the reason, if it uses more of a
// token than its embedding row.
Status CheckTakesRows(const ModelSpec& spec);
// Whether each token attends to all visible keys, and tokens meet in no other way: then some can
// see later ones.
bool AttendsPlainly(const ModelSpec& spec);
// Whether some rope turns by axes, so that a picture's rows have other positions than tokens.
bool HasAxes(const ModelSpec& spec);
// The model's purpose, for people.
std::string PurposeOf(const ModelSpec& spec);
// Whether a session keeps any state.
inline bool KeepsState(const ModelSpec& spec) {
  return !spec.kv_layers.empty() || !spec.slots.empty();
}

// Values per token of StepSequence::hidden.
inline int64_t HiddenWidth(const ModelSpec& spec) {
  if (!spec.hidden_input) return 0;
  return spec.embedding ? spec.d_model : spec.hidden_input->proj.n_in;
}

// Values of an input embedding.
inline int64_t RowWidth(const ModelSpec& spec) {
  if (spec.row_input && spec.row_input->proj) return spec.row_input->proj.n_in;
  return spec.d_model * spec.n_row_parts;
}

// Names of the registered architectures, sorted.
std::vector<std::string> KnownArchitectures();

}  // namespace weft

#endif  // WEFT_MODEL_MODEL_SPEC_H_
