#include "model/formats/hf/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/strings.h"

namespace weft {
namespace {

using SortedJson = nlohmann::json;  // whose objects are sorted: a vocabulary is one

constexpr size_t kMaxTokenizerBytes = size_t{64} << 20;
constexpr size_t kMaxTextBytes = size_t{4} << 20;
constexpr int kMaxDepth = 64;
constexpr int64_t kMaxTokens = 1 << 22;

// As GGUF writes them.
enum TokenType : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6 };

// Whether brackets are nested no deeper than is reasonable.
bool IsShallow(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return false;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return true;
}

// An empty object if there is no such file.
StatusOr<SortedJson> ReadObject(const std::string& path) {
  if (!std::filesystem::exists(path)) return SortedJson::object();
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxTokenizerBytes));
  SortedJson json =
      IsShallow(text) ? SortedJson::parse(text, nullptr, /*allow_exceptions=*/false) : SortedJson();
  if (!json.is_object()) return InvalidArgument(Printable(path, 300), ": it is no JSON object");
  return json;
}

// The value at a place such as "model.type"; null where there is none.
const SortedJson& At(const SortedJson& json, std::string_view place) {
  static const SortedJson kNull;
  const SortedJson* at = &json;
  while (!place.empty()) {
    const size_t dot = std::min(place.find('.'), place.size());
    if (!at->is_object()) return kNull;
    const auto found = at->find(std::string(place.substr(0, dot)));
    if (found == at->end()) return kNull;
    at = &*found;
    place.remove_prefix(std::min(dot + 1, place.size()));
  }
  return *at;
}

std::string TextAt(const SortedJson& json, std::string_view place) {
  const SortedJson& value = At(json, place);
  return value.is_string() ? value.get<std::string>() : "";
}

bool FlagAt(const SortedJson& json, std::string_view place, bool absent) {
  const SortedJson& value = At(json, place);
  return value.is_boolean() ? value.get<bool>() : absent;
}

// The parts of a pre-tokenizer or normalizer, one after the other.
std::vector<const SortedJson*> PartsOf(const SortedJson& json, std::string_view list) {
  const SortedJson& parts = At(json, list);
  std::vector<const SortedJson*> out;
  if (TextAt(json, "type") == "Sequence" && parts.is_array()) {
    for (const SortedJson& part : parts) out.push_back(&part);
  } else if (json.is_object()) {
    out.push_back(&json);
  }
  return out;
}

struct KnownPattern {
  std::string_view pattern;
  std::string_view pre;
};
// Patterns of the first Split, as published. Vocabularies with the same pattern are told apart by
// other settings; see PreOf.
constexpr KnownPattern kKnownPatterns[] = {
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "llama-bpe"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "qwen2"},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "gpt-4o"},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "tekken"},
};

class TokenizerReader {
 public:
  TokenizerReader(const std::string& folder, const nlohmann::ordered_json& config,
                  HuggingFaceModel* out)
      : folder_(folder), config_(config), out_(*out) {}

  Status Read() {
    WEFT_ASSIGN_OR_RETURN(json_, ReadObject(In("tokenizer.json")));
    if (json_.empty()) {
      return NotFound(Printable(folder_, 300),
                      ": it has no tokenizer.json; save it with a fast "
                      "tokenizer of Hugging Face's");
    }
    WEFT_ASSIGN_OR_RETURN(settings_, ReadObject(In("tokenizer_config.json")));
    WEFT_ASSIGN_OR_RETURN(generation_, ReadObject(In("generation_config.json")));
    const Status status = ReadModel();
    if (!status.ok()) return Annotate(status, Printable(In("tokenizer.json"), 300), ": ");
    ReadSpecialIds();
    ReadSampling();
    return ReadTemplate();
  }

 private:
  std::string In(std::string_view name) const { return StrCat(folder_, "/", name); }

  Status ReadModel() {
    const std::string type = TextAt(json_, "model.type");
    WEFT_RETURN_IF_ERROR(ReadVocabulary());
    if (type == "BPE" && FlagAt(json_, "model.byte_fallback", false)) return FinishPieces();
    if (type == "BPE") return FinishByteLevel();
    if (type == "WordPiece") return FinishWordPieces();
    return Unimplemented("model.type '", Printable(type, 40),
                         "' is read from GGUF files only; BPE and WordPiece are read here");
  }

