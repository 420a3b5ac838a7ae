// The file work of sessions that waits for the worker, in an order in which nobody's restore waits
// for what others save.
//
// Work of one API key runs in the order in which it was posted, as files must be read as they were
// written last. A restore, for which a turn waits, goes before all work of other keys, and keys
// take turns with theirs. All else runs in the order of posting, never earlier: room on the disk
// that a save needs may be made by work before it.
//
// The engine thread posts, the worker takes.
#ifndef WEFT_ENGINE_STORAGE_SESSION_JOBS_H_
#define WEFT_ENGINE_STORAGE_SESSION_JOBS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include "base/mutex.h"

namespace weft {

class SessionJobs {
 public:
  enum class Kind { kRestore, kOther };

  void Post(const std::string& domain, Kind kind, std::function<void()> job) WEFT_EXCLUDES(mutex_);
  // Runs the next job. REQUIRES: there is one for each call.
  void RunNext() WEFT_EXCLUDES(mutex_);

 private:
  struct Job {
    int64_t number = 0;  // in the order of posting
    Kind kind = Kind::kOther;
    std::function<void()> run;
  };
  struct Domain {
    std::deque<Job> jobs;  // never empty
    // The number of the restore in whose turn it came, or that was its last one.
    int64_t restored = 0;
  };

  std::function<void()> Take() WEFT_REQUIRES(mutex_);

  Mutex mutex_;
  std::map<std::string, Domain> domains_ WEFT_GUARDED_BY(mutex_);
  int64_t n_posted_ WEFT_GUARDED_BY(mutex_) = 0;
  int64_t n_restored_ WEFT_GUARDED_BY(mutex_) = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_STORAGE_SESSION_JOBS_H_
