// The disk tier for turns: keeps their state when they end or grow, and reads state back when a
// prompt can use it. Engine thread only.
#ifndef WEFT_ENGINE_TURNS_TURN_DISK_H_
#define WEFT_ENGINE_TURNS_TURN_DISK_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>

#include "base/status.h"
#include "engine/sessions/state_memory.h"
#include "engine/storage/session_files.h"
#include "engine/turns/active_turn.h"

namespace weft {

class TurnDisk {
 public:
  // All must outlive the object.
  TurnDisk(const StateMemory* memory, SessionFiles* files) : memory_(*memory), files_(files) {}

  // Called after a turn has ended, while its computed state still exists. `then` is called when its
  // consumer may be told: see EngineOptions::durable. An error: a shared store has not taken it.
  void KeepAfter(const ActiveTurn& turn, const std::function<void(const Status&)>& then);
  // Keeps the complete pages of long turns while they run; looks at them now and then.
  void KeepRunning(const std::list<std::unique_ptr<ActiveTurn>>& running);
  // A prompt of which more is on disk than in memory waits until that is read; others go on. Each
  // turn looks once. `loaded` is called with its session's id when that has ended.
  void LookFor(ActiveTurn* turn, std::function<void(SessionId)> loaded);
  // The turn's first row is computed: how many of the tokens that it did not compute came from
  // disk.
  void TellDiskTokens(ActiveTurn* turn);

  int64_t disk_tokens() const { return disk_tokens_; }

 private:
  // What of a turn without a session name is worth keeping.
  void KeepPrompt(Session* session, const TurnUsage& usage);

  const StateMemory& memory_;
  SessionFiles* const files_;
  int64_t kept_running_us_ = 0;
  int64_t disk_tokens_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_TURN_DISK_H_
