#include "base/log.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <new>
#include <utility>

#include "base/strings.h"

namespace weft {
namespace {

// Some ten thousand lines of requests.
constexpr size_t kMaxQueuedBytes = size_t{1} << 20;

std::string Timed(std::string_view line) {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
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
    Add(Timed(line));
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

bool LogWriter::Flush(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  MutexLock lock(&mutex_);
  while (writing_ || !lines_.empty() || dropped_ > 0) {
    if (!all_written_.WaitUntil(&mutex_, deadline)) return false;
  }
  return true;
}

void LogWriter::Run() {
  while (true) {
    std::vector<std::string> lines;
    int64_t dropped = 0;
    {
      MutexLock lock(&mutex_);
      writing_ = false;
      if (lines_.empty() && dropped_ == 0) all_written_.NotifyAll();
      while (lines_.empty() && dropped_ == 0 && !ending_) work_or_end_.Wait(&mutex_);
      if (lines_.empty() && dropped_ == 0) return;
      lines.swap(lines_);
      dropped = std::exchange(dropped_, 0);
      bytes_ = 0;
      writing_ = true;
    }
    for (const std::string& line : lines) WriteAll(fd_, line);
    if (dropped == 0) continue;
    WriteAll(
        fd_,
        Timed(StrCat(dropped, " log lines were dropped because the log was not read fast enough")));
  }
}

}  // namespace weft
