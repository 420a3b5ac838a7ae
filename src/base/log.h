// Log lines: to stderr, each with the time and written at once, so that lines of several
// threads do not mix.
//
// Whoever logs never waits for whoever reads the log: a thread of its own writes. Lines that
// find too many unwritten are dropped, and a line in their place says how many they were.
#ifndef WEFT_BASE_LOG_H_
#define WEFT_BASE_LOG_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace weft {

// `line` has no line break; what came from outside was made Printable. Any thread.
void LogLine(std::string_view line);
// Waits until the lines so far are written; false when they are not after `patience`.
bool FlushLog(std::chrono::milliseconds patience);

// A log that goes to a file descriptor, which must outlive it. Any thread.
class LogWriter {
 public:
  explicit LogWriter(int fd);
  // Waits until everything is written, for as long as that takes.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  void Write(std::string_view line);
  bool Flush(std::chrono::milliseconds patience);

 private:
  void Add(std::string line);
  void Run();

  const int fd_;
  Mutex mutex_;
  CondVar work_or_end_, all_written_;
  std::vector<std::string> lines_ WEFT_GUARDED_BY(mutex_);  // to be written
  size_t bytes_ WEFT_GUARDED_BY(mutex_) = 0;                // of those
  int64_t dropped_ WEFT_GUARDED_BY(mutex_) = 0;             // behind those
  bool writing_ WEFT_GUARDED_BY(mutex_) = false;            // some that are no longer in lines_
  bool ending_ WEFT_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace weft

#endif  // WEFT_BASE_LOG_H_
