#include "cli/chat/signals.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "base/system.h"

namespace weft::cli {
namespace {

// What a handler may touch. The pipe only wakes the waiter; the flags record what happened, so a
// full pipe loses nothing.
std::atomic<int> g_pipe{-1};
std::atomic<bool> g_seen[NSIG];
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void OnSignal(int number) {
  const int saved_errno = errno;
  g_seen[number] = true;
  [[maybe_unused]] const ssize_t written = write(g_pipe, ".", 1);
  errno = saved_errno;
}

}  // namespace

StatusOr<std::unique_ptr<ChatSignals>> ChatSignals::Install() {
  int ends[2];
  if (MakePipe(ends) != 0) return ErrnoStatus(errno, "cannot make a pipe");
  for (const int end : ends) (void)fcntl(end, F_SETFL, O_NONBLOCK);
  return std::unique_ptr<ChatSignals>(
      new ChatSignals(FileDescriptor(ends[0]), FileDescriptor(ends[1])));
}

ChatSignals::ChatSignals(FileDescriptor read_end, FileDescriptor write_end)
    : read_end_(std::move(read_end)), write_end_(std::move(write_end)) {
  g_pipe = write_end_.get();
  for (size_t i = 0; i < kSignals.size(); ++i) {
    g_seen[kSignals[i]] = false;
    struct sigaction action = {};
    action.sa_handler = OnSignal;
    // Do not interrupt other system calls; the waiter here waits in poll.
    action.sa_flags = SA_RESTART;
    sigaction(kSignals[i], &action, &former_[i]);
  }
}

ChatSignals::~ChatSignals() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &former_[i], nullptr);
  g_pipe = -1;
}

void ChatSignals::Wake() {
  [[maybe_unused]] const ssize_t written = write(write_end_.get(), ".", 1);
}

bool ChatSignals::Wait(int other_fd) {
  pollfd fds[] = {{.fd = read_end_.get(), .events = POLLIN}, {.fd = other_fd, .events = POLLIN}};
  while (poll(fds, std::size(fds), -1) < 0 && errno == EINTR) continue;
  return fds[1].revents != 0;
}

ChatSignals::Seen ChatSignals::Take() {
  char bytes[64];
  while (read(read_end_.get(), bytes, sizeof(bytes)) > 0) continue;
  Seen seen;
  seen.interrupt = g_seen[SIGINT].exchange(false);
  seen.resized = g_seen[SIGWINCH].exchange(false);
  seen.resumed = g_seen[SIGCONT].exchange(false);
  const bool terminate = g_seen[SIGTERM].exchange(false);
  leave_ = g_seen[SIGHUP].exchange(false) || terminate || leave_;
  seen.leave = leave_;
  return seen;
}

}  // namespace weft::cli
