// The engine: many conversations on one model, advanced together by one thread.
//
// Sessions have a name for the client and a 64-bit handle inside. Every call names its session;
// there is no current or default one. A handle carries its engine and a generation, so a closed or
// foreign one is refused before anything is touched.
//
// Threads: every method may be called from any thread. Read-only calls (FindSession, Inspect,
// ListSessions, Turns, Stats) read the engine's latest published snapshot and never wait. The
// snapshot is at most 20 ms old between steps and as old as the current step during one; it always
// includes the effects of every call that has returned and of every turn whose end was read. Every
// other call posts to the engine's mailbox and waits for the answer, which comes between two steps;
// do not make it from a callback that the engine itself runs. Calls that take `done` do not wait.
//
//   auto engine = Engine::Start(model, {});
//   auto session = (*engine)->CreateSession({.name = "kitchen"});
//   auto turn = (*engine)->Submit(*session, {.tokens = ..., .max_tokens = 100});
//   while (auto event = (*turn)->Next()) { ... }
#ifndef WEFT_ENGINE_H_
#define WEFT_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "weft/events.h"
#include "weft/model.h"
#include "weft/options.h"
#include "weft/prefix_events.h"

namespace weft {

struct SessionId {
  uint64_t value = 0;
  bool operator==(const SessionId&) const = default;
};

enum class SessionState {
  kReady,     // idle, its state in memory (or reduced to tokens)
  kRunning,   // a turn is queued or running
  kParked,    // its state is in the state directory; the next turn restores it
  kPoisoned,  // a forward failed: reset, fork from an earlier point, or close
};
std::string_view NameOf(SessionState state);

struct SessionInfo {
  SessionId id;
  std::string name;
  std::string domain;
  SessionState state = SessionState::kReady;
  int64_t n_tokens = 0;    // the conversation so far
  int64_t n_computed = 0;  // how many of those have their state in memory
  int64_t pages = 0;       // held, including shared ones
  // How many of these pages other sessions hold too, and how many other sessions hold the most
  // widely shared one. Pages held by the prefix cache and the disk tier do not count as shared.
  int64_t shared_pages = 0;
  int64_t shared_with = 0;
  int64_t state_bytes = 0;  // its pages and its slot
  int64_t slot_bytes = 0;   // recurrent state's part of that
  int64_t idle_us = 0;      // since its last turn, across restarts
  bool saved = false;       // the state directory has a file for it
  // Those that its tokens are computed with. Of a session from an earlier start they are known once
  // it is restored.
  std::vector<AdapterScale> adapters = {};
  std::string owner;    // the other server that has it now (InspectShared)
  std::string note;     // what went wrong with it, e.g. a damaged file
  std::string unsaved;  // why its last change could not be written; empty: it could
};

// Counters since the start, and gauges, in one consistent snapshot.
struct EngineStats {
  // gauges
  int64_t sessions_ready = 0, sessions_running = 0, sessions_parked = 0, sessions_poisoned = 0;
  int64_t turns_queued = 0, turns_running = 0;
  int64_t pages_used = 0, pages_in_index = 0, page_budget = 0;
  int64_t pages_evictable = 0;  // those in the index that no session holds
  // The share of the KV cache that sessions hold, from 0 to 1: the other pages can be evicted.
  double kv_usage() const {
    const auto held = static_cast<double>(pages_used - pages_evictable);
    return page_budget == 0 ? 0 : held / static_cast<double>(page_budget);
  }
  int64_t page_tokens = 0;   // 0 without attention
  int64_t token_budget = 0;  // how many tokens' KV cache the memory holds; 0 without attention
  int64_t slots_used = 0, checkpoints = 0;
  // Memory by kind; slots belong to sessions, checkpoints are kept beside them.
  int64_t weight_bytes = 0, page_bytes = 0, slot_bytes = 0, checkpoint_bytes = 0, scratch_bytes = 0;
  int64_t row_bytes = 0;  // vectors in place of tokens; part of the memory for sessions
  int64_t index_nodes = 0;
  int64_t watch_bytes = 0;  // for readers of cached prefixes; not part of the memory for sessions
  int64_t guess_bytes = 0;  // texts searched for guesses; not part of the memory for sessions
  // The draft model's; its state is part of EngineOptions::memory_bytes.
  int64_t draft_weight_bytes = 0, draft_state_bytes = 0, draft_scratch_bytes = 0;
  // counters
  int64_t steps = 0, step_us = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  // Guessed tokens that steps computed, and those that were right (part of generated_tokens).
  int64_t guessed_tokens = 0, accepted_guesses = 0;
  int64_t guesses = 0;  // guesses verified, each of one or more tokens of one answer
  // How many first tokens of a guess were right, how many second ones and so on; ends with the
  // last place at which any was.
  std::vector<int64_t> accepted_guesses_at = {};
  int64_t draft_steps = 0, draft_us = 0;  // the draft model's
  int64_t turns_finished = 0, turns_cancelled = 0, turns_failed = 0, turns_refused = 0;
  int64_t index_evicted_pages = 0, sessions_dropped = 0, parks = 0, restores = 0;
  int64_t evicted_checkpoints = 0;
  int64_t pages_copied = 0, slots_copied = 0, preemptions = 0;
  // The disk tier: gauges, and counters since the start. disk_tokens are part of cached_tokens.
  int64_t save_bytes = 0;          // copies of sessions whose files are being written
  int64_t file_written_bytes = 0;  // to session files
  // Named sessions whose last change could not be written, how often that happened to any, and why
  // it last did (empty if there are none now): without names, for everybody.
  int64_t sessions_unsaved = 0, failed_saves = 0;
  std::string save_problem = {};
  // disk_bytes counts blocks and session files.
  int64_t disk_bytes = 0, disk_file_bytes = 0, disk_budget_bytes = 0, disk_blocks = 0;
  // Blocks, sessions and prompts on their way to disk. 0: everything worth writing is written.
  int64_t disk_pending = 0;
  int64_t disk_tokens = 0, disk_read_bytes = 0, disk_written_bytes = 0;
  // Bytes not written because they were not worth it or the hourly limit was reached.
  int64_t disk_skipped_bytes = 0;
  // Calls that a shared store has not answered, and why the last one failed (empty: it answers).
  int64_t store_errors = 0;
  std::string store_problem = {};
  int64_t disk_evicted_blocks = 0, disk_damaged_blocks = 0, disk_failed_writes = 0;
  int64_t disk_foreign_blocks = 0;  // of other models or KV types, found at the start
  // Time spent in the backend, bytes it read, and its multiply-adds: by quantized weights, by
  // other weights, of attention in floats and in 8-bit values. Zero if not measured.
  int64_t compute_us = 0, matmul_us = 0, attention_us = 0;
  int64_t weight_bytes_read = 0, kv_bytes_read = 0;
  int64_t int8_macs = 0, float_macs = 0, attention_macs = 0, attention_int8_macs = 0;
};

// A queued or running turn.
struct TurnInfo {
  enum class Stage {
    kQueued,   // waits for a place, or for its session's file
    kWaiting,  // waits for other prompts, for a sibling that is computing the same prefix, or for
               // memory
    kReading,  // its prompt is being computed
    kWriting,  // generating
  };
  uint64_t id = 0;  // in order of submission
  SessionId session;
  std::string session_name;  // empty: anonymous
  std::string domain;
  std::string label;  // TurnOptions::label
  Stage stage = Stage::kQueued;
  int64_t prompt_tokens = 0;  // context length when it started
  int64_t cached_tokens = 0;  // prompt tokens not computed for this turn
  int64_t done_tokens = 0;    // prompt tokens done, including cached ones
  // Prompt tokens of other turns that are computed before the next one of this prompt, if nothing
  // shorter arrives; 0 while it is computed itself.
  int64_t waits_behind_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t max_tokens = -1;  // TurnOptions::max_tokens
  int64_t queued_us = 0;    // submission -> first computed row; 0 until there is one
  int64_t prompt_us = 0;    // first computed row -> latest prompt row

