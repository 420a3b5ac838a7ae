#include "doors/stores/store_probe.h"

#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::stores {
namespace {

using ::testing::HasSubstr;

// What is wrong with a store.
enum class Flaw {
  kNone,
  kIgnoresAbsent,
  kIgnoresAbsentLater,  // from the third round on
  kIgnoresTags,
  kReplacesRemoved,
  kRefusesAll,
  kRefusesRightTag,
  kOneTag,
  kOtherTagForReaders,
  kMixesBodies,
  kOldReads,
  kLosesObjects,
  kKeepsRemoved,
  kInventsObjects,
  kDown,
  kNoRightToRemove,
  kLosesFirstAnswer,  // of every write, which is written: that happens to good stores
  kPutsOffWriters,    // at first, and writes nothing: likewise
};

class MemoryStore : public ObjectStore {
 public:
  explicit MemoryStore(Flaw flaw) : flaw_(flaw) {}

  absl::StatusOr<Object> Get(const std::string& name) override {
    MutexLock lock(&mutex_);
    if (flaw_ == Flaw::kDown) return Unavailable("nobody is there");
    if (flaw_ == Flaw::kInventsObjects) return Object{.body = "a page", .tag = "\"1\""};
    const auto it = versions_.find(name);
    if (it == versions_.end() || (flaw_ == Flaw::kLosesObjects)) return NotFound("no ", name);
    std::vector<Object>& of_name = it->second;
    Object object = of_name.back();
    if (flaw_ == Flaw::kOldReads && of_name.size() > 2) object = of_name[of_name.size() - 2];
    if (flaw_ == Flaw::kMixesBodies) object.body.resize(object.body.size() / 2);
    if (flaw_ == Flaw::kOtherTagForReaders) object.tag = "W/" + object.tag;
    return object;
  }

  absl::StatusOr<std::string> Put(const std::string& name, std::string_view body,
                                  const Condition& condition) override {
    MutexLock lock(&mutex_);
    if (flaw_ == Flaw::kDown) return DeadlineExceeded("nobody answers");
    if (flaw_ == Flaw::kPutsOffWriters && ++n_puts_ <= 3) return Unavailable("slow down");
    if (!Holds(name, condition)) return FailedPrecondition("another writer was first");
    const std::string tag = flaw_ == Flaw::kOneTag ? "\"x\"" : StrCat("\"", ++n_written_, "\"");
    versions_[name].push_back({std::string(body), tag});
    if (flaw_ == Flaw::kLosesFirstAnswer && versions_[name].size() < 3) {
      return Unavailable("the connection broke");
    }
    return tag;
  }

  absl::Status Remove(const std::string& name) override {
    MutexLock lock(&mutex_);
    if (flaw_ == Flaw::kNoRightToRemove) return PermissionDenied("no right to remove");
    ++n_removed_;
    if (flaw_ != Flaw::kKeepsRemoved) versions_.erase(name);
    return OkStatus();
  }

  size_t size() const {
    MutexLock lock(&mutex_);
    return versions_.size();
  }

 private:
  bool Holds(const std::string& name, const Condition& condition) const WEFT_REQUIRES(mutex_) {
    if (flaw_ == Flaw::kRefusesAll) return false;
    const auto it = versions_.find(name);
    const bool is_there = it != versions_.end();
    if (condition.kind == Condition::kAbsent) {
      const bool ignores_it =
          flaw_ == Flaw::kIgnoresAbsent || (flaw_ == Flaw::kIgnoresAbsentLater && n_removed_ == 2);
      return ignores_it || !is_there;
    }
    if (condition.kind == Condition::kNone || flaw_ == Flaw::kIgnoresTags) return true;
    if (flaw_ == Flaw::kRefusesRightTag && is_there && it->second.size() > 1) return false;
    if (!is_there) return flaw_ == Flaw::kReplacesRemoved;
    return it->second.back().tag == condition.tag;
  }

