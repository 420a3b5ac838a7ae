// Waits for signals together with other events: Ctrl-C, a new terminal size, return from the
// background, requests to end the process.
//
// While an object lives, these signals only wake Wait and are reported by Take. At most one object
// at a time. Wait, Take and fd are for one thread; Wake for any.
#ifndef WEFT_CLI_CHAT_SIGNALS_H_
#define WEFT_CLI_CHAT_SIGNALS_H_

#include <signal.h>

#include <array>
#include <memory>

#include "base/files/file_descriptor.h"
#include "base/status.h"

namespace weft::cli {

class ChatSignals {
 public:
  struct Seen {
    bool interrupt = false;  // SIGINT
    bool leave = false;      // SIGTERM, SIGHUP; stays set
    bool resized = false;    // SIGWINCH
    bool resumed = false;    // SIGCONT
  };

  static StatusOr<std::unique_ptr<ChatSignals>> Install();
  ~ChatSignals();
  ChatSignals(const ChatSignals&) = delete;
  ChatSignals& operator=(const ChatSignals&) = delete;

  // Returns when a signal has arrived or Wake was called since the last Take, or when `other_fd` is
  // readable or at its end; true only in the last case.
  bool Wait(int other_fd = -1);
  // The signals since the last call.
  Seen Take();
  void Wake();

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGCONT};

  ChatSignals(FileDescriptor read_end, FileDescriptor write_end);

  const FileDescriptor read_end_, write_end_;
  std::array<struct sigaction, kSignals.size()> former_ = {};
  bool leave_ = false;
};

}  // namespace weft::cli

#endif  // WEFT_CLI_CHAT_SIGNALS_H_
