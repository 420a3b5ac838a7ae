#include "model/formats/ollama_dialect.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "base/half.h"
#include "base/strings.h"
#include "model/formats/ollama_draft.h"

namespace weft {
namespace {

// --- what a table cannot say ---------------------------------------------------------------

constexpr std::string_view kBlocks = "blk.";

// "blk.12.rest": the number, -1 for other names, and the rest (the whole name then).
int64_t LayerAndRest(std::string_view name, std::string_view* rest) {
  *rest = name;
  if (!name.starts_with(kBlocks)) return -1;
  const size_t dot = name.find('.', kBlocks.size());
  int64_t layer = -1;
  if (dot == name.npos || !ParseInt64(name.substr(kBlocks.size(), dot - kBlocks.size()), &layer)) {
    return -1;
  }
  *rest = name.substr(dot + 1);
  return layer;
}

template <typename Item>
void CutItems(std::vector<Item>* items, size_t n) {
  if (items->size() > n) items->resize(n);
}

// Tokens that have no row in the embedding: those of pictures.
void CutVocabulary(OllamaDraft* draft, int64_t n_rows) {
  if (n_rows < 1) return;
  for (const char* key :
       {"tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type"}) {
    MetaValue* const value = draft->Find(key);
    auto* array = value != nullptr ? std::get_if<MetaArray>(value) : nullptr;
    if (array == nullptr) continue;
    std::visit([&](auto& items) { CutItems(&items, static_cast<size_t>(n_rows)); }, array->items);
  }
}

void CutVocabularyToEmbedding(OllamaDraft* draft) {
  if (const TensorInfo* embedding = draft->Tensor("token_embd.weight")) {
    CutVocabulary(draft, embedding->dims[1]);
  }
}

void FinishGemma3(OllamaDraft* draft) {
  CutVocabularyToEmbedding(draft);
  // The larger ones were stretched from 16 thousand tokens, which their files do not say.
  if (draft->Count(".context_length") < 131072) return;
  draft->Assume(".rope.scaling.type", std::string_view("linear"));
  draft->Assume(".rope.scaling.factor", 8.0);
}

// The second table has rows for text alone; the first is cut to them.
void FinishGemma3n(OllamaDraft* draft) {
  TensorInfo* const embedding = draft->Tensor("token_embd.weight");
  const TensorInfo* const per_layer = draft->Tensor("per_layer_token_embd.weight");
  if (embedding == nullptr || per_layer == nullptr) return;
  const int64_t n_rows = per_layer->dims[1];
  if (n_rows < 1 || n_rows >= embedding->dims[1] || embedding->rows() != embedding->dims[1]) return;
  embedding->dims[1] = n_rows;
  embedding->data = embedding->data.first(static_cast<size_t>(n_rows * embedding->row_bytes()));
  CutVocabulary(draft, n_rows);
}

// "llama" stands for SentencePiece, but the merges say that it is Gemma 4's byte-pair encoding.
void FinishGemma4(OllamaDraft* draft) {
  if (draft->Text("tokenizer.ggml.model") == "llama" && draft->Has("tokenizer.ggml.merges")) {
    draft->Set("tokenizer.ggml.model", std::string_view("gemma4"));
  }
}

void FinishGptOss(OllamaDraft* draft) {
  if (const TensorInfo* gate = draft->Tensor("blk.0.ffn_gate_exps.weight")) {
    draft->Assume(".expert_feed_forward_length", static_cast<uint64_t>(gate->dims[1]));
  }
  // Ollama's own reader takes this one whatever the file says.
  if (draft->Text("tokenizer.ggml.model") == "gpt2") {
    draft->Set("tokenizer.ggml.pre", std::string_view("gpt-4o"));
  }
}

// Some files give the length that the configuration had before it was rounded.
void FinishLfm2(OllamaDraft* draft) {
  if (const TensorInfo* gate = draft->Tensor("blk.0.ffn_gate.weight")) {
    draft->SetCount(".feed_forward_length", gate->dims[1]);
  }
}

// An array with zeros for the layers that have no keys.
void TakeMostKeyHeads(OllamaDraft* draft) {
  MetaValue* const value = draft->Find(".attention.head_count_kv");
  auto* array = value != nullptr ? std::get_if<MetaArray>(value) : nullptr;
  if (array == nullptr) return;
  int64_t most = 0;
  bool has_zero = false;
  const auto take = [&](const auto& items) {
    using Item = typename std::decay_t<decltype(items)>::value_type;
    if constexpr (std::is_integral_v<Item>) {
      for (const Item item : items) {
        most = std::max(most, static_cast<int64_t>(item));
        has_zero |= item == 0;
      }
    }
  };
  std::visit(take, array->items);
  if (has_zero && most > 0) draft->SetCount(".attention.head_count_kv", most);
}

std::optional<std::vector<float>> OnePlus(const TensorInfo& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.values()));
  const std::byte* const data = tensor.data.data();
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    if (tensor.type == DType::kF32) {
      std::memcpy(&values[i], data + i * sizeof(float), sizeof(float));
    } else if (tensor.type == DType::kF16 || tensor.type == DType::kBF16) {
      std::memcpy(&half, data + i * sizeof(half), sizeof(half));
      values[i] = tensor.type == DType::kF16 ? F16ToF32(half) : BF16ToF32(half);
    } else {
      return std::nullopt;
    }
    values[i] += 1;
  }
  return values;
}

