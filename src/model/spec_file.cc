#include "model/spec_file.h"

#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "json/json_fields.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr JsonLimits kSpecLimits = {.max_depth = 24, .max_values = 20'000};
constexpr double kMaxNumber = 1e15;
constexpr double kMaxFactor = 1e9;

template <typename T>
using Names = std::initializer_list<std::pair<std::string_view, T>>;

const Names<Activation> kActivations = {
    {"silu", Activation::kSilu},
    {"gelu", Activation::kGeluTanh},
    {"gelu_erf", Activation::kGeluErf},
    {"relu", Activation::kRelu},
    {"relu_squared", Activation::kReluSquared},
    {"clamped_silu", Activation::kClampedSilu},
    {"clamped_swiglu", Activation::kClampedSwiglu},
};

enum class Gate { kSeparate, kFused, kNone };
enum class WhichNorms { kNone, kEachHead, kIfAny, kAllHeads };

class SpecReader {
 public:
  SpecReader(const ModelFile& file, SpecBuilder* builder)
      : spec_path_(Printable(file.spec_path(), 300)), b_(*builder) {}

  void Read(const Json& root) {
    With(root, "", [&](JsonFields& fields) {
      const std::string name = fields.String("architecture").value_or("");
      if (fields.ok() && name != b_.architecture()) {
        fields.Fail("architecture",
                    StrCat("is '", Printable(name), "', but the model's file says '",
                           Printable(b_.architecture()), "'"));
      }
      const NormKind norms = Choice<NormKind>(
          fields, "norms", {{"rms", NormKind::kRms}, {"layer", NormKind::kLayer}}, NormKind::kRms);
      dims_ = b_.ReadDims(HeadCounts::kAlways, norms);
      b_.ReadEnds(dims_, fields.String("output_norm").value_or("output_norm"));
      ModelSpec& spec = b_.spec();
      spec.embedding_scale = Factor(fields, "embedding_scale", 1);
      spec.logit_scale = Factor(fields, "logit_scale", 1);
      spec.logit_softcap = static_cast<float>(Number(fields, "logit_softcap", 0, 0, 1e6));
      if (const Json* ropes = fields.Value("ropes")) ReadRopes(*ropes);
      if (const Json* window = fields.Value("window")) ReadWindow(*window);
      const Json* const layers = fields.Value("layers");
      if (layers == nullptr || !layers->is_array() || layers->empty()) {
        fields.Fail("layers", "must be a list of one kind of layer or more");
        return;
      }
      for (int64_t layer = 0; b_.ok() && fields.ok() && layer < dims_.n_layers; ++layer) {
        ReadLayer(*layers, layer);
      }
    });
  }

 private:
  // Calls fn with the object's fields; an unknown field is an error, too.
  template <typename Fn>
  void With(const Json& json, const std::string& path, Fn fn) {
    if (!b_.ok()) return;
    JsonFields fields(json, path.empty() ? "" : StrCat(path, "."));
    fn(fields);
    std::vector<std::string> unknown;
    Status status = fields.Finish(&unknown);
    if (status.ok() && !unknown.empty()) {
      status = InvalidArgument(Printable(unknown[0], 200), " is not known here");
    }
    Fail(status);
  }
  void Fail(const Status& status) {
    if (!status.ok()) b_.Fail(Annotate(status, spec_path_, ": "));
  }

  template <typename T>
  T Choice(JsonFields& fields, std::string_view name, const Names<T>& names, T absent) {
    const std::optional<std::string> text = fields.String(name);
    if (!text) return absent;
    std::vector<std::string_view> known;
    for (const auto& [word, value] : names) {
      if (word == *text) return value;
      known.push_back(word);
    }
    fields.Fail(name, StrCat("must be one of ", StrJoin(known, ", ")));
    return absent;
  }

  // --- numbers: 0.5, "metadata.key", {"key": K, "or": N}, {"sqrt": N}, {"divide": [N, N]},
  // {"times": [N, N]} -----------------------------------------------------------------------

