// The engine: many conversations on one model, advanced together by one thread.
//
// Sessions are values with a name for the client and a 64-bit handle inside. Every
// call names its session; there is no current or default one. A handle carries its
// engine and a generation, so a closed or foreign one is refused before anything is
// touched.
//
// Threads: every method may be called from any thread. What only looks (FindSession,
// Inspect, ListSessions, Turns, Stats) reads what the engine published last and never waits
// for it: that is at most 20 ms old while steps follow each other, as old as the step while
// one runs, and always holds what every call that has returned, and every turn whose end was
// read, left behind. Every other call posts to the engine's mailbox and waits for the answer,
// which comes between two steps; it must not be made from inside a callback that the engine
// itself runs.
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

namespace weft {

struct SessionId {
  uint64_t value = 0;
  bool operator==(const SessionId&) const = default;
};

enum class SessionState {
  kReady,     // idle, its state in memory (or droppable to tokens)
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
  int64_t n_tokens = 0;    // what was said so far
  int64_t n_computed = 0;  // of those, whose state is in memory
  int64_t pages = 0;       // held, shared ones included
  // Of these, pages that other sessions hold too, and how many hold the one that most hold.
  // What the prefix cache and the disk tier keep counts as nobody's.
  int64_t shared_pages = 0;
  int64_t shared_with = 0;
  int64_t state_bytes = 0;  // of the pages and the slot it holds
  int64_t slot_bytes = 0;   // of that, recurrent state
  int64_t idle_us = 0;      // since its last turn, also across restarts
  bool saved = false;       // the state directory has a file of it
  std::string note;         // what went wrong with it, e.g. a damaged file
};

// Counters since the start, and gauges. One consistent snapshot.
struct EngineStats {
  // gauges
  int64_t sessions_ready = 0, sessions_running = 0, sessions_parked = 0, sessions_poisoned = 0;
  int64_t turns_queued = 0, turns_running = 0;
  int64_t pages_used = 0, pages_in_index = 0, page_budget = 0;
  int64_t slots_used = 0, checkpoints = 0;
  // Memory by kind; slots are those of sessions, checkpoints what is kept beside them.
  int64_t weight_bytes = 0, page_bytes = 0, slot_bytes = 0, checkpoint_bytes = 0, scratch_bytes = 0;
  int64_t index_nodes = 0;
  // counters
  int64_t steps = 0, step_us = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  int64_t turns_finished = 0, turns_cancelled = 0, turns_failed = 0, turns_refused = 0;
  int64_t index_evicted_pages = 0, sessions_dropped = 0, parks = 0, restores = 0;
  int64_t evicted_checkpoints = 0;
  int64_t pages_copied = 0, slots_copied = 0, preemptions = 0;
  // The disk tier: gauges, and counters since the start. disk_tokens are a part of cached_tokens.
  int64_t save_bytes = 0;  // of copies of sessions whose files are being written
  int64_t disk_bytes = 0, disk_budget_bytes = 0, disk_blocks = 0;
  // What is on its way there: blocks, sessions and prompts. 0: all is written that will be.
  int64_t disk_pending = 0;
  int64_t disk_tokens = 0, disk_read_bytes = 0, disk_written_bytes = 0;
  // Bytes that were not written, for want of worth or because an hour had had its share.
  int64_t disk_skipped_bytes = 0;
  int64_t disk_evicted_blocks = 0, disk_damaged_blocks = 0, disk_failed_writes = 0;
  // where the backend's time went, and what it had to read; zero where not measured
  int64_t compute_us = 0, matmul_us = 0, attention_us = 0;
  int64_t weight_bytes_read = 0, kv_bytes_read = 0;
};

// A turn that waits or runs.
struct TurnInfo {
  enum class Stage {
    kQueued,   // for a place, or for its session's file
    kWaiting,  // for a sibling that computes the same prefix, or for memory
    kReading,  // its prompt is computed
    kWriting,  // it samples
  };
  uint64_t id = 0;  // in order of submission
  SessionId session;
  std::string session_name;  // empty: anonymous
  std::string domain;
  std::string label;  // TurnOptions::label
  Stage stage = Stage::kQueued;
  int64_t prompt_tokens = 0;  // length of the context at its start
  int64_t cached_tokens = 0;  // of those, not computed for this turn
  int64_t done_tokens = 0;    // of the prompt, cached ones included
  int64_t generated_tokens = 0;
  int64_t max_tokens = -1;  // TurnOptions::max_tokens
  int64_t queued_us = 0;    // submitted -> first computed row; 0 until there is one
  int64_t prompt_us = 0;    // first computed row -> last one of the prompt so far

  // Of the prompt, so far; 0 while nothing is known.
  double PromptTokensPerSecond() const;
  // Until the prompt is in, at that rate; 0 where that cannot be told.
  double PromptSecondsLeft() const;
};
std::string_view NameOf(TurnInfo::Stage stage);

// What becomes of a turn whose session cannot take it now.
struct NamedTurnPolicy {
  enum class Otherwise {
    kRefuse,
    kAnonymous,  // it runs on an anonymous session of its own
  };
  // Another turn of it waits or runs: FAILED_PRECONDITION.
  Otherwise busy = Otherwise::kRefuse;
  // It is poisoned, or its file cannot be read: FAILED_PRECONDITION.
  Otherwise unusable = Otherwise::kRefuse;
  // It is new and there are as many sessions as may be: RESOURCE_EXHAUSTED.
  Otherwise full = Otherwise::kRefuse;
  // Before that, the session of the same domain that was not used for longest is closed,
  // unless it has a file: one that was promised to be found again keeps its place.
  bool close_idle_when_full = true;
};

// One request on a session. Events are read by one consumer thread; Cancel may come
// from anywhere. Dropping the last reference cancels what still runs.
class Turn {
 public:
  virtual ~Turn() = default;

