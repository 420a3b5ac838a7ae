// What a kernel loads, stores or copies in one go: words that lie one behind the other, of which
// the first is aligned to all of them.
#ifndef WEFT_DEVICE_WORDS_H_
#define WEFT_DEVICE_WORDS_H_

#include <cstdint>

namespace weft::device {

struct Words2 {
  uint32_t w[2];
};
struct Words4 {
  uint32_t w[4];
};

}  // namespace weft::device

#endif  // WEFT_DEVICE_WORDS_H_