  double ValueOf(const Json& json, JsonFields& fields, std::string_view name) {
    if (json.is_number()) return json.get<double>();
    if (json.is_string()) {
      return b_.Float(json.get<std::string>(), -kMaxNumber, kMaxNumber);
    }
    if (json.is_object() && json.contains("key") && json["key"].is_string() && json.size() <= 2) {
      const std::string key = json["key"].get<std::string>();
      if (b_.HasKey(key) || !json.contains("or")) {
        if (json.size() == 1 || json.contains("or")) {
          return b_.Float(key, -kMaxNumber, kMaxNumber);
        }
      } else {
        return ValueOf(json["or"], fields, name);
      }
    }
    if (json.is_object() && json.size() == 1) {
      const Json& of = json.begin().value();
      const std::string& word = json.begin().key();
      if (word == "sqrt") return std::sqrt(ValueOf(of, fields, name));
      if ((word == "divide" || word == "times") && of.is_array() && of.size() == 2) {
        const double left = ValueOf(of[0], fields, name), right = ValueOf(of[1], fields, name);
        return word == "divide" ? left / right : left * right;
      }
    }
    fields.Fail(name,
                "must be a number, the name of a key, or an object of key and or, of sqrt, of "
                "divide, or of times");
    return 0;
  }

  double Number(JsonFields& fields, std::string_view name, double absent, double min, double max) {
    const Json* const json = fields.Value(name);
    if (json == nullptr) return absent;
    const double value = ValueOf(*json, fields, name);
    if (value >= min && value <= max) return value;
    if (b_.ok()) fields.Fail(name, StrCat("is ", value, ", expected ", min, " to ", max));
    return absent;
  }
  int64_t Count(JsonFields& fields, std::string_view name, int64_t absent, int64_t min,
                int64_t max) {
    const double value = Number(fields, name, static_cast<double>(absent), static_cast<double>(min),
                                static_cast<double>(max));
    if (std::trunc(value) == value) return static_cast<int64_t>(value);
    fields.Fail(name, StrCat("is ", value, ", expected a whole number"));
    return absent;
  }
  float Factor(JsonFields& fields, std::string_view name, float absent) {
    return static_cast<float>(Number(fields, name, absent, -kMaxFactor, kMaxFactor));
  }

  // --- what layers share -------------------------------------------------------------------

  void ReadRopes(const Json& ropes) {
    if (!ropes.is_object()) return Fail(InvalidArgument("ropes must be an object of ropes"));
    for (const auto& [name, json] : ropes.items()) {
      const std::string& rope = name;
      With(json, StrCat("ropes.", Printable(rope, 60)), [&](JsonFields& fields) {
        const RopePairs pairs = Choice<RopePairs>(
            fields, "pairs", {{"halves", RopePairs::kHalves}, {"adjacent", RopePairs::kAdjacent}},
            RopePairs::kHalves);
        RopeShape shape = b_.ReadRopeShape(pairs, dims_);
        shape.base = Number(fields, "base", shape.base, 1.000001, 1e15);
        const bool scaled = fields.Bool("scaling").value_or(false);
        const bool divided = fields.Bool("divisors").value_or(false);
        const RopeScaling scaling = scaled ? b_.ReadRopeScaling() : RopeScaling();
        const std::vector<float> divisors =
            divided ? b_.ReadRopeDivisors(dims_) : std::vector<float>();
        if (b_.ok() && fields.ok()) ropes_[rope] = b_.AddRope(MakeRope(shape, scaling, divisors));
      });
    }
  }

  // Layers see all where the window is 0.
  void ReadWindow(const Json& window) {
    With(window, "window", [&](JsonFields& fields) {
      window_ = Count(fields, "size", 0, 0, SpecBuilder::kMaxContext);
      const int64_t period = Count(fields, "period", 1, 0, SpecBuilder::kMaxSize);
      const bool first = fields.Bool("first_sees_all").value_or(false);
      if (window_ > 0) windowed_ = b_.ReadWindowPattern(dims_.n_layers, period, first);
    });
  }

  bool IsWindowed(int64_t layer) const {
    return !windowed_.empty() && windowed_[static_cast<size_t>(layer)];
  }

  // --- layers --------------------------------------------------------------------------------

  // Takes the first kind that fits.
  void ReadLayer(const Json& kinds, int64_t layer) {
    bool found = false;
    for (size_t i = 0; b_.ok() && !found && i < kinds.size(); ++i) {
      const std::string path = StrCat("layers[", i, "]");
      With(kinds[i], path, [&](JsonFields& fields) {
        const Json* const where = fields.Value("where");
        const Json* const blocks = fields.Value("blocks");
        if (blocks == nullptr || !blocks->is_array() || blocks->empty()) {
          return fields.Fail("blocks", "must be a list of one block or more");
        }
        found = where == nullptr || Fits(*where, StrCat(path, ".where"), layer);
        if (!found) return;
        Layer out;
        for (size_t j = 0; b_.ok() && j < blocks->size(); ++j) {
          out.blocks.push_back(ReadBlock((*blocks)[j], StrCat(path, ".blocks[", j, "]"), layer));
        }
        b_.spec().layers.push_back(std::move(out));
      });
    }
    if (b_.ok() && !found) Fail(InvalidArgument("layers has no kind for layer ", layer));
  }