  // Average so far; 0 while unknown.
  double PromptTokensPerSecond() const;
  // Time until those before it and the prompt are done at that rate; 0 if unknown.
  double PromptSecondsLeft() const;
};
std::string_view NameOf(TurnInfo::Stage stage);

// What to do with a turn whose session cannot take it now.
struct NamedTurnPolicy {
  enum class Otherwise {
    kRefuse,
    kAnonymous,  // run it on an anonymous session of its own
  };
  // Another turn of the session is queued or running: FAILED_PRECONDITION.
  Otherwise busy = Otherwise::kRefuse;
  // The session is poisoned, its file cannot be read, or it runs with other adapters:
  // FAILED_PRECONDITION.
  Otherwise unusable = Otherwise::kRefuse;
  // The session is new and the limit on sessions is reached: RESOURCE_EXHAUSTED.
  Otherwise full = Otherwise::kRefuse;
  // Before applying `full`, close the least recently used session of the domain that has no file. A
  // session with a file was promised to be found again, so it keeps its place.
  bool close_idle_when_full = true;
};

// One request on a session. One consumer thread reads the events; Cancel may be called from
// anywhere. Dropping the last reference cancels a running turn.
class Turn {
 public:
  virtual ~Turn() = default;

  // Waits for the next event; nullopt after the last.
  virtual std::optional<TurnEvent> Next() = 0;
  // Does not wait: nullopt if there is no event yet; `finished` says whether more can come.
  virtual std::optional<TurnEvent> TryNext(bool* finished) = 0;
  // `ready` is called on the engine thread, with no lock held, whenever the queue of events becomes
  // non-empty. It must do nothing but wake the consumer. Set it before the first Next.
  virtual void SetReadyCallback(std::function<void()> ready) = 0;

