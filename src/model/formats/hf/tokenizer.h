// tokenizer.json and its companion files as the tokenizer.ggml.* keys of a GGUF file.
//
// Read: byte-level BPE whose pre-tokenizer is one of those that llama.cpp has a name for, BPE with
// byte fallback (SentencePiece), and WordPiece. Any thread.
#ifndef WEFT_MODEL_FORMATS_HF_TOKENIZER_H_
#define WEFT_MODEL_FORMATS_HF_TOKENIZER_H_

#include <string>

#include "base/status.h"
#include "model/formats/hf/folder.h"
#include "nlohmann/json.hpp"

namespace weft {

// Adds the keys. `config`: the folder's config.json. Errors name the file and the field.
Status ReadFolderTokenizer(const std::string& folder, const nlohmann::ordered_json& config,
                           HuggingFaceModel* out);

}  // namespace weft

#endif  // WEFT_MODEL_FORMATS_HF_TOKENIZER_H_
