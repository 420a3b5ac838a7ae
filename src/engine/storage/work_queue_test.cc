#include "engine/storage/work_queue.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "base/strings.h"

namespace weft {
namespace {

using File = WorkQueue::File;

// Runs all jobs and lists them in that order. All files belong to one key: the one of a server
// without keys.
class Jobs {
 public:
  void Save(const std::string& file) {
    ++n_waiting_;
    jobs_.Push([this, file] { StrAppend(&ran_, "save ", file, "\n"); }, {{"", file}});
  }
  void Rename(const std::string& from, const std::string& to) {
    ++n_waiting_;
    jobs_.Push([this, from, to] { StrAppend(&ran_, "rename ", from, " ", to, "\n"); },
               {{"", from}, {"", to}});
  }
  void Restore(const std::string& tenant, const std::string& file) {
    ++n_waiting_;
    jobs_.PushFirst(
        tenant, [this, file] { StrAppend(&ran_, file, "\n"); }, File("", file));
  }
  void RunNext() {
    jobs_.Pop()();
    --n_waiting_;
  }
  const std::string& Run() {
    while (n_waiting_ > 0) RunNext();
    return ran_;
  }
  const std::string& ran() const { return ran_; }

 private:
  WorkQueue jobs_;
  std::string ran_;
  int n_waiting_ = 0;
};

TEST(WorkQueue, ARestoreGoesBeforeSavesOfOtherFilesAndAfterThoseOfItsOwn) {
  Jobs jobs;
  for (const char* const file : {"a1", "a2", "a3"}) jobs.Save(file);
  jobs.Restore("a", "a2");
  jobs.Save("a2");
  jobs.Restore("b", "b1");
  EXPECT_EQ(jobs.Run(), "b1\nsave a1\nsave a2\na2\nsave a3\nsave a2\n");
}

TEST(WorkQueue, ARestoreWaitsForItsFilesNewName) {
  Jobs jobs;
  jobs.Save("a1");
  jobs.Rename("a1", "a2");
  jobs.Restore("a", "a2");
  jobs.Restore("a", "a3");
  EXPECT_EQ(jobs.Run(), "a3\nsave a1\nrename a1 a2\na2\n");
}

TEST(WorkQueue, TenantsOfOneDomainTakeTurns) {
  Jobs jobs;
  for (const char* const file : {"a1", "a2", "a3"}) jobs.Restore("address 192.0.2.1", file);
  for (const char* const file : {"b1", "b2"}) jobs.Restore("address 192.0.2.2", file);
  EXPECT_EQ(jobs.Run(), "a1\nb1\na2\nb2\na3\n");
}

TEST(WorkQueue, WhoComesAgainAndAgainTakesTurnsToo) {
  Jobs jobs;
  for (const char* const file : {"b1", "b2", "b3"}) jobs.Restore("b", file);
  for (int i = 0; i < 3; ++i) {
    jobs.Restore("a", "a1");
    jobs.RunNext();
    jobs.RunNext();
  }
  EXPECT_EQ(jobs.ran(), "b1\na1\nb2\na1\nb3\na1\n");
}

TEST(WorkQueue, SavesRunInTheOrderOfPosting) {
  Jobs jobs;
  for (const char* const file : {"b1", "a1", "b2"}) jobs.Save(file);
  EXPECT_EQ(jobs.Run(), "save b1\nsave a1\nsave b2\n");
}

// Random jobs on few files, some of which nobody saves, run at random times.
class RandomProgram {
 public:
  explicit RandomProgram(uint32_t seed) : random_(seed) {}

  void Run() {
    for (int i = 0; i < 200; ++i) {
      const bool runs = random_() % 5 < 2 && n_ran_ < n_posted_;
      if (runs) {
        RunNext();
      } else if (random_() % 2 == 0) {
        PostRestore();
      } else {
        PostSave();
      }
    }
    while (n_ran_ < n_posted_) RunNext();
    for (const auto& [tenant, n] : waiting_) EXPECT_EQ(n, 0) << tenant;
    EXPECT_EQ(n_done_, n_posted_) << "nothing is lost";
  }

 private:
  static constexpr uint32_t kTenants = 4, kSaved = 4, kFiles = 6;

  void RunNext() {
    ++n_ran_;
    jobs_.Pop()();
  }
  void PostSave() {
    const File file{"", StrCat(random_() % kSaved)};
    const int number = ++n_posted_;
    posted_save_[file] = number;
    jobs_.Push(
        [this, file, number] {
          EXPECT_GT(number, last_save_) << "never earlier";
          last_save_ = done_save_[file] = number;
          ++n_done_;
        },
        {file});
  }
  void PostRestore() {
    const uint32_t number = random_() % kFiles;
    const File file{"", StrCat(number)};
    const std::string tenant = StrCat("tenant ", random_() % kTenants);
    const int ahead = waiting_[tenant]++;
    ++n_posted_;
    jobs_.PushFirst(
        tenant,
        [this, tenant, file, ahead, is_saved = number < kSaved, save = posted_save_[file],
         n_before = n_ran_] {
          EXPECT_EQ(done_save_[file], save) << "as it was written last";
          if (!is_saved) {
            EXPECT_LE(n_ran_ - n_before, (ahead + 1) * static_cast<int>(kTenants));
          }
          --waiting_[tenant];
          ++n_done_;
        },
        file);
  }

  std::mt19937 random_;
  WorkQueue jobs_;
  std::map<File, int> posted_save_, done_save_;  // the last one's number
  std::map<std::string, int> waiting_;           // restores by tenant
  int n_posted_ = 0, n_ran_ = 0, n_done_ = 0, last_save_ = 0;
};

TEST(WorkQueue, FilesAreReadAsWrittenAndTurnsAreKeptInRandomPrograms) {
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    RandomProgram(seed).Run();
  }
}

}  // namespace
}  // namespace weft
