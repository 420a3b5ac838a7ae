#include "cli/serve/drain.h"

#include <atomic>
#include <thread>

#include "base/log.h"
#include "base/strings.h"
#include "cli/serve/service_manager.h"

namespace weft::cli {
namespace {

using std::chrono::milliseconds;

// Time to send remaining output when everything is computed.
constexpr milliseconds kSendGrace{5000};
constexpr int kLookWhileDrainingMs = 1000;

}  // namespace

Drained DrainTurns(const ServeFlags& flags, ServeSignals* signals,
                   FunctionRef<Status(milliseconds grace)> drain, FunctionRef<void()> look) {
  const std::chrono::seconds turn_grace(flags.server.drain_seconds);
  LogLine(StrCat("shutting down: running turns have ", turn_grace.count(),
                 " s to finish; a second signal ends them at once"));
  // A service manager with a shorter timeout would kill us while saving.
  TellServiceManager(
      StrCat("STOPPING=1\nEXTEND_TIMEOUT_USEC=",
             std::chrono::microseconds(turn_grace + SaveGrace(flags) + 2 * kSendGrace).count()));
  Drained drained{.status = OkStatus(), .send_grace = kSendGrace};
  std::atomic<bool> is_done{false};
  std::thread waiter([&] {
    drained.status = drain(turn_grace);
    is_done = true;
    signals->Tell();
  });
  while (!is_done) {
    const ServeSignals::Cause cause = signals->Wait(kLookWhileDrainingMs);
    if (cause == ServeSignals::Cause::kTimeout) look();
    if (cause != ServeSignals::Cause::kEnd) continue;
    drained.send_grace = milliseconds(0);
    (void)drain(milliseconds(0));
  }
  waiter.join();
  return drained;
}

}  // namespace weft::cli
