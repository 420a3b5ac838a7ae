// Counters of a model's pictures since it was loaded. A value.
#ifndef WEFT_ANSWER_PICTURE_STATS_H_
#define WEFT_ANSWER_PICTURE_STATS_H_

#include <cstdint>

namespace weft::serve {

struct PictureStats {
  int64_t encoded = 0;    // pictures
  int64_t found = 0;      // in the cache
  int64_t given_up = 0;   // because all who waited had left
  int64_t shared = 0;     // waited for an encoding that another ask had begun
  int64_t encode_us = 0;  // time on the engine thread
  int64_t weight_bytes = 0;
  int64_t cached = 0, cached_bytes = 0;  // pictures and their embeddings
};

}  // namespace weft::serve

#endif  // WEFT_ANSWER_PICTURE_STATS_H_
