// Fuzzing of the tokenizers. The first byte chooses what the rest is:
//   a text for one of the small vocabularies below, encoded, decoded and streamed;
//   or edits of such a vocabulary's file, which is loaded and, when accepted, used.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/unicode.h"
#include "model/formats/gguf_writer.h"
#include "model/formats/model_file.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/vocabulary.h"

namespace weft {
namespace {

constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6;

class VocabWriter {
 public:
  VocabWriter(std::string_view model, std::string_view pre) {
    writer_.AddString("general.architecture", "llama");
    writer_.AddString("tokenizer.ggml.model", model);
    if (!pre.empty()) writer_.AddString("tokenizer.ggml.pre", pre);
  }

  void Add(std::string text, int32_t type) {
    scores_.push_back(-static_cast<float>(tokens_.size()));
    tokens_.push_back(std::move(text));
    types_.push_back(type);
  }
  void AddByteTokens() {
    constexpr char kHex[] = "0123456789ABCDEF";
    for (int byte = 0; byte < 256; ++byte) {
      Add(StrCat("<0x", kHex[byte >> 4], kHex[byte & 15], ">"), kByte);
    }
  }
  void AddMerge(const std::string& left, const std::string& right) {
    merges_.push_back(left + " " + right);
    Add(left + right, kNormal);
  }
  std::string Finish() {
    writer_.AddStringArray("tokenizer.ggml.tokens", tokens_);
    writer_.AddFloat32Array("tokenizer.ggml.scores", scores_);
    writer_.AddInt32Array("tokenizer.ggml.token_type", types_);
    if (!merges_.empty()) writer_.AddStringArray("tokenizer.ggml.merges", merges_);
    writer_.AddUint32("tokenizer.ggml.bos_token_id", 1);
    writer_.AddUint32("tokenizer.ggml.eos_token_id", 2);
    return writer_.ToBytes();
  }

