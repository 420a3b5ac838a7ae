// The tokens that ask a model to write the text between two given pieces.
//
// Pure functions; any thread.
#ifndef WEFT_MODEL_TOKENIZER_FILL_IN_H_
#define WEFT_MODEL_TOKENIZER_FILL_IN_H_

#include <string_view>

#include "base/tokens.h"
#include "model/formats/model_file.h"
#include "model/tokenizer/tokenizer.h"

namespace weft {

// Their spellings in vocabularies. The first one that a vocabulary has is used.
inline constexpr std::string_view kFillInPrefixTexts[] = {
    "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>",    "<｜fim▁begin｜>",
    "<PRE>",          "▁<PRE>",       "<|code_prefix|>", "<|prefix|>"};
inline constexpr std::string_view kFillInSuffixTexts[] = {
    "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>",    "<｜fim▁hole｜>",
    "<SUF>",          "▁<SUF>",       "<|code_suffix|>", "<|suffix|>"};
inline constexpr std::string_view kFillInMiddleTexts[] = {
    "<|fim_middle|>", "<fim-middle>", "<fim_middle>",    "<｜fim▁end｜>",
    "<MID>",          "▁<MID>",       "<|code_middle|>", "<|middle|>"};
inline constexpr std::string_view kFillInPadTexts[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>",
                                                       "<PAD>", "[PAD]"};
inline constexpr std::string_view kFillInRepositoryTexts[] = {"<|fim_repo|>", "<|repo_name|>",
                                                              "<fim-repo>", "<REPO>", "<reponame>"};
inline constexpr std::string_view kFillInFileTexts[] = {"<|file_sep|>"};

// kNoToken where the model has none.
struct FillInTokens {
  TokenId prefix = kNoToken;
  TokenId suffix = kNoToken;
  TokenId middle = kNoToken;
  TokenId repository = kNoToken;  // before a repository's name
  TokenId file = kNoToken;        // before a file's name

  // Whether the model supports fill-in-the-middle at all.
  bool complete() const { return prefix != kNoToken && suffix != kNoToken && middle != kNoToken; }
};

// The tokens named by the file (tokenizer.ggml.fim_pre_token_id and similar keys), otherwise those
// spelled as above. Invalid ids are ignored.
FillInTokens FindFillInTokens(const ModelFile& file, const Tokenizer& tokenizer);

}  // namespace weft

#endif  // WEFT_MODEL_TOKENIZER_FILL_IN_H_
