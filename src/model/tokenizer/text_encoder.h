// Encodes plain text, after special tokens have been taken out; implemented by every kind of
// tokenizer. Immutable; any thread.
#ifndef WEFT_MODEL_TOKENIZER_TEXT_ENCODER_H_
#define WEFT_MODEL_TOKENIZER_TEXT_ENCODER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/tokens.h"
#include "model/formats/model_file.h"
#include "model/tokenizer/merge_loop.h"
#include "model/tokenizer/vocabulary.h"

namespace weft {

// The best way from a place in a text to its end: its cost, and its first token.
struct PathStep {
  int64_t cost;
  uint32_t bytes;
  TokenId token;
};

// Working memory of one Tokenizer::Encode.
struct EncodeScratch {
  MergeScratch merge;
  std::string repaired;
  std::string escaped;
  std::vector<PathStep> path;
};

class TextEncoder {
 public:
  virtual ~TextEncoder() = default;

  // Appends the tokens of `text` to `out`. `at_start`: nothing, or a special token, precedes the
  // text.
  virtual void Encode(std::string_view text, bool at_start, EncodeScratch* scratch,
                      std::vector<TokenId>* out) const = 0;
};

// `vocabulary` must outlive the result. Byte-pair merges are read from `file`.
StatusOr<std::unique_ptr<const TextEncoder>> MakeBytePairEncoder(const Vocabulary* vocabulary,
                                                                 const ModelFile& file);
std::unique_ptr<const TextEncoder> MakeSentencePieceEncoder(const Vocabulary* vocabulary);
std::unique_ptr<const TextEncoder> MakeWordPieceEncoder(const Vocabulary* vocabulary);
std::unique_ptr<const TextEncoder> MakeUnigramEncoder(const Vocabulary* vocabulary);
std::unique_ptr<const TextEncoder> MakeLongestMatchEncoder(const Vocabulary* vocabulary);
std::unique_ptr<const TextEncoder> MakeSentenceUnigramEncoder(const Vocabulary* vocabulary);

}  // namespace weft

#endif  // WEFT_MODEL_TOKENIZER_TEXT_ENCODER_H_
