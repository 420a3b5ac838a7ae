#include "engine/loading/load_report.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST(LoadReportTest, SaysHowFastAndWhatLimits) {
  LoadFigures figures{
      .bytes = 1000 * kMiB, .us = 2'000'000, .cpu_us = 3'000'000, .disk_bytes = 0, .n_threads = 2};
  EXPECT_EQ(DescribeLoad(figures), "1000.0 MiB in 2.00 s (500.0 MiB/s, limited by packing)");
  figures.disk_bytes = 900 * kMiB;
  EXPECT_EQ(DescribeLoad(figures), "1000.0 MiB in 2.00 s (500.0 MiB/s, limited by packing)")
      << "the cores had enough to do";
  figures.cpu_us = 1'000'000;
  EXPECT_EQ(DescribeLoad(figures), "1000.0 MiB in 2.00 s (500.0 MiB/s, limited by the disk)");
  figures.disk_bytes = 0;
  figures.is_mapped = true;
  EXPECT_EQ(DescribeLoad(figures),
            "1000.0 MiB in 2.00 s (500.0 MiB/s, limited by checking the packed copy)");
}

TEST(LoadReportTest, NothingInNoTimeIsNoError) {
  EXPECT_EQ(DescribeLoad({}), "0 B in 0.00 s (0 B/s, limited by packing)");
}

TEST(LoadReportTest, MeasuresWithoutWhatElseWasDone) {
  const LoadMeter meter;
  const LoadFigures figures = meter.Read(/*bytes=*/7, /*n_threads=*/0, /*other_us=*/1'000'000'000);
  EXPECT_EQ(figures.bytes, 7);
  EXPECT_EQ(figures.us, 0);
  EXPECT_GE(figures.cpu_us, 0);
  EXPECT_GE(figures.disk_bytes, 0);
  EXPECT_GE(figures.n_threads, 1);
}

}  // namespace
}  // namespace weft
