#include "doors/host/prefix_reader.h"

#include <algorithm>

#include "doors/host/adapters.h"

namespace weft::serve {
namespace {

bool SameScale(const AdapterScale& a, const AdapterScale& b) {
  return a.name == b.name && a.scale == b.scale;
}

bool Continues(const PrefixEvent& last, const PrefixEvent& next) {
  if (last.is_stored != next.is_stored || last.tier != next.tier) return false;
  return !next.is_stored || next.page->parent == last.page->key;
}

}  // namespace

StatusOr<bool> PrefixReader::Take(std::vector<PrefixEvent>* events) {
  const auto& known = host_.defaults().adapters;
  std::vector<AdapterScale> adapters;
  if (known != nullptr) adapters = known->Defaults();
  while (true) {
    const bool begins = feed_ == nullptr || !std::ranges::equal(adapters, adapters_, SameScale);
    if (begins) {
      adapters_ = adapters;
      feed_ = host_.engine().WatchPrefixes(domain_, adapters_, wake_);
    }
    events->clear();
    const Status told = feed_->Take(events);
    if (told.ok()) return begins;
    feed_ = nullptr;
    if (told.code() != StatusCode::kResourceExhausted) return told;
  }
}

size_t RunLength(std::span<const PrefixEvent> events, size_t max) {
  const size_t end = std::min(events.size(), max);
  size_t n = std::min<size_t>(end, 1);
  while (n < end && Continues(events[n - 1], events[n])) ++n;
  return n;
}

}  // namespace weft::serve
