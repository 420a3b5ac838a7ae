// Which prefixes an engine can begin a turn from, as they come and go: for routers that send a
// prompt to the server that knows most of it.
#ifndef WEFT_PREFIX_EVENTS_H_
#define WEFT_PREFIX_EVENTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"

namespace weft {

// A whole page of tokens whose KV cache is kept. A turn can start at its end, or after later pages
// of the same prefix: models with windows or recurrent state do not start everywhere.
struct CachedPage {
  uint64_t key = 0;     // of the page and everything before it
  uint64_t parent = 0;  // the key of the page before it; 0: it is the first
  std::vector<int32_t> tokens = {};
};

enum class CacheTier : uint8_t { kMemory, kDisk };

struct PrefixEvent {
  bool is_stored = true;  // false: removed
  CacheTier tier = CacheTier::kMemory;
  std::shared_ptr<const CachedPage> page;
};

// What one reader has not read yet: first all pages there are, then the changes. A page is stored
// after its parent and removed before it. One thread at a time; may outlive the engine.
class PrefixFeed {
 public:
  virtual ~PrefixFeed() = default;
  // Appends the new events. An error ends the feed: forget all that it told.
  // RESOURCE_EXHAUSTED: the reader was too slow; a new feed begins with all pages again.
  virtual absl::Status Take(std::vector<PrefixEvent>* events) = 0;
};

}  // namespace weft

#endif  // WEFT_PREFIX_EVENTS_H_
