// config.json as the keys of a GGUF file. Pure functions; any thread.
#ifndef WEFT_MODEL_FORMATS_HF_CONFIG_H_
#define WEFT_MODEL_FORMATS_HF_CONFIG_H_

#include <string>
#include <string_view>

#include "base/status.h"
#include "model/formats/hf/folder.h"
#include "nlohmann/json.hpp"

namespace weft {

// How a class of Hugging Face's Transformers becomes an architecture of llama.cpp.
struct FolderForm {
  std::string_view class_name;
  std::string_view architecture;
  // Rows of q and k are rotated in halves, and in adjacent pairs in GGUF.
  bool reorders_heads = false;
  bool adds_one_to_norms = false;
  // post_attention_layernorm comes after attention, not before the feed-forward.
  bool norms_after = false;
  // Tokens see those that follow (BERT); with a classifier for scores of pairs of texts.
  bool is_encoder = false;
  // Gemma's layers whose tokens see those that follow: for vectors of texts.
  bool is_embedder = false;
  bool scores = false;
};

// Null if the class is not known.
const FolderForm* FindFolderForm(std::string_view class_name);
// The known classes, for an error.
std::string KnownFolderForms();

// Adds general.architecture and the architecture's keys, and tensors of rope factors.
Status ReadFolderConfig(const nlohmann::ordered_json& config, const FolderForm& form,
                        HuggingFaceModel* out);

}  // namespace weft

#endif  // WEFT_MODEL_FORMATS_HF_CONFIG_H_
