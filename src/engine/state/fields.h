// Encoding of a file's description: little-endian numbers and length-prefixed texts. Reading
// untrusted bytes stops at their end.
//
// Threads: an object belongs to one thread at a time.
#ifndef WEFT_ENGINE_STATE_FIELDS_H_
#define WEFT_ENGINE_STATE_FIELDS_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace weft {

static_assert(std::endian::native == std::endian::little, "the formats are little-endian");

class FieldWriter {
 public:
  template <typename T>
  void Put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
  }
  void PutText(std::string_view text) {
    Put(static_cast<uint32_t>(text.size()));
    const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// After the first missing field, everything reads as zero and ok() is false.
class FieldReader {
 public:
  explicit FieldReader(std::span<const std::byte> bytes) : left_(bytes) {}
  template <typename T>
  T Get() {
    T value{};
    const auto bytes = Take(sizeof(T));
    if (ok_) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  std::string GetText() {
    const auto bytes = Take(Get<uint32_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && left_.empty(); }
  size_t n_left() const { return left_.size(); }

 private:
  std::span<const std::byte> Take(size_t n) {
    if (n > left_.size()) ok_ = false;
    if (!ok_) return {};
    const auto taken = left_.first(n);
    left_ = left_.subspan(n);
    return taken;
  }
  std::span<const std::byte> left_;
  bool ok_ = true;
};

}  // namespace weft

#endif  // WEFT_ENGINE_STATE_FIELDS_H_
