#include "model/tokenizer/vocabulary.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/strings.h"
#include "base/unicode.h"
#include "model/tokenizer/fill_in.h"

namespace weft {
namespace {

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
// Far above any real vocabulary; bounds the work a hostile file can cause.
constexpr size_t kMaxTokenBytes = 65535;
constexpr size_t kMaxTextBytes = size_t{1} << 30;

struct ByteAlphabet {
  std::array<char32_t, 256> char_of;
  std::array<int, 512> byte_of;

  ByteAlphabet() {
    byte_of.fill(-1);
    char32_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      char_of[byte] = printable ? static_cast<char32_t>(byte) : next++;
      byte_of[char_of[byte]] = byte;
    }
  }
};

const ByteAlphabet& Alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// The byte named by "<0xNN>", -1 for other texts.
int NamedByte(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  const int high = HexValue(text[3]);
  const int low = HexValue(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::string SpaceMarksToSpaces(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    if (text.substr(pos, kSpaceMark.size()) == kSpaceMark) {
      out += ' ';
      pos += kSpaceMark.size();
    } else {
      out += text[pos++];
    }
  }
  return out;
}

// Characters outside the alphabet represent themselves.
std::string BytesOfByteLevel(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const DecodedChar c = DecodeLenient(text.substr(pos));
    const int byte = ByteLevelByte(c.code);
    if (byte >= 0) {
      out += static_cast<char>(byte);
    } else {
      out.append(text, pos, c.bytes);
    }
    pos += c.bytes;
  }
  return out;
}

// RWKV's vocabulary is written with escapes: \t, \n, \r, \xNN, and a backslash before what stands
// for itself.
std::string UnescapeRwkv(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    const int high = i + 2 < text.size() ? HexValue(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? HexValue(text[i + 2]) : -1;
    if (c == 'x' && high >= 0 && low >= 0) {
      out += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      out += c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c;
    }
  }
  return out;
}

bool ContainsAny(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
    return text.find(part) != std::string_view::npos;
  });
}

}  // namespace

char32_t ByteLevelChar(uint8_t byte) { return Alphabet().char_of[byte]; }
int ByteLevelByte(char32_t c) { return c < 512 ? Alphabet().byte_of[c] : -1; }

StatusOr<std::unique_ptr<const Vocabulary>> Vocabulary::Load(const ModelFile& file) {
  std::unique_ptr<Vocabulary> v(new Vocabulary);
  WEFT_RETURN_IF_ERROR(v->LoadKind(file));
  WEFT_RETURN_IF_ERROR(v->LoadTokens(file));
  WEFT_RETURN_IF_ERROR(v->LoadScores(file));
  WEFT_RETURN_IF_ERROR(v->LoadTypes(file));
  WEFT_RETURN_IF_ERROR(v->LoadSpecialIds(file));
  WEFT_RETURN_IF_ERROR(v->LoadFlags(file));
  WEFT_RETURN_IF_ERROR(v->LoadCharsMap(file));
  v->FindByteTokens();
  v->MarkKnownTexts();
  WEFT_RETURN_IF_ERROR(v->LoadEnds(file));
  v->MarkStripping(file);
  return std::unique_ptr<const Vocabulary>(std::move(v));
}

