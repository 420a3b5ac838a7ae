// The codebooks of the IQ types: the runs of eight (or four) magnitudes that a file can refer to.
//
// An entry packs the indices of its magnitudes, the first in the lowest bits: two bits for each of
// eight values, or three bits for each of four.
#ifndef WEFT_COMPUTE_KERNELS_QUANTS_CODEBOOKS_H_
#define WEFT_COMPUTE_KERNELS_QUANTS_CODEBOOKS_H_

#include <cstdint>

namespace weft {

// Eight magnitudes out of 8, 25 and 43.
extern const uint16_t kIq2XxsCodes[256];
extern const uint16_t kIq2XsCodes[512];
extern const uint16_t kIq2SCodes[1024];
// Four magnitudes, out of 4, 12, 20, 28, 36, 44, 52 and 62, and out of the odd numbers from 1 to
// 15.
extern const uint16_t kIq3XxsCodes[256];
extern const uint16_t kIq3SCodes[512];
// Eight values out of -1, 0 and 1.
extern const uint16_t kIq1Codes[2048];

}  // namespace weft

#endif  // WEFT_COMPUTE_KERNELS_QUANTS_CODEBOOKS_H_
