#include "tools/synthetic_vocabulary.h"

#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace weft::tools {
namespace {

// The type numbers of the format.
constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6;

// By how common they are in English, so that frequent pairs come first.
constexpr std::string_view kLetters = "etaoinshrdlcumwfgypbvkjxqz";

constexpr std::string_view kChatTemplate =
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}";

std::string Utf8(uint32_t code) {  // below U+0800
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

// How byte-level vocabularies write a byte: printable ones stand for themselves,
// the others for the characters from U+0100 on, in order.
std::vector<std::string> ByteCharacters() {
  std::vector<std::string> characters;
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    characters.push_back(Utf8(printable ? byte : next++));
  }
  return characters;
}

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<std::string> merges;  // "left right"

  void Add(std::string token, int32_t type) {
    tokens.push_back(std::move(token));
    types.push_back(type);
  }
  void Merge(std::string_view left, std::string_view right) {
    Add(StrCat(left, right), kNormal);
    merges.push_back(StrCat(left, " ", right));
  }
};

// Adds pieces, each joined of two that are there already, until there are
// `limit` tokens; false when it runs out of pieces. `space` is how the
// vocabulary writes a space.
bool AddPieces(std::string_view space, size_t limit, Vocabulary* out) {
  const auto full = [&] { return out->tokens.size() >= limit; };
  std::vector<std::string> pairs;
  for (const char first : kLetters) {
    for (const char second : kLetters) pairs.push_back({first, second});
  }
  for (size_t i = 0; i < kLetters.size() && !full(); ++i) {
    out->Merge(space, kLetters.substr(i, 1));
  }
  for (size_t i = 0; i < pairs.size() && !full(); ++i) {
    out->Merge(std::string_view(pairs[i]).substr(0, 1), std::string_view(pairs[i]).substr(1));
  }
  for (size_t i = 0; i < pairs.size() && !full(); ++i) out->Merge(space, pairs[i]);
  for (const std::string& left : pairs) {
    for (size_t i = 0; i < pairs.size() && !full(); ++i) out->Merge(left, pairs[i]);
  }
  return full();
}

Status SizeError(const ModelShape& shape, size_t smallest) {
  return InvalidArgument("--vocab ", shape.vocab, " is not possible, it must be from ", smallest,
                         " to about 450000");
}

// As Qwen's models of code write them.
constexpr std::string_view kFillInTokens[] = {"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
                                              "<|repo_name|>", "<|file_sep|>"};

size_t FillInCount(const ModelShape& shape) { return shape.fill_in ? std::size(kFillInTokens) : 0; }

void AddFillIn(const ModelShape& shape, Vocabulary* vocabulary) {
  if (!shape.fill_in) return;
  for (const std::string_view text : kFillInTokens) vocabulary->Add(std::string(text), kControl);
}

Status AddBytePairs(const ModelShape& shape, GgufWriter* writer) {
  const size_t n_controls = 3 + FillInCount(shape);
  const auto size = static_cast<size_t>(shape.vocab);
  const std::vector<std::string> bytes = ByteCharacters();
  Vocabulary vocabulary;
  for (const std::string& character : bytes) vocabulary.Add(character, kNormal);
  const size_t smallest = bytes.size() + n_controls;
  if (size < smallest || !AddPieces(bytes[' '], size - n_controls, &vocabulary)) {
    return SizeError(shape, smallest);
  }
  const auto end_of_text = static_cast<uint32_t>(vocabulary.tokens.size());
  vocabulary.Add("<|endoftext|>", kControl);
  vocabulary.Add("<|im_start|>", kControl);
  vocabulary.Add("<|im_end|>", kControl);
  AddFillIn(shape, &vocabulary);
  writer->AddString("tokenizer.ggml.model", "gpt2");
  writer->AddString("tokenizer.ggml.pre", shape.pre_tokenizer);
  writer->AddStringArray("tokenizer.ggml.tokens", vocabulary.tokens);
  writer->AddInt32Array("tokenizer.ggml.token_type", vocabulary.types);
  writer->AddStringArray("tokenizer.ggml.merges", vocabulary.merges);
  writer->AddUint32("tokenizer.ggml.bos_token_id", end_of_text);
  writer->AddUint32("tokenizer.ggml.eos_token_id", end_of_text + 2);
  writer->AddUint32("tokenizer.ggml.padding_token_id", end_of_text);
  writer->AddBool("tokenizer.ggml.add_bos_token", false);
  return OkStatus();
}

Status AddScoredPieces(const ModelShape& shape, GgufWriter* writer) {
  constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581
  constexpr std::string_view kHex = "0123456789ABCDEF";
  const size_t n_controls = 2 + FillInCount(shape);
  const auto size = static_cast<size_t>(shape.vocab);
  Vocabulary vocabulary;
  vocabulary.Add("<unk>", kUnknown);
  vocabulary.Add("<s>", kControl);
  vocabulary.Add("</s>", kControl);
  for (size_t byte = 0; byte < 256; ++byte) {
    vocabulary.Add(StrCat("<0x", kHex[byte >> 4], kHex[byte & 15], ">"), kByte);
  }
  vocabulary.Add(std::string(kSpace), kNormal);
  for (char c = '!'; c <= '~'; ++c) vocabulary.Add(std::string(1, c), kNormal);
  const size_t smallest = vocabulary.tokens.size() + n_controls;
  if (size < smallest || !AddPieces(kSpace, size - n_controls, &vocabulary)) {
    return SizeError(shape, smallest);
  }
  const auto chat = static_cast<uint32_t>(vocabulary.tokens.size());
  vocabulary.Add("<|im_start|>", kControl);
  vocabulary.Add("<|im_end|>", kControl);
  AddFillIn(shape, &vocabulary);
  // The better the earlier: the order in which pieces are joined.
  std::vector<float> scores(size, 0.0f);
  for (size_t i = 259; i < chat; ++i) scores[i] = 259.0f - static_cast<float>(i);
  writer->AddString("tokenizer.ggml.model", "llama");
  writer->AddString("tokenizer.ggml.pre", shape.pre_tokenizer);
  writer->AddStringArray("tokenizer.ggml.tokens", vocabulary.tokens);
  writer->AddFloat32Array("tokenizer.ggml.scores", scores);
  writer->AddInt32Array("tokenizer.ggml.token_type", vocabulary.types);
  writer->AddUint32("tokenizer.ggml.bos_token_id", 1);
  writer->AddUint32("tokenizer.ggml.eos_token_id", 2);
  writer->AddUint32("tokenizer.ggml.eot_token_id", chat + 1);
  writer->AddUint32("tokenizer.ggml.unknown_token_id", 0);
  writer->AddBool("tokenizer.ggml.add_bos_token", true);
  writer->AddBool("tokenizer.ggml.add_eos_token", false);
  writer->AddBool("tokenizer.ggml.add_space_prefix", true);
  return OkStatus();
}

}  // namespace

Status AddVocabulary(const ModelShape& shape, GgufWriter* writer) {
  WEFT_RETURN_IF_ERROR(shape.vocabulary == VocabularyKind::kBytePairs
                           ? AddBytePairs(shape, writer)
                           : AddScoredPieces(shape, writer));
  writer->AddString("tokenizer.chat_template", kChatTemplate);
  return OkStatus();
}

}  // namespace weft::tools
