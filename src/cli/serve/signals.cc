#include "cli/serve/signals.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <iterator>

namespace weft::cli {

StatusOr<std::unique_ptr<ServeSignals>> ServeSignals::Create() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  if (pthread_sigmask(SIG_BLOCK, &signals, nullptr) != 0) {
    return Internal("cannot block signals");
  }
  FileDescriptor signal_fd(signalfd(-1, &signals, SFD_CLOEXEC));
  FileDescriptor event_fd(eventfd(0, EFD_CLOEXEC));
  if (!signal_fd.ok() || !event_fd.ok()) return ErrnoStatus(errno, "cannot wait for signals");
  return std::unique_ptr<ServeSignals>(new ServeSignals(std::move(signal_fd), std::move(event_fd)));
}

void ServeSignals::Tell() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_fd_.get(), &one, sizeof(one));
}

ServeSignals::Cause ServeSignals::Wait(int timeout_ms) {
  while (true) {
    pollfd fds[] = {{.fd = signal_fd_.get(), .events = POLLIN},
                    {.fd = event_fd_.get(), .events = POLLIN}};
    const int n = poll(fds, std::size(fds), timeout_ms);
    if (n == 0) return Cause::kTimeout;
    if (n < 0) continue;
    if ((fds[0].revents & POLLIN) != 0) {
      signalfd_siginfo info = {};
      [[maybe_unused]] const ssize_t n_read = read(signal_fd_.get(), &info, sizeof(info));
      return CauseOf(static_cast<int>(info.ssi_signo));
    }
    if ((fds[1].revents & POLLIN) != 0) {
      uint64_t count;
      [[maybe_unused]] const ssize_t n_read = read(event_fd_.get(), &count, sizeof(count));
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
