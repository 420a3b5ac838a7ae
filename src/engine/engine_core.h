// The engine thread's work: sessions, turns, and the step that advances them all.
//
// EngineCore owns all mutable model state and belongs to one thread; the public Engine (engine.cc)
// is a thread, a mailbox and this. Nothing here locks, except the queues to consumers.
//
// Life of a turn: Submit queues it; Admit gives it lane 0 and finds the part of its prompt that is
// already computed; long steps compute its prompt and short ones single tokens of all lanes side by
// side; Sample chooses tokens until every lane is done; Retire frees the session.
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
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"
#include "engine/active_turn.h"
#include "engine/sessions/engine_view.h"
#include "engine/sessions/idle_sessions.h"
#include "engine/sessions/session_table.h"
#include "engine/sessions/state_memory.h"
#include "engine/step_planner.h"
#include "engine/storage/disk_tier.h"
#include "engine/storage/session_store.h"
#include "engine/storage/state_keeper.h"
#include "weft/engine.h"

namespace weft {

class EngineCore {
 public:
  // Runs a callback on the engine thread, soon; callable from any thread.
  using PostBack = std::function<void(std::function<void()>)>;
  // Answers a call that may have to wait for a file; runs on the engine thread.
  template <typename T>
  using ReplyWith = std::function<void(T)>;
  using Reply = ReplyWith<Status>;

  // Builds the executor, runs a warm-up step that leaves nothing behind, and opens the state
  // directory if there is one.
  static StatusOr<std::unique_ptr<EngineCore>> Create(std::shared_ptr<const Model> model,
                                                      const EngineOptions& options,
                                                      PostBack post_back);
  ~EngineCore();

  // --- sessions ------------------------------------------------------------------
  StatusOr<SessionId> CreateSession(const SessionOptions& options);
  // These restore a parked session first.
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
  // Shutdown: named sessions are saved. First whatever is already on its way to disk (until
  // StillKeeping returns false), then ParkAll saves the rest. FileWorkPending says whether saving
  // is done, and AbandonSaves cuts it short. SaveOutcome names everything that is not on disk.
  bool StillKeeping();
  void ParkAll();
  bool FileWorkPending() const { return !at_work_.empty(); }
  void AbandonSaves();
  Status SaveOutcome() const;
  // From now on calls that need a file are refused: nothing would answer them.
  void CloseStore() { store_closed_ = true; }

  // --- turns -----------------------------------------------------------------------
  struct Submitted {
    SessionId session;
    std::shared_ptr<TurnQueue> queue;
    std::shared_ptr<std::atomic<bool>> cancelled;
    bool is_anonymous = false;  // true: not on the named session
  };
  StatusOr<Submitted> Submit(SessionId id, const TurnOptions& options);
  StatusOr<Submitted> SubmitOnce(std::string_view domain, const TurnOptions& options);
  // engine_named.cc
  void SubmitNamed(const SessionOptions& session, const TurnOptions& options,
                   const NamedTurnPolicy& policy, const ReplyWith<StatusOr<Submitted>>& reply);

  // --- the loop ----------------------------------------------------------------------
  // One round: cancels and deadlines, admission, then a short step or a slice of the long one,
  // which ends early once `interrupted` returns true. False if there was nothing to compute; the
  // thread then sleeps until NextWake or a message.
  bool RunOnce(FunctionRef<bool()> interrupted);
  std::chrono::steady_clock::time_point NextWake() const;
  // Turns queued because no place is free.
  int64_t turns_waiting() const;
  bool idle() const { return queued_.empty() && running_.empty(); }

  // No turn is admitted from now on.
  void StopAdmitting() { admitting_ = false; }
  // Ends every turn with `status`.
  void CutAll(const Status& status);

  // Also compares the published view with the actual state.
  Status CheckIntegrity();
  void DropPrefixes();

  // --- what readers see (engine_publish.cc) ------------------------------------------
  // The view outlives this object.
  std::shared_ptr<const EngineView> view() const { return view_; }
  // Runs `then` (an answer, or a turn's end) once readers can see everything done so far.
  void AfterPublish(std::function<void()> then) { after_publish_.push_back(std::move(then)); }
  void Publish();
  // Publishes if someone waits for it or the last time was a while ago.
  void PublishIfDue();
  // Whether some sessions' sharing of pages may have changed since it was published; each
  // publication checks a limited number of them.
  bool HasMoreToPublish() const { return n_stale_places_ > 0; }
  // From now on readers are told that the engine has shut down.
  void CloseView() { view_->Close(); }

  // Session table entries visited so far (SessionTable::n_visited).
  int64_t sessions_visited() const { return sessions_.n_visited(); }

