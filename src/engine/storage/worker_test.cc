#include "engine/storage/worker.h"

#include <atomic>
#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(Worker, SessionFilesGoBeforeBlocksAndWhatTenantsWaitForBeforeAll) {
  Mutex gate;
  std::string order;
  {
    Worker worker;
    MutexLock lock(&gate);
    std::atomic<bool> has_begun = false;
    worker.Post([&] {
      has_begun = true;
      const MutexLock wait(&gate);
    });
    while (!has_begun) std::this_thread::yield();
    worker.PostLast([&] { order += "c"; });
    worker.Post([&] { order += "a"; });
    worker.PostLast([&] { order += "d"; });
    worker.Post([&] { order += "b"; });
    for (const char* const job : {"1", "2", "3"}) {
      worker.PostFirst("one", [&order, job] { order += job; });
    }
    worker.PostFirst("two", [&] { order += "!"; });
  }
  EXPECT_EQ(order, "1!23abcd");
}

}  // namespace
}  // namespace weft