  bool Fits(const Json& where, const std::string& path, int64_t layer) {
    bool fits = true;
    With(where, path, [&](JsonFields& fields) {
      if (const auto windowed = fields.Bool("windowed")) fits &= *windowed == IsWindowed(layer);
      const int64_t every = Count(fields, "every", 1, 1, SpecBuilder::kMaxSize);
      fits &= (layer + 1) % every == 0;
      fits &= layer < Count(fields, "first", dims_.n_layers, 0, SpecBuilder::kMaxSize);
    });
    return fits;
  }

  Norm NormOf(JsonFields& fields, std::string_view name, int64_t layer) {
    const std::optional<std::string> tensor = fields.String(name);
    return tensor ? b_.StreamNorm(layer, *tensor, dims_) : Norm();
  }

  Block ReadBlock(const Json& json, const std::string& path, int64_t layer) {
    Block block;
    With(json, path, [&](JsonFields& fields) {
      block.pre = NormOf(fields, "pre", layer);
      const Json* const paths = fields.Value("paths");
      if (paths == nullptr) {
        Path only;
        ReadOp(fields, path, layer, &only);
        block.paths.push_back(std::move(only));
      } else if (!paths->is_array() || paths->empty()) {
        return fields.Fail("paths", "must be a list of one path or more");
      }
      for (size_t i = 0; paths != nullptr && b_.ok() && i < paths->size(); ++i) {
        const std::string place = StrCat(path, ".paths[", i, "]");
        With((*paths)[i], place, [&](JsonFields& own) {
          Path side;
          side.pre = NormOf(own, "pre", layer);
          ReadOp(own, place, layer, &side);
          side.post = NormOf(own, "post", layer);
          side.scale = Factor(own, "scale", 1);
          block.paths.push_back(std::move(side));
        });
      }
      block.post = NormOf(fields, "post", layer);
      block.residual_scale = Factor(fields, "residual_scale", 1);
    });
    return block;
  }

  // The one operation among the fields of a block or path.
  void ReadOp(JsonFields& fields, const std::string& path, int64_t layer, Path* out) {
    const Json* const attention = fields.Value("attention");
    const Json* const ffn = fields.Value("feed_forward");
    const Json* const experts = fields.Value("experts");
    const int n_ops = (attention != nullptr) + (ffn != nullptr) + (experts != nullptr);
    if (n_ops != 1) {
      return fields.Fail("attention", "or feed_forward or experts must be there, and only one");
    }
    if (attention != nullptr) out->op = ReadAttention(*attention, path + ".attention", layer);
    if (ffn != nullptr) out->op = ReadFeedForward(*ffn, path + ".feed_forward", layer);
    if (experts != nullptr) out->op = ReadExperts(*experts, path + ".experts", layer);
  }

  // A rope by its name; -1 where none is named.
  int RopeOf(JsonFields& fields) {
    const std::optional<std::string> name = fields.String("rope");
    if (!name) return -1;
    const auto found = ropes_.find(*name);
    if (found != ropes_.end()) return found->second;
    fields.Fail("rope", "must be the name of one of the ropes");
    return -1;
  }

  Attention ReadAttention(const Json& json, const std::string& path, int64_t layer) {
    Attention attention;
    With(json, path, [&](JsonFields& fields) {
      AttentionShape shape = b_.ShapeOf(dims_, layer);
      shape.window = IsWindowed(layer) ? window_ : 0;
      shape.rope = RopeOf(fields);
      shape.gated_query = fields.Bool("gated_query").value_or(false);
      if (shape.gated_query && shape.k_dim != shape.v_dim) {
        fields.Fail("gated_query", "needs keys and values of one width");
      }
      const WhichNorms norms = Choice<WhichNorms>(fields, "head_norms",
                                                  {{"none", WhichNorms::kNone},
                                                   {"each_head", WhichNorms::kEachHead},
                                                   {"if_any", WhichNorms::kIfAny},
                                                   {"all_heads", WhichNorms::kAllHeads}},
                                                  WhichNorms::kNone);
      if (norms == WhichNorms::kEachHead) shape.norms = HeadNorms::kAlways;
      if (norms == WhichNorms::kIfAny) shape.norms = HeadNorms::kIfAny;
      attention = b_.MakeAttention(layer, dims_, shape);
      if (norms == WhichNorms::kAllHeads) {
        attention.q_norm =
            b_.RmsNorm(LayerName(layer, "attn_q_norm"), shape.n_heads * shape.k_dim, dims_.epsilon);
        attention.k_norm = b_.RmsNorm(LayerName(layer, "attn_k_norm"),
                                      shape.n_kv_heads * shape.k_dim, dims_.epsilon);
      }
      attention.scale = Factor(fields, "scale", attention.scale);
      attention.softcap = static_cast<float>(Number(fields, "softcap", 0, 0, 1e6));
      if (const auto sinks = fields.String("sinks")) {
        attention.sinks = b_.Vector(LayerName(layer, *sinks), shape.n_heads);
      }
    });
    return attention;
  }

