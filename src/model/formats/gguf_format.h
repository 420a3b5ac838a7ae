// Constants of the GGUF format, shared by reader and writer.
//
// A file is: the four bytes "GGUF", a version (u32), the number of tensors and of metadata entries
// (u64 each), the metadata (key, type, value), the tensor list (name, dimensions, type, offset),
// padding up to the alignment, and the tensors' data. Numbers are little-endian, a string is a u64
// length and bytes.
#ifndef WEFT_MODEL_FORMATS_GGUF_FORMAT_H_
#define WEFT_MODEL_FORMATS_GGUF_FORMAT_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/strings.h"

namespace weft::gguf {

static_assert(std::endian::native == std::endian::little,
              "model files are little-endian and are used where they lie");

inline constexpr std::string_view kMagic = "GGUF";
inline constexpr uint32_t kOldestVersion = 2;
inline constexpr uint32_t kNewestVersion = 3;

inline constexpr std::string_view kAlignmentKey = "general.alignment";
inline constexpr uint64_t kDefaultAlignment = 32;
// At least eight, so that every element type is naturally aligned; at most a mebibyte, because more
// would only waste space.
inline constexpr uint64_t kMinAlignment = 8;
inline constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;

inline constexpr int kMaxDims = 4;
inline constexpr size_t kMaxKeyBytes = 65535;
inline constexpr size_t kMaxTensorNameBytes = 64;

enum class MetaType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

inline bool IsValidAlignment(uint64_t alignment) {
  return std::has_single_bit(alignment) && alignment >= kMinAlignment && alignment <= kMaxAlignment;
}

// REQUIRES: `alignment` is a power of two, `offset` is at most 2^63.
inline uint64_t AlignUp(uint64_t offset, uint64_t alignment) {
  return (offset + alignment - 1) & ~(alignment - 1);
}

// True for a name that is safe to show and compare: valid UTF-8 without control characters, of 1 to
// `max_bytes` bytes.
inline bool IsValidName(std::string_view name, size_t max_bytes) {
  return !name.empty() && name.size() <= max_bytes && Printable(name, name.size()) == name;
}

}  // namespace weft::gguf

#endif  // WEFT_MODEL_FORMATS_GGUF_FORMAT_H_
