#include "doors/api/fields/fill_in_prompt.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/strings.h"
#include "model/tokenizer/tokenizer.h"

namespace weft::serve {
namespace {

using Tokens = std::vector<int32_t>;

// The share of the context reserved for an answer of unknown length.
constexpr int64_t kAnswerShare = 4;
// The names that llama-server uses when a request gives none, so that prompts are the same.
constexpr std::string_view kRepository = "myproject\n";
constexpr std::string_view kFile = "filename\n";
constexpr std::string_view kSnippet = "\n\n--- snippet ---\n\n";

void Append(const Tokens& more, Tokens* out) { out->insert(out->end(), more.begin(), more.end()); }

// The other files, and the beginning of the current one.
Tokens Surroundings(const Model& model, const FillInTokens& ids, const FillIn& parts) {
  const auto encode = [&model](std::string_view text) {
    return model.Encode(text, /*add_special=*/false, /*parse_special=*/false);
  };
  Tokens tokens;
  if (parts.names_files && ids.repository != kNoToken) {
    tokens.push_back(ids.repository);
    Append(encode(kRepository), &tokens);
  }
  for (const FillIn::File& file : parts.extra) {
    if (ids.file != kNoToken) {
      tokens.push_back(ids.file);
      Append(encode(StrCat(file.name, "\n")), &tokens);
    } else {
      Append(encode(kSnippet), &tokens);
    }
    Append(encode(file.text), &tokens);
  }
  if (parts.names_files && ids.file != kNoToken) {
    tokens.push_back(ids.file);
    Append(encode(kFile), &tokens);
  }
  return tokens;
}

void KeepEnd(int64_t n, Tokens* tokens) {
  const auto size = static_cast<int64_t>(tokens->size());
  if (size > n) tokens->erase(tokens->begin(), tokens->begin() + (size - n));
}

}  // namespace

StatusOr<FillInTokens> NeedFillInTokens(const Model& model) {
  const FillInTokens ids = FindFillInTokens(model.file(), *model.tokenizer());
  if (ids.complete()) return ids;
  return Unimplemented("the model does not support fill-in-the-middle: its vocabulary has no ",
                       ids.prefix == kNoToken   ? "prefix"
                       : ids.suffix == kNoToken ? "suffix"
                                                : "middle",
                       " token; serve a model that was trained for it");
}

std::vector<int32_t> FillInPrompt(const Model& model, const FillInTokens& ids, FillIn parts,
                                  int64_t max_tokens) {
  Tokens prompt;
  const Tokenizer& tokenizer = *model.tokenizer();
  if (tokenizer.adds_bos()) prompt.push_back(tokenizer.bos());
  Tokens around = Surroundings(model, ids, parts);

  const int64_t context = model.context_tokens();
  const int64_t share = std::max<int64_t>(context / kAnswerShare, 1);
  const int64_t answer = max_tokens < 0 ? share : std::clamp<int64_t>(max_tokens, 1, share);
  const int64_t n_markers = static_cast<int64_t>(prompt.size()) + 3;
  int64_t room = std::max<int64_t>(context - answer - n_markers, 0);
  const auto n_suffix = static_cast<int64_t>(parts.suffix.size());
  KeepEnd(room - std::min(n_suffix, room / 4), &parts.prefix);
  room -= static_cast<int64_t>(parts.prefix.size());
  parts.suffix.resize(static_cast<size_t>(std::min(n_suffix, room)));
  room -= static_cast<int64_t>(parts.suffix.size());
  KeepEnd(room, &around);

  Append(around, &prompt);
  prompt.push_back(ids.prefix);
  Append(parts.prefix, &prompt);
  prompt.push_back(ids.suffix);
  Append(parts.suffix, &prompt);
  prompt.push_back(ids.middle);
  return prompt;
}

}  // namespace weft::serve
