#include "cli/serve/signals.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>

#include "base/system.h"

namespace weft::cli {

StatusOr<std::unique_ptr<ServeSignals>> ServeSignals::Create() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  if (pthread_sigmask(SIG_BLOCK, &signals, nullptr) != 0) {
    return Internal("cannot block signals");
  }
  FileDescriptor signal_fd(OpenSignals(signals));
  int ends[2];
  if (!signal_fd.ok() || MakePipe(ends) != 0) return ErrnoStatus(errno, "cannot wait for signals");
  FileDescriptor told_fd(ends[0]), tell_fd(ends[1]);
  // A full pipe has been told enough.
  (void)fcntl(tell_fd.get(), F_SETFL, O_NONBLOCK);
  return std::unique_ptr<ServeSignals>(
      new ServeSignals(std::move(signal_fd), std::move(told_fd), std::move(tell_fd)));
}

void ServeSignals::Tell() {
  [[maybe_unused]] const ssize_t written = write(tell_fd_.get(), ".", 1);
}

ServeSignals::Cause ServeSignals::Wait(int timeout_ms) {
  while (true) {
    pollfd fds[] = {{.fd = signal_fd_.get(), .events = POLLIN},
                    {.fd = told_fd_.get(), .events = POLLIN}};
    const int n = poll(fds, std::size(fds), timeout_ms);
    if (n == 0) return Cause::kTimeout;
    if (n < 0) continue;
    if ((fds[0].revents & POLLIN) != 0) {
      return CauseOf(TakeSignal(signal_fd_.get()));
    }
    if ((fds[1].revents & POLLIN) != 0) {
      char tells[64];
      [[maybe_unused]] const ssize_t n_read = read(told_fd_.get(), tells, sizeof(tells));
      return Cause::kTold;
    }
  }
}

ServeSignals::Terminals ServeSignals::OpenTerminals() {
  const FileDescriptor controlling(open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC));
  return {isatty(STDIN_FILENO) == 1, isatty(STDOUT_FILENO) == 1, isatty(STDERR_FILENO) == 1,
          controlling.ok()};
}

// A closed terminal is no longer a terminal and cannot be opened.
ServeSignals::Cause ServeSignals::CauseOf(int signal) const {
  if (signal != SIGHUP) return Cause::kEnd;
  const Terminals now = OpenTerminals();
  for (size_t i = 0; i < now.size(); ++i) {
    if (terminals_[i] && !now[i]) return Cause::kTerminalGone;
  }
  return Cause::kReload;
}

}  // namespace weft::cli
