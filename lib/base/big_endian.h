// Numbers as most network protocols write them: the highest byte first.
#ifndef WEFT_BASE_BIG_ENDIAN_H_
#define WEFT_BASE_BIG_ENDIAN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

// The lowest `n_bytes` bytes of the value, at most 8.
inline std::string BigEndian(uint64_t value, size_t n_bytes) {
  std::string bytes(n_bytes, '\0');
  for (size_t i = n_bytes; i-- > 0; value >>= 8) bytes[i] = static_cast<char>(value & 0xff);
  return bytes;
}

// Longer text counts with its last 8 bytes.
inline uint64_t FromBigEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<unsigned char>(c);
  return value;
}

}  // namespace weft

#endif  // WEFT_BASE_BIG_ENDIAN_H_
