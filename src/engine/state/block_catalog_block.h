// The blocks of a BlockCatalog, for its implementation files.
#ifndef WEFT_ENGINE_STATE_BLOCK_CATALOG_BLOCK_H_
#define WEFT_ENGINE_STATE_BLOCK_CATALOG_BLOCK_H_

#include <cstdint>
#include <optional>

#include "engine/state/block_catalog.h"

namespace weft {

struct BlockCatalog::Block : BlockInfo {
  uint64_t serial = 0;
  bool written = false;
  std::optional<OrderKey> place;  // in the order
};

}  // namespace weft

#endif  // WEFT_ENGINE_STATE_BLOCK_CATALOG_BLOCK_H_