Status Vocabulary::LoadKind(const ModelFile& file) {
  WEFT_ASSIGN_OR_RETURN(const std::string_view model, file.GetString("tokenizer.ggml.model"));
  WEFT_ASSIGN_OR_RETURN(std::string_view pre_text, file.GetStringOr("tokenizer.ggml.pre", ""));
  model_name = model;
  if (model == "llama") {
    kind = TokenizerKind::kSentencePiece;
    bos = 1;
    eos = 2;
    unknown = 0;
    add_bos = add_space_prefix = true;
  } else if (model == "bert") {
    kind = TokenizerKind::kWordPiece;
    bos = 101;
    unknown = 100;
    separator = 102;
    padding = 0;
    add_bos = add_separator = clean_spaces = true;
  } else if (model == "t5") {
    kind = TokenizerKind::kSentenceUnigram;
    padding = 0;
    eos = 1;
    unknown = 2;
    add_eos = true;
  } else if (model == "rwkv") {
    kind = TokenizerKind::kLongestMatch;
  } else if (model == "plamo2") {
    kind = TokenizerKind::kUnigram;
    unknown = 0;
    bos = 1;
    eos = 2;
    padding = 3;
  } else if (model == "gpt2" || model == "gemma4" || model == "whitespace") {
    kind = TokenizerKind::kBytePair;
    if (model == "gemma4") pre_text = "gemma4";
    if (model == "whitespace") lowercase = false;
    if (!PreTokenizer::Find(pre_text, &pre)) {
      return file.KeyError("tokenizer.ggml.pre",
                           StrCat("the pre-tokenizer '", Printable(pre_text), "' is not known"));
    }
    add_bos = pre.add_bos;
    add_separator = pre.add_separator;
    clean_spaces = pre.clean_spaces;
  } else {
    return file.KeyError("tokenizer.ggml.model",
                         StrCat("the tokenizer '", Printable(model),
                                "' is not supported; llama, gpt2, gemma4, whitespace, bert, t5, "
                                "plamo2 and rwkv are"));
  }
  pre_name = pre_text;
  return OkStatus();
}

Status Vocabulary::LoadTokens(const ModelFile& file) {
  WEFT_ASSIGN_OR_RETURN(const std::span<const std::string_view> tokens,
                        file.GetStringArray(kTokens));
  if (tokens.empty()) return file.KeyError(kTokens, "the vocabulary is empty");
  if (tokens.size() > (size_t{1} << 24)) {
    return file.KeyError(kTokens, StrCat(tokens.size(), " tokens are more than 2^24"));
  }
  offsets_.reserve(tokens.size() + 1);
  for (size_t id = 0; id < tokens.size(); ++id) {
    const std::string_view text = tokens[id];
    if (text.size() > kMaxTokenBytes) {
      return file.KeyError(kTokens, StrCat("token ", id, " has ", text.size(), " bytes; at most ",
                                           kMaxTokenBytes, " are allowed"));
    }
    offsets_.push_back(static_cast<uint32_t>(arena_.size()));
    // No text contains an empty token; this name is only a placeholder.
    text.empty() ? StrAppend(&arena_, "[EMPTY_", id, "]") : StrAppend(&arena_, text);
    if (arena_.size() > kMaxTextBytes) {
      return file.KeyError(kTokens, "the texts together exceed 1 GiB");
    }
  }
  offsets_.push_back(static_cast<uint32_t>(arena_.size()));
  attrs_.assign(tokens.size(), kAttrNormal);
  scores_.assign(tokens.size(), 0.0f);
  end_of_generation_.assign(tokens.size(), false);
  table_.Reserve(tokens.size());
  for (TokenId id = 0; id < size(); ++id) {
    if (!table_.Insert(text(id), id)) {
      return file.KeyError(kTokens, StrCat("the token '", Printable(text(id)), "' occurs as ids ",
                                           Find(text(id)), " and ", id));
    }
  }
  return OkStatus();
}

Status Vocabulary::LoadScores(const ModelFile& file) {
  constexpr std::string_view kKey = "tokenizer.ggml.scores";
  if (!file.HasMeta(kKey)) {
    const bool needed = kind == TokenizerKind::kSentencePiece || kind == TokenizerKind::kUnigram ||
                        kind == TokenizerKind::kSentenceUnigram;
    if (!needed) return OkStatus();
    return file.KeyError(kKey, "a vocabulary of this kind needs scores, the key is missing");
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> scores, file.GetFloatArray(kKey));
  if (scores.size() != attrs_.size()) {
    return file.KeyError(kKey, StrCat(scores.size(), " scores for ", size(), " tokens"));
  }
  for (TokenId id = 0; id < size(); ++id) {
    // Adding zero turns -0 into 0, so that equal scores have equal bits.
    scores_[id] = static_cast<float>(scores[id]) + 0.0f;
    if (!std::isfinite(scores_[id])) {
      return file.KeyError(kKey, StrCat("the score of token ", id, " is not finite"));
    }
  }
  return OkStatus();
}

