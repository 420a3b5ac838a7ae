// Writes MessagePack.
#ifndef WEFT_DOORS_KV_EVENTS_MESSAGE_PACK_H_
#define WEFT_DOORS_KV_EVENTS_MESSAGE_PACK_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/big_endian.h"

namespace weft::serve {

class MessagePack {
 public:
  // The items follow.
  void Array(size_t n) { Head(n, 0x90, 15, 0xdc); }
  // `n` pairs of a name and a value follow.
  void Map(size_t n) { Head(n, 0x80, 15, 0xde); }
  void Nil() { Byte(0xc0); }
  void Double(double value) {
    Byte(0xcb);
    bytes_ += BigEndian(std::bit_cast<uint64_t>(value), 8);
  }
  void Unsigned(uint64_t value) {
    if (value < 0x80) return Byte(value);
    const int log = value <= 0xff ? 0 : value <= 0xffff ? 1 : value <= 0xffffffff ? 2 : 3;
    Byte(0xcc + static_cast<unsigned>(log));
    bytes_ += BigEndian(value, size_t{1} << log);
  }
  // Takes at most 255 bytes.
  void Text(std::string_view text) {
    if (text.size() < 32) {
      Byte(0xa0 | text.size());
    } else {
      Byte(0xd9);
      Byte(text.size());
    }
    bytes_ += text;
  }
  std::string Take() && { return std::move(bytes_); }

 private:
  // `small`: the type's byte for up to `max_small` items; `large` with 16 bits, the next with 32.
  void Head(size_t n, unsigned small, size_t max_small, unsigned large) {
    if (n <= max_small) return Byte(small | n);
    const bool is_short = n <= 0xffff;
    Byte(is_short ? large : large + 1);
    bytes_ += BigEndian(n, is_short ? 2 : 4);
  }
  void Byte(uint64_t byte) { bytes_.push_back(static_cast<char>(byte)); }

  std::string bytes_;
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_KV_EVENTS_MESSAGE_PACK_H_
