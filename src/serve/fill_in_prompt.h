// The prompt with which a model writes what stands between two pieces of text.
//
// A pure function; any thread.
#ifndef WEFT_SERVE_FILL_IN_PROMPT_H_
#define WEFT_SERVE_FILL_IN_PROMPT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "tokenizer/fill_in.h"
#include "weft/model.h"

namespace weft::serve {

struct FillIn {
  struct File {
    std::string name;
    std::string text;
  };
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
  // Other files that are of use, the most useful ones last.
  std::vector<File> extra;
  // Where the model knows files by name: the prompt says that it is one of a repository's.
  bool names_files = false;
};

// The tokens of `model` for that; UNIMPLEMENTED where it has none.
StatusOr<FillInTokens> NeedFillInTokens(const Model& model);

// Leaves room for `max_tokens` in the context, for a quarter of it where that is -1 or more.
// What does not fit is cut where it is farthest from the gap: the beginning of the extra files
// first, then the end of the suffix and the beginning of the prefix, which keeps three quarters
// of what there is.
std::vector<int32_t> FillInPrompt(const Model& model, const FillInTokens& ids, FillIn parts,
                                  int64_t max_tokens);

}  // namespace weft::serve

#endif  // WEFT_SERVE_FILL_IN_PROMPT_H_
