#include "async/tenant_queues.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"

namespace weft {
namespace {

// Compares random programs with a model of the rules that has no bookkeeping.
class Program {
 public:
  Program(size_t max_running, size_t max_waiting, uint64_t seed)
      : max_running_(max_running),
        max_of_one_(std::max<size_t>(1, max_running - 1)),
        max_waiting_(max_waiting),
        queues_(max_running, max_waiting),
        random_(seed) {}

  void Step() {
    switch (random_() % 3) {
      case 0:
        return Push(StrCat("tenant ", random_() % 4));
      case 1:
        return Take();
      default:
        return End();
    }
  }
  // All accepted work runs.
  void Drain() {
    while (n_waiting() > 0 || !running_.empty()) {
      Take();
      End();
    }
    EXPECT_EQ(n_begun_, n_accepted_);
    EXPECT_EQ(queues_.n_ready(), 0u);
  }

 private:
  size_t n_waiting() const {
    size_t n = 0;
    for (const auto& [name, ids] : waiting_) n += ids.size();
    return n;
  }
  size_t RunningOf(const std::string& name) const {
    return static_cast<size_t>(std::count_if(
        running_.begin(), running_.end(), [&](const auto& taken) { return taken.first == name; }));
  }
  size_t Ready() const {
    size_t n = 0;
    for (const auto& [name, ids] : waiting_) {
      n += std::min(ids.size(), max_of_one_ - RunningOf(name));
    }
    return std::min(n, max_running_ - running_.size());
  }

  void Push(const std::string& name) {
    const int id = next_id_++;
    const bool accepted = queues_.Push(
        name, [this, id] { begun_ = id; }, max_running_);
    // Its share if all tenants were present.
    EXPECT_TRUE(accepted || waiting_[name].size() >= std::max<size_t>(1, max_waiting_ / 4));
    if (accepted) waiting_[name].push_back(id);
    if (accepted) ++n_accepted_;
    EXPECT_LE(waiting_[name].size(), max_waiting_ + max_of_one_);
  }
  void Take() {
    ASSERT_EQ(queues_.n_waiting(), n_waiting());
    ASSERT_EQ(queues_.n_ready(), Ready());
    if (Ready() == 0) return;
    TenantQueues::Taken taken = queues_.Take();
    const std::string name = taken.tenant->first;
    taken.work();
    ++n_begun_;
    ASSERT_FALSE(waiting_[name].empty());
    EXPECT_EQ(begun_, waiting_[name].front());  // in order within the tenant
    waiting_[name].erase(waiting_[name].begin());
    running_.emplace_back(name, taken.tenant);
    EXPECT_LE(RunningOf(name), max_of_one_);
    CheckTurns(name);
  }
  // No tenant with ready work is passed over twice by the same tenant.
  void CheckTurns(const std::string& taken) {
    for (const auto& [name, ids] : waiting_) {
      const bool could = !ids.empty() && RunningOf(name) < max_of_one_;
      if (name == taken || !could) {
        passed_[name].clear();
        continue;
      }
      EXPECT_LE(++passed_[name][taken], 1) << name << " passed over by " << taken;
    }
  }
  void End() {
    if (running_.empty()) return;
    const size_t which = random_() % running_.size();
    queues_.Ended(running_[which].second);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(which));
  }

  const size_t max_running_, max_of_one_, max_waiting_;
  TenantQueues queues_;
  std::mt19937_64 random_;
  std::map<std::string, std::vector<int>> waiting_;
  std::vector<std::pair<std::string, TenantQueues::Tenants::iterator>> running_;
  std::map<std::string, std::map<std::string, int>> passed_;
  int next_id_ = 0, begun_ = -1, n_accepted_ = 0, n_begun_ = 0;
};

TEST(TenantQueues, NobodyIsPassedOverOrLostInRandomPrograms) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    Program program(1 + seed % 5, 1 + seed % 40, seed);
    for (int i = 0; i < 200; ++i) program.Step();
    program.Drain();
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(TenantQueues, ATenantAloneMayFillTheQueueAndOthersFindTheirShare) {
  TenantQueues queues(/*max_running=*/2, /*max_waiting=*/10);
  const auto push_all = [&](const std::string& tenant) {
    int n = 0;
    while (queues.Push(
        tenant, [] {}, /*n_threads=*/0))
      ++n;
    return n;
  };
  EXPECT_EQ(push_all("a"), 10);
  EXPECT_EQ(push_all("b"), 5);
  EXPECT_EQ(push_all("c"), 3);
  EXPECT_EQ(push_all("a"), 0);
}

}  // namespace
}  // namespace weft
