#include "engine/storage/worker.h"

#include <string>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(Worker, SessionFilesGoBeforeBlocksAndWhatSomebodyWaitsForBeforeAll) {
  Mutex gate;
  std::string order;
  {
    Worker worker;
    MutexLock lock(&gate);
    worker.Post([&] { const MutexLock wait(&gate); });
    worker.PostLast([&] { order += "c"; });
    worker.Post([&] { order += "a"; });
    worker.PostLast([&] { order += "d"; });
    worker.Post([&] { order += "b"; });
    worker.PostFirst([&] { order += "!"; });
  }
  // The first may have begun, or have been overtaken.
  EXPECT_EQ(order, "!abcd");
}

}  // namespace
}  // namespace weft
