// Log lines on stderr, timestamped and written whole, so that lines of several threads do not mix.
//
// Logging never blocks on the log's reader: a separate thread writes. When too many lines are
// queued, new ones are dropped and replaced by a line that says how many.
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

// For other programs, lines begin with the date and the time in UTC; for people at a terminal, with
// the local time of day.
enum class LogReader { kProgram, kPerson };

// `line` has no line break; external input in it has gone through Printable. Any thread.
void LogLine(std::string_view line);
// From the next line on; programs at first.
void SetLogReader(LogReader reader);
LogReader TheLogReader();
// Keeps `line`, no wider than the terminal, below the last line of the log; empty: none. Only for a
// terminal.
void ShowStatusLine(std::string line);
// Waits until all lines so far are written; false if that takes longer than `patience`.
bool FlushLog(std::chrono::milliseconds patience);

// A log that writes to a file descriptor, which must outlive it. Any thread.
class LogWriter {
 public:
  explicit LogWriter(int fd);
  // Waits until everything is written, however long that takes.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  void Write(std::string_view line);
  void ShowStatus(std::string line);
  bool Flush(std::chrono::milliseconds patience);

 private:
  // What the thread writes in one go.
  struct Batch {
    std::vector<std::string> lines;
    int64_t dropped = 0;  // after them
    std::string status;
  };

  void Add(std::string line);
  bool HasWork() const WEFT_REQUIRES(mutex_);
  // False once there is nothing left to write and the writer ends.
  bool Take(Batch* batch);
  void Run();

  const int fd_;
  Mutex mutex_;
  CondVar work_or_end_, all_written_;
  std::vector<std::string> lines_ WEFT_GUARDED_BY(mutex_);  // queued
  size_t bytes_ WEFT_GUARDED_BY(mutex_) = 0;                // in lines_
  int64_t dropped_ WEFT_GUARDED_BY(mutex_) = 0;             // after lines_
  std::string status_ WEFT_GUARDED_BY(mutex_);
  bool status_changed_ WEFT_GUARDED_BY(mutex_) = false;
  bool writing_ WEFT_GUARDED_BY(mutex_) = false;  // lines already taken out of lines_
  bool ending_ WEFT_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace weft

#endif  // WEFT_BASE_LOG_H_
