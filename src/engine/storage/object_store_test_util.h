// An ObjectStore in memory that fails on demand.
#ifndef WEFT_ENGINE_STORAGE_OBJECT_STORE_TEST_UTIL_H_
#define WEFT_ENGINE_STORAGE_OBJECT_STORE_TEST_UTIL_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "weft/shared_store.h"

namespace weft {

class MemoryObjectStore : public ObjectStore {
 public:
  enum class Fault {
    kNone,
    kAway,        // nothing happens
    kLoseAnswer,  // it happens
    kLate,        // of a Put: it happens in DeliverLate
    kRefuse,      // PERMISSION_DENIED
    kHang,        // DEADLINE_EXCEEDED
  };
  // What happens with the next calls; of any thread.
  void SetFault(std::function<Fault(bool is_put, const std::string& name)> fault) {
    MutexLock lock(&mutex_);
    fault_ = std::move(fault);
  }
  void SetFault(Fault fault) {
    SetFault([fault](bool, const std::string&) { return fault; });
  }
  // Called before each Get that `before` itself does not make, with no lock held.
  void BeforeGet(std::function<void(const std::string& name)> before) {
    before_ = std::move(before);
  }
  // As a store that takes no notice of conditions.
  std::atomic<bool> ignores_conditions{false};

  StatusOr<Object> Get(const std::string& name) override {
    if (before_ && !std::exchange(is_before_, true)) {
      before_(name);
      is_before_ = false;
    }
    MutexLock lock(&mutex_);
    ++gets_;
    const Fault fault = fault_ ? fault_(false, name) : Fault::kNone;
    if (fault == Fault::kRefuse) return PermissionDenied("not yours");
    if (fault == Fault::kHang) return DeadlineExceeded("no answer");
    if (fault == Fault::kAway) return Unavailable("no answer");
    const auto found = objects_.find(name);
    if (found == objects_.end()) return NotFound("no object ", name);
    return found->second;
  }
  StatusOr<std::string> Put(const std::string& name, std::string_view body,
                            const Condition& condition) override {
    MutexLock lock(&mutex_);
    const Fault fault = fault_ ? fault_(true, name) : Fault::kNone;
    if (fault == Fault::kRefuse) return PermissionDenied("not yours");
    if (fault == Fault::kHang) return DeadlineExceeded("no answer");
    if (fault == Fault::kAway) return Unavailable("no answer");
    if (fault == Fault::kLate) {
      late_.push_back({name, std::string(body), condition});
      return Unavailable("no answer");
    }
    StatusOr<std::string> tag = Apply(name, body, condition);
    return fault == Fault::kLoseAnswer ? StatusOr<std::string>(Unavailable("cut off")) : tag;
  }
  Status Remove(const std::string& name) override {
    MutexLock lock(&mutex_);
    objects_.erase(name);
    return OkStatus();
  }

  // Applies the puts that were late, and says how many of them held their condition.
  int DeliverLate() {
    MutexLock lock(&mutex_);
    int n = 0;
    for (const LatePut& put : std::exchange(late_, {})) {
      n += Apply(put.name, put.body, put.condition).ok() ? 1 : 0;
    }
    return n;
  }
  std::vector<std::string> Names(std::string_view prefix = "") const {
    MutexLock lock(&mutex_);
    std::vector<std::string> names;
    for (const auto& [name, object] : objects_) {
      if (name.starts_with(prefix)) names.push_back(name);
    }
    return names;
  }
  int64_t gets() const { return gets_; }

 private:
  struct LatePut {
    std::string name, body;
    Condition condition;
  };
  StatusOr<std::string> Apply(const std::string& name, std::string_view body,
                              const Condition& condition) WEFT_REQUIRES(mutex_) {
    const auto found = objects_.find(name);
    const bool is_there = found != objects_.end();
    const bool holds =
        condition.kind == Condition::kNone ||
        (condition.kind == Condition::kAbsent ? !is_there
                                              : is_there && found->second.tag == condition.tag);
    if (!holds && !ignores_conditions) return FailedPrecondition("the condition does not hold");
    const std::string tag = StrCat("\"", ++n_versions_, "\"");
    objects_[name] = {std::string(body), tag};
    return tag;
  }

  mutable Mutex mutex_;
  std::map<std::string, Object> objects_ WEFT_GUARDED_BY(mutex_);
  std::deque<LatePut> late_ WEFT_GUARDED_BY(mutex_);
  std::function<Fault(bool, const std::string&)> fault_ WEFT_GUARDED_BY(mutex_);
  std::function<void(const std::string&)> before_;
  bool is_before_ = false;
  int64_t n_versions_ WEFT_GUARDED_BY(mutex_) = 0;
  std::atomic<int64_t> gets_{0};
};

}  // namespace weft

#endif  // WEFT_ENGINE_STORAGE_OBJECT_STORE_TEST_UTIL_H_
