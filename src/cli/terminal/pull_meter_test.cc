#include "cli/terminal/pull_meter.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::cli {
namespace {

using Stage = hub::Progress::Stage;
using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(ProgressLineTest, TellsRateAndTimeLeft) {
  EXPECT_EQ(ProgressLine({Stage::kLoading, "m.gguf", 25 * kMiB, 100 * kMiB}, 5.0 * kMiB),
            "m.gguf: 25 %, 25.0 MiB of 100.0 MiB, 5.0 MiB/s, 15 s left");
  EXPECT_EQ(ProgressLine({Stage::kLoading, "m.gguf", 25 * kMiB, 100 * kMiB}, 0),
            "m.gguf: 25 %, 25.0 MiB of 100.0 MiB");
}

TEST(ProgressLineTest, SaysWhatIsGoingOn) {
  EXPECT_THAT(ProgressLine({Stage::kWaiting, "m", 0, kMiB}, 0), HasSubstr("another program"));
  EXPECT_THAT(ProgressLine({Stage::kChecking, "m", 0, kMiB}, 0), HasSubstr("checking"));
  EXPECT_EQ(ProgressLine({Stage::kPackages, "p==1", 0, kMiB}, 0), "pip loads p==1");
  // A file name from a server must not control the terminal.
  EXPECT_THAT(ProgressLine({Stage::kLoading, "a\033[2J", 0, kMiB}, 0), HasSubstr("\\x1b"));
  EXPECT_THAT(ProgressLine({Stage::kLoading, "m", 2 * kMiB, -1}, 0), HasSubstr("2.0 MiB"));
}

TEST(ProgressLineTest, FitsItsWindow) {
  const hub::Progress progress = {Stage::kLoading, "SmolLM2-135M-Instruct.Q4_1.gguf", 25 * kMiB,
                                  100 * kMiB};
  for (const size_t columns : {59, 79, 119}) {
    const std::string line = ProgressLine(progress, 5.0 * kMiB, columns);
    EXPECT_LE(line.size(), columns) << line;
    EXPECT_THAT(line, HasSubstr("25 %"));
    EXPECT_EQ(line.ends_with("left"), columns > 70) << line;
    for (const Stage stage : {Stage::kWaiting, Stage::kChecking, Stage::kUnpacking}) {
      EXPECT_LE(ProgressLine({stage, progress.name, kMiB, kMiB}, 1e9, columns).size(), columns);
    }
  }
}

TEST(HumanSecondsTest, InTwoUnits) {
  EXPECT_EQ(HumanSeconds(59), "59 s");
  EXPECT_EQ(HumanSeconds(200), "3 min 20 s");
  EXPECT_EQ(HumanSeconds(7500), "2 h 5 min");
}

}  // namespace
}  // namespace weft::cli
