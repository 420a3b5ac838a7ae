// Turns from their submission to their end: a queue, a limited number of places, and who waits for
// whom.
//
// A turn is checked and queued (Submit), gets a place and reuses the computed prefix of its prompt
// (Admit), waits while another turn computes a prefix that it needs too or the disk has more of it
// (RefreshWaits), and ends: by itself, because it is unwanted (EndUnwanted), or because the
// engine ends. Retired turns release their sessions and places. Steps advance turns in between.
// Engine thread only.
#ifndef WEFT_ENGINE_TURNS_TURN_SCHEDULER_H_
#define WEFT_ENGINE_TURNS_TURN_SCHEDULER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/sessions/adapter_mix.h"
#include "engine/sessions/publisher.h"
#include "engine/sessions/state_memory.h"
#include "engine/storage/live_sessions.h"
#include "engine/turns/active_turn.h"
#include "engine/turns/prompts_under_way.h"
#include "engine/turns/turn_disk.h"
#include "engine/turns/turn_places.h"
#include "weft/engine.h"

namespace weft {

// What the submitter of a turn gets.
struct SubmittedTurn {
  SessionId session;
  std::shared_ptr<TurnQueue> queue;
  std::shared_ptr<std::atomic<bool>> cancelled;
  std::string domain = {};
  uint64_t serial = 0;
  bool is_anonymous = false;  // true: not on the named session
};

class TurnScheduler {
 public:
  // What turns act on. All must outlive the object.
  struct Parts {
    const Model* model = nullptr;
    const EngineOptions* options = nullptr;
    StateMemory* memory = nullptr;
    Publisher* publisher = nullptr;
    SessionFiles* files = nullptr;
    LiveSessions* sessions = nullptr;
    TurnDisk* disk = nullptr;
    const AdapterMixes* adapters = nullptr;
  };
  // `wake` makes the engine look again; any thread may call it.
  TurnScheduler(const Parts& parts, std::function<void()> wake);

  // Queues a turn, or says why not. `closes_session`: the session is destroyed with it.
  StatusOr<SubmittedTurn> Submit(Session* session, TurnOptions options, bool closes_session);
  // The same on a session of its own.
  StatusOr<SubmittedTurn> SubmitOnce(std::string_view domain, TurnOptions options);
  // OK if a turn of the tenant would be queued now; otherwise it counts as refused.
  Status CheckQueue(std::string_view tenant);
  // Whether the session can run with the adapters that the turn asks for.
  Status CheckAdapters(const Session& session, const TurnOptions& options) const;
  // From now on no turn is accepted.
  void StopAccepting() { accepting_ = false; }

  // See Turn::ExpectMore.
  void ExpectMore(std::string_view domain, uint64_t serial);

  // The turn that a session belongs to; null if it has none.
  ActiveTurn* FindOn(SessionId session) const;
  // Ends turns that were cancelled, timed out or abandoned by their consumer, or whose session
  // cannot be restored.
  void EndUnwanted();
  // Ends all.
  void EndAll(const Status& status);
  // Retires ended turns, but none that is part of a long step: others may be too. True if there
  // were any.
  bool RetireEnded();
  // Gives places to waiting turns and lanes (TurnPlaces). A tenant's preempted turns resume first,
  // or its newcomers would take the memory they wait for.
  void Admit();
  // Lets prompts wait while an earlier turn computes a prefix that they need too, or while more of
  // their state is read from disk, and continue from there.
  void RefreshWaits();

  const TurnList& running() const { return running_; }
  const TurnList& queued() const { return queued_; }
  bool idle() const { return queued_.empty() && running_.empty(); }
  // Turns queued because no place is free.
  int64_t waiting() const;
  // When a deadline or a consumer's patience ends; at most `latest`.
  std::chrono::steady_clock::time_point NextWake(
      std::chrono::steady_clock::time_point latest) const;

  // For readers: running turns first.
  std::vector<TurnInfo> Describe() const;
  std::vector<Session*> RunningSessions() const;
  void FillStats(EngineStats* stats) const;

 private:
  Status Validate(const Session& session, const TurnOptions& options) const;
  Status CheckSize(const Session& session, const TurnOptions& options) const;
  int64_t StallPatienceUs() const;
  void EndIfUnwanted(ActiveTurn* turn);
  void Start(ActiveTurn* turn);
  void Resume(ActiveTurn* turn, Lane* lane);
  Status CheckRowsOf(const ActiveTurn& turn) const;
  void TakePrompt(ActiveTurn* turn);
  void RefreshSiblingWait(ActiveTurn* turn);
  bool WaitsForSibling(ActiveTurn* turn) const;
  void ReuseComputed(Session* session);
  void PlanCheckpoints(const ActiveTurn& turn);
  void TakeLoaded(SessionId id);
  void RollBackPrompt(ActiveTurn* turn);
  void TouchParents(const Session& session);
  void ClaimPrefixes(const ActiveTurn& turn);
  void Retire(ActiveTurn* turn);
  void Count(TurnFate fate);

  const Parts parts_;
  const std::function<void()> wake_;
  TurnList queued_;
  TurnList running_;
  TurnPlaces places_;
  PromptsUnderWay prompts_;  // of running turns in prefill
  uint64_t next_serial_ = 1;
  bool accepting_ = true;
  int64_t finished_ = 0, cancelled_ = 0, failed_ = 0, refused_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_TURN_SCHEDULER_H_
