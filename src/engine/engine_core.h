// The engine thread's work: wires the parts and runs the round that advances all turns.
//
// EngineCore owns all mutable model state and belongs to one thread; the public Engine (engine.cc)
// is a thread, a mailbox and this. Nothing here locks, except the queues to consumers.
//
//   who                     does what
//   SessionTable, Session   sessions by handle and name, and what they are made of
//   StateMemory             their pages and slots, and the index of prefixes
//   SessionFiles            their files: parked, saved, restored, kept, given up
//   LiveSessions            creates, forks, changes and closes them
//   TurnScheduler           turns from submission to their end
//   NamedTurns              finds or makes the session that a turn names
//   StepRunner, StepRoom    what is computed next, and the memory for it
//   TurnWriter              from logits to tokens and events
//   Publisher               tells readers about all of it
//
// A part knows those above it only.
#ifndef WEFT_ENGINE_ENGINE_CORE_H_
#define WEFT_ENGINE_ENGINE_CORE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/function_ref.h"
#include "base/status.h"
#include "engine/sessions/idle_sessions.h"
#include "engine/sessions/publisher.h"
#include "engine/sessions/session_table.h"
#include "engine/sessions/state_memory.h"
#include "engine/storage/live_sessions.h"
#include "engine/storage/session_files.h"
#include "engine/turns/named_turns.h"
#include "engine/turns/step_room.h"
#include "engine/turns/step_runner.h"
#include "engine/turns/turn_disk.h"
#include "engine/turns/turn_scheduler.h"
#include "engine/turns/turn_writer.h"
#include "weft/engine.h"

namespace weft {

class EngineCore {
 public:
  // Runs a callback on the engine thread, soon; callable from any thread.
  using PostBack = SessionFiles::PostBack;
  // Answers a call that may have to wait for a file; runs on the engine thread.
  template <typename T>
  using ReplyWith = SessionFiles::ReplyWith<T>;
  using Reply = SessionFiles::Reply;
  using Submitted = SubmittedTurn;

  // Builds the store and the executor, runs a warm-up step that leaves nothing behind, and opens
  // the state directory if there is one.
  static StatusOr<std::unique_ptr<EngineCore>> Create(std::shared_ptr<const Model> model,
                                                      const EngineOptions& options,
                                                      PostBack post_back);

  // --- sessions (live_sessions.h, session_files.h) ---------------------------------
  StatusOr<SessionId> CreateSession(const SessionOptions& options) {
    return sessions_.Create(options);
  }
  void Fork(SessionId id, int64_t position, const SessionOptions& options,
            const ReplyWith<StatusOr<SessionId>>& reply) {
    sessions_.Fork(id, position, options, reply);
  }
  void Truncate(SessionId id, int64_t position, const Reply& reply) {
    sessions_.Truncate(id, position, reply);
  }
  void Tokens(SessionId id, const ReplyWith<StatusOr<std::vector<TokenId>>>& reply) {
    sessions_.Tokens(id, reply);
  }
  void Reset(SessionId id, const Reply& reply) { sessions_.Reset(id, reply); }
  void Rename(SessionId id, const std::string& name, const Reply& reply) {
    sessions_.Rename(id, name, reply);
  }
  void Close(SessionId id, bool forget, const Reply& reply) { sessions_.Close(id, forget, reply); }
  int64_t CloseIdle(const std::optional<std::string>& domain, int64_t idle_us) {
    return sessions_.CloseIdle(domain, idle_us);
  }
  void Park(SessionId id, const Reply& reply) { files_.Park(id, reply); }
  void Save(SessionId id, const Reply& reply) { files_.Save(id, reply); }
  void Restore(SessionId id, const Reply& reply) { files_.Restore(id, reply); }

  // --- turns (turn_scheduler.h, named_turns.h) ------------------------------------------
  StatusOr<Submitted> Submit(SessionId id, const TurnOptions& options);
  StatusOr<Submitted> SubmitOnce(std::string_view domain, const TurnOptions& options) {
    return turns_.SubmitOnce(domain, options);
  }
  void SubmitNamed(const SessionOptions& session, const TurnOptions& options,
                   const NamedTurnPolicy& policy, const ReplyWith<StatusOr<Submitted>>& reply) {
    named_.Submit(session, options, policy, reply);
  }

  // --- the loop ----------------------------------------------------------------------
  // One round: cancels and deadlines, admission, then a short step or a slice of the long one,
  // which ends early once `interrupted` returns true. False if there was nothing to compute; the
  // thread then sleeps until NextWake or a message.
  bool RunOnce(FunctionRef<bool()> interrupted);
  std::chrono::steady_clock::time_point NextWake() const;
  int64_t turns_waiting() const { return turns_.waiting(); }
  bool idle() const { return turns_.idle(); }

  // --- shutdown: turns first, then named sessions are saved (session_files.h) --------------
  void StopAdmitting() { turns_.StopAccepting(); }
  // Ends every turn with `status`.
  void CutAll(const Status& status);
  bool StillKeeping() { return files_.StillKeeping(); }
  void StopKeeping() { files_.StopKeeping(); }
  void ParkAll() { files_.ParkAll(); }
  bool FileWorkPending() const { return files_.FileWorkPending(); }
  void AbandonSaves() { files_.AbandonSaves(); }
  Status SaveOutcome() const { return files_.SaveOutcome(); }
  void CloseStore() { files_.CloseStore(); }

  // --- what readers see (publisher.h) -----------------------------------------------------
  // The view outlives this object.
  std::shared_ptr<const EngineView> view() const { return publisher_.view(); }
  void AfterPublish(std::function<void()> then) { publisher_.AfterPublish(std::move(then)); }
  void Publish();
  void PublishIfDue() {
    if (publisher_.IsDue()) Publish();
  }
  bool HasMoreToPublish() const { return publisher_.HasMore(); }
  void CloseView() { publisher_.Close(); }

  // --- the engine as a whole ----------------------------------------------------------------
  // Also compares the published view with the actual state.
  Status CheckIntegrity();
  void DropPrefixes();
  // Session table entries visited so far (SessionTable::n_visited).
  int64_t sessions_visited() const { return table_.n_visited(); }

 private:
  EngineCore(std::shared_ptr<const Model> model, const EngineOptions& options,
             const PostBack& post_back, std::unique_ptr<StateStore> store,
             std::unique_ptr<Executor> executor, std::unique_ptr<StateMemory> memory);
  Status WarmUp();
  bool Sweep();
  SessionFiles::Parts session_parts();
  TurnScheduler::Parts turn_parts();

  const std::shared_ptr<const Model> model_;
  const EngineOptions options_;
  const std::unique_ptr<StateStore> store_;
  const std::unique_ptr<Executor> executor_;
  const std::unique_ptr<StateMemory> memory_;
  SessionTable table_;
  IdleSessions idle_;
  Publisher publisher_;
  SessionFiles files_;
  LiveSessions sessions_;
  TurnDisk disk_;
  TurnScheduler turns_;
  NamedTurns named_;
  StepRoom room_;
  TurnWriter writer_;
  StepRunner steps_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_ENGINE_CORE_H_
