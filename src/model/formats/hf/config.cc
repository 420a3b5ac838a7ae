#include "model/formats/hf/config.h"

#include <cmath>
#include <cstring>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "json/json_fields.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr FolderForm kFolderForms[] = {
    {.class_name = "BertForSequenceClassification",
     .architecture = "bert",
     .is_encoder = true,
     .scores = true},
    {.class_name = "BertModel", .architecture = "bert", .is_encoder = true},
    {.class_name = "Gemma2ForCausalLM",
     .architecture = "gemma2",
     .adds_one_to_norms = true,
     .norms_after = true},
    {.class_name = "Gemma3ForCausalLM",
     .architecture = "gemma3",
     .adds_one_to_norms = true,
     .norms_after = true},
    {.class_name = "Gemma3ForConditionalGeneration",
     .architecture = "gemma3",
     .adds_one_to_norms = true,
     .norms_after = true},
    {.class_name = "Gemma3TextModel",
     .architecture = "gemma-embedding",
     .adds_one_to_norms = true,
     .norms_after = true,
     .is_embedder = true},
    {.class_name = "GemmaForCausalLM", .architecture = "gemma", .adds_one_to_norms = true},
    {.class_name = "GraniteForCausalLM", .architecture = "granite", .reorders_heads = true},
    {.class_name = "LlamaForCausalLM", .architecture = "llama", .reorders_heads = true},
    {.class_name = "MistralForCausalLM", .architecture = "llama", .reorders_heads = true},
    {.class_name = "Olmo2ForCausalLM", .architecture = "olmo2", .norms_after = true},
    {.class_name = "Phi3ForCausalLM", .architecture = "phi3"},
    {.class_name = "Qwen2ForCausalLM", .architecture = "qwen2"},
    {.class_name = "Qwen3ForCausalLM", .architecture = "qwen3"},
    {.class_name = "SmolLM3ForCausalLM", .architecture = "smollm3", .reorders_heads = true},
};

struct ConfigKey {
  std::string_view name;
  std::string_view key;  // after the architecture's name
  bool is_count;
};
// Where a configuration has them.
constexpr ConfigKey kConfigKeys[] = {
    {"num_hidden_layers", "block_count", true},
    {"hidden_size", "embedding_length", true},
    {"intermediate_size", "feed_forward_length", true},
    {"num_attention_heads", "attention.head_count", true},
    {"num_key_value_heads", "attention.head_count_kv", true},
    {"max_position_embeddings", "context_length", true},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", false},
    {"layer_norm_eps", "attention.layer_norm_epsilon", false},
    {"rope_theta", "rope.freq_base", false},
    {"rope_local_base_freq", "rope.freq_base_swa", false},
    {"attn_logit_softcapping", "attn_logit_softcapping", false},
    {"final_logit_softcapping", "final_logit_softcapping", false},
    {"embedding_multiplier", "embedding_scale", false},
    {"residual_multiplier", "residual_scale", false},
    {"attention_multiplier", "attention.scale", false},
    {"logits_scaling", "logit_scale", false},
};

struct ConfigDefault {
  std::string_view name;
  double value;
};
// What Gemma 3's configurations leave to the class.
constexpr ConfigDefault kGemma3Defaults[] = {
    {"head_dim", 256},          {"max_position_embeddings", 131072},
    {"num_attention_heads", 8}, {"num_key_value_heads", 4},
    {"rms_norm_eps", 1e-6},     {"rope_local_base_freq", 1e4},
    {"rope_theta", 1e6},
};

class ConfigReader {
 public:
  ConfigReader(const Json& config, const FolderForm& form, HuggingFaceModel* out)
      : fields_(config), form_(form), out_(*out) {}