 private:
  GgufWriter writer_;
  std::vector<std::string> tokens_;
  std::vector<float> scores_;
  std::vector<int32_t> types_;
  std::vector<std::string> merges_;
};

std::string SentencePiece() {
  VocabWriter w("llama", "");
  w.Add("<unk>", kUnknown);
  w.Add("<s>", kControl);
  w.Add("</s>", kControl);
  w.AddByteTokens();
  for (const char* text : {"▁", "a", "b", "é", "▁a", "ab", "▁▁", "a▁b", "aa", "aaaa"}) {
    w.Add(text, kNormal);
  }
  for (const char* text : {"\n\n", "\n\n\n", "<x>", "x>y", "\xE2\x96"}) w.Add(text, kUserDefined);
  return w.Finish();
}

std::string BytePair(std::string_view pre) {
  VocabWriter w("gpt2", pre);
  for (int byte = 0; byte < 256; ++byte) {
    std::string text;
    AppendUtf8(ByteLevelChar(static_cast<uint8_t>(byte)), &text);
    w.Add(text, kNormal);
  }
  w.AddMerge("a", "a");
  w.AddMerge("aa", "aa");
  w.AddMerge("Ġ", "a");
  w.AddMerge("Ġ", "Ġ");
  w.AddMerge("Ã", "©");
  w.AddMerge("1", "2");
  w.Add("<|im_end|>", kControl);
  w.Add("<x>", kUserDefined);
  return w.Finish();
}

std::string Gemma4() {
  VocabWriter w("gemma4", "");
  w.Add("<pad>", kControl);
  w.Add("<bos>", kControl);
  w.Add("<eos>", kControl);
  w.AddByteTokens();
  for (const char* text : {"▁", "a", "é", "\n", "\n\n"}) w.Add(text, kNormal);
  w.AddMerge("▁", "a");
  w.AddMerge("a", "a");
  return w.Finish();
}

std::string WordPiece() {
  VocabWriter w("bert", "");
  w.Add("[UNK]", kControl);
  w.Add("[CLS]", kControl);
  w.Add("[SEP]", kControl);
  for (const char* text : {"▁a", "a", "b", "▁.", "▁中", "▁e"}) w.Add(text, kNormal);
  return w.Finish();
}

std::string Rwkv() {
  VocabWriter w("rwkv", "");
  w.Add("<s>", kControl);
  for (const char* text : {"a", "\\n", "\\x00", "\\xe4\\xb8", "\\\\", "ab", "é"})
    w.Add(text, kNormal);
  return w.Finish();
}

std::string Plamo() {
  VocabWriter w("plamo2", "");
  w.Add("<unk>", kUnknown);
  w.Add("<bos>", kControl);
  w.Add("<eos>", kControl);
  w.AddByteTokens();
  for (const char* text : {"a", "ab", "aa", "é", "中", " a", "\xE4\xB8"}) w.Add(text, kNormal);
  return w.Finish();
}

std::string T5() {
  VocabWriter w("t5", "");
  w.Add("<pad>", kControl);
  w.Add("</s>", kControl);
  w.Add("<unk>", kUnknown);
  for (const char* text : {"▁", "a", "▁a", "ab", "é", "\xE4"}) w.Add(text, kNormal);
  w.Add("<x>", kUserDefined);
  return w.Finish();
}

std::string Whitespace() {
  VocabWriter w("whitespace", "whitespace");
  w.Add("<unk>", kUnknown);
  for (const char* text : {"a", "b", "é", "<0x41>"}) w.Add(text, kNormal);
  w.AddMerge("a", "b");
  return w.Finish();
}

const std::vector<std::string>& Files() {
  static const auto* const files = new std::vector<std::string>{SentencePiece(),
                                                                BytePair("gpt-2"),
                                                                BytePair("llama-bpe"),
                                                                BytePair("gpt-4o"),
                                                                BytePair("deepseek-llm"),
                                                                BytePair("falcon"),
                                                                BytePair("qwen35"),
                                                                BytePair("kimi-k2"),
                                                                BytePair("deepseek-v3"),
                                                                BytePair("tiny_aya"),
                                                                BytePair("afmoe"),
                                                                BytePair("bloom"),
                                                                BytePair("starcoder"),
                                                                BytePair("superbpe"),
                                                                Gemma4(),
                                                                WordPiece(),
                                                                BytePair("jais-2"),
                                                                BytePair("exaone-moe"),
                                                                BytePair("spark2_5"),
                                                                BytePair("youtu"),
                                                                BytePair("chameleon"),
                                                                Rwkv(),
                                                                Plamo(),
                                                                T5(),
                                                                Whitespace()};
  return *files;
}

std::shared_ptr<const Tokenizer> Load(const std::string& bytes) {
  auto file = ModelFile::FromBytes("fuzz.gguf", std::as_bytes(std::span(bytes)));
  if (!file.ok()) return nullptr;
  auto tokenizer = Tokenizer::Load(**file);
  return tokenizer.ok() ? *tokenizer : nullptr;
}

void Use(const std::shared_ptr<const Tokenizer>& tokenizer, std::string_view text) {
  for (const bool parse_special : {false, true}) {
    const std::vector<TokenId> ids =
        tokenizer->Encode(text, {.add_special = parse_special, .parse_special = parse_special});
    std::string joined;
    std::string streamed;
    StreamDecoder decoder(tokenizer, true);
    for (const TokenId id : ids) {
      WEFT_CHECK(id >= 0 && id < tokenizer->vocab_size(), "an id beyond the vocabulary");
      joined += tokenizer->Piece(id, true);
      streamed += decoder.Push(id);
    }
    streamed += decoder.Finish();
    for (std::string_view rest = streamed; !rest.empty();) {
      const int length = StrictCharLength(rest);
      WEFT_CHECK(length > 0, "a stream gave malformed text");
      rest.remove_prefix(length);
    }
    tokenizer->Decode(ids, parse_special);
    // Byte-level vocabularies lose nothing but what RepairUtf8 replaces.
    if (tokenizer->model_name() == "gpt2" && !parse_special &&
        tokenizer->RawText(tokenizer->vocab_size() - 1) == "<x>") {
      std::string storage;
      WEFT_CHECK(joined == RepairUtf8(text, &storage), "a text changed");
    }
  }
}

void FuzzText(uint8_t choice, std::string_view text) {
  static const auto* const tokenizers = [] {
    auto* all = new std::vector<std::shared_ptr<const Tokenizer>>;
    for (const std::string& file : Files()) {
      all->push_back(Load(file));
      WEFT_CHECK(all->back() != nullptr, "a sound vocabulary was refused");
    }
    return all;
  }();
  Use((*tokenizers)[choice % tokenizers->size()], text);
}

// Every three bytes overwrite one byte of the file, the last ones are a text.
void FuzzFile(uint8_t choice, std::string_view edits) {
  std::string bytes = Files()[choice % Files().size()];
  while (edits.size() > 16) {
    const size_t at =
        static_cast<unsigned char>(edits[0]) << 8 | static_cast<unsigned char>(edits[1]);
    bytes[at % bytes.size()] = edits[2];
    edits.remove_prefix(3);
  }
  if (const auto tokenizer = Load(bytes)) {
    for (const bool parse_special : {false, true}) {
      tokenizer->Decode(tokenizer->Encode(edits, {.parse_special = parse_special}), true);
    }
  }
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] < 128) {
    weft::FuzzText(data[0], rest);
  } else {
    weft::FuzzFile(data[0], rest);
  }
  return 0;
}
