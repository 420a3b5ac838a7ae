// Tenants' work that waits for a thread: a queue for each tenant, and the tenants take turns.
//
// Work cannot be interrupted, so a tenant never runs on the last thread: whoever comes next finds
// it free, however long the others' work takes.
//
// Policy alone: no locks, no threads, no time. One thread at a time.
#ifndef WEFT_ASYNC_TENANT_QUEUES_H_
#define WEFT_ASYNC_TENANT_QUEUES_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <utility>

namespace weft {

class TenantQueues {
 public:
  using Work = std::function<void()>;

  // `max_running` works run at a time, of one tenant one fewer, but at least one. `max_waiting`
  // wait in addition to those that can begin.
  TenantQueues(size_t max_running, size_t max_waiting);

  // Appends to the tenant's queue. False if more of it wait than may: all `max_waiting` of a tenant
  // alone, an equal share of them, and at least one, where others wait or run.
  // `n_threads`: threads that are free or could be created.
  bool Push(const std::string& tenant, Work work, size_t n_threads);

  // A tenant of whom something waits or runs.
  struct Tenant {
    std::deque<Work> waiting;
    size_t n_running = 0;
  };
  using Tenants = std::map<std::string, Tenant, std::less<>>;
  struct Taken {
    Work work;
    Tenants::iterator tenant;
  };
  // Takes the work of the next tenant in turn. REQUIRES: n_ready() > 0.
  Taken Take();
  // Work that was taken has ended.
  void Ended(Tenants::iterator tenant);

  // How many of those waiting could begin now, given threads.
  size_t n_ready() const;
  size_t n_waiting() const { return n_waiting_; }

 private:
  // Of one tenant.
  size_t ReadyOf(const Tenant& tenant) const;

  const size_t max_running_, max_running_of_one_, max_waiting_;
  Tenants tenants_;
  std::list<Tenants::iterator> turns_;  // those with waiting work, the next first
  size_t n_waiting_ = 0;
  size_t n_running_ = 0;
  size_t ready_of_each_ = 0;  // the sum of ReadyOf
};

}  // namespace weft

#endif  // WEFT_ASYNC_TENANT_QUEUES_H_
