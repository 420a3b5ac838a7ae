// The file work of an engine, in the order in which its worker does it: first what a tenant waits
// for, then what reads or changes session files, last blocks of state, which can be recomputed.
//
// Tenants take turns with what they wait for, one piece of work each. A restore comes after earlier
// work on its own file, so that it reads the last version, but waits for no other session's save.
// All else runs in the order of pushing, because a save may need the disk space that earlier work
// frees.
//
// Threads: one at a time.
#ifndef WEFT_ENGINE_STORAGE_WORK_QUEUE_H_
#define WEFT_ENGINE_STORAGE_WORK_QUEUE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft {

class WorkQueue {
 public:
  using Job = std::function<void()>;
  using File = std::pair<std::string, std::string>;  // a session's domain and name

  // What the tenant waits for; with a file, a restore of that.
  void PushFirst(const std::string& tenant, Job job, const std::optional<File>& file);
  // What reads or changes these files.
  void Push(Job job, std::vector<File> files);
  void PushLast(Job job) { last_.push_back(std::move(job)); }

  bool empty() const { return last_.empty() && has_only_last(); }
  bool has_only_last() const { return tenants_.empty() && others_.empty(); }
  // REQUIRES: !empty()
  Job Pop();

 private:
  struct Other {
    int64_t number = 0;  // in the order of pushing
    std::vector<File> files;
    Job job;
  };
  struct Restore {
    std::string tenant;
    Job job;
  };

  Job PopFirst();
  Job PopOther();

  std::map<std::string, std::deque<Job>> first_;  // by tenant, none empty
  std::deque<std::string> tenants_;               // the next one first
  std::deque<Other> others_;
  std::deque<Job> last_;
  std::map<File, int64_t> newest_;  // of the others for each of their files
  // Restores of files that others use first, by the newest of these.
  std::map<int64_t, std::vector<Restore>> waiting_;
  int64_t n_pushed_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_STORAGE_WORK_QUEUE_H_
