// Tells people how much was loaded, how fast, and what limited it.
//
// One thread.
#ifndef WEFT_ENGINE_LOADING_LOAD_REPORT_H_
#define WEFT_ENGINE_LOADING_LOAD_REPORT_H_

#include <cstdint>
#include <string>

#include "base/system.h"

namespace weft {

struct LoadFigures {
  int64_t bytes = 0;       // the weights in memory
  int64_t us = 0;          // wall time
  int64_t cpu_us = 0;      // all threads together
  int64_t disk_bytes = 0;  // that were not in the system's memory
  int n_threads = 1;
  bool is_mapped = false;  // from a packed copy, instead of packed
};

// "1.1 GiB in 2.3 s (490.0 MiB/s, limited by the disk)".
std::string DescribeLoad(const LoadFigures& figures);

// Measures from its construction on.
class LoadMeter {
 public:
  LoadMeter();
  // `n_threads` 0: one per core; `other_us` were spent on something else.
  LoadFigures Read(int64_t bytes, int n_threads, int64_t other_us) const;

 private:
  const int64_t begin_us_;
  const ProcessUse begin_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_LOADING_LOAD_REPORT_H_
