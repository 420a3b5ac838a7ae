#include "engine/storage/session_jobs.h"

#include "base/check.h"

namespace weft {

void SessionJobs::PostRestore(const std::string& tenant, const File& file,
                              std::function<void()> job) {
  MutexLock lock(&mutex_);
  if (const auto last = last_.find(file); last != last_.end()) {
    waiting_[last->second].push_back({.tenant = tenant, .run = std::move(job)});
  } else {
    restores_.Push(tenant, std::move(job));
  }
}

void SessionJobs::Post(std::vector<File> files, std::function<void()> job) {
  MutexLock lock(&mutex_);
  ++n_posted_;
  for (const File& file : files) last_[file] = n_posted_;
  others_.push_back({.number = n_posted_, .files = std::move(files), .run = std::move(job)});
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
  if (!restores_.empty()) return restores_.Pop();
  WEFT_CHECK(!others_.empty(), "one job is posted for each that runs");
  Other next = std::move(others_.front());
  others_.pop_front();
  for (const File& file : next.files) {
    const auto last = last_.find(file);
    if (last != last_.end() && last->second == next.number) last_.erase(last);
  }
  // The worker takes them after it has run this one.
  if (auto waiting = waiting_.extract(next.number); !waiting.empty()) {
    for (Restore& restore : waiting.mapped()) {
      restores_.Push(restore.tenant, std::move(restore.run));
    }
  }
  return std::move(next.run);
}

}  // namespace weft
