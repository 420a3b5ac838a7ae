// A file's metadata and tensors while ollama_dialect.cc rewrites them.
//
// Refers to the caller's lists and keeps new texts and values in the translation. One thread.
#ifndef WEFT_MODEL_FORMATS_OLLAMA_DRAFT_H_
#define WEFT_MODEL_FORMATS_OLLAMA_DRAFT_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/strings.h"
#include "model/formats/gguf_format.h"
#include "model/formats/ollama_dialect.h"

namespace weft {

// Searches are linear: files have hundreds of keys, and each is looked for a few times.
class OllamaDraft {
 public:
  OllamaDraft(std::vector<ModelFile::KeyValue>* metadata, std::vector<TensorInfo>* tensors,
              OllamaTranslation* out)
      : metadata_(metadata), tensors_(tensors), out_(out) {}

  // --- keys; a leading "." stands for the architecture's name -------------------------------
  std::string Full(std::string_view key) const {
    return key.starts_with('.') ? StrCat(architecture_, key) : std::string(key);
  }
  const MetaValue* Find(std::string_view key) const {
    const std::string full = Full(key);
    const auto found = std::ranges::find(*metadata_, full, &ModelFile::KeyValue::key);
    return found == metadata_->end() ? nullptr : &found->value;
  }
  MetaValue* Find(std::string_view key) {
    return const_cast<MetaValue*>(std::as_const(*this).Find(key));
  }
  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  // 0 where the key is absent or not a count.
  int64_t Count(std::string_view key) const {
    const MetaValue* const value = Find(key);
    if (value == nullptr) return 0;
    if (const auto* n = std::get_if<uint64_t>(value))
      return *n >> 62 ? 0 : static_cast<int64_t>(*n);
    const auto* n = std::get_if<int64_t>(value);
    return n != nullptr && *n > 0 ? *n : 0;
  }
  std::string_view Text(std::string_view key) const {
    const MetaValue* const value = Find(key);
    const auto* text = value != nullptr ? std::get_if<std::string_view>(value) : nullptr;
    return text != nullptr ? *text : std::string_view();
  }
  // A token's text; empty where there is none.
  std::string_view Token(size_t id) const {
    const MetaValue* const value = Find("tokenizer.ggml.tokens");
    const auto* array = value != nullptr ? std::get_if<MetaArray>(value) : nullptr;
    if (array == nullptr) return "";
    const auto* texts = std::get_if<std::vector<std::string_view>>(&array->items);
    return texts != nullptr && id < texts->size() ? (*texts)[id] : std::string_view();
  }
  void Set(std::string_view key, MetaValue value) {
    if (MetaValue* const old = Find(key)) {
      *old = std::move(value);
    } else {
      metadata_->push_back({Own(Full(key)), std::move(value)});
    }
    changed_ = true;
  }
  void Assume(std::string_view key, MetaValue value) {
    if (!Has(key)) Set(key, std::move(value));
  }
  void SetCount(std::string_view key, int64_t n) { Set(key, static_cast<uint64_t>(n)); }
  void MoveKey(std::string_view from, std::string_view to) {
    if (Has(to)) return;
    const std::string full = Full(from);
    const auto found = std::ranges::find(*metadata_, full, &ModelFile::KeyValue::key);
    if (found == metadata_->end()) return;
    found->key = Own(Full(to));
    changed_ = true;
  }
  // Names the architecture anew, and its keys with it.
  void Become(std::string_view architecture) {
    const std::string before = StrCat(architecture_, ".");
    for (ModelFile::KeyValue& entry : *metadata_) {
      if (!entry.key.starts_with(before) || entry.key.size() + 64 > gguf::kMaxKeyBytes) continue;
      entry.key = Own(StrCat(architecture, ".", entry.key.substr(before.size())));
    }
    Set("general.architecture", architecture);
    architecture_ = architecture;
  }
  void set_architecture(std::string_view name) { architecture_ = name; }
  bool changed() const { return changed_; }

  // --- tensors ----------------------------------------------------------------------------
  std::vector<TensorInfo>& tensors() { return *tensors_; }
  TensorInfo* Tensor(std::string_view name) {
    const auto found = std::ranges::find(*tensors_, name, &TensorInfo::name);
    return found == tensors_->end() ? nullptr : &*found;
  }
  bool HasTensor(std::string_view name) const {
    return std::ranges::find(*tensors_, name, &TensorInfo::name) != tensors_->end();
  }
  // Whether some tensor's name begins with `prefix`.
  bool HasTensors(std::string_view prefix) const {
    return std::ranges::any_of(*tensors_,
                               [&](const TensorInfo& t) { return t.name.starts_with(prefix); });
  }
  void Rename(TensorInfo* tensor, std::string name) {
    if (name.size() > gguf::kMaxTensorNameBytes) return;
    tensor->name = Own(std::move(name));
    changed_ = true;
  }
  // Replaces a tensor's values.
  void Fill(TensorInfo* tensor, std::vector<float> values) {
    const std::vector<float>& kept = out_->values.emplace_back(std::move(values));
    tensor->type = DType::kF32;
    tensor->data = std::as_bytes(std::span(kept));
  }

 private:
  std::string_view Own(std::string text) { return out_->texts.emplace_back(std::move(text)); }

  std::vector<ModelFile::KeyValue>* metadata_;
  std::vector<TensorInfo>* tensors_;
  OllamaTranslation* out_;
  std::string architecture_;
  bool changed_ = false;
};

}  // namespace weft

#endif  // WEFT_MODEL_FORMATS_OLLAMA_DRAFT_H_
