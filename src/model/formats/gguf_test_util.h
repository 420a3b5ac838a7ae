// Builds valid and invalid GGUF bytes by hand, and walks over accepted files.
#ifndef WEFT_MODEL_FORMATS_GGUF_TEST_UTIL_H_
#define WEFT_MODEL_FORMATS_GGUF_TEST_UTIL_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "model/formats/gguf_format.h"
#include "model/formats/model_file.h"

namespace weft::testing {

// A chain of raw fields: Raw().U32(3).Str("key").
class Raw {
 public:
  Raw& Bytes(std::string_view bytes) {
    bytes_.append(bytes);
    return *this;
  }
  template <typename T>
  Raw& Put(T value) {
    return Bytes({reinterpret_cast<const char*>(&value), sizeof(value)});
  }
  Raw& U8(uint8_t value) { return Put(value); }
  Raw& U32(uint32_t value) { return Put(value); }
  Raw& U64(uint64_t value) { return Put(value); }
  Raw& Type(gguf::MetaType type) { return Put(type); }
  Raw& Str(std::string_view text) { return U64(text.size()).Bytes(text); }
  Raw& Header(uint64_t n_tensors, uint64_t n_metadata, uint32_t version = 3) {
    return Bytes("GGUF").U32(version).U64(n_tensors).U64(n_metadata);
  }
  Raw& Tensor(std::string_view name, std::initializer_list<uint64_t> dims, uint32_t type,
              uint64_t offset) {
    Str(name).U32(static_cast<uint32_t>(dims.size()));
    for (const uint64_t size : dims) U64(size);
    return U32(type).U64(offset);
  }
  // Zeros up to the alignment, then `data_bytes` more.
  Raw& Data(size_t data_bytes, size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment + data_bytes);
    return *this;
  }
  const std::string& str() const { return bytes_; }

 private:
  std::string bytes_;
};

inline uint64_t Touch(const MetaArray& array) {
  return std::visit(
      [](const auto& items) {
        uint64_t sum = items.size();
        using Item = typename std::decay_t<decltype(items)>::value_type;
        for (const auto& item : items) {
          if constexpr (std::is_same_v<Item, MetaArray>) {
            sum += Touch(item);
          } else if constexpr (std::is_same_v<Item, std::string_view>) {
            for (const char c : item) sum = sum * 31 + static_cast<unsigned char>(c);
          } else {
            sum += item != Item();
          }
        }
        return sum;
      },
      array.items);
}

// Reads every byte the file exposes, so that a sanitizer sees each access.
inline uint64_t TouchAll(const ModelFile& file) {
  uint64_t sum = 0;
  for (const ModelFile::KeyValue& entry : file.metadata()) {
    sum += file.FindMeta(entry.key) == &entry.value;
    if (const auto* text = std::get_if<std::string_view>(&entry.value)) {
      for (const char c : *text) sum = sum * 31 + static_cast<unsigned char>(c);
    }
    if (const auto* array = std::get_if<MetaArray>(&entry.value)) sum += Touch(*array);
    (void)file.GetInt(entry.key).ok();
    (void)file.GetFloat(entry.key).ok();
    (void)file.GetBool(entry.key).ok();
    (void)file.GetString(entry.key).ok();
    (void)file.GetIntArray(entry.key).ok();
    (void)file.GetFloatArray(entry.key).ok();
    (void)file.GetStringArray(entry.key).ok();
    (void)file.GetIntPerLayer(entry.key, 2).ok();
  }
  for (const TensorInfo& tensor : file.tensors()) {
    sum += static_cast<uint64_t>(file.FindTensor(tensor.name));
    for (const std::byte byte : tensor.data) sum = sum * 31 + static_cast<uint64_t>(byte);
  }
  return sum;
}

// Parses valid bytes; aborts if they are not.
inline std::shared_ptr<const ModelFile> MustParse(std::string_view bytes) {
  return ModelFile::FromBytes("m.gguf", std::as_bytes(std::span(bytes))).value();
}

}  // namespace weft::testing

#endif  // WEFT_MODEL_FORMATS_GGUF_TEST_UTIL_H_
