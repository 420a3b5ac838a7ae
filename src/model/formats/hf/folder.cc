#include "model/formats/hf/folder.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "base/half.h"
#include "base/strings.h"
#include "json/json_fields.h"
#include "model/formats/gguf_format.h"
#include "model/formats/hf/config.h"
#include "model/formats/hf/safetensors.h"
#include "model/formats/hf/tokenizer.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxConfigBytes = size_t{16} << 20;
constexpr size_t kMaxShards = 1000;
constexpr JsonLimits kConfigLimits = {.max_depth = 32, .max_values = 500'000};

// Empty if there is no such file.
StatusOr<Json> ReadJsonFile(const std::string& path) {
  if (!std::filesystem::exists(path)) return Json::object();
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  StatusOr<Json> json = ParseJson(text, kConfigLimits);
  if (!json.ok()) return Annotate(json.status(), Printable(path, 300), ": ");
  if (!json->is_object()) return InvalidArgument(Printable(path, 300), ": it is no object");
  return json;
}

struct NamePair {
  std::string_view theirs, ours;
};
constexpr NamePair kWholeNames[] = {
    {"embed_tokens.weight", "token_embd.weight"},
    {"norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
};
// Names after "layers.N.".
constexpr NamePair kLayerNames[] = {
    {"input_layernorm.", "attn_norm."},
    {"mlp.down_proj.", "ffn_down."},
    {"mlp.gate_proj.", "ffn_gate."},
    {"mlp.gate_up_proj.", "ffn_up."},
    {"mlp.up_proj.", "ffn_up."},
    {"post_feedforward_layernorm.", "post_ffw_norm."},
    {"pre_feedforward_layernorm.", "ffn_norm."},
    {"self_attn.k_norm.", "attn_k_norm."},
    {"self_attn.k_proj.", "attn_k."},
    {"self_attn.o_proj.", "attn_output."},
    {"self_attn.q_norm.", "attn_q_norm."},
    {"self_attn.q_proj.", "attn_q."},
    {"self_attn.qkv_proj.", "attn_qkv."},
    {"self_attn.v_proj.", "attn_v."},
};
// Tensors for vision, audio and training, and those that Weft computes itself.
constexpr std::string_view kUnread[] = {
    "vision_tower.", "vision_model.", "multi_modal_projector.",
    "visual.",       "cls.",          "embeddings.position_ids"};
// BERT's names: full ones, and those after "encoder.layer.N.".
constexpr NamePair kEncoderNames[] = {
    {"embeddings.LayerNorm.", "token_embd_norm."},
    {"embeddings.position_embeddings.", "position_embd."},
    {"embeddings.token_type_embeddings.", "token_types."},
    {"embeddings.word_embeddings.", "token_embd."},
};
constexpr NamePair kEncoderLayerNames[] = {
    {"attention.output.LayerNorm.", "attn_output_norm."},
    {"attention.output.dense.", "attn_output."},
    {"attention.self.key.", "attn_k."},
    {"attention.self.query.", "attn_q."},
    {"attention.self.value.", "attn_v."},
    {"intermediate.dense.", "ffn_up."},
    {"output.LayerNorm.", "layer_output_norm."},
    {"output.dense.", "ffn_down."},
};
constexpr NamePair kClassifierNames[] = {{"classifier.", "cls.output."}, {"pooler.dense.", "cls."}};

// `name` with the first of these begins that it has replaced; empty if it has none.
std::string WithOurBegin(std::string_view name, std::span<const NamePair> pairs) {
  for (const NamePair& pair : pairs) {
    if (name.starts_with(pair.theirs)) return StrCat(pair.ours, name.substr(pair.theirs.size()));
  }
  return "";
}

// "BEGIN12.rest": the number as text and the rest, which is empty for other names.
std::pair<std::string_view, std::string_view> NumberAndRest(std::string_view name,
                                                            std::string_view begin) {
  const size_t dot = name.find('.', begin.size());
  if (!name.starts_with(begin) || dot == name.npos) return {};
  return {name.substr(begin.size(), dot - begin.size()), name.substr(dot + 1)};
}

class FolderReader {
 public:
  FolderReader(std::string folder, const std::function<void(double)>& progress)
      : folder_(std::move(folder)), progress_(progress) {}

  StatusOr<HuggingFaceModel> Read() {
    WEFT_ASSIGN_OR_RETURN(config_, ReadJsonFile(In("config.json")));
    WEFT_RETURN_IF_ERROR(FindForm());
    const Status config = ReadFolderConfig(TextConfig(), *form_, &model_);
    if (!config.ok()) return Annotate(config, Printable(In("config.json"), 300), ": ");
    const std::string name = std::filesystem::path(folder_).lexically_normal().filename().string();
    model_.Set("general.name", model_.Own(name.empty() ? "model" : name));
    WEFT_RETURN_IF_ERROR(ReadPooling());
    WEFT_RETURN_IF_ERROR(ReadWeights());
    WEFT_RETURN_IF_ERROR(ReadDenseLayers());
    WEFT_RETURN_IF_ERROR(ReadFolderTokenizer(folder_, config_, &model_));
    return std::move(model_);
  }

 private:
  std::string In(std::string_view name) const { return StrCat(folder_, "/", name); }

  const Json& TextConfig() const {
    const auto text = config_.find("text_config");
    return text != config_.end() && text->is_object() ? *text : config_;
  }

  Status FindForm() {
    const std::string path = Printable(In("config.json"), 300);
    if (config_.empty()) {
      return NotFound(Printable(folder_, 300),
                      ": it is a folder without config.json; name a GGUF file, or a folder as "
                      "Hugging Face's libraries save it");
    }
    const auto list = config_.find("architectures");
    const bool named =
        list != config_.end() && list->is_array() && !list->empty() && (*list)[0].is_string();
    const std::string name = named ? (*list)[0].get<std::string>() : "";
    form_ = FindFolderForm(name);
    if (form_ == nullptr) {
      return Unimplemented(
          path, ": models of the class '", Printable(name, 80),
          "' are read from GGUF files only; from folders these are: ", KnownFolderForms());
    }
    const auto quantized = config_.find("quantization_config");
    if (quantized == config_.end() || quantized->is_null()) return OkStatus();
    return Unimplemented(path,
                         ": its weights are quantized (quantization_config), which is read "
                         "from GGUF files only; take the original weights, or a GGUF file");
  }

  // The shards, in the order of their names.
  StatusOr<std::vector<std::string>> Shards() const {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with(".safetensors")) names.push_back(name);
    }
    std::ranges::sort(names);
    WEFT_ASSIGN_OR_RETURN(const Json index, ReadJsonFile(In("model.safetensors.index.json")));
    const auto map = index.find("weight_map");
    if (map != index.end() && map->is_object()) {
      std::set<std::string> wanted;
      for (const auto& [tensor, file] : map->items()) {
        if (file.is_string()) wanted.insert(file.get<std::string>());
      }
      for (const std::string& name : wanted) {
        if (std::ranges::find(names, name) != names.end()) continue;
        return NotFound(Printable(folder_, 300), ": the file ", Printable(name, 100),
                        " is missing, which model.safetensors.index.json names");
      }
      names.assign(wanted.begin(), wanted.end());
    }
    if (names.empty()) {
      return NotFound(Printable(folder_, 300),
                      ": it has no *.safetensors; other forms of weights "
                      "are not read");
    }
    if (names.size() > kMaxShards) {
      return InvalidArgument(Printable(folder_, 300), ": it has ", names.size(),
                             " *.safetensors; at most ", kMaxShards, " are read");
    }
    return names;
  }

  Status ReadWeights() {
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> shards, Shards());
    const auto tied = TextConfig().find("tie_word_embeddings");
    tied_ = tied != TextConfig().end() && tied->is_boolean() && tied->get<bool>();
    for (size_t i = 0; i < shards.size(); ++i) {
      if (progress_) progress_(static_cast<double>(i) / static_cast<double>(shards.size()));
      WEFT_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> file, MappedFile::Open(In(shards[i])));
      const auto is_read = [this](const std::string& name) { return !OurName(name).empty(); };
      WEFT_ASSIGN_OR_RETURN(const std::vector<SafeTensor> tensors, ReadSafeTensors(*file, is_read));
      model_.files.push_back(std::move(file));
      for (const SafeTensor& tensor : tensors) {
        WEFT_RETURN_IF_ERROR(AddAs(OurName(tensor.name), tensor));
      }
    }
    return OkStatus();
  }

  // llama.cpp's name; empty for tensors that are not read. An unknown name stays: the spec will
  // refuse it.
  std::string NameOf(std::string_view name) const {
    for (const std::string_view prefix :
         {"model.language_model.", "language_model.model.", "language_model.", "model."}) {
      if (!name.starts_with(prefix)) continue;
      name.remove_prefix(prefix.size());
      break;
    }
    for (const std::string_view unread : kUnread) {
      if (name.starts_with(unread)) return "";
    }
    if (name.ends_with("rotary_emb.inv_freq")) return "";
    for (const NamePair& pair : kWholeNames) {
      if (name == pair.theirs) return std::string(pair.ours);
    }
    const auto [number, rest] = NumberAndRest(name, "layers.");
    if (rest.empty()) return std::string(name);
    constexpr std::string_view kSecondNorm = "post_attention_layernorm.";
    if (rest.starts_with(kSecondNorm)) {
      return StrCat("blk.", number, form_->norms_after ? ".post_attention_norm." : ".ffn_norm.",
                    rest.substr(kSecondNorm.size()));
    }
    const std::string ours = WithOurBegin(rest, kLayerNames);
    return ours.empty() ? std::string(name) : StrCat("blk.", number, ".", ours);
  }

  // The same of an encoder, whose norms once had other names.
  std::string NameInEncoder(std::string_view their_name) const {
    std::string name(their_name);
    if (name.starts_with("bert.")) name.erase(0, 5);
    if (name.ends_with(".gamma")) name.replace(name.size() - 5, 5, "weight");
    if (name.ends_with(".beta")) name.replace(name.size() - 4, 4, "bias");
    if (form_->scores) {
      if (std::string ours = WithOurBegin(name, kClassifierNames); !ours.empty()) return ours;
    }
    for (const std::string_view unread : kUnread) {
      if (name.starts_with(unread)) return "";
    }
    if (name.starts_with("pooler.")) return "";
    const auto [number, rest] = NumberAndRest(name, "encoder.layer.");
    const std::string ours =
        rest.empty() ? WithOurBegin(name, kEncoderNames) : WithOurBegin(rest, kEncoderLayerNames);
    if (ours.empty()) return name;
    return rest.empty() ? ours : StrCat("blk.", number, ".", ours);
  }

  bool MakesVectors() const { return form_->is_encoder || form_->is_embedder; }

  // How the vectors of a text's tokens become one, as in sentence-transformers' folders.
  Status ReadPooling() {
    if (!MakesVectors()) return OkStatus();
    constexpr uint64_t kMean = 1, kFirst = 2, kLast = 3, kScores = 4;
    WEFT_ASSIGN_OR_RETURN(const Json pooling, ReadJsonFile(In("1_Pooling/config.json")));
    const auto says = [&](const char* field) {
      const auto found = pooling.find(field);
      return found != pooling.end() && *found == true;
    };
    const bool is_mean =
        says("pooling_mode_mean_tokens") || (pooling.empty() && !form_->is_encoder);
    uint64_t kind = is_mean ? kMean : kFirst;
    if (says("pooling_mode_lasttoken")) kind = kLast;
    if (form_->scores) kind = kScores;
    model_.Set(StrCat(form_->architecture, ".pooling_type"), kind);
    return OkStatus();
  }

  // The matrices that sentence-transformers' folders multiply that vector by.
  Status ReadDenseLayers() {
    if (!MakesVectors() || form_->scores) return OkStatus();
    for (const auto& [part, ours] : {NamePair{"2_Dense", "dense_2."}, {"3_Dense", "dense_3."}}) {
      const std::string path = In(part);
      if (!std::filesystem::exists(path)) continue;
      WEFT_ASSIGN_OR_RETURN(const Json config, ReadJsonFile(path + "/config.json"));
      const auto function = config.find("activation_function");
      if (function != config.end() && function->is_string() &&
          !function->get_ref<const std::string&>().ends_with("Identity")) {
        return Unimplemented(Printable(path, 300), "/config.json: activation_function is ",
                             Printable(function->get_ref<const std::string&>(), 80),
                             ", which is not known here; Identity is");
      }
      WEFT_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> file,
                            MappedFile::Open(path + "/model.safetensors"));
      const NamePair names[] = {{"linear.", ours}};
      const auto is_read = [&](const std::string& name) { return name.starts_with("linear."); };
      WEFT_ASSIGN_OR_RETURN(const std::vector<SafeTensor> tensors, ReadSafeTensors(*file, is_read));
      model_.files.push_back(std::move(file));
      for (const SafeTensor& tensor : tensors) {
        WEFT_RETURN_IF_ERROR(AddAs(WithOurBegin(tensor.name, names), tensor));
      }
    }
    return OkStatus();
  }

  std::string OurName(const std::string& name) const {
    return form_->is_encoder ? NameInEncoder(name) : NameOf(name);
  }

  Status AddAs(const std::string& name, const SafeTensor& tensor) {
    if (name.empty() || (tied_ && name == "output.weight")) return OkStatus();
    if (!gguf::IsValidName(name, gguf::kMaxTensorNameBytes)) {
      return InvalidArgument(Printable(folder_, 300),
                             ": a tensor's name is not one: ", Printable(tensor.name, 100));
    }
    TensorInfo info = {.name = model_.Own(name),
                       .type = tensor.type,
                       .n_dims = static_cast<int>(tensor.dims.size()),
                       .dims = {1, 1, 1, 1},
                       .data = tensor.data};
    std::ranges::copy(tensor.dims, info.dims);
    if (info.n_dims == 1) {
      WidenVector(name, &info);
    } else if (form_->reorders_heads &&
               (name.ends_with(".attn_q.weight") || name.ends_with(".attn_k.weight"))) {
      WEFT_RETURN_IF_ERROR(ReorderHeads(name, &info));
    } else if (reinterpret_cast<uintptr_t>(info.data.data()) % gguf::kMinAlignment != 0) {
      std::vector<std::byte>& copy = model_.bytes.emplace_back(info.data.begin(), info.data.end());
      info.data = copy;
    }
    model_.tensors.push_back(info);
    return OkStatus();
  }

  void WidenVector(std::string_view name, TensorInfo* info) {
    const bool shifted = form_->adds_one_to_norms && name.ends_with("norm.weight");
    std::vector<std::byte>& out =
        model_.bytes.emplace_back(static_cast<size_t>(info->dims[0]) * sizeof(float));
    for (int64_t i = 0; i < info->dims[0]; ++i) {
      float value = 0;
      uint16_t half = 0;
      const std::byte* const from = info->data.data() + i * info->row_bytes() / info->dims[0];
      if (info->type == DType::kF32) {
        std::memcpy(&value, from, sizeof(value));
      } else {
        std::memcpy(&half, from, sizeof(half));
        value = info->type == DType::kF16 ? F16ToF32(half) : BF16ToF32(half);
      }
      if (shifted) value += 1;
      std::memcpy(out.data() + i * static_cast<int64_t>(sizeof(value)), &value, sizeof(value));
    }
    info->type = DType::kF32;
    info->data = out;
  }

  // In each head, moves row i of the first half to 2i, and row i of the second to 2i + 1.
  Status ReorderHeads(std::string_view name, TensorInfo* info) {
    const bool is_k = name.ends_with(".attn_k.weight");
    const int64_t n_heads = Count(is_k ? "num_key_value_heads" : "num_attention_heads",
                                  Count("num_attention_heads", 1));
    const int64_t n_rows = info->dims[1];
    if (info->n_dims != 2 || n_heads < 1 || n_rows % (2 * n_heads) != 0) {
      return InvalidArgument(Printable(folder_, 300), ": tensor ", Printable(name, 100),
                             ": its rows are not those of ", n_heads, " heads");
    }
    const int64_t half = n_rows / n_heads / 2, n_bytes = info->row_bytes();
    std::vector<std::byte>& out = model_.bytes.emplace_back(info->data.size());
    for (int64_t row = 0; row < n_rows; ++row) {
      const int64_t head = row / (2 * half), in_head = row % (2 * half);
      const int64_t to =
          head * 2 * half + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
      std::memcpy(out.data() + to * n_bytes, info->data.data() + row * n_bytes,
                  static_cast<size_t>(n_bytes));
    }
    info->data = out;
    return OkStatus();
  }

  int64_t Count(std::string_view name, int64_t absent) const {
    const auto found = TextConfig().find(name);
    const bool fits = found != TextConfig().end() && found->is_number_unsigned() &&
                      found->get<uint64_t>() < (1 << 20);
    return fits ? found->get<int64_t>() : absent;
  }

  const std::string folder_;
  const std::function<void(double)>& progress_;
  Json config_;
  const FolderForm* form_ = nullptr;
  bool tied_ = false;
  HuggingFaceModel model_;
};

}  // namespace

StatusOr<HuggingFaceModel> ReadHuggingFaceFolder(
    const std::string& folder, const std::function<void(double fraction)>& progress) {
  return FolderReader(folder, progress).Read();
}

}  // namespace weft
