// What the engine thread does: sessions, turns, and the step that advances them all.
//
// EngineCore owns every piece of mutable model state and belongs to one thread; the
// public Engine (engine.cc) is a thread, a mailbox and this. Nothing here locks, but
// for the queues that lead out to consumers.
//
// Life of a turn: Submit puts it into the queue; Admit gives it lane 0 and finds what
// of its prompt is computed already; RunStep computes prompt chunks and single tokens
// of all lanes side by side; Sample chooses tokens, until every lane is done; Finish
// inserts what was computed into the prefix index and frees the session.
#ifndef WEFT_ENGINE_ENGINE_CORE_H_
#define WEFT_ENGINE_ENGINE_CORE_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"
#include "engine/active_turn.h"
#include "engine/disk_tier.h"
#include "engine/session_store.h"
#include "engine/session_table.h"
#include "engine/state_keeper.h"
#include "engine/state_memory.h"
#include "engine/step_planner.h"
#include "weft/engine.h"

namespace weft {

class EngineCore {
 public:
  // Runs a callback on the engine thread, soon; callable from any thread.
  using PostBack = std::function<void(std::function<void()>)>;
  // The answer to a call that may have to wait for a file; on the engine thread.
  template <typename T>
  using ReplyWith = std::function<void(T)>;
  using Reply = ReplyWith<Status>;

  // Builds the executor, runs a warm-up step that leaves nothing behind, and opens the
  // state directory if there is one.
  static StatusOr<std::unique_ptr<EngineCore>> Create(std::shared_ptr<const Model> model,
                                                      const EngineOptions& options,
                                                      PostBack post_back);
  ~EngineCore();

  // --- sessions ------------------------------------------------------------------
  StatusOr<SessionId> CreateSession(const SessionOptions& options);
  StatusOr<SessionId> FindSession(std::string_view domain, std::string_view name);
  StatusOr<SessionInfo> Inspect(SessionId id);
  std::vector<SessionInfo> ListSessions(std::string_view domain);
  // These bring a parked session back first.
  void Fork(SessionId id, int64_t position, const SessionOptions& options,
            const ReplyWith<StatusOr<SessionId>>& reply);
  void Truncate(SessionId id, int64_t position, const Reply& reply);
  void Tokens(SessionId id, const ReplyWith<StatusOr<std::vector<TokenId>>>& reply);
  void Reset(SessionId id, const Reply& reply);

  // --- sessions and files (engine_files.cc) ------------------------------------------
  void Park(SessionId id, const Reply& reply);
  void Save(SessionId id, const Reply& reply);
  void Restore(SessionId id, const Reply& reply);
  void Rename(SessionId id, const std::string& name, const Reply& reply);
  void Close(SessionId id, bool forget, const Reply& reply);
  int64_t CloseIdle(const std::optional<std::string>& domain, int64_t idle_us);
  // The end: what has a name gets to the disk. First what is on its way there anyway (until
  // StillKeeping says no), then ParkAll saves the rest; FileWorkPending tells when that is
  // done, and AbandonSaves makes it so soon. SaveOutcome names all that is not on disk.
  bool StillKeeping();
  void ParkAll();
  bool FileWorkPending() const { return file_works_ > 0; }
  void AbandonSaves();
  Status SaveOutcome() const;
  // From now on calls that need a file are refused: nobody would answer them.
  void CloseStore() { store_closed_ = true; }

  // --- turns -----------------------------------------------------------------------
  struct Submitted {
    SessionId session;
    std::shared_ptr<TurnQueue> queue;
    std::shared_ptr<std::atomic<bool>> cancelled;
  };
  StatusOr<Submitted> Submit(SessionId id, const TurnOptions& options);
  StatusOr<Submitted> SubmitOnce(std::string_view domain, const TurnOptions& options);

  // --- the loop ----------------------------------------------------------------------
  // One round: cancels and deadlines, admission, one step. False when there was
  // nothing to compute; the thread then sleeps until NextWake or a message.
  bool RunOnce();
  std::chrono::steady_clock::time_point NextWake() const;
  bool idle() const { return queued_.empty() && running_.empty(); }

  // No turn is taken from now on.
  void StopAdmitting() { admitting_ = false; }
  // Ends every turn with the status.
  void CutAll(const Status& status);

  EngineStats Stats() const;
  Status CheckIntegrity() const;
  void DropPrefixes();

  const Model& model() const { return *model_; }
  const EngineOptions& options() const { return options_; }

 private:
  using TurnList = std::list<std::unique_ptr<ActiveTurn>>;
  // A lane's part of the step that is being run.
  struct StepPart {
    ActiveTurn* turn;
    Lane* lane;
    int64_t rows = 0;
    int64_t first_row = 0;  // position of the first of them
    int64_t n_logits = 0;
    bool ends_prompt = false;  // the last prompt row is among them
    std::span<float> logits;
  };

  EngineCore(std::shared_ptr<const Model> model, const EngineOptions& options, PostBack post_back);
  Status WarmUp();

  StatusOr<SessionId> ForkNow(const Session& from, int64_t position, const SessionOptions& options);
  static Status CheckTruncate(const Session& session, int64_t position);
  void GoBack(Session* session, int64_t position, const Reply& reply);
  void ResetNow(Session* session);
  static Status RefusePoisoned(const Session& session);

