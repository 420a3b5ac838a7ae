// What wakes the thread that waits while a server runs: the signals that end it or have it
// read its keys anew, and what other threads want to say.
//
// Made before any other thread, so that all of them leave the signals to it. Wait is for one
// thread, Tell for any.
#ifndef WEFT_CLI_SERVE_SIGNALS_H_
#define WEFT_CLI_SERVE_SIGNALS_H_

#include <array>
#include <memory>
#include <utility>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace weft::cli {

class ServeSignals {
 public:
  static StatusOr<std::unique_ptr<ServeSignals>> Create();

  void Tell();

  enum class Cause {
    kEnd,           // SIGTERM, SIGINT
    kTerminalGone,  // SIGHUP, and a terminal that was there at the start is not any more
    kReload,        // SIGHUP otherwise, as kill -HUP sends it
    kTold,
    kTimeout,
  };
  // At most `timeout_ms`, -1 being for ever.
  Cause Wait(int timeout_ms);

 private:
  // Standard input, output and error, and the controlling terminal: which of them are one.
  using Terminals = std::array<bool, 4>;

  ServeSignals(FileDescriptor signal_fd, FileDescriptor event_fd)
      : signal_fd_(std::move(signal_fd)), event_fd_(std::move(event_fd)) {}

  static Terminals OpenTerminals();
  Cause CauseOf(int signal) const;

  const FileDescriptor signal_fd_, event_fd_;
  const Terminals terminals_ = OpenTerminals();  // at the start
};

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_SIGNALS_H_
