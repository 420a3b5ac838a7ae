#include "engine/loading/load_report.h"

#include <algorithm>
#include <cstdio>
#include <thread>

#include "base/clock.h"
#include "base/strings.h"

namespace weft {
namespace {

// The disk limits a load that reads most of its bytes from there, while the cores mostly wait.
bool DiskLimits(const LoadFigures& figures) {
  return figures.disk_bytes > figures.bytes / 2 &&
         figures.cpu_us < figures.us * figures.n_threads / 2;
}

}  // namespace

std::string DescribeLoad(const LoadFigures& figures) {
  const double seconds = static_cast<double>(std::max<int64_t>(1, figures.us)) / 1e6;
  char text[32];
  std::snprintf(text, sizeof(text), " in %.2f s (", seconds);
  const auto rate = static_cast<uint64_t>(static_cast<double>(figures.bytes) / seconds);
  const char* const work = figures.is_mapped ? "checking the packed copy" : "packing";
  return StrCat(HumanBytes(static_cast<uint64_t>(figures.bytes)), text, HumanBytes(rate),
                "/s, limited by ", DiskLimits(figures) ? "the disk" : work, ")");
}

LoadMeter::LoadMeter() : begin_us_(NowMicros()), begin_(UseSoFar()) {}

LoadFigures LoadMeter::Read(int64_t bytes, int n_threads, int64_t other_us) const {
  const ProcessUse use = UseSoFar();
  const int n_cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return {.bytes = bytes,
          .us = std::max<int64_t>(0, NowMicros() - begin_us_ - other_us),
          .cpu_us = use.cpu_us - begin_.cpu_us,
          .disk_bytes = use.disk_bytes - begin_.disk_bytes,
          .n_threads = n_threads > 0 ? n_threads : n_cores};
}

}  // namespace weft
