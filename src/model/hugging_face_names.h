// The names of an architecture in Hugging Face's config.json. Clients that know models from there
// choose by these names how to parse a model's output.
//
// A pure function; any thread.
#ifndef WEFT_MODEL_HUGGING_FACE_NAMES_H_
#define WEFT_MODEL_HUGGING_FACE_NAMES_H_

#include <string_view>

#include "model/formats/model_file.h"

namespace weft {

struct HuggingFaceNames {
  std::string_view model_type;  // "qwen2"
  std::string_view class_name;  // "Qwen2ForCausalLM", the one entry of "architectures"
};

// Both empty if the file's architecture is not registered.
HuggingFaceNames HuggingFaceNamesOf(const ModelFile& file);

}  // namespace weft

#endif  // WEFT_MODEL_HUGGING_FACE_NAMES_H_
