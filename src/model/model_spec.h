// What an architecture is, as data.
//
// A ModelSpec says which tensors a model has and how they act on a token's
// residual stream. It holds no weights and no code: `model/arch/*.cc` builds it
// from a file's metadata, a backend executes it, and `backend/reference` is its
// meaning, block by block. Nothing above model/ knows an architecture's name.
//
// The shape of every model here:
//
//   x = input_norm(embedding(token) * embedding_scale + positions[p] + token_types[t])
//   for layer in layers: for block in layer.blocks:
//     h = block.pre(x)
//     y = sum over paths p:  p.scale * p.post(p.op(p.pre(h)))
//     x = block.stream_norm((x + block.residual_scale * block.post(y)) * block.stream_scale
//                           * block.stream_factor)
//   vector = output_norm(x)
//   logits = softcap(output(vector) * logit_scale)
//
// A norm that is absent is the identity. An ordinary transformer layer is two
// blocks of one path each: attention, feed-forward. Paths side by side are a
// mixture of experts beside its shared expert, or attention beside a state space.
#ifndef WEFT_MODEL_MODEL_SPEC_H_
#define WEFT_MODEL_MODEL_SPEC_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/model_file.h"
#include "model/operations.h"
#include "model/text_vector.h"

namespace weft {

// --- position -------------------------------------------------------------------

enum class RopePairs {
  kAdjacent,  // rotates (0,1), (2,3), ...
  kHalves,    // rotates (0, n/2), (1, n/2+1), ...
};

// Rotary position embedding of the first 2 * frequencies.size() values of a head
// (of its rope part, in LatentAttention): pair i turns by
// position * frequencies[i] radians, and cosine and sine are multiplied by
// `magnitude`. All scalings (linear, YaRN, per-dimension factors) are already in
// the frequencies.
struct Rope {
  RopePairs pairs = RopePairs::kHalves;
  std::vector<double> frequencies;
  float magnitude = 1;
  bool operator==(const Rope&) const = default;
};

// --- state ----------------------------------------------------------------------

// What one attention layer keeps per token position. Layers that share a cache
// name the same KvLayer.
struct KvLayer {
  int group = 0;  // index into ModelSpec::kv_groups
  int n_heads = 0;
  int64_t k_dim = 0;  // per head
  int64_t v_dim = 0;  // per head; 0 where values are the first part of the keys
};

// Layers whose pages live and die together, because they see the same window.
// A page of the group holds a fixed number of positions of all its layers.
struct KvGroup {
  int64_t window = 0;          // key j is visible to query i iff i - j < window; 0: all
  std::vector<int> kv_layers;  // indices into ModelSpec::kv_layers
};

// One fixed-size recurrent state per session: what a token leaves behind for the
// next, beside pages. Zero before the first token; copied on fork, checkpointed,
// saved. How a backend lays its floats out is its own matter.
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
  // MixtureOfExperts::routes_kept of this block and those after it reads x as this block finds it.
  bool keeps_input = false;
  Norm pre;
  std::vector<Path> paths;
  Norm post;
  float residual_scale = 1;
  TensorRef stream_scale;   // one F32 value that multiplies the whole stream; absent: 1
  float stream_factor = 1;  // likewise
  Norm stream_norm;         // of the stream after the block
};

struct Layer {
  std::vector<Block> blocks;
};

// --- the whole ----------------------------------------------------------------------

// Inputs that every layer adds for itself: for layer l and token t,
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

// A row of the table for each token, by its type. Where a model takes pairs of texts: how many
// separators come before it, at most the last type, so that the two are told apart. Else 0.
struct TokenTypes {
  TensorRef table;  // n_types rows of d_model
  int64_t n_types = 0;
  int64_t separator = -1;  // a token id; -1: every token is of type 0
  explicit operator bool() const { return static_cast<bool>(table); }
  // The type of the token after one of type `type`.
  int64_t TypeAfter(int64_t token, int64_t type) const {
    return token == separator && type + 1 < n_types ? type + 1 : type;
  }
};

// What a prediction head takes beside a token: the hidden values of the row before it, which the
// model computed, or the head itself where it goes on from its own guess.
//   x = proj([token_norm(embedding(token)), hidden_norm(hidden)])
struct HiddenInput {
  Norm token_norm;
  Norm hidden_norm;
  Linear proj;  // n_in = 2 * d_model
  // Hidden values are those before the output norm (of the model, of the head), not behind it.
  bool before_output_norm = false;
};