  // Files.
  Status OpenStore();
  StatusOr<SessionSnapshot> SnapshotOf(const Session& session);
  Status CheckSavable(const Session& session) const;
  // Calls `then` with the session once no file of it is in use; `with_state`: and it is
  // in memory, restored if need be. Or with the error, which is then the caller's answer.
  void WhenFree(SessionId id, bool with_state, const ReplyWith<StatusOr<Session*>>& then);
  void StartSave(Session* session, bool park, bool free_now, const Reply& reply);
  void FinishSave(SessionId id, bool park, int64_t n_tokens, const Status& status);
  void StartRestore(Session* session, const Reply& reply);
  void RestoreForTurn(Session* session);
  void FinishRestore(SessionId id, StatusOr<SessionSnapshot> loaded, const Reply& reply);
  void EndFileWork(Session* session);
  void RenameFile(Session* session, const std::string& old_name, const Reply& reply);
  void CloseNow(Session* session, bool forget, const Reply& reply);
  // Saves that wait until those before are written: each holds a copy of its session.
  bool SaveHasRoom(const Session& session) const;
  void PumpSaves();
  void SaveNow(Session* session, bool park, bool free_now, const Reply& reply);
  void BecomeParked(Session* session);

  // The disk tier (engine_disk.cc).
  Status OpenDisk(const std::string& layout);
  void KeepAfterTurn(const ActiveTurn& turn);
  void KeepIfNamed(Session* session);
  // Its file is to hold these tokens instead of all that it is to hold by now. The session
  // waits for that.
  void WriteInstead(Session* session, std::vector<TokenId> tokens, const Reply& reply);
  void KeepRunning();
  bool PumpDisk();
  void LookOnDisk();
  void EndLookOnDisk(SessionId id);
  bool StartLoad(Session* session, int64_t max_tokens, std::function<void()> done);
  void ReadRun(SessionId id);
  void TakeRun(SessionId id, std::vector<DiskTier::Loaded> blocks, size_t n_asked);
  void EndLoad(SessionId id);
  void AbandonLoad(Session* session);
  void TellDiskTokens(ActiveTurn* turn, Session* session);

  // Turns, from submission to the end.
  Status ValidateTurn(const Session& session, const TurnOptions& options) const;
  StatusOr<Submitted> Enqueue(Session* session, const TurnOptions& options, bool closes_session);
  bool SweepTurns();
  void Admit();
  void StartTurn(ActiveTurn* turn);
  void RefreshSiblingWaits();
  bool WaitsForSibling(const ActiveTurn& turn, TurnList::const_iterator self) const;
  void EndLane(ActiveTurn* turn, Lane* lane, FinishReason reason, const Status& status);
  void EndTurn(ActiveTurn* turn, FinishReason reason, const Status& status);
  void RollBackPrompt(ActiveTurn* turn);
  void Retire(ActiveTurn* turn);

  // One step.
  // The session's tokens [first, first + n), with its pages and its slot.
  static StepSequence SequenceOf(const Session& session, int64_t first, int64_t n);
  std::vector<StepPart> PlanParts(bool first_only);
  bool PrepareParts(std::vector<StepPart>* parts);
  bool OthersWillFreeMemory(const Lane* self) const;
  bool ResumePreempted(bool nobody_runs);
  Status MakeRoomFor(const StepPart& part, const std::vector<StepPart>& prepared);
  bool GiveUpIdleState();
  bool TakeIdleSession();
  bool PreemptFor(const StepPart& part, const std::vector<StepPart>& prepared);
  Status Compute(std::vector<StepPart>* parts);
  void Poison(const std::vector<StepPart>& parts, const Status& status);
  void Consume(StepPart* part);
  void ReportProgress(const StepPart& part, int64_t done_tokens);
  void TakePromptRows(StepPart* part);
  void FinishPrompt(StepPart* part);
  void ForkChoices(ActiveTurn* turn, std::span<const float> logits);
  void SampleNext(ActiveTurn* turn, Lane* lane, std::span<float> logits);
  void ApplyToken(ActiveTurn* turn, Lane* lane, TokenId token, TokenEvent event);

  bool IsStopToken(const ActiveTurn& turn, TokenId token) const;
  SessionInfo InfoOf(const Session& session) const;
  void DestroySession(Session* session);

  const std::shared_ptr<const Model> model_;
  const EngineOptions options_;
  const PostBack post_back_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<StateMemory> memory_;
  SessionTable sessions_;
  std::unique_ptr<SessionStore> store_;  // null without a state directory
  std::unique_ptr<DiskTier> disk_;       // null without one, or without the prefix cache
  std::unique_ptr<StateKeeper> keeper_;  // null without a state directory
  int64_t kept_running_us_ = 0;
  // Sessions whose state is being read from blocks, by handle.
  struct DiskLoad {
    uint64_t serial = 0;
    BlockMatch match;
    int64_t max_tokens = 0;
    int64_t from = 0;         // tokens that were in memory before
    int64_t computed = 0;     // and are now
    int64_t pages_asked = 0;  // of the run that is being read
    std::function<void()> done;
  };
  std::map<uint64_t, DiskLoad> loads_;
  uint64_t next_load_ = 0;
  int file_works_ = 0;
  struct WaitingSave {
    SessionId id;
    bool park = false;
    bool free_now = false;
    Reply reply;
  };
  std::deque<WaitingSave> saves_;
  int64_t save_bytes_ = 0;  // in the store's hands
  bool saves_abandoned_ = false;
  std::vector<std::string> not_saved_;  // names; and why the first was not
  Status not_saved_because_;
  bool store_closed_ = false;
  StepPlanner planner_;

  TurnList queued_;   // waiting for admission, in order of submission
  TurnList running_;  // in order of admission
  uint64_t next_serial_ = 1;
  bool admitting_ = true;
  std::vector<float> logits_;
  EngineStats stats_;  // the counters; gauges are filled in by Stats()
};

}  // namespace weft

#endif  // WEFT_ENGINE_ENGINE_CORE_H_