// The name that a tensor of the head "mtp." has in a layer; empty if it is not known.
std::string_view NameInLayer(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"mtp.fc.weight", "nextn.eh_proj.weight"},
      {"mtp.pre_fc_norm_embedding.weight", "nextn.enorm.weight"},
      {"mtp.pre_fc_norm_hidden.weight", "nextn.hnorm.weight"},
      {"mtp.embed_tokens.weight", "nextn.embed_tokens.weight"},
      {"mtp.shared_head.head.weight", "nextn.shared_head_head.weight"},
      {"mtp.shared_head.norm.weight", "nextn.shared_head_norm.weight"},
      {"mtp.norm.weight", "nextn.shared_head_norm.weight"},
  };
  for (const auto& [from, to] : kNames) {
    if (name == from) return to;
  }
  constexpr std::string_view kLayer = "mtp.layers.0.";
  if (!name.starts_with(kLayer)) return "";
  name.remove_prefix(kLayer.size());
  return name.starts_with("mlp.") ? "" : name;
}

// Qwen 3.5's MTP head as one more layer, whose norms lack the one that those of text include.
// A head with experts in single tensors, or with several layers, is set aside instead.
void MoveHead(OllamaDraft* draft) {
  int64_t n_layers = 0;
  std::string_view rest;
  for (const TensorInfo& tensor : draft->tensors()) {
    n_layers = std::max(n_layers, LayerAndRest(tensor.name, &rest) + 1);
    if (rest.starts_with("nextn.")) return;
    if (tensor.name.starts_with("mtp.") && NameInLayer(tensor.name).empty()) return;
  }
  if (n_layers == 0 || n_layers > (1 << 20) || !draft->HasTensors("mtp.")) return;
  const bool two_norms = draft->HasTensor("mtp.shared_head.norm.weight");
  for (TensorInfo& tensor : draft->tensors()) {
    if (!tensor.name.starts_with("mtp.")) continue;
    if (two_norms && tensor.name == "mtp.norm.weight") continue;
    const std::string_view name = NameInLayer(tensor.name);
    const bool shifted = name.ends_with("_norm.weight") || name.ends_with(".enorm.weight") ||
                         name.ends_with(".hnorm.weight");
    if (shifted) {
      std::optional<std::vector<float>> values = OnePlus(tensor);
      if (!values) continue;
      draft->Fill(&tensor, *std::move(values));
    }
    draft->Rename(&tensor, StrCat(kBlocks, n_layers, ".", name));
  }
  draft->SetCount(".nextn_predict_layers", 1);
  draft->SetCount(".block_count", n_layers + 1);
}