Status Vocabulary::LoadTypes(const ModelFile& file) {
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  if (!file.HasMeta(kKey)) return OkStatus();
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> types, file.GetIntArray(kKey));
  if (types.size() != attrs_.size()) {
    return file.KeyError(kKey, StrCat(types.size(), " types for ", size(), " tokens"));
  }
  constexpr uint8_t kAttrOfType[7] = {
      0, kAttrNormal, kAttrUnknown, kAttrControl, kAttrUserDefined, kAttrUnused, kAttrByte};
  for (TokenId id = 0; id < size(); ++id) {
    if (types[id] < 0 || types[id] > 6) {
      return file.KeyError(kKey, StrCat("token ", id, " has the unknown type ", types[id]));
    }
    attrs_[id] = kAttrOfType[types[id]];
    if ((attrs_[id] & kAttrByte) != 0 && NamedByte(text(id)) < 0) {
      return file.KeyError(kKey, StrCat("token ", id, " '", Printable(text(id)),
                                        "' is a byte token but not written <0xNN>"));
    }
  }
  return OkStatus();
}

Status Vocabulary::LoadSpecialIds(const ModelFile& file) {
  struct Named {
    std::string_view key;
    TokenId* id;
  };
  TokenId ignored = kNoToken;
  const Named named[] = {
      {"tokenizer.ggml.cls_token_id", kind == TokenizerKind::kWordPiece ? &bos : &ignored},
      {"tokenizer.ggml.bos_token_id", &bos},
      {"tokenizer.ggml.eos_token_id", &eos},
      {"tokenizer.ggml.eot_token_id", &eot},
      {"tokenizer.ggml.eom_token_id", &eom},
      {"tokenizer.ggml.unknown_token_id", &unknown},
      {"tokenizer.ggml.seperator_token_id", &separator},
      {"tokenizer.ggml.padding_token_id", &padding},
  };
  for (const Named& entry : named) {
    if (!Contains(*entry.id)) *entry.id = kNoToken;  // a default beyond a small vocabulary
    if (!file.HasMeta(entry.key)) continue;
    WEFT_ASSIGN_OR_RETURN(const int64_t id, file.GetInt(entry.key));
    if (id == -1 || id == int64_t{0xFFFFFFFF}) {  // how some writers say "none"
      *entry.id = kNoToken;
      continue;
    }
    if (id < 0 || id >= size()) {
      return file.KeyError(entry.key, StrCat("id ", id, " is not below the ", size(), " tokens"));
    }
    *entry.id = static_cast<TokenId>(id);
  }
  return OkStatus();
}

Status Vocabulary::LoadFlags(const ModelFile& file) {
  struct Flag {
    std::string_view key;
    bool* value;
    TokenId needed;  // the id required by the flag
  };
  const Flag flags[] = {
      {"tokenizer.ggml.add_bos_token", &add_bos, bos},
      {"tokenizer.ggml.add_eos_token", &add_eos, eos},
      {"tokenizer.ggml.add_sep_token", &add_separator, separator},
  };
  for (const Flag& flag : flags) {
    const bool given = file.HasMeta(flag.key);
    WEFT_ASSIGN_OR_RETURN(*flag.value, file.GetBoolOr(flag.key, *flag.value));
    if (!*flag.value || flag.needed != kNoToken) continue;
    if (given) return file.KeyError(flag.key, "is true, but the file names no such token");
    *flag.value = false;
  }
  // Some files with this vocabulary say otherwise, but the model wants it.
  if (pre.whole_newlines && bos != kNoToken) add_bos = true;
  WEFT_ASSIGN_OR_RETURN(add_space_prefix,
                        file.GetBoolOr("tokenizer.ggml.add_space_prefix", add_space_prefix));
  WEFT_ASSIGN_OR_RETURN(lowercase,
                        file.GetBoolOr("tokenizer.ggml.normalizer.lowercase", lowercase));
  WEFT_ASSIGN_OR_RETURN(strip_accents,
                        file.GetBoolOr("tokenizer.ggml.normalizer.strip_accents", lowercase));
  return OkStatus();
}

