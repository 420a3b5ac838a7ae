#include "model/tokenizer/fill_in.h"

#include <cstdint>
#include <initializer_list>
#include <span>

namespace weft {
namespace {

TokenId FindOne(const ModelFile& file, const Tokenizer& tokenizer,
                std::initializer_list<std::string_view> keys,
                std::span<const std::string_view> texts) {
  for (const std::string_view key : keys) {
    const StatusOr<int64_t> id = file.GetIntOr(key, kNoToken);
    if (id.ok() && *id >= 0 && *id < tokenizer.vocab_size()) return static_cast<TokenId>(*id);
  }
  for (const std::string_view text : texts) {
    const TokenId id = tokenizer.Find(text);
    if (id != kNoToken) return id;
  }
  return kNoToken;
}

}  // namespace

FillInTokens FindFillInTokens(const ModelFile& file, const Tokenizer& tokenizer) {
  // The second key of each is the one that files used until late 2024.
  return {.prefix = FindOne(file, tokenizer,
                            {"tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"},
                            kFillInPrefixTexts),
          .suffix = FindOne(file, tokenizer,
                            {"tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"},
                            kFillInSuffixTexts),
          .middle = FindOne(file, tokenizer,
                            {"tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"},
                            kFillInMiddleTexts),
          .repository =
              FindOne(file, tokenizer, {"tokenizer.ggml.fim_rep_token_id"}, kFillInRepositoryTexts),
          .file = FindOne(file, tokenizer, {"tokenizer.ggml.fim_sep_token_id"}, kFillInFileTexts)};
}

}  // namespace weft