  const Model& model() const { return *model_; }
  const EngineOptions& options() const { return options_; }

 private:
  using TurnList = std::list<std::unique_ptr<ActiveTurn>>;
  // A lane's part of a step.
  struct StepPart {
    ActiveTurn* turn;
    Lane* lane;
    int64_t rows = 0;
    int64_t first_row = 0;  // position of the first row
    int64_t n_logits = 0;
    bool ends_prompt = false;  // includes the last prompt row
    std::span<float> logits;
  };
  // A step from its plan to its logits, and the data its run points to.
  struct OpenStep {
    std::vector<StepPart> parts;
    std::vector<StepSequence> sequences;
    std::vector<float> logits;
    std::unique_ptr<StepRun> run;
    StepCost cost;
  };

  EngineCore(std::shared_ptr<const Model> model, const EngineOptions& options, PostBack post_back);
  Status WarmUp();

  StatusOr<SessionId> ForkNow(const Session& from, int64_t position, const SessionOptions& options);
  static Status CheckTruncate(const Session& session, int64_t position);
  void GoBack(Session* session, int64_t position, const Reply& reply);
  void ResetNow(Session* session);
  static Status RefuseBusy(const Session& session);
  static Status RefusePoisoned(const Session& session);

  // Files.
  Status OpenStore();
  StatusOr<SessionSnapshot> SnapshotOf(const Session& session);
  Status CheckSavable(const Session& session) const;
  // Calls `then` with the session once no file of it is in use and, if `with_state`, its state is
  // in memory (restored if need be); or with the error to answer with.
  void WhenFree(SessionId id, bool with_state, const ReplyWith<StatusOr<Session*>>& then);
  void StartSave(Session* session, bool park, bool free_now, const Reply& reply);
  void FinishSave(SessionId id, bool park, int64_t n_tokens, const Status& status);
  void StartRestore(Session* session, const Reply& reply);
  void RestoreForTurn(Session* session);
  void FinishRestore(SessionId id, StatusOr<SessionSnapshot> loaded, const Reply& reply);
  // These bracket file work. EndFileWork accepts a session closed
  // meanwhile.
  void BeginFileWork(Session* session, FileWork work);
  void EndFileWork(SessionId id);
  void RenameFile(Session* session, const std::string& old_name, const Reply& reply);
  void CloseNow(Session* session, bool forget, const Reply& reply);
  // Saves wait until earlier ones are written: each holds a copy of its session.
  bool SaveHasRoom(const Session& session) const;
  void PumpSaves();
  void SaveNow(Session* session, bool park, bool free_now, const Reply& reply);
  void BecomeParked(Session* session);

  // Named turns.
  struct NamedRequest;
  void SubmitTo(const std::shared_ptr<const NamedRequest>& request, Session* session);
  void SubmitToNew(const std::shared_ptr<const NamedRequest>& request);
  void Refuse(const NamedRequest& request, NamedTurnPolicy::Otherwise otherwise,
              const Status& status);
  bool CloseIdleOf(std::string_view domain);

  // What readers see.
  // Notes that the session has changed or is about to; it will be published again.
  void Touch(Session* session);
  void Put(Session* session);
  void PutStalePlaces();
  EngineStats Stats() const;
  std::vector<TurnInfo> TurnInfos() const;
  TurnInfo InfoOf(const ActiveTurn& turn) const;
  Status CheckPublished() const;
  // The disk tier (engine_disk.cc).
  Status OpenDisk(const std::string& layout);
  void KeepAfterTurn(const ActiveTurn& turn);
  void KeepIfNamed(Session* session);
  // Makes the session's file hold these tokens instead of whatever is written or queued. The
  // session waits until it does.
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

  // Turns, from submission to their end.
  Status ValidateTurn(const Session& session, const TurnOptions& options) const;
  StatusOr<Submitted> Enqueue(Session* session, const TurnOptions& options, bool closes_session);
  bool SweepTurns();
  void EndUnwanted(ActiveTurn* turn);
  int64_t StallPatienceUs() const;
  void Admit();
  void StartTurn(ActiveTurn* turn);
  void ReuseComputed(Session* session);
  void PlanCheckpoints(Session* session);
  bool SharesPrefixes(const Session& a, const Session& b) const;
  void RefreshSiblingWaits();
  static int64_t CommonPrompt(ActiveTurn* turn, const ActiveTurn& other);
  bool WaitsForSibling(ActiveTurn* turn, TurnList::const_iterator self) const;
  void RollBackPrompt(ActiveTurn* turn);
  void Retire(ActiveTurn* turn);

