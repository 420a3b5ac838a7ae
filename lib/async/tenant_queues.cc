#include "async/tenant_queues.h"

#include <algorithm>

#include "base/check.h"

namespace weft {

TenantQueues::TenantQueues(size_t max_running, size_t max_waiting)
    : max_running_(std::max<size_t>(1, max_running)),
      max_running_of_one_(std::max<size_t>(1, max_running_ - 1)),
      max_waiting_(max_waiting) {}

bool TenantQueues::Push(const std::string& tenant, Work work, size_t n_threads) {
  const auto at = tenants_.try_emplace(tenant).first;
  Tenant& own = at->second;
  const size_t can_begin =
      std::min({n_threads, max_running_ - n_running_, max_running_of_one_ - own.n_running});
  const size_t share = max_waiting_ / tenants_.size();
  if (own.waiting.size() >= can_begin + std::max(share, std::min<size_t>(1, max_waiting_))) {
    if (own.waiting.empty() && own.n_running == 0) tenants_.erase(at);
    return false;
  }
  if (own.waiting.empty()) turns_.push_back(at);
  ready_of_each_ -= ReadyOf(own);
  own.waiting.push_back(std::move(work));
  ready_of_each_ += ReadyOf(own);
  ++n_waiting_;
  return true;
}

TenantQueues::Taken TenantQueues::Take() {
  WEFT_CHECK(n_ready() > 0, "no waiting work may begin");
  const auto turn = std::find_if(turns_.begin(), turns_.end(),
                                 [this](Tenants::iterator at) { return ReadyOf(at->second) > 0; });
  const Tenants::iterator at = *turn;
  Tenant& own = at->second;
  ready_of_each_ -= ReadyOf(own);
  Taken taken{std::move(own.waiting.front()), at};
  own.waiting.pop_front();
  ++own.n_running;
  ready_of_each_ += ReadyOf(own);
  --n_waiting_;
  ++n_running_;
  if (own.waiting.empty()) {
    turns_.erase(turn);
  } else {
    turns_.splice(turns_.end(), turns_, turn);
  }
  return taken;
}

void TenantQueues::Ended(Tenants::iterator tenant) {
  Tenant& own = tenant->second;
  ready_of_each_ -= ReadyOf(own);
  --own.n_running;
  ready_of_each_ += ReadyOf(own);
  --n_running_;
  if (own.waiting.empty() && own.n_running == 0) tenants_.erase(tenant);
}

size_t TenantQueues::ReadyOf(const Tenant& tenant) const {
  return std::min(tenant.waiting.size(),
                  max_running_of_one_ - std::min(max_running_of_one_, tenant.n_running));
}

size_t TenantQueues::n_ready() const { return std::min(ready_of_each_, max_running_ - n_running_); }

}  // namespace weft