void FinishQwenHybrid(OllamaDraft* draft) {
  TakeMostKeyHeads(draft);
  MoveHead(draft);
}

// Latent attention: the file has the sizes of a head where those of the cache belong.
void FinishGlm4MoeLite(OllamaDraft* draft) {
  const TensorInfo* const k_b = draft->Tensor("blk.0.attn_k_b.weight");
  const TensorInfo* const v_b = draft->Tensor("blk.0.attn_v_b.weight");
  const int64_t rank = draft->Count(".attention.kv_lora_rank");
  const int64_t n_rot = draft->Count(".rope.dimension_count");
  if (k_b == nullptr || v_b == nullptr || rank == 0 || n_rot == 0) return;
  draft->SetCount(".attention.head_count_kv", 1);
  draft->SetCount(".attention.key_length", rank + n_rot);
  draft->SetCount(".attention.value_length", rank);
  draft->SetCount(".attention.key_length_mla", k_b->dims[0] + n_rot);
  draft->SetCount(".attention.value_length_mla", v_b->dims[1]);
}

void FinishNemotronH(OllamaDraft* draft) {
  std::string_view rest;
  for (const TensorInfo& tensor : draft->tensors()) {
    if (LayerAndRest(tensor.name, &rest) < 0 || rest != "ffn_latent_down.weight") continue;
    draft->Assume(".moe_latent_size", static_cast<uint64_t>(tensor.dims[1]));
    return;
  }
}

void FinishNemotronHOmni(OllamaDraft* draft) {
  draft->Become(draft->Count(".expert_count") > 0 ? "nemotron_h_moe" : "nemotron_h");
  FinishNemotronH(draft);
}

int Base64Value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

constexpr std::string_view kCharsMap = "tokenizer.ggml.precompiled_charsmap";

// Decodes the base64 text that such files have instead of bytes, each letter an item of its own.
void FinishBert(OllamaDraft* draft) {
  const auto* array = std::get_if<MetaArray>(draft->Find(kCharsMap));
  const auto* letters =
      array != nullptr ? std::get_if<std::vector<std::string_view>>(&array->items) : nullptr;
  if (letters == nullptr) return;
  std::vector<uint64_t> bytes;
  uint32_t bits = 0;
  for (size_t i = 0, n = 0; i < letters->size() && (*letters)[i] != "="; ++i) {
    const int value = (*letters)[i].size() == 1 ? Base64Value((*letters)[i][0]) : -1;
    if (value < 0) return;
    bits = bits << 6 | static_cast<uint32_t>(value);
    n += 6;
    if (n < 8) continue;
    n -= 8;
    bytes.push_back(bits >> n & 0xFF);
  }
  draft->Set(kCharsMap, MetaArray{.items = std::move(bytes)});
}

bool LacksPre(const OllamaDraft& draft) {
  const std::string_view pre = draft.Text("tokenizer.ggml.pre");
  return pre.empty() || pre == "default";
}

bool HasCharsMap(const OllamaDraft& d) { return d.Has(kCharsMap); }

bool IsGemma3(const OllamaDraft& d) {
  return d.Has(".mm.tokens_per_image") || d.HasTensors("v.") || d.HasTensors("mm.") ||
         d.Has(".rope.global.freq_base") || d.Has(".rope.local.freq_base") ||
         d.Has("tokenizer.ggml.add_padding_token") || d.Has("tokenizer.ggml.add_unknown_token") ||
         !d.Has(".attention.layer_norm_rms_epsilon");
}

bool IsEmbeddingGemma(const OllamaDraft& d) { return d.HasTensor("dense.0.weight"); }

