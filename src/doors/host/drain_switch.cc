#include "doors/host/drain_switch.h"

#include <iterator>
#include <utility>

namespace weft::serve {

bool DrainSwitch::Set(bool is_on) {
  MutexLock lock(&mutex_);
  if (std::exchange(is_on_, is_on) == is_on) return false;
  for (const Watcher& watcher : watchers_) watcher(is_on);
  return true;
}

Status DrainSwitch::MayBegin() const {
  if (!is_on()) return OkStatus();
  return Unavailable(
      "this server is drained and takes no new requests; send it to another server, or wait until "
      "the operator sends POST /undrain");
}

std::shared_ptr<void> DrainSwitch::Watch(Watcher watcher) {
  MutexLock lock(&mutex_);
  watchers_.push_back(std::move(watcher));
  watchers_.back()(is_on_);
  const auto place = std::prev(watchers_.end());
  return {nullptr, [this, place](void*) {
            MutexLock ending(&mutex_);
            watchers_.erase(place);
          }};
}

}  // namespace weft::serve
