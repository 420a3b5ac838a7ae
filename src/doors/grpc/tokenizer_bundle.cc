#include "doors/grpc/tokenizer_bundle.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "base/unicode.h"
#include "model/hugging_face_names.h"
#include "model/tokenizer/pretokenizer_pattern.h"
#include "model/tokenizer/vocabulary.h"
#include "nlohmann/json.hpp"
#include "zip/zip_writer.h"

namespace weft::serve {
namespace {

using nlohmann::json;

constexpr uint8_t kWrittenOut = kAttrControl | kAttrUnknown | kAttrUserDefined;

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const int length = StrictCharLength(text);
    if (length <= 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

// A merge of two texts, and its place in the order: highest score first.
struct Merge {
  float score = 0;
  TokenId merged = kNoToken, left_id = kNoToken, right_id = kNoToken;
  std::string_view left, right;

  auto Order() const { return std::tuple(-score, merged, left_id, right_id); }
};

class TokenizerWriter {
 public:
  TokenizerWriter(const ModelFile& file, const Vocabulary& vocabulary)
      : file_(file), v_(vocabulary) {}

  StatusOr<std::string> Build() {
    WEFT_ASSIGN_OR_RETURN(json model, Model());
    json out = {{"version", "1.0"},
                {"truncation", nullptr},
                {"padding", nullptr},
                {"added_tokens", AddedTokens()},
                {"normalizer", Normalizer()},
                {"pre_tokenizer", PreTokenizer()},
                {"post_processor", PostProcessor()},
                {"decoder", Decoder()}};
    out["model"] = std::move(model);
    return out.dump();
  }

 private:
  bool WritesSpaceMarks() const {
    return v_.kind == TokenizerKind::kSentencePiece || v_.pre.raw_text;
  }

  // JSON holds only UTF-8. No text leads to a token that is not UTF-8.
  std::string Key(TokenId id) const {
    const std::string_view text = v_.text(id);
    return IsUtf8(text) ? std::string(text) : StrCat("[INVALID_UTF8_", id, "]");
  }

  json AddedTokens() const {
    json tokens = json::array();
    for (TokenId id = 0; id < v_.size(); ++id) {
      const uint8_t attrs = v_.attrs(id);
      if ((attrs & kWrittenOut) == 0) continue;
      tokens.push_back({{"id", id},
                        {"content", Key(id)},
                        {"single_word", false},
                        {"lstrip", (attrs & kAttrStripLeft) != 0},
                        {"rstrip", (attrs & kAttrStripRight) != 0},
                        {"normalized", false},
                        {"special", (attrs & (kAttrControl | kAttrUnknown)) != 0}});
    }
    return tokens;
  }

  json Normalizer() const {
    if (!WritesSpaceMarks()) return nullptr;
    const json replace = {
        {"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpaceMark}};
    if (v_.kind != TokenizerKind::kSentencePiece || !v_.add_space_prefix) return replace;
    const json prepend = {{"type", "Prepend"}, {"prepend", kSpaceMark}};
    return {{"type", "Sequence"}, {"normalizers", json::array({prepend, replace})}};
  }

  json PreTokenizer() const {
    if (v_.kind == TokenizerKind::kSentencePiece) return nullptr;
    json steps = json::array();
    for (const std::string& pattern : PatternsOf(*v_.pre.splitter)) {
      steps.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", pattern}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
    }
    if (!v_.pre.raw_text) {
      steps.push_back({{"type", "ByteLevel"},
                       {"add_prefix_space", false},
                       {"trim_offsets", true},
                       {"use_regex", false}});
    }
    return {{"type", "Sequence"}, {"pretokenizers", steps}};
  }

  // The tokens around a text.
  json PostProcessor() const {
    json single = json::array();
    json special = json::object();
    const auto add_token = [&](TokenId id) {
      single.push_back({{"SpecialToken", {{"id", Key(id)}, {"type_id", 0}}}});
      special[Key(id)] = {{"id", Key(id)}, {"ids", {id}}, {"tokens", {Key(id)}}};
    };
    if (v_.add_bos) add_token(v_.bos);
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    if (v_.add_eos) add_token(v_.eos);
    if (special.empty()) return nullptr;
    json pair = single;
    for (json part : single) {
      if (part.contains("Sequence")) part["Sequence"]["id"] = "B";
      part.begin().value()["type_id"] = 1;
      pair.push_back(std::move(part));
    }
    return {{"type", "TemplateProcessing"},
            {"single", single},
            {"pair", pair},
            {"special_tokens", special}};
  }

  json Decoder() const {
    if (!WritesSpaceMarks()) {
      return {{"type", "ByteLevel"},
              {"add_prefix_space", false},
              {"trim_offsets", true},
              {"use_regex", false}};
    }
    json steps =
        json::array({{{"type", "Replace"}, {"pattern", {{"String", kSpaceMark}}}, {"content", " "}},
                     {{"type", "ByteFallback"}},
                     {{"type", "Fuse"}}});
    if (v_.kind == TokenizerKind::kSentencePiece && v_.add_space_prefix) {
      steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    return {{"type", "Sequence"}, {"decoders", steps}};
  }

  // --- the model -----------------------------------------------------------------

  StatusOr<json> Model() {
    json vocabulary = json::object();
    for (TokenId id = 0; id < v_.size(); ++id) vocabulary[Key(id)] = id;
    if (WritesSpaceMarks()) AddByteAliases(&vocabulary);
    std::vector<Merge> merges;
    if (v_.kind == TokenizerKind::kSentencePiece) {
      merges = MergesOfScores();
    } else {
      WEFT_ASSIGN_OR_RETURN(merges, MergesOfFile());
    }
    json out = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", WritesSpaceMarks()},
                {"ignore_merges", v_.pre.ignore_merges},
                {"merges", MergeList(merges)}};
    if (v_.unknown != kNoToken) out["unk_token"] = Key(v_.unknown);
    out["vocab"] = std::move(vocabulary);
    return out;
  }

  // A character that is not a token, but whose byte is, takes part in merges like any other. Merges
  // only name vocabulary entries; so the byte's token gets a second name.
  void AddByteAliases(json* vocabulary) {
    for (char c = 0; c < 127; ++c) {
      const std::string_view text(&c, 1);
      const TokenId byte = v_.ByteToken(static_cast<uint8_t>(c));
      if (v_.Find(text) != kNoToken || byte == kNoToken) continue;
      (*vocabulary)[std::string(text)] = byte;
      aliases_.insert(c);
    }
  }

  TokenId IdOf(std::string_view text) const {
    const TokenId id = v_.Find(text);
    if (id != kNoToken || text.size() != 1 || !aliases_.contains(text[0])) return id;
    return v_.ByteToken(static_cast<uint8_t>(text[0]));
  }

  // Every way to join a token from two, best score first.
  std::vector<Merge> MergesOfScores() const {
    std::vector<Merge> merges;
    for (TokenId id = 0; id < v_.size(); ++id) {
      const std::string_view text = v_.text(id);
      // A token that is recognised in text is never merged from parts. Tokens with space marks are
      // not recognised: the text has spaces there.
      const bool never_merged =
          (v_.attrs(id) & kWrittenOut) != 0 && text.find(kSpaceMark) == std::string_view::npos;
      if (never_merged || !IsUtf8(text)) continue;
      for (size_t cut = AnnouncedLength(text[0]); cut < text.size();
           cut += AnnouncedLength(text[cut])) {
        Merge merge{.score = v_.score(id),
                    .merged = id,
                    .left_id = IdOf(text.substr(0, cut)),
                    .right_id = IdOf(text.substr(cut)),
                    .left = text.substr(0, cut),
                    .right = text.substr(cut)};
        if (merge.left_id != kNoToken && merge.right_id != kNoToken) merges.push_back(merge);
      }
    }
    std::sort(merges.begin(), merges.end(),
              [](const Merge& a, const Merge& b) { return a.Order() < b.Order(); });
    return merges;
  }

  StatusOr<std::vector<Merge>> MergesOfFile() const {
    constexpr std::string_view kMerges = "tokenizer.ggml.merges";
    WEFT_ASSIGN_OR_RETURN(const std::span<const std::string_view> lines,
                          file_.GetStringArray(kMerges));
    std::vector<Merge> merges;
    for (const std::string_view line : lines) {
      const size_t space = line.find(' ', 1);  // the tokenizer was loaded, so there is one
      Merge merge{.left = line.substr(0, space), .right = line.substr(space + 1)};
      const bool known = IdOf(merge.left) != kNoToken && IdOf(merge.right) != kNoToken &&
                         v_.Find(StrCat(merge.left, merge.right)) != kNoToken;
      if (!known) {
        return Unimplemented("the merge '", Printable(line),
                             "' does not join tokens of the vocabulary, which tokenizer.json "
                             "cannot express; give the client the model's own tokenizer.json");
      }
      merges.push_back(merge);
    }
    return merges;
  }

  // As "left right", which every version reads; as pairs if texts contain spaces.
  static json MergeList(const std::vector<Merge>& merges) {
    const bool spaces = std::any_of(merges.begin(), merges.end(), [](const Merge& m) {
      return m.left.find(' ') != std::string_view::npos ||
             m.right.find(' ') != std::string_view::npos;
    });
    json list = json::array();
    for (const Merge& merge : merges) {
      if (spaces) {
        list.push_back(json::array({merge.left, merge.right}));
      } else {
        list.push_back(StrCat(merge.left, " ", merge.right));
      }
    }
    return list;
  }

  const ModelFile& file_;
  const Vocabulary& v_;
  std::set<char> aliases_;
};

StatusOr<std::string> WriteTokenizer(const ModelFile& file, const Vocabulary& vocabulary) {
  const bool is_exported =
      vocabulary.kind == TokenizerKind::kSentencePiece ||
      (vocabulary.kind == TokenizerKind::kBytePair && !vocabulary.pre.drops_spaces);
  if (!is_exported) {
    return Unimplemented(
        "the tokenizer is of the kind '", vocabulary.model_name,
        "', which is not exported; give the client the model's own tokenizer.json");
  }
  return TokenizerWriter(file, vocabulary).Build();
}

// Clients encode what a template renders without adding tokens, so that a template has to write the
// first one. Weft adds it where the template does not (MakePromptEncoder).
std::string WithFirstToken(std::string_view chat_template, const Vocabulary& v) {
  const bool is_written = !v.add_bos || v.bos == kNoToken ||
                          chat_template.find("bos_token") != chat_template.npos ||
                          chat_template.find(v.text(v.bos)) != chat_template.npos;
  return StrCat(is_written ? "" : "{{ bos_token }}", chat_template);
}

std::string TokenizerConfig(const Vocabulary& v, std::string_view chat_template,
                            int64_t context_tokens) {
  json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"model_max_length", context_tokens},
                 {"add_bos_token", v.add_bos},
                 {"add_eos_token", v.add_eos},
                 {"clean_up_tokenization_spaces", v.clean_spaces}};
  const auto name = [&](const char* key, TokenId id) {
    if (id != kNoToken && IsUtf8(v.text(id))) config[key] = v.text(id);
  };
  name("bos_token", v.bos);
  name("eos_token", v.eos);
  name("unk_token", v.unknown);
  name("pad_token", v.padding);
  if (!chat_template.empty()) config["chat_template"] = WithFirstToken(chat_template, v);
  return config.dump(2, ' ', false, json::error_handler_t::replace);
}

std::string ModelConfig(const ModelFile& file, const Vocabulary& v, int64_t context_tokens) {
  const HuggingFaceNames names = HuggingFaceNamesOf(file);
  json config = {{"model_type", names.model_type},
                 {"architectures", json::array({names.class_name})},
                 {"vocab_size", v.size()},
                 {"max_position_embeddings", context_tokens},
                 {"eos_token_id", v.ends_of_generation()}};
  if (v.bos != kNoToken) config["bos_token_id"] = v.bos;
  if (v.padding != kNoToken) config["pad_token_id"] = v.padding;
  return config.dump(2);
}

std::string Sha256Hex(std::string_view data) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(data.data(), data.size(), digest, &size, EVP_sha256(), nullptr);
  constexpr char kHex[] = "0123456789abcdef";
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    hex += kHex[digest[i] >> 4];
    hex += kHex[digest[i] & 15];
  }
  return hex;
}

}  // namespace

StatusOr<std::string> TokenizerJson(const ModelFile& file) {
  WEFT_ASSIGN_OR_RETURN(const auto vocabulary, Vocabulary::Load(file));
  return WriteTokenizer(file, *vocabulary);
}

StatusOr<TokenizerBundle> BuildTokenizerBundle(const ModelFile& file,
                                               std::string_view chat_template,
                                               int64_t context_tokens) {
  WEFT_ASSIGN_OR_RETURN(const auto vocabulary, Vocabulary::Load(file));
  WEFT_ASSIGN_OR_RETURN(const std::string tokenizer, WriteTokenizer(file, *vocabulary));
  ZipWriter zip;
  WEFT_RETURN_IF_ERROR(zip.Add("tokenizer.json", tokenizer));
  WEFT_RETURN_IF_ERROR(zip.Add("tokenizer_config.json",
                               TokenizerConfig(*vocabulary, chat_template, context_tokens)));
  WEFT_RETURN_IF_ERROR(zip.Add("config.json", ModelConfig(file, *vocabulary, context_tokens)));
  TokenizerBundle bundle{.zip = zip.Finish()};
  bundle.sha256 = Sha256Hex(bundle.zip);
  return bundle;
}

}  // namespace weft::serve