  // The next event, waiting for it; nullopt after the last.
  virtual std::optional<TurnEvent> Next() = 0;
  // The same without waiting: nullopt when there is none yet; `finished` tells
  // whether more can come.
  virtual std::optional<TurnEvent> TryNext(bool* finished) = 0;
  // `ready` is called, on the engine thread and without a lock held, whenever
  // events come to be available after there were none. It must only wake the
  // consumer. Set it before the first Next.
  virtual void SetReadyCallback(std::function<void()> ready) = 0;

  // Ends the turn at the next step boundary, wherever it is. Any number of times.
  virtual void Cancel() = 0;
  virtual SessionId session() const = 0;
};

// A turn, and where it runs.
struct NamedTurn {
  std::shared_ptr<Turn> turn;
  bool is_anonymous = false;  // not on the session that was named
};

class Engine {
 public:
  // Builds the backend's executor, runs a warm-up step that leaves nothing behind,
  // and starts the engine thread. On failure nothing runs.
  static absl::StatusOr<std::unique_ptr<Engine>> Start(std::shared_ptr<const Model> model,
                                                       const EngineOptions& options);
  virtual ~Engine() = default;  // as Shutdown(0)

  virtual const Model& model() const = 0;
  virtual const EngineOptions& options() const = 0;

  // --- sessions -----------------------------------------------------------------
  // ALREADY_EXISTS when the domain has a session of that name (in memory or parked).
  virtual absl::StatusOr<SessionId> CreateSession(const SessionOptions& options) = 0;
  // The session of that name; a parked one is found too. NOT_FOUND otherwise.
  virtual absl::StatusOr<SessionId> FindSession(std::string_view domain, std::string_view name) = 0;
  // Fork, Truncate and Tokens bring a parked session back first; calls on a session
  // whose file is just being written wait for that.
  //
  // A new session that holds the first `position` tokens (-1: all). Shares pages;
  // copies nothing until somebody writes. From a poisoned session only positions
  // before the failure can be taken.
  virtual absl::StatusOr<SessionId> Fork(SessionId session, int64_t position,
                                         const SessionOptions& options) = 0;
  // Forgets everything after the first `position` tokens.
  virtual absl::Status Truncate(SessionId session, int64_t position) = 0;
  virtual absl::Status Reset(SessionId session) = 0;  // as new; heals a poisoned one
  virtual absl::Status Rename(SessionId session, const std::string& name) = 0;
  // Writes the session to the state directory and frees its memory. Acknowledged
  // means on disk. FAILED_PRECONDITION while a turn runs.
  virtual absl::Status Park(SessionId session) = 0;
  // Brings a parked session's state back; the next turn does so by itself.
  virtual absl::Status Restore(SessionId session) = 0;
  // Writes the session to the state directory and keeps it in memory.
  virtual absl::Status Save(SessionId session) = 0;
  // Cancels its turn and frees its memory. With `forget` its file goes too; without,
  // a saved session can be found again by its name, as it was at its last turn's end. The
  // handle is dead when this returns; where the file could not be removed, the session is
  // listed as a parked one.
  virtual absl::Status Close(SessionId session, bool forget) = 0;

  // Closes the named sessions that have not been used for so long, their files too: of
  // one domain, or of all (nullopt). Those that run stay. How many there were.
  virtual absl::StatusOr<int64_t> CloseIdle(const std::optional<std::string>& domain,
                                            std::chrono::microseconds idle) = 0;

  virtual absl::StatusOr<SessionInfo> Inspect(SessionId session) = 0;
  virtual absl::StatusOr<std::vector<int32_t>> Tokens(SessionId session) = 0;
  // Of one domain, parked ones included.
  virtual absl::StatusOr<std::vector<SessionInfo>> ListSessions(std::string_view domain) = 0;

  // --- turns --------------------------------------------------------------------
  // INVALID_ARGUMENT, FAILED_PRECONDITION (the session runs, or is poisoned),
  // RESOURCE_EXHAUSTED (queue full), OUT_OF_RANGE (longer than the context).
  virtual absl::StatusOr<std::shared_ptr<Turn>> Submit(SessionId session,
                                                       const TurnOptions& options) = 0;
  // A turn on an anonymous session of its own, which is closed with it.
  virtual absl::StatusOr<std::shared_ptr<Turn>> SubmitOnce(std::string_view domain,
                                                           const TurnOptions& options) = 0;

  // A turn on the session of that name, in one message to the engine: the session is made
  // when there is none and brought back when it is parked, and what it holds is matched with
  // the turn's tokens as by Submit. A turn that is refused leaves no new session behind.
  // `session.name` empty: as SubmitOnce.
  virtual absl::StatusOr<NamedTurn> SubmitNamed(const SessionOptions& session,
                                                const TurnOptions& options,
                                                const NamedTurnPolicy& policy) = 0;
  // Those that run, in order of admission, then those that wait.
  virtual std::vector<TurnInfo> Turns() = 0;

  // --- the whole ----------------------------------------------------------------
  virtual EngineStats Stats() = 0;
  // Turns for which there was no place after the last step. Does not wait for the engine.
  virtual int64_t TurnsWaiting() const = 0;
  // Checks every count of pages, index and sessions against each other.
  virtual absl::Status CheckIntegrity() = 0;
  // Forgets every cached prefix that no session holds.
  virtual absl::Status DropPrefixes() = 0;

  // Stops admitting, lets running turns finish until the deadline, cuts the rest,
  // parks named sessions when there is a state directory, wakes every waiter.
  virtual absl::Status Shutdown(std::chrono::milliseconds grace) = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_H_
