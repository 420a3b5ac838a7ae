// Words that a kernel loads, stores or copies in one access: contiguous, and aligned to the whole
// access.
#ifndef WEFT_COMPUTE_DEVICE_WORDS_H_
#define WEFT_COMPUTE_DEVICE_WORDS_H_

#include <cstdint>

namespace weft::device {

struct Words2 {
  uint32_t w[2];
};
struct Words4 {
  uint32_t w[4];
};

}  // namespace weft::device

#endif  // WEFT_COMPUTE_DEVICE_WORDS_H_
