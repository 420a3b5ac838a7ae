// Wakes the waiting main thread of a server: for signals to end or to reload keys, and for messages
// from other threads.
//
// Create it before any other thread, so that all of them leave the signals to it. Wait is for one
// thread, Tell for any.
#ifndef WEFT_CLI_SERVE_SIGNALS_H_
#define WEFT_CLI_SERVE_SIGNALS_H_

#include <array>
#include <memory>
#include <utility>

#include "base/files/file_descriptor.h"
#include "base/status.h"

namespace weft::cli {

class ServeSignals {
 public:
  static StatusOr<std::unique_ptr<ServeSignals>> Create();

  void Tell();

  enum class Cause {
    kEnd,           // SIGTERM, SIGINT
    kTerminalGone,  // SIGHUP after the terminal present at startup has gone
    kReload,        // any other SIGHUP, e.g. from kill -HUP
    kTold,
    kTimeout,
  };
  // Waits at most `timeout_ms`; -1: forever.
  Cause Wait(int timeout_ms);

 private:
  // Which of standard input, output, error, and the controlling terminal are terminals.
  using Terminals = std::array<bool, 4>;

  ServeSignals(FileDescriptor signal_fd, FileDescriptor told_fd, FileDescriptor tell_fd)
      : signal_fd_(std::move(signal_fd)),
        told_fd_(std::move(told_fd)),
        tell_fd_(std::move(tell_fd)) {}

  static Terminals OpenTerminals();
  Cause CauseOf(int signal) const;

  const FileDescriptor signal_fd_, told_fd_, tell_fd_;
  const Terminals terminals_ = OpenTerminals();  // at startup
};

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_SIGNALS_H_
