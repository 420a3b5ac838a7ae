#include "base/memory_limits.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace weft {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

class MemoryLimitsTest : public ::testing::Test {
 protected:
  ~MemoryLimitsTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = root_ + "/" + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  const std::string root_ = ::testing::TempDir() + "weft_limits_" + std::to_string(getpid());
};

TEST_F(MemoryLimitsTest, WithoutGroupsThereAreNone) {
  for (const char* const groups :
       {"", "0::/", "4:memory:/", "x", "::", "0::nowhere", "0::/a//b/"}) {
    EXPECT_EQ(FreeUnderLimits(groups, root_), kNoLimit) << groups;
  }
}

TEST_F(MemoryLimitsTest, TheStrictestGroupCounts) {
  Write("memory.max", "max\n");
  Write("memory.current", "900\n");
  Write("a/memory.max", "1000\n");
  Write("a/memory.current", "700\n");
  Write("a/memory.stat", "anon 400\ninactive_file 200\nactive_file 50\nfile 400\n");
  EXPECT_EQ(FreeUnderLimits("0::/", root_), kNoLimit);
  EXPECT_EQ(FreeUnderLimits("0::/a", root_), 550);
  Write("a/b/memory.max", "90\n");
  Write("a/b/memory.current", "100\n");
  EXPECT_EQ(FreeUnderLimits("0::/a/b", root_), 0);
  EXPECT_EQ(FreeUnderLimits("3:cpu:/x\n0::/a/c\n", root_), 550);
}

TEST_F(MemoryLimitsTest, TheFirstVersionNamesFilesOtherwise) {
  Write("memory/memory.limit_in_bytes", "500\n");
  Write("memory/memory.usage_in_bytes", "300\n");
  Write("memory/memory.stat", "inactive_file 1\ntotal_inactive_file 100\n");
  // The path outside the container.
  EXPECT_EQ(FreeUnderLimits("5:cpu,memory:/docker/1f\n0::/\n", root_), 300);
  EXPECT_EQ(FreeUnderLimits("5:cpu,memory_x:/docker\n", root_), kNoLimit);
}

}  // namespace
}  // namespace weft
