// A folder as Hugging Face's libraries save models, read as if it were a GGUF file.
//
//   config.json            sizes and numbers     -> the architecture's keys
//   *.safetensors          weights               -> tensors under llama.cpp's names
//   tokenizer.json         vocabulary and rules  -> tokenizer.ggml.*
//   tokenizer_config.json, chat_template.jinja, generation_config.json: if they are there
//
// Matrices stay in the mapped files. Vectors become float32, and tensors that llama.cpp stores
// differently (reordered rows of Llama's q and k, Gemma's norms plus one) are converted copies.
// Any thread.
#ifndef WEFT_MODEL_FORMATS_HF_FOLDER_H_
#define WEFT_MODEL_FORMATS_HF_FOLDER_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files/mapped_file.h"
#include "base/status.h"
#include "model/formats/model_file.h"

namespace weft {

// The folder's contents; the lists point into files, texts and bytes, which keep their addresses
// when this moves.
struct HuggingFaceModel {
  std::vector<std::unique_ptr<MappedFile>> files;
  std::vector<ModelFile::KeyValue> metadata;
  std::vector<TensorInfo> tensors;
  std::deque<std::string> texts;
  std::deque<std::vector<std::byte>> bytes;

  std::string_view Own(std::string text) { return texts.emplace_back(std::move(text)); }
  // Replaces what the key had before.
  void Set(std::string key, MetaValue value) {
    for (ModelFile::KeyValue& entry : metadata) {
      if (entry.key != key) continue;
      entry.value = std::move(value);
      return;
    }
    metadata.push_back({Own(std::move(key)), std::move(value)});
  }
};

// Errors name the file of the folder and the remedy. `progress` as in ModelFile::OpenOptions.
StatusOr<HuggingFaceModel> ReadHuggingFaceFolder(
    const std::string& folder, const std::function<void(double fraction)>& progress);

}  // namespace weft

#endif  // WEFT_MODEL_FORMATS_HF_FOLDER_H_
