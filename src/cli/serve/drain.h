// The end of a server: its running turns may finish, until a second signal ends them at once.
//
// The thread that waits for signals.
#ifndef WEFT_CLI_SERVE_DRAIN_H_
#define WEFT_CLI_SERVE_DRAIN_H_

#include <chrono>

#include "base/function_ref.h"
#include "base/status.h"
#include "cli/serve/serve_flags.h"
#include "cli/serve/signals.h"

namespace weft::cli {

struct Drained {
  Status status;                         // from saving the sessions
  std::chrono::milliseconds send_grace;  // left for sending output that is computed
};

// Tells the log and the service manager. Calls `drain` with the time that turns have, and once more
// with none after a second signal, while the first call still runs; and `look` each second.
Drained DrainTurns(const ServeFlags& flags, ServeSignals* signals,
                   FunctionRef<Status(std::chrono::milliseconds grace)> drain,
                   FunctionRef<void()> look);

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_DRAIN_H_