  // Ends the turn at the next step boundary, whatever its stage. May be called repeatedly.
  virtual void Cancel() = 0;
  // The answer calls a tool, so the conversation goes on: until its next turn, what it holds in
  // memory is evicted, parked or closed after the conversations that begin in its domain meanwhile
  // (for example those of sub-agents). May be called from anywhere, also after the end.
  virtual void ExpectMore() = 0;
  virtual SessionId session() const = 0;
};

class Executor;

// Work of another kind for the engine thread and its compute threads, such as encoding a picture.
class SideWork {
 public:
  virtual ~SideWork() = default;
  // Computes until it is done (true), or until soon after `pause` returns true (false: it is called
  // again). `executor`: the engine's, whose threads it may share.
  virtual bool Advance(const Executor& executor, const std::function<bool()>& pause) = 0;
  // Whose work it is, for fair shares of the time.
  virtual std::string_view tenant() const { return ""; }
};

// A turn for the session of that name in its domain, and what happens if that one cannot run it.
struct NamedTurnRequest {
  SessionOptions session = {};
  TurnOptions turn = {};
  NamedTurnPolicy policy = {};
};
// A turn, and where it runs.
struct NamedTurn {
  std::shared_ptr<Turn> turn;
  bool is_anonymous = false;  // true: not on the named session
};

class Engine {
 public:
  // Builds the backend's executor, runs a warm-up step that leaves nothing behind, and starts the
  // engine thread. On failure nothing runs.
  static absl::StatusOr<std::unique_ptr<Engine>> Start(std::shared_ptr<const Model> model,
                                                       const EngineOptions& options);
  virtual ~Engine() = default;  // same as Shutdown(0)

  virtual const Model& model() const = 0;
  virtual const EngineOptions& options() const = 0;

