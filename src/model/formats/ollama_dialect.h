// GGUF files as Ollama's own converters write them, under llama.cpp's names.
//
// Files of `ollama:NAME` and of Ollama's store differ from llama.cpp's in three ways: keys and
// tensors have other names ("gptoss", "attn_out", "ssm_dt"), keys are missing (gemma3's epsilon),
// and tensors for pictures, sound and MTP lie inside ("v.", "mm.", "a.", "mtp."). One table says
// the renamed keys and assumed values per architecture. Nothing above formats/ knows the dialect.
//
// A pure function; any thread. It never fails: everything that it does not understand stays as it
// is, for its reader to refuse.
#ifndef WEFT_MODEL_FORMATS_OLLAMA_DIALECT_H_
#define WEFT_MODEL_FORMATS_OLLAMA_DIALECT_H_

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "model/formats/model_file.h"

namespace weft {

// What a translation changed, and the bytes that it wrote. The lists point into `texts` and
// `values`, which keep their addresses when this moves.
struct OllamaTranslation {
  std::string architecture;  // as the file names it, if anything was renamed or assumed; else empty
  std::vector<TensorInfo> set_aside;  // not for text: pictures, sound, unreadable MTP heads
  std::deque<std::string> texts;
  std::deque<std::vector<float>> values;
};

// Rewrites both lists. Their order and the names' uniqueness are the caller's to check.
OllamaTranslation TranslateOllama(std::vector<ModelFile::KeyValue>* metadata,
                                  std::vector<TensorInfo>* tensors);

}  // namespace weft

#endif  // WEFT_MODEL_FORMATS_OLLAMA_DIALECT_H_