bool IsLfm2(const OllamaDraft& d) {
  return d.HasTensor("output_norm.weight") && !d.HasTensor("token_embd_norm.weight");
}

bool IsMistral3(const OllamaDraft& d) {
  return d.HasTensors("v.") || d.HasTensors("mm.") || d.Has(".rope.scaling.beta_fast") ||
         d.Has(".rope.scaling.mscale_all_dim") || d.Has(".rope.scaling_beta");
}

bool IsLlama3(const OllamaDraft& d) {
  return d.Token(128009) == "<|eot_id|>" && d.Token(128006) == "<|start_header_id|>";
}

// --- the table ---------------------------------------------------------------------------

struct Renamed {
  std::string_view from, to;
};
struct Assumed {
  std::string_view key;
  double value;
};

// How Ollama writes one architecture.
struct Form {
  std::string_view architecture;
  bool (*applies)(const OllamaDraft&) = nullptr;  // null: to every file of the architecture
  std::string_view becomes = {};                  // llama.cpp's name of it, where it differs
  std::initializer_list<Renamed> keys = {};       // after the architecture's new name
  std::initializer_list<Assumed> assumed = {};    // values of missing keys
  // Tensors' names after "blk.N."; one that ends in a dot is a prefix.
  std::initializer_list<Renamed> tensors = {};
  std::string_view pre = {};  // the pre-tokenizer, where the file names none
  void (*finish)(OllamaDraft*) = nullptr;
};

const Form kForms[] = {
    {.architecture = "bert", .applies = HasCharsMap, .finish = FinishBert},
    {.architecture = "gemma3",
     .applies = IsEmbeddingGemma,
     .becomes = "gemma-embedding",
     .assumed = {{".attention.layer_norm_rms_epsilon", 1e-6}, {".rope.freq_base", 1e6}},
     .tensors = {{"dense.0.weight", "dense_2.weight"},
                 {"dense.1.weight", "dense_3.weight"},
                 {"norm.weight", "output_norm.weight"}},
     .finish = CutVocabularyToEmbedding},
    {.architecture = "gemma3",
     .applies = IsGemma3,
     .keys = {{".rope.global.freq_base", ".rope.freq_base"},
              {".rope.local.freq_base", ".rope.freq_base_swa"}},
     .assumed = {{".attention.layer_norm_rms_epsilon", 1e-6},
                 {".rope.freq_base", 1e6},
                 {".rope.freq_base_swa", 1e4}},
     .finish = FinishGemma3},
    {.architecture = "gemma3n", .finish = FinishGemma3n},
    {.architecture = "gemma4",
     .tensors = {{"ffn_gate_inp.per_expert_scale", "ffn_down_exps.scale"}},
     .finish = FinishGemma4},
    {.architecture = "glm4moelite",
     .becomes = "deepseek2",
     .pre = "glm4",
     .finish = FinishGlm4MoeLite},
    {.architecture = "gptoss",
     .becomes = "gpt-oss",
     .tensors = {{"attn_out.", "attn_output."},
                 {"attn_sinks", "attn_sinks.weight"},
                 {"ffn_norm.", "post_attention_norm."}},
     .finish = FinishGptOss},
    {.architecture = "lfm2",
     .applies = IsLfm2,
     .tensors = {{"output_norm.weight", "token_embd_norm.weight"}},
     .pre = "lfm2",
     .finish = FinishLfm2},
    {.architecture = "lfm2moe",
     .applies = IsLfm2,
     .tensors = {{"output_norm.weight", "token_embd_norm.weight"}},
     .pre = "lfm2"},
    {.architecture = "llama", .applies = IsLlama3, .pre = "llama-bpe"},
    {.architecture = "mistral3",
     .applies = IsMistral3,
     .keys = {{".rope.scaling.beta_fast", ".rope.scaling.yarn_beta_fast"},
              {".rope.scaling.beta_slow", ".rope.scaling.yarn_beta_slow"},
              {".rope.scaling.mscale_all_dim", ".rope.scaling.yarn_log_multiplier"},
              {".rope.scaling_beta", ".attention.temperature_scale"}},
     .pre = "tekken"},
    {.architecture = "nemotron_h_moe",
     .tensors = {{"ffn_latent_in.", "ffn_latent_down."}, {"ffn_latent_out.", "ffn_latent_up."}},
     .finish = FinishNemotronH},
    {.architecture = "nemotron_h_omni",
     .tensors = {{"ffn_latent_in.", "ffn_latent_down."}, {"ffn_latent_out.", "ffn_latent_up."}},
     .finish = FinishNemotronHOmni},
    {.architecture = "olmo3", .becomes = "olmo2"},
    {.architecture = "qwen25vl", .becomes = "qwen2vl"},
    {.architecture = "qwen35", .tensors = {{"ssm_dt", "ssm_dt.bias"}}, .finish = FinishQwenHybrid},
    {.architecture = "qwen35moe",
     .tensors = {{"ssm_dt", "ssm_dt.bias"}},
     .finish = FinishQwenHybrid},
    {.architecture = "qwen3next",
     .tensors = {{"ssm_dt", "ssm_dt.bias"}},
     .finish = TakeMostKeyHeads},
};

