#include "engine/storage/session_jobs.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/strings.h"

namespace weft {
namespace {

using Kind = SessionJobs::Kind;

// Runs all jobs; what they are called, in their order.
class Jobs {
 public:
  void Save(const std::string& domain) { Post(domain, Kind::kOther, "save"); }
  void Restore(const std::string& domain) { Post(domain, Kind::kRestore, "restore"); }
  void RunNext() {
    jobs_.RunNext();
    --n_waiting_;
  }
  const std::string& Run() {
    while (n_waiting_ > 0) RunNext();
    return ran_;
  }
  const std::string& ran() const { return ran_; }

 private:
  void Post(const std::string& domain, Kind kind, const std::string& what) {
    ++n_waiting_;
    jobs_.Post(domain, kind, [this, domain, what] { StrAppend(&ran_, domain, " ", what, "\n"); });
  }

  SessionJobs jobs_;
  std::string ran_;
  int n_waiting_ = 0;
};

TEST(SessionJobs, ARestoreGoesBeforeOthersSavesAndAfterItsOwn) {
  Jobs jobs;
  for (int i = 0; i < 3; ++i) jobs.Save("a");
  jobs.Restore("a");
  jobs.Restore("b");
  EXPECT_EQ(jobs.Run(), "b restore\na save\na save\na save\na restore\n");
}

TEST(SessionJobs, RestoresTakeTurns) {
  Jobs jobs;
  for (int i = 0; i < 3; ++i) jobs.Restore("a");
  for (int i = 0; i < 2; ++i) jobs.Restore("b");
  EXPECT_EQ(jobs.Run(), "a restore\nb restore\na restore\nb restore\na restore\n");
}

TEST(SessionJobs, WhoComesAgainAndAgainTakesTurnsToo) {
  Jobs jobs;
  jobs.Restore("b");
  jobs.Restore("b");
  jobs.Restore("b");
  for (int i = 0; i < 3; ++i) {
    jobs.Restore("a");
    jobs.RunNext();
    jobs.RunNext();
  }
  EXPECT_EQ(jobs.ran(), "b restore\na restore\nb restore\na restore\nb restore\na restore\n");
}

TEST(SessionJobs, SavesRunInTheOrderOfPosting) {
  Jobs jobs;
  jobs.Save("b");
  jobs.Save("a");
  jobs.Save("b");
  EXPECT_EQ(jobs.Run(), "b save\na save\nb save\n");
}

TEST(SessionJobs, NothingIsLostAndNoSaveRunsEarlyInRandomPrograms) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    SessionJobs jobs;
    std::map<std::string, std::vector<int>> posted, ran;
    int n_posted = 0, n_ran = 0, last_save = -1;
    const auto run_next = [&] {
      jobs.RunNext();
      ++n_ran;
    };
    for (int i = 0; i < 200; ++i) {
      if (random() % 5 < 2 && n_ran < n_posted) {
        run_next();
        continue;
      }
      const std::string domain = StrCat("domain ", random() % 4);
      const bool restores = random() % 3 == 0;
      posted[domain].push_back(i);
      jobs.Post(domain, restores ? Kind::kRestore : Kind::kOther, [&, domain, i, restores] {
        ran[domain].push_back(i);
        if (restores) return;
        EXPECT_GT(i, last_save);
        last_save = i;
      });
      ++n_posted;
    }
    while (n_ran < n_posted) run_next();
    ASSERT_EQ(ran, posted) << "each domain's in their order";
  }
}

}  // namespace
}  // namespace weft
