// Jobs of tenants that take turns: each tenant's in their order, and nobody's second before
// another's first. A tenant that comes again goes to the end. Not for several threads.
#ifndef WEFT_ENGINE_STORAGE_TENANT_TURNS_H_
#define WEFT_ENGINE_STORAGE_TENANT_TURNS_H_

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "base/check.h"

namespace weft {

class TenantTurns {
 public:
  using Job = std::function<void()>;

  bool empty() const { return order_.empty(); }
  void Push(const std::string& tenant, Job job) {
    std::deque<Job>& jobs = jobs_[tenant];
    if (jobs.empty()) order_.push_back(tenant);
    jobs.push_back(std::move(job));
  }
  // REQUIRES: !empty()
  Job Pop() {
    WEFT_CHECK(!empty(), "a job is taken where there is one");
    std::string tenant = std::move(order_.front());
    order_.pop_front();
    const auto its = jobs_.find(tenant);
    Job job = std::move(its->second.front());
    its->second.pop_front();
    if (its->second.empty()) {
      jobs_.erase(its);
    } else {
      order_.push_back(std::move(tenant));
    }
    return job;
  }

 private:
  std::map<std::string, std::deque<Job>> jobs_;  // none empty
  std::deque<std::string> order_;                // their tenants, the next one first
};

}  // namespace weft

#endif  // WEFT_ENGINE_STORAGE_TENANT_TURNS_H_