void RenameTensors(OllamaDraft* draft, std::initializer_list<Renamed> names) {
  for (TensorInfo& tensor : draft->tensors()) {
    std::string_view rest;
    LayerAndRest(tensor.name, &rest);
    for (const Renamed& name : names) {
      const bool begins = name.from.ends_with('.') && rest.starts_with(name.from);
      if (!begins && rest != name.from) continue;
      const std::string_view before = tensor.name.substr(0, tensor.name.size() - rest.size());
      draft->Rename(&tensor, StrCat(before, name.to, rest.substr(name.from.size())));
      break;
    }
  }
}

void Apply(const Form& form, OllamaDraft* draft) {
  if (!form.becomes.empty()) draft->Become(form.becomes);
  for (const Renamed& key : form.keys) draft->MoveKey(key.from, key.to);
  for (const Assumed& key : form.assumed) draft->Assume(key.key, key.value);
  if (form.tensors.size() > 0) RenameTensors(draft, form.tensors);
  const bool merges = draft->Text("tokenizer.ggml.model") == "gpt2";
  if (!form.pre.empty() && merges && LacksPre(*draft)) draft->Set("tokenizer.ggml.pre", form.pre);
  if (form.finish != nullptr) form.finish(draft);
}

// No tensor of a language model's text begins so.
bool IsAside(std::string_view name) {
  static constexpr std::string_view kPrefixes[] = {"v.", "mm.",  "a.",
                                                   "s.", "mtp.", "model.vision_tower."};
  return std::ranges::any_of(kPrefixes, [&](std::string_view p) { return name.starts_with(p); });
}

}  // namespace

OllamaTranslation TranslateOllama(std::vector<ModelFile::KeyValue>* metadata,
                                  std::vector<TensorInfo>* tensors) {
  OllamaTranslation out;
  OllamaDraft draft(metadata, tensors, &out);
  const std::string architecture(draft.Text("general.architecture"));
  if (architecture.empty() || architecture == "clip") return out;
  draft.set_architecture(architecture);
  for (const Form& form : kForms) {
    if (form.architecture != architecture) continue;
    if (form.applies != nullptr && !form.applies(draft)) continue;
    Apply(form, &draft);
    if (draft.changed()) out.architecture = architecture;
    break;
  }
  const auto aside = std::stable_partition(tensors->begin(), tensors->end(),
                                           [](const TensorInfo& t) { return !IsAside(t.name); });
  out.set_aside.assign(aside, tensors->end());
  tensors->erase(aside, tensors->end());
  return out;
}

}  // namespace weft