  // One step.
  // The session's tokens [first, first + n), with its pages and its slot.
  static StepSequence SequenceOf(const Session& session, int64_t first, int64_t n);
  struct Candidates {
    std::vector<StepPart> parts;  // rows not yet assigned
    std::vector<LaneView> views;
  };
  LaneView ViewOf(const ActiveTurn& turn, const Lane& lane) const;
  Candidates ReadyLanes() const;
  static std::vector<StepPart> TakeRows(const Candidates& candidates,
                                        const std::vector<int64_t>& rows);
  std::vector<StepPart> PlanShortStep(Candidates lanes) const;
  std::vector<StepPart> PlanFirstLane() const;
  void PrepareParts(std::vector<StepPart>* parts);
  bool OthersWillFreeMemory(const Lane* self);
  bool ResumePreempted(bool nobody_runs);
  Status MakeRoomFor(const StepPart& part, const std::vector<StepPart>& prepared);
  bool GiveUpIdleState();
  bool TakeIdleSession();
  bool PreemptFor(const StepPart& part, const std::vector<StepPart>& prepared);
  Status Begin(OpenStep* step);
  // False if it was interrupted.
  StatusOr<bool> Advance(OpenStep* step, FunctionRef<bool()> pause);
  void Land(OpenStep* step);
  void RunShortStep(std::vector<StepPart> parts);
  void BeginLongStep(std::vector<StepPart> parts);
  void AdvanceLongStep(int64_t until_us, FunctionRef<bool()> interrupted);
  std::unique_ptr<OpenStep> CloseLongStep();
  void AbandonLongStep();
  bool LongStepIsUnwanted() const;
  void Poison(const std::vector<StepPart>& parts, const Status& status);
  void Consume(StepPart* part);
  void ReportProgress(const StepPart& part, int64_t done_tokens);
  void TakePromptRows(StepPart* part);
  void FinishPrompt(StepPart* part);
  void ForkChoices(ActiveTurn* turn, std::span<const float> logits);
  void SampleNext(ActiveTurn* turn, Lane* lane, std::span<float> logits);
  void ApplyToken(ActiveTurn* turn, Lane* lane, TokenId token, TokenEvent event);
  void TakeForced(ActiveTurn* turn, Lane* lane);
  void AllowOtherEnds(const TurnOptions& options, Lane* lane);

  bool IsStopToken(const ActiveTurn& turn, TokenId token) const;
  SessionInfo InfoOf(const Session& session) const;
  void DestroySession(Session* session);

  const std::shared_ptr<const Model> model_;
  const EngineOptions options_;
  const PostBack post_back_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<StateMemory> memory_;
  SessionTable sessions_;
  std::unique_ptr<IdleSessions> idle_;
  std::unique_ptr<SessionStore> store_;  // null without a state directory
  std::unique_ptr<DiskTier> disk_;       // null without a state directory or the prefix cache
  std::unique_ptr<StateKeeper> keeper_;  // null without a state directory
  int64_t kept_running_us_ = 0;
  // Sessions whose state is being read from blocks, by handle.
  struct DiskLoad {
    uint64_t serial = 0;
    BlockMatch match;
    int64_t max_tokens = 0;
    int64_t from = 0;         // tokens in memory before
    int64_t computed = 0;     // tokens in memory now
    int64_t pages_asked = 0;  // in the run being read
    std::function<void()> done;
  };
  std::map<uint64_t, DiskLoad> loads_;
  uint64_t next_load_ = 0;
  // Sessions with file work, by handle; and closed ones whose file is being removed.
  std::multiset<uint64_t> at_work_;
  struct WaitingSave {
    SessionId id;
    bool park = false;
    bool free_now = false;
    Reply reply;
  };
  std::deque<WaitingSave> saves_;
  int64_t save_bytes_ = 0;  // being written by the store
  bool saves_abandoned_ = false;
  std::vector<std::string> not_saved_;  // names, and why the first one failed
  Status not_saved_because_;
  bool store_closed_ = false;
  StepPlanner planner_;

  TurnList queued_;   // waiting for admission, in submission order
  TurnList running_;  // in admission order
  uint64_t next_serial_ = 1;
  bool admitting_ = true;
  std::unique_ptr<OpenStep> long_step_;  // begun but not ended; may be paused
  int64_t slice_end_us_ = 0;             // when the long step must make way for a short one
  std::vector<float> logits_;            // of short steps
  EngineStats stats_;                    // counters; Stats() fills in the gauges

  const std::shared_ptr<EngineView> view_;
  std::vector<SessionId> touched_;
  size_t n_stale_places_ = 0;  // session table entries to check, from next_stale_place_ on
  size_t next_stale_place_ = 0;
  int64_t published_us_ = 0;
  std::vector<std::function<void()>> after_publish_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_ENGINE_CORE_H_
