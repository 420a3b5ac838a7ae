// The queue of session file work for the worker, ordered so that no restore waits for another
// session's save.
//
// A restore, for which a turn waits, goes first, and tenants take turns with theirs. Only earlier
// work on the same file goes before it, so that it reads the file's last version. All other work
// runs in the order of posting, because a save may need the disk space that earlier work frees.
//
// The engine thread posts, the worker takes.
#ifndef WEFT_ENGINE_STORAGE_SESSION_JOBS_H_
#define WEFT_ENGINE_STORAGE_SESSION_JOBS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "engine/storage/tenant_turns.h"

namespace weft {

class SessionJobs {
 public:
  using File = std::pair<std::string, std::string>;  // a session's domain and name

  void PostRestore(const std::string& tenant, const File& file, std::function<void()> job)
      WEFT_EXCLUDES(mutex_);
  // Anything else that reads or changes these files.
  void Post(std::vector<File> files, std::function<void()> job) WEFT_EXCLUDES(mutex_);
  // Runs the next job. REQUIRES: there is one for each call.
  void RunNext() WEFT_EXCLUDES(mutex_);

 private:
  struct Other {
    int64_t number = 0;  // in the order of posting
    std::vector<File> files;
    std::function<void()> run;
  };
  struct Restore {
    std::string tenant;
    std::function<void()> run;
  };

  std::function<void()> Take() WEFT_REQUIRES(mutex_);

  Mutex mutex_;
  TenantTurns restores_ WEFT_GUARDED_BY(mutex_);
  std::deque<Other> others_ WEFT_GUARDED_BY(mutex_);
  // The last of the others for each of their files.
  std::map<File, int64_t> last_ WEFT_GUARDED_BY(mutex_);
  // Restores of files that others use first, by the last of these.
  std::map<int64_t, std::vector<Restore>> waiting_ WEFT_GUARDED_BY(mutex_);
  int64_t n_posted_ WEFT_GUARDED_BY(mutex_) = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_STORAGE_SESSION_JOBS_H_
