// The stream of an engine's cached prefixes in the form of vLLM's KV events: numbered batches, of
// which the latest are kept, and the pages that are cached after them.
//
// All clients are sent the same batches with the same numbers, so that one that missed some can ask
// for them. A snapshot is a batch of all pages; it has the number of the latest batch, and replaces
// that and all before it.
//
// One thread at a time.
#ifndef WEFT_DOORS_KV_EVENTS_KV_EVENT_LOG_H_
#define WEFT_DOORS_KV_EVENTS_KV_EVENT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/prefix_events.h"

namespace weft::serve {

struct KvEventBatch {
  uint64_t number = 0;
  std::shared_ptr<const std::string> payload;  // MessagePack
};

class KvEventLog {
 public:
  struct Limits {
    size_t batches = 10'000;
    size_t bytes = size_t{64} << 20;
  };

  // Batch 0 says that nothing is cached: whatever a client knows of an earlier server is void.
  explicit KvEventLog(Limits limits);
  KvEventLog() : KvEventLog(Limits{}) {}

  // A batch of these events. `begins`: nothing that was told before holds any more, and nobody is
  // sent it again.
  const KvEventBatch& Add(bool begins, std::span<const PrefixEvent> events);

  const KvEventBatch& latest() const { return batches_.back(); }
  KvEventBatch Snapshot();
  // The batch with this number; if that is gone, the snapshot. REQUIRES: number <= latest().number.
  KvEventBatch Get(uint64_t number);

 private:
  using Place = std::pair<CacheTier, uint64_t>;  // the page's key
  struct Known {
    CacheTier tier;
    std::shared_ptr<const CachedPage> page;
  };
  void Apply(const PrefixEvent& event);
  void Keep(std::string payload);

  const Limits limits_;
  std::deque<KvEventBatch> batches_;  // never empty
  size_t bytes_ = 0;                  // their payloads, together
  uint64_t next_ = 0;                 // the number of the next one
  // In the order in which they were stored, so that a page comes after its parent.
  std::map<uint64_t, Known> pages_;
  std::map<Place, uint64_t> numbers_;
  uint64_t last_page_ = 0;
  KvEventBatch snapshot_;  // the last one made; out of date if there are newer batches
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_KV_EVENTS_KV_EVENT_LOG_H_