  Status Read() {
    out_.Set("general.architecture", form_.architecture);
    for (const ConfigKey& entry : kConfigKeys) {
      if (entry.is_count) {
        if (const auto n = fields_.Integer(entry.name, 0, 1 << 30)) SetCount(entry.key, *n);
      } else if (const auto x = fields_.Number(entry.name, -1e15, 1e15)) {
        SetNumber(entry.key, *x);
      }
    }
    const int64_t width = fields_.Integer("hidden_size", 1, 1 << 30).value_or(1);
    const int64_t n_heads = fields_.Integer("num_attention_heads", 1, 1 << 20).value_or(1);
    head_dim_ = fields_.Integer("head_dim", 1, 1 << 16).value_or(width / n_heads);
    SetCount("attention.key_length", head_dim_);
    SetCount("attention.value_length", head_dim_);
    const double rotated = fields_.Number("partial_rotary_factor", 0, 1).value_or(1);
    n_rot_ = static_cast<int64_t>(static_cast<double>(head_dim_) * rotated);
    if (form_.is_encoder) {
      ReadEncoder();
    } else {
      SetCount("rope.dimension_count", n_rot_);
      ReadWindow();
      ReadRope();
      if (form_.is_embedder && !fields_.Bool("use_bidirectional_attention").value_or(false)) {
        fields_.Fail("use_bidirectional_attention", "must be true in models of this class");
      }
    }
    if (form_.architecture == "smollm3" &&
        fields_.Integer("no_rope_layer_interval", 0, 1 << 20).value_or(4) != 4) {
      fields_.Fail("no_rope_layer_interval", "must be 4, as in every SmolLM 3");
    }
    std::vector<std::string> unknown;  // most of a configuration is about training
    return fields_.Finish(&unknown);
  }

 private:
  std::string Key(std::string_view key) const { return StrCat(form_.architecture, ".", key); }
  void SetCount(std::string_view key, int64_t n) { out_.Set(Key(key), static_cast<uint64_t>(n)); }
  void SetNumber(std::string_view key, double x) {
    // As a GGUF file would have it.
    out_.Set(Key(key), static_cast<double>(static_cast<float>(x)));
  }

  void ReadEncoder() {
    out_.Set(Key("attention.causal"), false);
    fields_.Refuse("hidden_act", "is not known here; gelu is", "gelu");
    fields_.Refuse("position_embedding_type", "is not known here; absolute is", "absolute");
  }

  void ReadWindow() {
    const bool has_windows =
        form_.architecture.starts_with("gemma") || form_.architecture == "olmo2";
    const auto window = fields_.Integer("sliding_window", 0, 1 << 30);
    if (!has_windows || !window) return;
    SetCount("attention.sliding_window", *window);
    const Json* const types = fields_.Value("layer_types");
    if (types == nullptr || !types->is_array()) return;
    std::vector<bool> windowed;
    for (const Json& type : *types) windowed.push_back(type == "sliding_attention");
    out_.Set(Key("attention.sliding_window_pattern"), MetaArray{.items = std::move(windowed)});
  }

  void ReadRope() {
    // Newer configurations have the base in here, too.
    for (const char* const name : {"rope_parameters", "rope_scaling"}) {
      const Json* const json = fields_.Value(name);
      if (json == nullptr || !json->is_object() || json->empty()) continue;
      // Newer ones also tell layers that see all from those that see a window.
      const auto full = json->find("full_attention");
      const auto local = json->find("sliding_attention");
      const bool is_parted = full != json->end() && full->is_object();
      if (local != json->end() && local->is_object() && local->contains("rope_theta") &&
          (*local)["rope_theta"].is_number()) {
        SetNumber("rope.freq_base_swa", (*local)["rope_theta"].get<double>());
      }
      JsonFields rope(is_parted ? *full : *json, StrCat(name, "."));
      ReadRopeFields(rope);
      std::vector<std::string> unknown;
      const Status status = rope.Finish(&unknown);
      if (!status.ok()) fields_.Fail(name, StrCat("is wrong: ", Message(status)));
      return;
    }
  }