  const Flaw flaw_;
  mutable Mutex mutex_;
  std::map<std::string, std::vector<Object>> versions_ WEFT_GUARDED_BY(mutex_);
  int n_written_ WEFT_GUARDED_BY(mutex_) = 0;
  int n_removed_ WEFT_GUARDED_BY(mutex_) = 0;
  int n_puts_ WEFT_GUARDED_BY(mutex_) = 0;
};

TEST(ProbeStoreTest, AcceptsStoresThatKeepTheirWordAndLeavesNothing) {
  for (const Flaw flaw : {Flaw::kNone, Flaw::kLosesFirstAnswer, Flaw::kPutsOffWriters}) {
    MemoryStore store(flaw);
    EXPECT_EQ(ProbeStore(store), OkStatus()) << static_cast<int>(flaw);
    EXPECT_EQ(store.size(), 0u);
  }
}

struct Refusal {
  Flaw flaw;
  StatusCode code;
  std::string words;
};

class ProbeRefusalTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(ProbeRefusalTest, SaysWhatTheStoreDoes) {
  MemoryStore store(GetParam().flaw);
  const Status status = ProbeStore(store);
  EXPECT_EQ(status.code(), GetParam().code) << status;
  EXPECT_THAT(status.ToString(), HasSubstr(GetParam().words));
  if (GetParam().code == StatusCode::kInvalidArgument) {
    EXPECT_THAT(status.ToString(), HasSubstr("conversations would be lost"));
  }
}

constexpr StatusCode kBroken = StatusCode::kInvalidArgument;
INSTANTIATE_TEST_SUITE_P(
    All, ProbeRefusalTest,
    ::testing::Values(
        Refusal{Flaw::kIgnoresAbsent, kBroken, "lets two writers create one object"},
        Refusal{Flaw::kIgnoresAbsentLater, kBroken, "lets two writers create one object"},
        Refusal{Flaw::kReplacesRemoved, kBroken, "lets a writer replace an object that is gone"},
        Refusal{Flaw::kIgnoresTags, kBroken, "lets two writers replace one object"},
        Refusal{Flaw::kRefusesAll, kBroken, "does not show an object that was written"},
        Refusal{Flaw::kRefusesRightTag, kBroken, "refuses a writer that has seen"},
        Refusal{Flaw::kOneTag, kBroken, "lets two writers replace one object"},
        Refusal{Flaw::kOtherTagForReaders, kBroken, "another ETag"},
        Refusal{Flaw::kMixesBodies, kBroken, "keeps another body"},
        Refusal{Flaw::kOldReads, kBroken, "shows an old version"},
        Refusal{Flaw::kLosesObjects, kBroken, "does not show an object that was written"},
        Refusal{Flaw::kKeepsRemoved, kBroken, "after it was removed"},
        Refusal{Flaw::kInventsObjects, kBroken, "before it was written"},
        Refusal{Flaw::kDown, StatusCode::kUnavailable, "cannot be probed: nobody is there"},
        Refusal{Flaw::kNoRightToRemove, StatusCode::kPermissionDenied, "no right to remove"}));

// Writes come at once only over connections that are open.
class ConnectionStore : public MemoryStore {
 public:
  ConnectionStore() : MemoryStore(Flaw::kNone) {}
  absl::StatusOr<Object> Get(const std::string& name) override {
    MutexLock lock(&mutex_);
    connected_.insert(std::this_thread::get_id());
    return MemoryStore::Get(name);
  }
  absl::StatusOr<std::string> Put(const std::string& name, std::string_view body,
                                  const Condition& condition) override {
    {
      MutexLock lock(&mutex_);
      writers_.insert(std::this_thread::get_id());
      if (!connected_.contains(std::this_thread::get_id())) ++n_unconnected_;
    }
    return MemoryStore::Put(name, body, condition);
  }
  size_t n_writers() const {
    MutexLock lock(&mutex_);
    return writers_.size();
  }
  int n_unconnected() const {
    MutexLock lock(&mutex_);
    return n_unconnected_;
  }

 private:
  mutable Mutex mutex_;
  std::set<std::thread::id> connected_ WEFT_GUARDED_BY(mutex_);
  std::set<std::thread::id> writers_ WEFT_GUARDED_BY(mutex_);
  int n_unconnected_ WEFT_GUARDED_BY(mutex_) = 0;
};

TEST(ProbeStoreTest, ConnectsWritersBeforeTheyCompete) {
  ConnectionStore store;
  EXPECT_EQ(ProbeStore(store), OkStatus());
  EXPECT_GE(store.n_writers(), 8u);
  EXPECT_EQ(store.n_unconnected(), 0);
}

// With one writer there is no contest; what is left of the probe must see a stale tag alone.
TEST(ProbeStoreTest, SeesAStaleTagWithoutAContest) {
  MemoryStore store(Flaw::kIgnoresTags);
  const Status status = ProbeStore(store, 1);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr("replace a version that it has not seen"));
  MemoryStore one_tag(Flaw::kOneTag);
  EXPECT_THAT(ProbeStore(one_tag, 1).ToString(), HasSubstr("two versions of an object one ETag"));
}

}  // namespace
}  // namespace weft::stores
