#include "base/log.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <new>
#include <utility>

#include "base/strings.h"
#include "base/terminal.h"

namespace weft {
namespace {

// Some ten thousand lines of requests.
constexpr size_t kMaxQueuedBytes = size_t{1} << 20;

std::atomic<LogReader> log_reader{LogReader::kProgram};

// Clears the line that the cursor is in.
constexpr std::string_view kClearLine = "\r\033[K";

std::string Timed(std::string_view line, int fd) {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  if (log_reader == LogReader::kPerson) {
    tm local = {};
    localtime_r(&now.tv_sec, &local);
    char clock[16];
    const size_t size = std::strftime(clock, sizeof(clock), "%H:%M:%S ", &local);
    const size_t columns = WindowOf(fd).value_or(WindowSize()).columns;
    return StrCat(std::string_view(clock, size), Fill(line, columns, size, size), "\n");
  }
  tm utc = {};
  gmtime_r(&now.tv_sec, &utc);
  char time[40];
  const size_t size = std::strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", &utc);
  char fraction[8];
  std::snprintf(fraction, sizeof(fraction), ".%03dZ ", static_cast<int>(now.tv_nsec / 1'000'000));
  return StrCat(std::string_view(time, size), fraction, line, "\n");
}

// Gives up on an error: unwritable text is lost.
void WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

// Never destroyed: at exit its thread may hang in a write that nobody reads.
LogWriter& ProcessLog() {
  static LogWriter* const log = new LogWriter(STDERR_FILENO);
  return *log;
}

}  // namespace

void LogLine(std::string_view line) { ProcessLog().Write(line); }
void ShowStatusLine(std::string line) { ProcessLog().ShowStatus(std::move(line)); }
void SetLogReader(LogReader reader) { log_reader = reader; }
LogReader TheLogReader() { return log_reader; }
bool FlushLog(std::chrono::milliseconds patience) { return ProcessLog().Flush(patience); }

LogWriter::LogWriter(int fd) : fd_(fd) {
  // Its thread takes no signals: neither those the process waits for elsewhere, nor SIGPIPE when
  // the reader is gone.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LogWriter::~LogWriter() {
  {
    MutexLock lock(&mutex_);
    ending_ = true;
    work_or_end_.NotifyOne();
  }
  thread_.join();
}

void LogWriter::Write(std::string_view line) {
  try {
    Add(Timed(line, fd_));
  } catch (const std::bad_alloc&) {  // possibly the very condition being logged
    MutexLock lock(&mutex_);
    ++dropped_;
    work_or_end_.NotifyOne();
  }
}

void LogWriter::Add(std::string line) {
  MutexLock lock(&mutex_);
  // Once a line was dropped, drop all further ones until the note about it has its place.
  if (dropped_ > 0 || bytes_ + line.size() > kMaxQueuedBytes) {
    ++dropped_;
    return;
  }
  bytes_ += line.size();
  lines_.push_back(std::move(line));
  work_or_end_.NotifyOne();
}

void LogWriter::ShowStatus(std::string line) {
  MutexLock lock(&mutex_);
  if (line == status_) return;
  status_ = std::move(line);
  status_changed_ = true;
  work_or_end_.NotifyOne();
}

bool LogWriter::HasWork() const { return !lines_.empty() || dropped_ > 0 || status_changed_; }

bool LogWriter::Flush(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  MutexLock lock(&mutex_);
  while (writing_ || HasWork()) {
    if (!all_written_.WaitUntil(&mutex_, deadline)) return false;
  }
  return true;
}

bool LogWriter::Take(Batch* batch) {
  MutexLock lock(&mutex_);
  writing_ = false;
  if (!HasWork()) all_written_.NotifyAll();
  while (!HasWork() && !ending_) work_or_end_.Wait(&mutex_);
  if (!HasWork()) return false;
  batch->lines.swap(lines_);
  batch->dropped = std::exchange(dropped_, 0);
  batch->status = status_;
  status_changed_ = false;
  bytes_ = 0;
  writing_ = true;
  return true;
}

void LogWriter::Run() {
  bool shows_status = false;
  while (true) {
    Batch batch;
    if (!Take(&batch)) return;
    if (shows_status) WriteAll(fd_, kClearLine);
    for (const std::string& line : batch.lines) WriteAll(fd_, line);
    if (batch.dropped > 0) {
      WriteAll(fd_, Timed(StrCat(batch.dropped,
                                 " log lines were dropped because the log was not read fast "
                                 "enough"),
                          fd_));
    }
    shows_status = !batch.status.empty();
    WriteAll(fd_, batch.status);
  }
}

}  // namespace weft
