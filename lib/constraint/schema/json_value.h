// JSON as needed for schemas: members in order, and numbers exactly as written.
#ifndef WEFT_CONSTRAINT_SCHEMA_JSON_VALUE_H_
#define WEFT_CONSTRAINT_SCHEMA_JSON_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/status.h"

namespace weft::constraint {

// Owns the memory of texts and of parts of values, which is freed all at once. Values point into
// it.
class JsonArena {
 public:
  std::string_view Keep(std::string_view text);
  template <typename T>
  const T* Keep(std::span<const T> parts) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kAlignment);
    return static_cast<const T*>(Copy(parts.data(), parts.size_bytes()));
  }

 private:
  static constexpr size_t kAlignment = alignof(void*);
  const void* Copy(const void* bytes, size_t n_bytes);

  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  std::span<std::byte> room_;  // free part of the last chunk
};

// Contiguous values or members in an arena.
template <typename T>
class JsonParts {
 public:
  JsonParts() = default;
  JsonParts(std::span<const T> parts, JsonArena* arena)
      : data_(arena->Keep(parts)), size_(parts.size()) {}

  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T& operator[](size_t i) const { return data_[i]; }
  const T& front() const { return data_[0]; }
  const T& back() const { return data_[size_ - 1]; }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};

struct JsonMember;

struct JsonValue {
  enum class Kind : uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  std::string_view text;  // a number as written, or a decoded string
  JsonParts<JsonValue> items;
  JsonParts<JsonMember> members;  // of equal names only the last
  // A small Bloom filter of the names, by BitOf; 0 if not computed. Most lookups are for missing
  // names.
  uint64_t name_bits = 0;

  bool Is(Kind k) const { return kind == k; }
  bool IsBool() const { return kind == Kind::kTrue || kind == Kind::kFalse; }
  const JsonValue* Find(std::string_view name) const {
    return name_bits == 0 || (name_bits & BitOf(name)) != 0 ? FindMember(name) : nullptr;
  }
  static uint64_t BitOf(std::string_view name) {
    if (name.empty()) return 1;
    return 1ull << ((name.size() + 7u * static_cast<uint8_t>(name.front()) +
                     19u * static_cast<uint8_t>(name.back())) %
                    64);
  }

 private:
  const JsonValue* FindMember(std::string_view name) const;
};

struct JsonMember {
  std::string_view name;
  JsonValue value;
};

// The value lives as long as the arena. REQUIRES: `text` is shorter than 2 GiB. The nesting depth
// is limited. Each opening bracket, comma and colon takes one of `parts_left`; reading stops when
// none are left.
StatusOr<JsonValue> ReadJson(std::string_view text, JsonArena* arena,
                             int64_t* parts_left = nullptr);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_SCHEMA_JSON_VALUE_H_
