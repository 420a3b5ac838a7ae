// Fill-in-the-middle: the prompt that asks a model for the text between a prefix and a suffix.
//
// Pure functions; any thread.
#ifndef WEFT_DOORS_API_FIELDS_FILL_IN_PROMPT_H_
#define WEFT_DOORS_API_FIELDS_FILL_IN_PROMPT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/tokenizer/fill_in.h"
#include "weft/model.h"

namespace weft::serve {

struct FillIn {
  struct File {
    std::string name;
    std::string text;
  };
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
  // Other relevant files, the most relevant ones last.
  std::vector<File> extra;
  // Include the repository and file names, if the model has tokens for them.
  bool names_files = false;
};

// The model's tokens for prefix, suffix and middle; UNIMPLEMENTED if one is missing.
StatusOr<FillInTokens> NeedFillInTokens(const Model& model);

// The prompt leaves room in the context for `max_tokens` of an answer, but no more than a quarter
// of the context; exactly a quarter if `max_tokens` is -1. Text that does not fit is cut where it
// is farthest from the gap: first the beginning of the extra files, then the end of the suffix and
// the beginning of the prefix. The prefix may take three quarters of the room, or more if the
// suffix is short.
std::vector<int32_t> FillInPrompt(const Model& model, const FillInTokens& ids, FillIn parts,
                                  int64_t max_tokens);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_FIELDS_FILL_IN_PROMPT_H_