Status Vocabulary::LoadCharsMap(const ModelFile& file) {
  if (kind != TokenizerKind::kSentenceUnigram) return OkStatus();
  WEFT_ASSIGN_OR_RETURN(merge_spaces,
                        file.GetBoolOr("tokenizer.ggml.remove_extra_whitespaces", false));
  constexpr std::string_view kKey = "tokenizer.ggml.precompiled_charsmap";
  if (!file.HasMeta(kKey)) return OkStatus();
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> items, file.GetIntArray(kKey));
  std::string bytes;
  bytes.reserve(items.size());
  for (const int64_t item : items) bytes += static_cast<char>(item);
  StatusOr<CharsMap> map = CharsMap::Parse(bytes);
  if (!map.ok()) return file.KeyError(kKey, Message(map.status()));
  chars_map = *std::move(map);
  return OkStatus();
}

// Further ends of generation, of which Ollama's files have a list.
Status Vocabulary::LoadEnds(const ModelFile& file) {
  constexpr std::string_view kKey = "tokenizer.ggml.eos_token_ids";
  if (file.HasMeta(kKey)) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> ids, file.GetIntArray(kKey));
    for (const int64_t id : ids) {
      if (id < 0 || id >= size()) {
        return file.KeyError(kKey, StrCat("id ", id, " is not below the ", size(), " tokens"));
      }
      end_of_generation_[static_cast<size_t>(id)] = true;
    }
  }
  for (TokenId id = 0; id < size(); ++id) {
    if (end_of_generation_[id]) ends_of_generation_.push_back(id);
  }
  return OkStatus();
}

void Vocabulary::FindByteTokens() {
  constexpr char kHex[] = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    const char named[] = {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
    const char raw = static_cast<char>(byte);
    byte_tokens_[byte] = Find({named, sizeof(named)});
    if (byte_tokens_[byte] == kNoToken) byte_tokens_[byte] = Find({&raw, 1});
  }
}

// Makes the first of `texts` that is a token a control token, whatever the file calls it, and
// returns its id.
TokenId Vocabulary::MarkControl(std::initializer_list<std::string_view> texts) {
  return MarkControl(std::span<const std::string_view>(texts.begin(), texts.size()));
}

TokenId Vocabulary::MarkControl(std::span<const std::string_view> texts) {
  for (const std::string_view text : texts) {
    const TokenId id = Find(text);
    if (id == kNoToken) continue;
    attrs_[id] |= kAttrControl;
    return id;
  }
  return kNoToken;
}

void Vocabulary::MarkKnownTexts() {
  if (eot == kNoToken) {
    eot = MarkControl({"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",
                       "<|end_of_text|>", "<EOT>", "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>",
                       "<end_of_utterance>"});
  }
  if (eom == kNoToken) eom = MarkControl({"<|eom_id|>"});
  // Markers for fill-in-the-middle prompts: prefix, suffix, middle, padding, repository name and
  // file name.
  MarkControl(kFillInPrefixTexts);
  MarkControl(kFillInSuffixTexts);
  MarkControl(kFillInMiddleTexts);
  const TokenId pad = MarkControl(kFillInPadTexts);
  const TokenId repo = MarkControl(kFillInRepositoryTexts);
  const TokenId file = MarkControl(kFillInFileTexts);
  MarkEndOfGeneration(pad, repo, file);
}

