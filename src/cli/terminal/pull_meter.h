// Shows a model download's progress on stderr: one line, redrawn, on a terminal; otherwise a line
// every few seconds.
//
// One thread. Prints nothing for downloads of less than two seconds.
#ifndef WEFT_CLI_TERMINAL_PULL_METER_H_
#define WEFT_CLI_TERMINAL_PULL_METER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "model/hub/net/download.h"

namespace weft::cli {

class PullMeter {
 public:
  explicit PullMeter(bool terminal) : terminal_(terminal) {}
  ~PullMeter() { End(); }
  PullMeter(const PullMeter&) = delete;
  PullMeter& operator=(const PullMeter&) = delete;

  void Show(const hub::Progress& progress);
  // Ends the line on a terminal.
  void End();

 private:
  void Begin(const hub::Progress& progress, int64_t now_us);

  const bool terminal_;
  std::string name_;
  hub::Progress::Stage stage_ = hub::Progress::Stage::kLoading;
  int64_t began_us_ = 0;
  int64_t shown_us_ = 0;
  int64_t rated_us_ = 0;
  int64_t rated_bytes_ = 0;
  double bytes_per_s_ = 0;
  bool line_is_open_ = false;
};

// "m.gguf: 45 %, 42.1 MiB of 93.8 MiB, 11.2 MiB/s, 5 s left"; `bytes_per_s` 0: not known yet. A
// line wider than `columns` has a shorter name, then no rate.
std::string ProgressLine(const hub::Progress& progress, double bytes_per_s,
                         size_t columns = SIZE_MAX);
// "5 s", "3 min 20 s", "2 h 5 min".
std::string HumanSeconds(int64_t seconds);

}  // namespace weft::cli

#endif  // WEFT_CLI_TERMINAL_PULL_METER_H_
