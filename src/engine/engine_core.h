// The engine thread's work: wires the parts and runs the round that advances all turns.
//
// EngineCore owns all mutable model state and belongs to one thread; the public Engine (engine.cc)
// is a thread, a mailbox and this. Nothing here locks, except the queues to consumers.
//
//   who                     does what
//   SessionTable, Session   sessions by handle and name, and their data
//   StateMemory             their pages and slots, and the prefix cache
//   SessionFiles            their files: parks, saves, restores and drops them
//   LiveSessions            creates, forks, changes and closes them
//   TurnScheduler           turns from submission to their end
//   NamedTurns              finds or makes the session that a turn names
//   StepRunner, StepRoom    plan and run steps, and find memory for them
//   TurnWriter              from logits to tokens and events
//   PromptWaits             which prompts wait for how much of others
//   Drafter, AnswerDrafts   draft tokens from a draft model
//   Publisher               tells readers about all of it
//   PrefixWatches           tells readers which prefixes are cached
//
// A part knows those above it only.
#ifndef WEFT_ENGINE_ENGINE_CORE_H_
#define WEFT_ENGINE_ENGINE_CORE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "compute/backend.h"
#include "engine/drafting/drafter.h"
#include "engine/sessions/adapter_mix.h"
#include "engine/sessions/idle_sessions.h"
#include "engine/sessions/publisher.h"
#include "engine/sessions/session_table.h"
#include "engine/sessions/state_memory.h"
#include "engine/speculation/speculator.h"
#include "engine/storage/live_sessions.h"
#include "engine/storage/prefix_watches.h"
#include "engine/storage/session_files.h"
#include "engine/turns/answer_drafts.h"
#include "engine/turns/named_turns.h"
#include "engine/turns/prompt_waits.h"
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

  // Builds the store and the executor, runs a warm-up step without side effects, and opens the
  // state directory if there is one.
  static StatusOr<std::unique_ptr<EngineCore>> Create(std::shared_ptr<const Model> model,
                                                      const EngineOptions& options,
                                                      const PostBack& post_back);

  // The given options, adjusted to the model and its backend.
  const EngineOptions& options() const { return options_; }

  // --- the parts, for calls that concern one of them -----------------------------------
  LiveSessions& sessions() { return sessions_; }
  SessionFiles& files() { return files_; }
  TurnScheduler& turns() { return turns_; }
  NamedTurns& named() { return named_; }
  Publisher& publisher() { return publisher_; }
  const SessionTable& table() const { return table_; }
  const Executor& executor() const { return *executor_; }

  // --- calls that concern several parts --------------------------------------------------
  StatusOr<SubmittedTurn> Submit(SessionId id, const TurnOptions& options);
  // Cancels the session's turn, if it has one. `forget`: see LiveSessions::Close.
  void Close(SessionId id, bool forget, const SessionFiles::Reply& reply);
  // Ends every turn with `status`.
  void CutAll(const Status& status);
  void Publish();
  void PublishIfDue() {
    if (publisher_.IsDue()) Publish();
  }
  // Also compares the published view with the actual state.
  Status CheckIntegrity();
  void DropPrefixes();
  // See Engine::WatchPrefixes. Each publication serves the readers a little.
  void WatchPrefixes(const std::string& domain, std::span<const AdapterScale> adapters,
                     const std::shared_ptr<PrefixQueue>& queue);
  bool HasMorePrefixes() const { return has_more_prefixes_; }

  // --- the loop ----------------------------------------------------------------------
  // One round: cancels and deadlines, admission, then a short step or a slice of the long one,
  // which ends early once `interrupted` returns true. False if there was nothing to compute; the
  // thread then sleeps until NextWake or a message.
  bool RunOnce(FunctionRef<bool()> interrupted);
  StepRunner& steps() { return steps_; }
  std::chrono::steady_clock::time_point NextWake() const;

 private:
  EngineCore(std::shared_ptr<const Model> model, const EngineOptions& options,
             const PostBack& post_back, std::unique_ptr<StateStore> store,
             std::unique_ptr<Executor> executor, std::unique_ptr<StateMemory> memory,
             std::unique_ptr<Drafter> drafter);
  Status WarmUp();
  bool Sweep();
  SessionFiles::Parts session_parts();
  TurnScheduler::Parts turn_parts();

  const std::shared_ptr<const Model> model_;
  const EngineOptions options_;
  const std::unique_ptr<StateStore> store_;
  const std::unique_ptr<Executor> executor_;
  const std::unique_ptr<StateMemory> memory_;
  const std::unique_ptr<Drafter> drafter_;  // null: there is no draft model
  const AdapterMixes adapters_;
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
  Speculator speculator_;
  AnswerDrafts drafts_;
  StepRunner steps_;
  PromptWaits waits_;
  PrefixWatches watches_;
  bool has_more_prefixes_ = false;
};

}  // namespace weft

#endif  // WEFT_ENGINE_ENGINE_CORE_H_
