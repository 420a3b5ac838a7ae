// Work of others on the engine thread: done in pieces between steps. Tenants take turns by the time
// that their pieces took, each tenant's work is done in the order it came.
//
// Engine thread only.
#ifndef WEFT_ENGINE_SIDE_WORK_H_
#define WEFT_ENGINE_SIDE_WORK_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "compute/backend.h"
#include "weft/engine.h"

namespace weft {

class SideWorkQueue {
 public:
  using Weights = std::map<std::string, double, std::less<>>;

  // `weights`: of tenants, as EngineOptions::share_weights. `now_us`: for tests.
  SideWorkQueue(int step_ms, Weights weights, std::function<int64_t()> now_us = NowMicros)
      : piece_us_(step_ms * int64_t{1000}),
        weights_(std::move(weights)),
        now_us_(std::move(now_us)) {}

  // Time without work earns a tenant nothing: it starts with the last of the others.
  void Add(std::shared_ptr<SideWork> work) {
    const std::string tenant(work->tenant());
    const auto known = tenants_.find(tenant);
    Tenant& own = known != tenants_.end() ? known->second : tenants_[tenant];
    if (known == tenants_.end()) {
      own.clock_us = Floor();
      if (const auto it = weights_.find(tenant); it != weights_.end()) own.weight = it->second;
    }
    own.works.push_back(std::move(work));
  }
  bool empty() const { return tenants_.empty(); }
  // Steps have computed for as long as a piece may take, so that it is the work's turn.
  bool IsDue() const { return !empty() && now_us_() - last_us_ >= piece_us_; }
  // Computes the next piece, which ends once `interrupted` returns true or its time is over. False
  // if there was none.
  bool Advance(const Executor& executor, const std::function<bool()>& interrupted) {
    if (empty()) return false;
    const auto it = Next();
    Tenant& tenant = it->second;
    tenant.has_begun = true;
    const int64_t begin_us = now_us_(), end_us = begin_us + piece_us_;
    const bool done = tenant.works.front()->Advance(
        executor, [&] { return interrupted() || now_us_() >= end_us; });
    last_us_ = now_us_();
    // A piece that took no time is a turn, too.
    tenant.clock_us +=
        static_cast<double>(std::max<int64_t>(1, last_us_ - begin_us)) / tenant.weight;
    if (!done) return true;
    tenant.works.pop_front();
    tenant.has_begun = false;
    if (tenant.works.empty()) tenants_.erase(it);
    return true;
  }
  // Ends all work undone.
  void Clear() { tenants_.clear(); }

 private:
  // Works that have begun hold scratch memory.
  static constexpr int64_t kMaxBegun = 4;

  struct Tenant {
    std::deque<std::shared_ptr<SideWork>> works;  // at least one
    double clock_us = 0;
    double weight = 1;
    bool has_begun = false;  // the first work
  };
  using Tenants = std::map<std::string, Tenant, std::less<>>;

  // Tenants without work have none here, so the new one is not among those that count.
  double Floor() const {
    double floor = 0;
    bool is_first = true;
    for (const auto& [name, tenant] : tenants_) {
      if (tenant.works.empty()) continue;
      floor = is_first ? tenant.clock_us : std::min(floor, tenant.clock_us);
      is_first = false;
    }
    return floor;
  }
  Tenants::iterator Next() {
    const bool may_begin = std::ranges::count_if(tenants_, [](const auto& entry) {
                             return entry.second.has_begun;
                           }) < kMaxBegun;
    auto next = tenants_.end();
    for (auto it = tenants_.begin(); it != tenants_.end(); ++it) {
      if (!it->second.has_begun && !may_begin) continue;
      if (next == tenants_.end() || it->second.clock_us < next->second.clock_us) next = it;
    }
    return next;
  }

  const int64_t piece_us_;
  const Weights weights_;
  const std::function<int64_t()> now_us_;
  int64_t last_us_ = 0;  // when the last piece ended
  Tenants tenants_;      // those with work
};

}  // namespace weft

#endif  // WEFT_ENGINE_SIDE_WORK_H_