  // All tokens by id, with their types.
  Status ReadVocabulary() {
    const SortedJson& vocab = At(json_, "model.vocab");
    if (!vocab.is_object()) return InvalidArgument("model.vocab is missing, or no object");
    for (const auto& [text, id] : vocab.items()) WEFT_RETURN_IF_ERROR(Put(id, text, kNormal));
    const std::string unknown = TextAt(json_, "model.unk_token");
    const SortedJson& added = At(json_, "added_tokens");
    for (size_t i = 0; added.is_array() && i < added.size(); ++i) {
      const std::string text = TextAt(added[i], "content");
      const bool special = FlagAt(added[i], "special", false);
      // Text-only models keep the tokenizer of those that see, with tokens for pictures.
      const SortedJson& id = At(added[i], "id");
      if (id.is_number_unsigned() && id.get<uint64_t>() >= EmbeddingRows()) continue;
      WEFT_RETURN_IF_ERROR(Put(id, text, special ? kControl : kUserDefined));
    }
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (tokens_[id].empty()) {  // a hole: no text has it
        tokens_[id] = StrCat("[UNUSED_", id, "]");
        types_[id] = 5;
      }
      ids_.emplace(tokens_[id], static_cast<int64_t>(id));
    }
    if (const auto found = ids_.find(unknown); !unknown.empty() && found != ids_.end()) {
      types_[static_cast<size_t>(found->second)] = kUnknown;
      SetId("tokenizer.ggml.unknown_token_id", found->second);
    }
    return OkStatus();
  }

  uint64_t EmbeddingRows() const {
    for (const TensorInfo& tensor : out_.tensors) {
      if (tensor.name == "token_embd.weight") return static_cast<uint64_t>(tensor.dims[1]);
    }
    return kMaxTokens;
  }

  Status Put(const SortedJson& id, const std::string& text, TokenType type) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(kMaxTokens)) {
      return InvalidArgument("token ", Printable(text, 60), ": its id is not a number below ",
                             kMaxTokens);
    }
    const auto at = id.get<size_t>();
    if (at >= tokens_.size()) {
      tokens_.resize(at + 1);
      types_.resize(at + 1, kNormal);
    }
    tokens_[at] = text;
    types_[at] = type;
    return OkStatus();
  }

  Status FinishPieces() {
    std::vector<double> scores;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      // In such vocabularies the order of merges is that of the ids.
      scores.push_back(-static_cast<double>(id));
      const std::string& text = tokens_[id];
      if (types_[id] == kNormal && text.size() == 6 && text.starts_with("<0x") && text[5] == '>') {
        types_[id] = kByte;
      }
    }
    SetText("tokenizer.ggml.model", "llama");
    out_.Set("tokenizer.ggml.scores", MetaArray{.items = std::move(scores)});
    bool prefixes = false;
    for (const SortedJson* part : PartsOf(At(json_, "normalizer"), "normalizers")) {
      prefixes |= TextAt(*part, "type") == "Prepend";
    }
    for (const SortedJson* part : PartsOf(At(json_, "pre_tokenizer"), "pretokenizers")) {
      const std::string scheme = TextAt(*part, "prepend_scheme");
      prefixes |= TextAt(*part, "type") == "Metaspace" && scheme != "never";
    }
    out_.Set("tokenizer.ggml.add_space_prefix", prefixes);
    return PutTokens();
  }

  Status FinishByteLevel() {
    const std::string pre = PreOf();
    if (pre.empty()) {
      return Unimplemented("its pre_tokenizer is not one of those known here; use a GGUF file");
    }
    SetText("tokenizer.ggml.model", "gpt2");
    SetText("tokenizer.ggml.pre", pre);
    const SortedJson& merges = At(json_, "model.merges");
    if (!merges.is_array()) return InvalidArgument("model.merges is missing, or no list");
    std::vector<std::string_view> list;
    list.reserve(merges.size());
    for (const SortedJson& merge : merges) {
      const bool pair =
          merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
      if (!pair && !merge.is_string()) return InvalidArgument("model.merges holds no merges");
      list.push_back(
          out_.Own(pair ? StrCat(merge[0].get<std::string>(), " ", merge[1].get<std::string>())
                        : merge.get<std::string>()));
    }
    out_.Set("tokenizer.ggml.merges", MetaArray{.items = std::move(list)});
    return PutTokens();
  }

  // llama.cpp's name of the pre-tokenizer; empty if it has none.
  std::string PreOf() const {
    const SortedJson& whole = At(json_, "pre_tokenizer");
    std::string pattern;
    bool digits = false, gpt2 = false;
    for (const SortedJson* part : PartsOf(whole, "pretokenizers")) {
      const std::string type = TextAt(*part, "type");
      if (type == "Split" && pattern.empty()) {
        pattern = TextAt(*part, "pattern.Regex");
        if (pattern.empty()) return "";
      } else if (type == "Digits" && FlagAt(*part, "individual_digits", false)) {
        digits = true;
      } else if (type == "ByteLevel") {
        gpt2 = FlagAt(*part, "use_regex", true);
      } else {
        return "";
      }
    }
    if (pattern.empty()) return !gpt2 ? "" : digits ? "smollm" : "gpt-2";
    if (digits || gpt2) return "";
    for (const KnownPattern& known : kKnownPatterns) {
      if (known.pattern != pattern) continue;
      const bool merges = !FlagAt(json_, "model.ignore_merges", false);
      // The same words, but tokens are always merged.
      if (known.pre == "llama-bpe" && merges) return "dbrx";
      return std::string(known.pre);
    }
    return "";
  }

  // Words begin with a mark where the others have none.
  Status FinishWordPieces() {
    constexpr std::string_view kMark = "\xE2\x96\x81", kInside = "##";
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (types_[id] != kNormal) continue;
      std::string& text = tokens_[id];
      text = text.starts_with(kInside) ? text.substr(kInside.size()) : StrCat(kMark, text);
    }
    SetText("tokenizer.ggml.model", "bert");
    is_word_piece_ = true;
    const bool lower = FlagAt(json_, "normalizer.lowercase", true);
    out_.Set("tokenizer.ggml.normalizer.lowercase", lower);
    out_.Set("tokenizer.ggml.normalizer.strip_accents",
             FlagAt(json_, "normalizer.strip_accents", lower));
    return PutTokens();
  }

  Status PutTokens() {
    std::vector<std::string_view> texts;
    texts.reserve(tokens_.size());
    for (std::string& text : tokens_) texts.push_back(out_.Own(std::move(text)));
    out_.Set("tokenizer.ggml.tokens", MetaArray{.items = std::move(texts)});
    out_.Set("tokenizer.ggml.token_type", MetaArray{.items = std::move(types_)});
    return OkStatus();
  }

  // --- special tokens ----------------------------------------------------------------------

  void SetText(std::string_view key, std::string text) {
    out_.Set(std::string(key), out_.Own(std::move(text)));
  }
  void SetId(std::string_view key, int64_t id) {
    out_.Set(std::string(key), static_cast<uint64_t>(id));
  }

  // By its text in tokenizer_config.json ("bos_token": "<s>", or an object with content).
  std::optional<int64_t> NamedToken(std::string_view field) const {
    const std::string plain = TextAt(settings_, field);
    const std::string text = plain.empty() ? TextAt(settings_, StrCat(field, ".content")) : plain;
    const auto found = ids_.find(text);
    if (text.empty() || found == ids_.end()) return std::nullopt;
    return found->second;
  }

  // From generation_config.json, else config.json.
  std::vector<int64_t> NumberedTokens(const std::string& field) const {
    std::vector<int64_t> ids;
    const auto add = [&](const auto& value) {
      if (value.is_number_unsigned() && value.template get<uint64_t>() < ids_.size()) {
        ids.push_back(value.template get<int64_t>());
      }
    };
    const auto add_all = [&](const auto& json) {
      const auto found = json.find(field);
      if (found == json.end() || !ids.empty()) return;
      if (found->is_array()) {
        for (const auto& value : *found) add(value);
      } else {
        add(*found);
      }
    };
    add_all(generation_);
    add_all(config_);
    return ids;
  }

  void ReadSpecialIds() {
    if (is_word_piece_) return ReadWordPieceIds();
    const auto bos = NamedToken("bos_token"), eos = NamedToken("eos_token");
    const std::vector<int64_t> starts = NumberedTokens("bos_token_id"),
                               ends = NumberedTokens("eos_token_id");
    if (bos || !starts.empty()) SetId("tokenizer.ggml.bos_token_id", bos ? *bos : starts[0]);
    if (eos || !ends.empty()) SetId("tokenizer.ggml.eos_token_id", eos ? *eos : ends[0]);
    if (const auto pad = NamedToken("pad_token")) SetId("tokenizer.ggml.padding_token_id", *pad);
    if (!ends.empty()) {
      out_.Set("tokenizer.ggml.eos_token_ids", MetaArray{.items = ends});
    }
    const bool has_bos = bos || !starts.empty();
    out_.Set("tokenizer.ggml.add_bos_token",
             has_bos && FlagAt(settings_, "add_bos_token", BeginsWithToken()));
    out_.Set("tokenizer.ggml.add_eos_token",
             (eos || !ends.empty()) && FlagAt(settings_, "add_eos_token", false));
  }

  // Whether the post-processor puts a token before a text.
  bool BeginsWithToken() const {
    for (const SortedJson* part : PartsOf(At(json_, "post_processor"), "processors")) {
      const SortedJson& single = At(*part, "single");
      if (single.is_array() && !single.empty() && At(single[0], "SpecialToken").is_object()) {
        return true;
      }
    }
    return false;
  }

  // Texts begin with one and end with another.
  void ReadWordPieceIds() {
    static constexpr std::pair<const char*, std::pair<const char*, const char*>> kNames[] = {
        {"cls_token", {"[CLS]", "tokenizer.ggml.bos_token_id"}},
        {"sep_token", {"[SEP]", "tokenizer.ggml.seperator_token_id"}},
        {"pad_token", {"[PAD]", "tokenizer.ggml.padding_token_id"}},
    };
    for (const auto& [field, usual] : kNames) {
      std::optional<int64_t> id = NamedToken(field);
      const auto found = ids_.find(usual.first);
      if (!id && found != ids_.end()) id = found->second;
      if (id) SetId(usual.second, *id);
    }
  }

  // What generation_config.json recommends.
  void ReadSampling() {
    static constexpr std::pair<const char*, const char*> kFields[] = {
        {"temperature", "temp"},
        {"top_k", "top_k"},
        {"top_p", "top_p"},
        {"min_p", "min_p"},
        {"repetition_penalty", "penalty_repeat"},
    };
    if (!FlagAt(generation_, "do_sample", true)) return;
    for (const auto& [field, key] : kFields) {
      const SortedJson& value = At(generation_, field);
      if (value.is_number()) out_.Set(StrCat("general.sampling.", key), value.get<double>());
    }
  }

  Status ReadTemplate() {
    const std::string path = In("chat_template.jinja");
    std::string text;
    if (std::filesystem::exists(path)) {
      WEFT_ASSIGN_OR_RETURN(text, ReadFile(path, kMaxTextBytes));
    } else {
      const SortedJson& own = At(settings_, "chat_template");
      if (own.is_string()) text = own.get<std::string>();
      for (size_t i = 0; own.is_array() && i < own.size(); ++i) {
        if (TextAt(own[i], "name") == "default") text = TextAt(own[i], "template");
      }
    }
    if (!text.empty()) SetText("tokenizer.chat_template", std::move(text));
    return OkStatus();
  }

  const std::string& folder_;
  const nlohmann::ordered_json& config_;
  HuggingFaceModel& out_;
  SortedJson json_, settings_, generation_;
  bool is_word_piece_ = false;
  std::vector<std::string> tokens_;
  std::vector<int64_t> types_;
  std::map<std::string, int64_t, std::less<>> ids_;
};

}  // namespace

Status ReadFolderTokenizer(const std::string& folder, const nlohmann::ordered_json& config,
                           HuggingFaceModel* out) {
  return TokenizerReader(folder, config, out).Read();
}

}  // namespace weft
