// The tokens with which a model is asked to write what stands between two pieces of text.
//
// Pure functions; any thread.
#ifndef WEFT_TOKENIZER_FILL_IN_H_
#define WEFT_TOKENIZER_FILL_IN_H_

#include <string_view>

#include "base/tokens.h"
#include "formats/model_file.h"
#include "tokenizer/tokenizer.h"

namespace weft {

// How vocabularies write them. The first that a vocabulary has is meant.
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
  TokenId repository = kNoToken;  // before the name of a repository
  TokenId file = kNoToken;        // before the name of a file

  // Whether the model can be asked at all.
  bool complete() const { return prefix != kNoToken && suffix != kNoToken && middle != kNoToken; }
};

// Those that the file names (tokenizer.ggml.fim_pre_token_id and its kin), else those that
// the vocabulary writes as above. An id that is no token counts as not named.
FillInTokens FindFillInTokens(const ModelFile& file, const Tokenizer& tokenizer);

}  // namespace weft

#endif  // WEFT_TOKENIZER_FILL_IN_H_
