// Ids of the two kinds of state memory: pages of keys and values, and slots of recurrent state. An
// id is an index into one pool and means nothing without it.
#ifndef WEFT_BASE_STATE_IDS_H_
#define WEFT_BASE_STATE_IDS_H_

#include <cstdint>

namespace weft {

using PageId = int32_t;
inline constexpr PageId kNoPage = -1;
using SlotId = int32_t;
inline constexpr SlotId kNoSlot = -1;

}  // namespace weft

#endif  // WEFT_BASE_STATE_IDS_H_