  ActivationNumbers NumbersOf(JsonFields& fields, Activation activation) {
    ActivationNumbers numbers;
    const bool clamped =
        activation == Activation::kClampedSilu || activation == Activation::kClampedSwiglu;
    if (clamped) numbers.limit = static_cast<float>(Number(fields, "limit", 0, 0, kMaxFactor));
    if (clamped && numbers.limit == 0) fields.Fail("limit", "is missing or 0");
    return numbers;
  }

  DenseFfn ReadFeedForward(const Json& json, const std::string& path, int64_t layer) {
    DenseFfn ffn;
    With(json, path, [&](JsonFields& fields) {
      const Activation activation =
          Choice<Activation>(fields, "activation", kActivations, Activation::kSilu);
      const Gate gate = Choice<Gate>(
          fields, "gate",
          {{"separate", Gate::kSeparate}, {"fused", Gate::kFused}, {"none", Gate::kNone}},
          Gate::kSeparate);
      const int64_t width =
          Count(fields, "width", dims_.n_ff[static_cast<size_t>(layer)], 1, SpecBuilder::kMaxSize);
      const std::string suffix = fields.String("suffix").value_or("");
      if (gate == Gate::kNone && !suffix.empty()) fields.Fail("suffix", "needs a gate");
      const ActivationNumbers numbers = NumbersOf(fields, activation);
      if (gate == Gate::kNone && numbers.limit > 0) fields.Fail("activation", "needs a gate");
      if (!fields.ok()) return;
      if (gate == Gate::kSeparate) ffn = b_.MakeFfn(layer, dims_, width, activation, suffix);
      if (gate == Gate::kFused) ffn = b_.MakeFusedFfn(layer, dims_, width, suffix);
      if (gate == Gate::kNone) ffn = b_.MakeFfnWithoutGate(layer, dims_, width, activation);
      ffn.activation = activation;
      ffn.numbers = numbers;
      if (const auto name = fields.String("output_gate")) {
        ffn.output_gate = b_.Matrix(LayerName(layer, *name), dims_.d_model, 1);
      }
    });
    return ffn;
  }

  MixtureOfExperts ReadExperts(const Json& json, const std::string& path, int64_t layer) {
    MixtureOfExperts experts;
    With(json, path, [&](JsonFields& fields) {
      MoeDefaults defaults;
      defaults.weights =
          Choice<RouterWeights>(fields, "weights",
                                {{"softmax", RouterWeights::kSoftmax},
                                 {"sigmoid", RouterWeights::kSigmoid},
                                 {"softmax_of_chosen", RouterWeights::kSoftmaxOfChosen}},
                                RouterWeights::kSoftmax);
      defaults.renormalize = fields.Bool("renormalize").value_or(false);
      defaults.activation =
          Choice<Activation>(fields, "activation", kActivations, Activation::kSilu);
      experts = b_.ReadMoe(defaults);
      experts.numbers = NumbersOf(fields, defaults.activation);
      const int64_t width =
          Count(fields, "width", dims_.n_ff[static_cast<size_t>(layer)], 1, SpecBuilder::kMaxSize);
      if (fields.ok()) b_.AddExperts(layer, dims_, width, &experts);
    });
    return experts;
  }

  const std::string spec_path_;
  SpecBuilder& b_;
  Dims dims_;
  std::map<std::string, int> ropes_;
  int64_t window_ = 0;
  std::vector<bool> windowed_;  // by layer; empty: none is
};

}  // namespace

void BuildFromSpecFile(const ModelFile& file, SpecBuilder* builder) {
  const StatusOr<Json> json = ParseJson(file.spec_text(), kSpecLimits);
  if (!json.ok()) {
    builder->Fail(Annotate(json.status(), Printable(file.spec_path(), 300), ": "));
    return;
  }
  SpecReader(file, builder).Read(*json);
}

}  // namespace weft
