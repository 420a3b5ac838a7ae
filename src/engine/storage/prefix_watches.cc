#include "engine/storage/prefix_watches.h"

#include "engine/state/prefix_domain.h"
#include "engine/storage/disk_tier.h"

namespace weft {
namespace {

// At a time, of each kind: under a millisecond.
constexpr int64_t kMaxNodes = 512;

}  // namespace

void PrefixWatches::Watch(const std::string& tree, PrefixLog* log) {
  memory_.prefixes().Watch(tree, log);
  if (files_.has_blocks()) files_.disk()->Watch(tree, log);
}

void PrefixWatches::Add(const std::string& domain, const AdapterMixRef& adapters, bool shares_trees,
                        const std::shared_ptr<PrefixQueue>& queue) {
  const std::string shared = SharedDomain(domain, adapters);
  const auto [place, is_new] = logs_.try_emplace(std::string(TreeOf(shared, shares_trees)));
  if (is_new) {
    place->second = std::make_unique<PrefixLog>();
    Watch(place->first, place->second.get());
  }
  place->second->Add(queue);
}

bool PrefixWatches::Advance() {
  if (logs_.empty()) return false;
  bool has_more = memory_.prefixes().TellWatched(kMaxNodes);
  if (files_.has_blocks() && files_.disk()->TellWatched(kMaxNodes)) has_more = true;
  for (auto place = logs_.begin(); place != logs_.end();) {
    if (place->second->Serve(kMaxNodes)) has_more = true;
    if (place->second->has_readers()) {
      ++place;
      continue;
    }
    Watch(place->first, nullptr);
    place = logs_.erase(place);
  }
  return has_more && !logs_.empty();
}

int64_t PrefixWatches::memory_bytes() const {
  int64_t bytes = 0;
  for (const auto& [tree, log] : logs_) bytes += log->memory_bytes();
  return bytes;
}

}  // namespace weft
