// Signals as something to wait for beside other things: Ctrl-C, a new size of the
// terminal, the return from the background, the wish that the process end.
//
// While an object lives, these signals do nothing but wake Wait and be told by Take. At
// most one object at a time. Wait, Take and fd are for one thread; Wake for any.
#ifndef WEFT_CLI_CHAT_SIGNALS_H_
#define WEFT_CLI_CHAT_SIGNALS_H_

#include <signal.h>

#include <array>
#include <memory>

#include "base/file_descriptor.h"
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

  // Returns when a signal came, or Wake was called, since the last Take; with
  // `other_fd` also when that can be read or has ended, and only then it is true.
  bool Wait(int other_fd = -1);
  // What came since the last call.
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