struct ModelSpec {
  std::string architecture;  // as the file names it; for messages only
  std::string name;          // general.name, may be empty
  int64_t n_vocab = 0;
  int64_t d_model = 0;
  int64_t context_tokens = 0;  // what the model was trained for

  TensorRef embedding;  // n_vocab rows of d_model
  float embedding_scale = 1;
  TensorRef positions;     // context_tokens rows of d_model, where positions are learned
  TokenTypes token_types;  // where tokens have them
  Norm input_norm;
  std::optional<PerLayerInput> per_layer_input;
  int n_side_streams = 0;  // see side_stream_operations.h
  std::vector<Layer> layers;
  Norm output_norm;
  Linear output;          // may name the embedding's tensor (tied); absent: no logits
  float logit_scale = 1;  // multiplies the logits
  float logit_softcap = 0;

  // What a text becomes, where the model was made for that.
  std::optional<TextVector> text_vector;

  // Of a prediction head: its x, in place of the embedding alone.
  std::optional<HiddenInput> hidden_input;
  // A small model over tensors of the same file that guesses the token behind the next: a model of
  // its own, with its own state. Null where the file has none.
  std::shared_ptr<const ModelSpec> prediction_head;
  // Why the file has one that cannot be used; empty otherwise.
  std::string no_prediction_head;

  std::vector<Rope> ropes;
  std::vector<KvLayer> kv_layers;
  std::vector<KvGroup> kv_groups;
  std::vector<SlotState> slots;
};

struct SpecOptions {
  // The longest context the caller will use; 0 means the trained length. Models
  // with two sets of rope factors (phi3) choose by it.
  int64_t context_tokens = 0;
};

// Builds the spec of a file whose architecture is registered. An unknown
// architecture is UNIMPLEMENTED and lists the known ones; a missing or misshapen
// key or tensor is an error that names it.
StatusOr<ModelSpec> BuildModelSpec(const ModelFile& file, const SpecOptions& options);

// Calls fn(path) for all paths of the spec, in the order in which they are computed.
template <typename Fn>
void ForEachPath(const ModelSpec& spec, Fn fn) {
  for (const Layer& layer : spec.layers) {
    for (const Block& block : layer.blocks) {
      for (const Path& path : block.paths) fn(path);
    }
  }
}

// Shows a visitor all operations of the spec.
template <typename Visitor>
void VisitOperations(const ModelSpec& spec, Visitor&& visitor) {
  ForEachPath(spec, [&](const Path& path) {
    std::visit([&](const auto& op) { op.Visit(spec.d_model, visitor); }, path.op);
  });
}

// The path of `spec` whose operation writes state (pages or slots) last; null when none
// does. Rows that nobody asks logits of need no more than it writes for them.
const Path* LastToWriteState(const ModelSpec& spec);

// Of each KvLayer what an operation sums: its values, or those that are the first part of its keys.
std::vector<int64_t> ValueDims(const ModelSpec& spec);

// Whether some block keeps its input for later ones.
bool KeepsInputs(const ModelSpec& spec);
// Whether layers read the first layer's values: see TimeMix.
bool SharesFirstValues(const ModelSpec& spec);
// Whether some attention sees less than all of the visible keys, by what these are.
bool ChoosesKeys(const ModelSpec& spec);
// Whether some operation sees what follows a token: all rows of a text are then in one step,
// and begin at position 0.
bool NeedsWholeTexts(const ModelSpec& spec);
// Whether vectors can stand where tokens do: UNIMPLEMENTED, saying why, if a token is more to the
// model than a row of its embedding.
Status CheckTakesRows(const ModelSpec& spec);
// What the model is for, in words.
std::string PurposeOf(const ModelSpec& spec);
// Whether a session keeps anything of its tokens.
inline bool KeepsState(const ModelSpec& spec) {
  return !spec.kv_layers.empty() || !spec.slots.empty();
}

// The registered architectures' names, sorted.
std::vector<std::string> KnownArchitectures();

}  // namespace weft

#endif  // WEFT_MODEL_MODEL_SPEC_H_
