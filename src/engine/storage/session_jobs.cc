#include "engine/storage/session_jobs.h"

#include <utility>

#include "base/check.h"

namespace weft {

void SessionJobs::Post(const std::string& domain, Kind kind, std::function<void()> job) {
  MutexLock lock(&mutex_);
  // One that comes again and again does not go before those that wait.
  Domain& its =
      domains_.try_emplace(domain, Domain{.jobs = {}, .restored = n_restored_}).first->second;
  its.jobs.push_back({.number = ++n_posted_, .kind = kind, .run = std::move(job)});
}

void SessionJobs::RunNext() {
  std::function<void()> job;
  {
    MutexLock lock(&mutex_);
    job = Take();
  }
  job();
}

std::function<void()> SessionJobs::Take() {
  WEFT_CHECK(!domains_.empty(), "one job is posted for each that runs");
  // Restores before all else, then whose last one is the longest ago, then who came first.
  const auto goes_before = [](const Domain& a, const Domain& b) {
    const bool a_restores = a.jobs.front().kind == Kind::kRestore;
    const bool b_restores = b.jobs.front().kind == Kind::kRestore;
    if (a_restores != b_restores) return a_restores;
    if (a_restores && a.restored != b.restored) return a.restored < b.restored;
    return a.jobs.front().number < b.jobs.front().number;
  };
  auto next = domains_.begin();
  for (auto at = domains_.begin(); at != domains_.end(); ++at) {
    if (goes_before(at->second, next->second)) next = at;
  }
  Domain& domain = next->second;
  Job job = std::move(domain.jobs.front());
  domain.jobs.pop_front();
  if (job.kind == Kind::kRestore) domain.restored = ++n_restored_;
  if (domain.jobs.empty()) domains_.erase(next);
  return std::move(job.run);
}

}  // namespace weft