void Vocabulary::MarkEndOfGeneration(TokenId fill_in_pad, TokenId fill_in_repo,
                                     TokenId fill_in_file) {
  const auto end_at = [this](TokenId id) {
    if (id != kNoToken) end_of_generation_[id] = true;
  };
  for (const std::string_view text : {"<|eot_id|>",
                                      "<|im_end|>",
                                      "<|end|>",
                                      "<|return|>",
                                      "<|call|>",
                                      "<|flush|>",
                                      "<|calls|>",
                                      "<end_of_turn>",
                                      "<|endoftext|>",
                                      "</s>",
                                      "<|eom_id|>",
                                      "<EOT>",
                                      "_<EOT>",
                                      "[EOT]",
                                      "[EOS]",
                                      "<|end_of_text|>",
                                      "<end_of_utterance>",
                                      "<eos>",
                                      "<turn|>",
                                      "<|tool_response>",
                                      "<｜end▁of▁sentence｜>",
                                      "[e~["}) {
    end_at(MarkControl({text}));
  }
  // Clients should see the channel markers of the harmony format.
  for (const std::string_view text : {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"}) {
    const TokenId id = Find(text);
    if (id != kNoToken) attrs_[id] = kAttrUserDefined;
  }
  for (const TokenId id : {eos, eot, eom, fill_in_pad, fill_in_repo, fill_in_file}) end_at(id);

  const auto ends = [this](std::string_view text) {
    const TokenId id = Find(text);
    return id != kNoToken && end_of_generation_[id];
  };
  const auto unmark = [this](std::string_view text, uint8_t attrs) {
    end_of_generation_[Find(text)] = false;
    attrs_[Find(text)] = attrs;
  };
  // If messages end with <|end|> and turns with another token, <|end|> does not end a turn.
  const bool calls = ends("<|call|>") || ends("<|calls|>");
  if (calls && (ends("<|return|>") || ends("<|flush|>")) && ends("<|end|>")) {
    unmark("<|end|>", kAttrUserDefined);
  }
  // Gemma 4 uses </s> for HTML.
  if (ends("<|tool_response>") && ends("</s>")) unmark("</s>", kAttrNormal);
}

// The files do not say which special tokens swallow spaces; decided by the model's name.
void Vocabulary::MarkStripping(const ModelFile& file) {
  const auto text_of = [&](std::string_view key) {
    auto value = file.GetStringOr(key, "");
    return std::string(value.ok() ? *value : std::string_view());
  };
  const auto mark = [this](std::string_view text, uint8_t attr, bool value) {
    const TokenId id = Find(text);
    if (id == kNoToken) return;
    attrs_[id] = static_cast<uint8_t>(value ? attrs_[id] | attr : attrs_[id] & ~attr);
  };
  const std::string name = AsciiLower(text_of("general.name"));
  if (ContainsAny(pre_name, {"jina-v2-de", "jina-v2-es", "jina-v2-code"}) ||
      ContainsAny(text_of("general.architecture"), {"nomic-bert-moe", "jina-bert-v3"})) {
    mark("<mask>", kAttrStripLeft, true);
  } else if (ContainsAny(name, {"phi-3", "phi3"})) {
    for (uint8_t& attrs : attrs_) {
      if ((attrs & (kAttrControl | kAttrUserDefined | kAttrUnknown)) != 0) {
        attrs |= kAttrStripRight;
      }
    }
    mark("</s>", kAttrStripRight, true);
    for (const std::string_view text : {"<unk>", "<s>", "<|endoftext|>"}) {
      mark(text, kAttrStripRight, false);
    }
  } else if (ContainsAny(name, {"modern-bert"})) {
    mark("[MASK]", kAttrStripLeft, true);
  }
}

std::string Vocabulary::Piece(TokenId id) const {
  const uint8_t attrs = attrs_[id];
  if ((attrs & (kAttrUnknown | kAttrControl | kAttrUserDefined)) != 0) return std::string(text(id));
  if ((attrs & kAttrNormal) != 0) {
    if (kind == TokenizerKind::kLongestMatch) return UnescapeRwkv(text(id));
    if (kind == TokenizerKind::kUnigram) return std::string(text(id));
    const bool marks = kind != TokenizerKind::kBytePair || pre.merges_text();
    return marks ? SpaceMarksToSpaces(text(id)) : BytesOfByteLevel(text(id));
  }
  if ((attrs & kAttrByte) != 0) return std::string(1, static_cast<char>(NamedByte(text(id))));
  return std::string();
}

}  // namespace weft
