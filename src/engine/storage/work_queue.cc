#include "engine/storage/work_queue.h"

#include "base/check.h"

namespace weft {

void WorkQueue::PushFirst(const std::string& tenant, Job job, const std::optional<File>& file) {
  if (const auto newest = file.has_value() ? newest_.find(*file) : newest_.end();
      newest != newest_.end()) {
    waiting_[newest->second].push_back({.tenant = tenant, .job = std::move(job)});
    return;
  }
  std::deque<Job>& jobs = first_[tenant];
  if (jobs.empty()) tenants_.push_back(tenant);
  jobs.push_back(std::move(job));
}

void WorkQueue::Push(Job job, std::vector<File> files) {
  ++n_pushed_;
  for (const File& file : files) newest_[file] = n_pushed_;
  others_.push_back({.number = n_pushed_, .files = std::move(files), .job = std::move(job)});
}

WorkQueue::Job WorkQueue::Pop() {
  WEFT_CHECK(!empty(), "a job is taken where there is one");
  if (!tenants_.empty()) return PopFirst();
  if (!others_.empty()) return PopOther();
  Job job = std::move(last_.front());
  last_.pop_front();
  return job;
}

WorkQueue::Job WorkQueue::PopFirst() {
  const auto next = first_.find(tenants_.front());
  tenants_.pop_front();
  Job job = std::move(next->second.front());
  next->second.pop_front();
  if (next->second.empty()) {
    first_.erase(next);
  } else {
    tenants_.push_back(next->first);
  }
  return job;
}

WorkQueue::Job WorkQueue::PopOther() {
  Other next = std::move(others_.front());
  others_.pop_front();
  for (const File& file : next.files) {
    const auto newest = newest_.find(file);
    if (newest != newest_.end() && newest->second == next.number) newest_.erase(newest);
  }
  // They are taken after this one has run.
  if (auto waiting = waiting_.extract(next.number); !waiting.empty()) {
    for (Restore& restore : waiting.mapped()) {
      PushFirst(restore.tenant, std::move(restore.job), std::nullopt);
    }
  }
  return std::move(next.job);
}

}  // namespace weft