  // --- sessions -----------------------------------------------------------------
  // ALREADY_EXISTS if the domain has a session of that name (in memory or parked).
  virtual absl::StatusOr<SessionId> CreateSession(const SessionOptions& options) = 0;
  // Finds a session by name, parked ones too. NOT_FOUND otherwise.
  virtual absl::StatusOr<SessionId> FindSession(std::string_view domain, std::string_view name) = 0;
  // Fork, Truncate and Tokens restore a parked session first; calls on a session whose file is
  // being written wait until it is done.
  //
  // Fork creates a session that holds the first `position` tokens (-1: all). It shares pages;
  // nothing is copied until one of the sessions writes. A poisoned session can only be forked at
  // positions before the failure.
  virtual absl::StatusOr<SessionId> Fork(SessionId session, int64_t position,
                                         const SessionOptions& options) = 0;
  // Discards everything after the first `position` tokens.
  virtual absl::Status Truncate(SessionId session, int64_t position) = 0;
  virtual absl::Status Reset(SessionId session) = 0;  // empties it; heals a poisoned one
  virtual absl::Status Rename(SessionId session, const std::string& name) = 0;
  // Writes the session to the state directory and frees its memory. When it returns OK, the session
  // is on disk. FAILED_PRECONDITION while a turn runs.
  virtual absl::Status Park(SessionId session) = 0;
  // Loads a parked session's state; its next turn would do so anyway.
  virtual absl::Status Restore(SessionId session) = 0;
  // Writes the session to the state directory and keeps it in memory.
  virtual absl::Status Save(SessionId session) = 0;
  // Cancels the session's turn and frees its memory. With `forget` its file is removed too;
  // without, a saved session can still be found by its name, as it was after its last turn. The
  // handle is invalid when this returns; if the file could not be removed, the session is listed as
  // parked.
  virtual absl::Status Close(SessionId session, bool forget) = 0;

  // Closes the named sessions that have been idle for at least `idle`, and removes their files: in
  // one domain, or in all (nullopt). Running sessions stay. Returns how many were closed.
  virtual absl::StatusOr<int64_t> CloseIdle(const std::optional<std::string>& domain,
                                            std::chrono::microseconds idle) = 0;

  virtual absl::StatusOr<SessionInfo> Inspect(SessionId session) = 0;
  // A row appears as kRowToken.
  virtual absl::StatusOr<std::vector<int32_t>> Tokens(SessionId session) = 0;
  // The sessions of one domain, including parked ones.
  virtual absl::StatusOr<std::vector<SessionInfo>> ListSessions(std::string_view domain) = 0;

  // --- turns --------------------------------------------------------------------
  // INVALID_ARGUMENT, FAILED_PRECONDITION (the session runs, or is poisoned),
  // RESOURCE_EXHAUSTED (queue full), OUT_OF_RANGE (longer than the context).
  virtual absl::StatusOr<std::shared_ptr<Turn>> Submit(SessionId session,
                                                       const TurnOptions& options) = 0;
  // Runs a turn on its own anonymous session, which is closed afterwards.
  virtual absl::StatusOr<std::shared_ptr<Turn>> SubmitOnce(std::string_view domain,
                                                           const TurnOptions& options) = 0;

  // Runs a turn on the named session, in one message to the engine. The session is created if there
  // is none, restored if it is parked, and its tokens are matched with the turn's as in Submit. A
  // refused turn leaves no new session behind. With an empty `session.name`, same as SubmitOnce.
  virtual absl::StatusOr<NamedTurn> SubmitNamed(const SessionOptions& session,
                                                const TurnOptions& options,
                                                const NamedTurnPolicy& policy) = 0;
  // Running turns in order of admission, then queued ones.
  virtual std::vector<TurnInfo> Turns() = 0;

  // --- without waiting ------------------------------------------------------------
  // The same calls for programs that hold no thread per request: they return at once, and `done`
  // is called with the answer, on the engine thread, or on the caller's if the engine has shut
  // down. It must do nothing but wake somebody or copy.
  template <typename T>
  using Done = std::function<void(T)>;

