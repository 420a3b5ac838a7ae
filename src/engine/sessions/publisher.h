// Publishes the engine's sessions, turns and counts, so that readers never wait for the engine
// (engine_view.h).
//
// Costs a step little, however many sessions there are: publishes at most every 20 ms while steps
// follow each other, and then only what runs, what changed, and a limited number of sessions whose
// page sharing may have changed. Engine thread only.
#ifndef WEFT_ENGINE_SESSIONS_PUBLISHER_H_
#define WEFT_ENGINE_SESSIONS_PUBLISHER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/sessions/engine_view.h"
#include "engine/sessions/idle_sessions.h"
#include "engine/sessions/session_table.h"
#include "engine/sessions/state_memory.h"

namespace weft {

class Publisher {
 public:
  // All must outlive the object.
  Publisher(const SessionTable* sessions, const StateMemory* memory, IdleSessions* idle);

  // The view outlives this object.
  std::shared_ptr<const EngineView> view() const { return view_; }

  // The session has changed or is about to: it will be published again, and ordered among the idle
  // ones.
  void Touch(Session* session);
  // The session is about to be destroyed.
  void Remove(const Session& session) { view_->Remove(session.id); }
  // Any session may share other pages than before.
  void SharingChanged() { n_stale_places_ = sessions_.n_places(); }
  // Runs `then` (an answer, or a turn's end) once readers can see everything done so far.
  void AfterPublish(std::function<void()> then) { after_publish_.push_back(std::move(then)); }

  // Whether someone waits for a publication or the last one was a while ago.
  bool IsDue() const;
  // From now on, until the next publication.
  void SetDue() { published_us_ = 0; }
  // Whether some sessions' sharing of pages may have changed since it was published; each
  // publication checks a limited number of them.
  bool HasMore() const { return n_stale_places_ > 0; }
  // `running` changed without a Touch. `is_idle`: there is time to check more sessions.
  void Publish(const EngineStats& stats, std::vector<TurnInfo> turns,
               std::span<Session* const> running, bool is_idle);
  // From now on readers are told that the engine has shut down.
  void Close() { view_->Close(); }

  // Compares the last published list with the sessions.
  Status CheckIntegrity() const;

 private:
  void Put(Session* session);
  void PutStalePlaces(size_t most);
  SessionInfo InfoOf(const Session& session) const;

  const SessionTable& sessions_;
  const StateMemory& memory_;
  IdleSessions* const idle_;
  const std::shared_ptr<EngineView> view_;
  std::vector<SessionId> touched_;
  size_t n_stale_places_ = 0;  // session table entries to check, from next_stale_place_ on
  size_t next_stale_place_ = 0;
  int64_t published_us_ = 0;
  std::vector<std::function<void()>> after_publish_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_SESSIONS_PUBLISHER_H_
