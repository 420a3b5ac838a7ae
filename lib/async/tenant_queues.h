// Work that waits for a thread: a queue for each tenant, served in turn.
//
// Work cannot be interrupted, so a single tenant never uses the last thread: the next tenant finds
// it free, however long the others' work takes.
//
// Policy only: no locks, no threads, no time. One thread at a time.
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

  // At most `max_running` works run at a time; of one tenant one fewer, but at least one.
  // `max_waiting` may wait in addition to those that can begin.
  TenantQueues(size_t max_running, size_t max_waiting);

  // Appends to the tenant's queue. False if too much of the tenant's work waits: the limit is
  // `max_waiting` for a tenant alone, and an equal share of it, at least one, if others wait or
  // run.
  // `n_threads`: threads that are idle or could be created.
  bool Push(const std::string& tenant, Work work, size_t n_threads);

  // A tenant with waiting or running work.
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
  // Call when work that was taken has ended.
  void Ended(Tenants::iterator tenant);

  // How many of the waiting works could begin now, given enough threads.
  size_t n_ready() const;
  size_t n_waiting() const { return n_waiting_; }

 private:
  // The same for one tenant, without the limit for all.
  size_t ReadyOf(const Tenant& tenant) const;

  const size_t max_running_, max_running_of_one_, max_waiting_;
  Tenants tenants_;
  std::list<Tenants::iterator> turns_;  // tenants with waiting work, the next first
  size_t n_waiting_ = 0;
  size_t n_running_ = 0;
  size_t ready_of_each_ = 0;  // the sum of ReadyOf
};

}  // namespace weft

#endif  // WEFT_ASYNC_TENANT_QUEUES_H_