  virtual void CreateSession(const SessionOptions& options,
                             Done<absl::StatusOr<SessionId>> done) = 0;
  // FindSession that looks in the shared store, too, and takes the session from there. NOT_FOUND if
  // neither has it; for the rest see TroubleOf.
  virtual void FindShared(const SessionOptions& session, Done<absl::StatusOr<SessionId>> done) = 0;
  // Inspect by name, and of a shared store what that has, without taking the session.
  virtual void InspectShared(const SessionOptions& session,
                             Done<absl::StatusOr<SessionInfo>> done) = 0;
  // Puts what the session has into the shared store, gives the session up there and closes it here:
  // the next server that is asked goes on with it. FAILED_PRECONDITION while a turn runs, or
  // without a shared store.
  virtual void Release(SessionId session, Done<absl::Status> done) = 0;
  virtual void Fork(SessionId session, int64_t position, const SessionOptions& options,
                    Done<absl::StatusOr<SessionId>> done) = 0;
  virtual void Reset(SessionId session, Done<absl::Status> done) = 0;
  virtual void Park(SessionId session, Done<absl::Status> done) = 0;
  virtual void Restore(SessionId session, Done<absl::Status> done) = 0;
  virtual void Close(SessionId session, bool forget, Done<absl::Status> done) = 0;
  virtual void CloseIdle(const std::optional<std::string>& domain, std::chrono::microseconds idle,
                         Done<absl::StatusOr<int64_t>> done) = 0;
  // Parks the named sessions of all domains that no turn uses, and answers when they are on disk,
  // with their number. Without a state directory they stay in memory; with a shared store they are
  // released.
  virtual void ParkIdle(Done<absl::StatusOr<int64_t>> done) = 0;
  virtual void Tokens(SessionId session, Done<absl::StatusOr<std::vector<int32_t>>> done) = 0;
  // The turn moves into the engine: its prompt is not copied.
  virtual void SubmitNamed(NamedTurnRequest request, Done<absl::StatusOr<NamedTurn>> done) = 0;
  // Whether a turn of the tenant (TurnOptions::tenant) would be queued now, for callers with work
  // to do before they submit it. RESOURCE_EXHAUSTED if not: counted as a refused turn.
  virtual void CheckQueue(std::string_view tenant, Done<absl::Status> done) = 0;

  // Queues work that is done in pieces of about EngineOptions::step_ms, between steps, so that
  // decoding sessions wait no longer than for a piece of a prompt. Tenants take turns. It is
  // destroyed when it is done, or undone when the engine shuts down.
  virtual void RunBeside(std::shared_ptr<SideWork> work) = 0;

  // The cached prefixes of the domain's sessions with these adapters: all there are, then the
  // changes. `changed` is called when there is something to take, on the engine's thread; it must
  // do nothing but wake somebody. Both may outlive the engine. Costs nothing once the feed is gone.
  virtual std::shared_ptr<PrefixFeed> WatchPrefixes(std::string_view domain,
                                                    std::vector<AdapterScale> adapters,
                                                    std::function<void()> changed) = 0;

  // --- the engine as a whole ---------------------------------------------------------
  virtual EngineStats Stats() = 0;
  // Turns without a place after the last step. Does not wait for the engine.
  virtual int64_t TurnsWaiting() const = 0;
  // Cross-checks all counts of pages, index and sessions.
  virtual absl::Status CheckIntegrity() = 0;
  // Drops every cached prefix that no session holds.
  virtual absl::Status DropPrefixes() = 0;

  // Stops admitting turns, lets running ones finish until the deadline, cuts off the rest, parks
  // named sessions if there is a state directory, and wakes every waiter.
  virtual absl::Status Shutdown(std::chrono::milliseconds grace) = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_H_
