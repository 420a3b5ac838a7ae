// Gemma 4's assistants: a few layers whose queries read the keys and values of the model's last
// layer that sees everything and of its last layer that sees a window.
#include <array>

#include "base/strings.h"
#include "model/arch/architectures.h"

namespace weft {
namespace {

// What differs between layers that see all and layers that see a window.
struct Source {
  int kv_layer = -1;
  int rope = -1;
};

// The KV layer of the model's last attention with a window, or without one; -1: none.
int LastKvLayer(const ModelSpec& model, bool windowed) {
  int last = -1;
  ForEachPath(model, [&](const Path& path) {
    const auto* const attention = std::get_if<Attention>(&path.op);
    if (attention == nullptr) return;
    const KvLayer& layer = model.kv_layers[static_cast<size_t>(attention->kv_layer)];
    const int64_t window = model.kv_groups[static_cast<size_t>(layer.group)].window;
    if ((window > 0) == windowed) last = attention->kv_layer;
  });
  return last;
}

// The model's state. A query has the position after the last key, so its window holds one key less.
void TakeState(SpecBuilder& b, const ModelSpec& model) {
  b.spec().kv_layers = model.kv_layers;
  b.spec().kv_groups = model.kv_groups;
  for (KvGroup& group : b.spec().kv_groups) {
    if (group.window == 0) continue;
    if (group.window == 1) b.FailKey("attention.sliding_window", "leaves nothing to read");
    --group.window;
  }
}

void ReadEnds(SpecBuilder& b, const Dims& dims, const ModelSpec& model) {
  const int64_t model_width = b.Int("embedding_length_out", 1);
  if (b.ok() && model_width != model.d_model) {
    b.FailKey("embedding_length_out",
              StrCat("is ", model_width, ", but the model '", model.name, "' has embeddings of ",
                     model.d_model, " values: this head is for another model"));
  }
  HiddenInput input;
  input.proj = b.Matrix("nextn.pre_projection", 2 * model_width, dims.d_model);
  input.back = b.Matrix("nextn.post_projection", dims.d_model, model_width);
  b.spec().hidden_input = input;
  b.spec().n_vocab = model.n_vocab;
  b.spec().context_tokens = model.context_tokens;
  b.spec().output_norm = b.RmsNorm("output_norm", dims.d_model, dims.epsilon);
  b.spec().output = b.Matrix("token_embd", dims.d_model, model.n_vocab);
  // For a search among fewer tokens, which changes only how fast the best one is found.
  b.Ignore("masked_embd_centroids.weight");
  b.Ignore("masked_embd_ordering");
}

int ReadRope(SpecBuilder& b, RopeShape shape, std::string_view suffix, int64_t head_dim) {
  const std::string n_values = StrCat("rope.dimension_count", suffix);
  shape.n_values = b.IntOr(n_values, head_dim, 1, head_dim);
  if (shape.n_values % 2 != 0) b.FailKey(n_values, "is odd");
  const bool windowed = !suffix.empty();
  if (windowed) shape.base = b.FloatOr("rope.freq_base_swa", 10000, 1.000001, 1e15);
  Rope rope = windowed ? MakeRope(shape, RopeScaling(), {})
                       : MakeRope(shape, b.ReadRopeScaling(),
                                  b.OptionalDivisors("rope_freqs.weight", shape.n_values / 2));
  rope.ahead = 1;
  return b.AddRope(rope);
}

Source ReadSource(SpecBuilder& b, const RopeShape& shape, const ModelSpec& model, bool windowed) {
  const std::string_view suffix = windowed ? "_swa" : "";
  const std::string key = StrCat("attention.key_length", suffix);
  Source source{.kv_layer = LastKvLayer(model, windowed)};
  if (source.kv_layer < 0) {
    b.FailKey("attention.sliding_window_pattern",
              StrCat("has layers ", windowed ? "with" : "without",
                     " a window, and the model has none: this head is for another model"));
    return source;
  }
  const int64_t k_dim = model.kv_layers[static_cast<size_t>(source.kv_layer)].k_dim;
  const int64_t own = b.IntOr(key, k_dim, 1);
  if (own != k_dim) {
    b.FailKey(key, StrCat("is ", own, ", but the model's keys have ", k_dim,
                          " values: this head is for another model"));
  }
  source.rope = ReadRope(b, shape, suffix, k_dim);
  return source;
}

Attention BuildAttention(SpecBuilder& b, const Dims& dims, int64_t layer, const Source& source) {
  const KvLayer& keys = b.spec().kv_layers[static_cast<size_t>(source.kv_layer)];
  const int64_t n_q = dims.n_heads[static_cast<size_t>(layer)] * keys.k_dim;
  Attention attention;
  attention.kv_layer = source.kv_layer;
  attention.writes_kv = false;
  attention.n_heads = static_cast<int>(dims.n_heads[static_cast<size_t>(layer)]);
  attention.n_kv_heads = keys.n_heads;
  attention.k_dim = keys.k_dim;
  attention.v_dim = keys.v_dim;
  attention.rope = source.rope;
  if (attention.n_heads % attention.n_kv_heads != 0) {
    b.FailKey("attention.head_count", StrCat("is ", attention.n_heads, ", no multiple of the ",
                                             attention.n_kv_heads, " key heads of the model"));
  }
  attention.q = b.Matrix(LayerName(layer, "attn_q"), dims.d_model, n_q);
  attention.q_norm = b.RmsNorm(LayerName(layer, "attn_q_norm"), keys.k_dim, dims.epsilon);
  attention.out =
      b.Matrix(LayerName(layer, "attn_output"), attention.n_heads * keys.v_dim, dims.d_model);
  return attention;
}

}  // namespace

void BuildGemma4Assistant(SpecBuilder& b, const ModelSpec& model) {
  const Dims dims = b.ReadHeadDims();
  ReadEnds(b, dims, model);
  TakeState(b, model);
  if (!b.HasKey("attention.sliding_window_pattern")) {
    b.FailKey("attention.sliding_window_pattern", "is missing");
  }
  const RopeShape shape = b.ReadRopeShape(RopePairs::kHalves, dims);
  const std::vector<int64_t> windowed =
      b.IntsOr("attention.sliding_window_pattern", dims.n_layers, 0, 0, 1);
  std::array<Source, 2> sources;
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    const auto norm = [&](std::string_view name) { return b.StreamNorm(layer, name, dims); };
    const bool has_window = windowed[static_cast<size_t>(layer)] != 0;
    Source& source = sources[has_window ? 1 : 0];
    if (source.kv_layer < 0) source = ReadSource(b, shape, model, has_window);
    if (!b.ok()) return;
    Layer out;
    out.blocks.push_back(MakeBlock(norm("attn_norm"), BuildAttention(b, dims, layer, source),
                                   norm("post_attention_norm")));
    out.blocks.push_back(MakeBlock(
        norm("ffn_norm"),
        b.MakeFfn(layer, dims, dims.n_ff[static_cast<size_t>(layer)], Activation::kGeluTanh),
        norm("post_ffw_norm")));
    out.blocks.back().stream_scale = b.Vector(LayerName(layer, "layer_output_scale.weight"), 1);
    b.spec().layers.push_back(std::move(out));
  }
}

}  // namespace weft