  void ReadRopeFields(JsonFields& rope) {
    if (const auto base = rope.Number("rope_theta", 1, 1e15)) {
      base_ = *base;
      SetNumber("rope.freq_base", *base);
    } else {
      base_ = fields_.Number("rope_theta", 1, 1e15).value_or(10000);
    }
    std::string type = rope.String("rope_type").value_or("");
    if (type.empty()) type = rope.String("type").value_or("default");
    const double factor = rope.Number("factor", 1e-3, 1e6).value_or(1);
    const int64_t trained = fields_.Integer("max_position_embeddings", 1, 1 << 30).value_or(1);
    int64_t original = rope.Integer("original_max_position_embeddings", 1, 1 << 30).value_or(0);
    if (original == 0) {
      original = fields_.Integer("original_max_position_embeddings", 1, 1 << 30).value_or(trained);
    }
    if (type == "default") return;
    if (type == "linear" || type == "yarn") {
      out_.Set(Key("rope.scaling.type"), out_.Own(type));
      SetNumber("rope.scaling.factor", factor);
      if (type == "linear") return;
      SetCount("rope.scaling.original_context_length", original);
      if (const auto x = rope.Number("beta_fast", 0, 1e6))
        SetNumber("rope.scaling.yarn_beta_fast", *x);
      if (const auto x = rope.Number("beta_slow", 0, 1e6))
        SetNumber("rope.scaling.yarn_beta_slow", *x);
      if (const auto x = rope.Number("attention_factor", 0, 1e6)) {
        SetNumber("rope.scaling.attn_factor", *x / (1 + 0.1 * std::log(factor)));
      }
    } else if (type == "llama3") {
      AddLlama3Factors(factor, rope.Number("low_freq_factor", 1e-6, 1e6).value_or(1),
                       rope.Number("high_freq_factor", 1e-6, 1e6).value_or(4),
                       static_cast<double>(original));
    } else if (type == "longrope" || type == "su") {
      SetCount("rope.scaling.original_context_length", original);
      AddFactors(rope, "long_factor", "rope_factors_long.weight");
      AddFactors(rope, "short_factor", "rope_factors_short.weight");
      const double scale = static_cast<double>(trained) / static_cast<double>(original);
      const double grown =
          std::sqrt(1 + std::log(std::max(scale, 1.0)) /
                            std::log(static_cast<double>(std::max<int64_t>(original, 2))));
      SetNumber("rope.scaling.attn_factor",
                rope.Number("attention_factor", 0, 1e6).value_or(grown));
    } else {
      rope.Fail("rope_type", StrCat("'", Printable(type, 40), "' is not known here"));
    }
  }

  // Slow frequencies are divided by the factor, fast ones left alone, those between blended.
  void AddLlama3Factors(double factor, double low, double high, double original) {
    std::vector<float> divisors;
    for (int64_t i = 0; i < head_dim_ / 2; ++i) {
      const double frequency =
          std::pow(base_, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim_));
      const double wavelength = 2 * std::numbers::pi / frequency;
      double divisor = 1;
      if (wavelength > original / low) {
        divisor = factor;
      } else if (wavelength >= original / high && high > low) {
        const double smooth = (original / wavelength - low) / (high - low);
        divisor = 1 / ((1 - smooth) / factor + smooth);
      }
      divisors.push_back(static_cast<float>(divisor));
    }
    AddVector("rope_freqs.weight", divisors);
  }

  void AddFactors(JsonFields& rope, std::string_view name, std::string_view tensor) {
    const Json* const list = rope.Value(name);
    std::vector<float> divisors;
    for (size_t i = 0; list != nullptr && list->is_array() && i < list->size(); ++i) {
      if ((*list)[i].is_number()) divisors.push_back((*list)[i].get<float>());
    }
    if (static_cast<int64_t>(divisors.size()) != n_rot_ / 2) {
      return rope.Fail(name, StrCat("must be a list of ", n_rot_ / 2, " numbers"));
    }
    AddVector(tensor, divisors);
  }

  void AddVector(std::string_view name, const std::vector<float>& values) {
    if (values.empty()) return;
    std::vector<std::byte>& bytes = out_.bytes.emplace_back(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    out_.tensors.push_back({.name = name,
                            .type = DType::kF32,
                            .n_dims = 1,
                            .dims = {static_cast<int64_t>(values.size()), 1, 1, 1},
                            .data = bytes});
  }

  JsonFields fields_;
  const FolderForm& form_;
  HuggingFaceModel& out_;
  int64_t head_dim_ = 1, n_rot_ = 1;
  double base_ = 10000;
};

}  // namespace

const FolderForm* FindFolderForm(std::string_view class_name) {
  for (const FolderForm& form : kFolderForms) {
    if (form.class_name == class_name) return &form;
  }
  return nullptr;
}

std::string KnownFolderForms() {
  std::vector<std::string_view> names;
  for (const FolderForm& form : kFolderForms) names.push_back(form.class_name);
  return StrJoin(names, ", ");
}

Status ReadFolderConfig(const Json& config, const FolderForm& form, HuggingFaceModel* out) {
  Json complete = config;
  if (form.architecture == "gemma3" || form.is_embedder) {
    for (const ConfigDefault& absent : kGemma3Defaults) {
      if (!complete.contains(absent.name)) complete[std::string(absent.name)] = absent.value;
    }
  }
  return ConfigReader(complete, form, out).Read();
}

}  // namespace weft
