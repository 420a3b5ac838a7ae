// Writes computed state to disk in the background: tokens of named sessions immediately after each
// change, and blocks of their state and of worthwhile prompts as the write rate allows. So a crash
// loses no conversation and little computation.
//
// Blocks are copied out of the engine's memory between two steps, a few at a time. Until its turn
// comes, the state is held by a separate session that shares the pages; if memory is short, that is
// released first. Engine thread only.
#ifndef WEFT_ENGINE_STORAGE_STATE_KEEPER_H_
#define WEFT_ENGINE_STORAGE_STATE_KEEPER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/sessions/session_table.h"
#include "engine/sessions/state_memory.h"
#include "engine/storage/disk_tier.h"
#include "engine/storage/session_store.h"

namespace weft {

class StateKeeper {
 public:
  // `disk` may be null: then only tokens are kept. All must outlive the object; answers from
  // `store` after its destruction are ignored. `touched` is called with sessions whose description
  // changed, `notice`, which may be empty, with sentences for the operator.
  StateKeeper(StateMemory* memory, SessionTable* sessions, SessionStore* store, DiskTier* disk,
              std::function<void(Session*)> touched, std::function<void(const std::string&)> notice)
      : memory_(memory),
        sessions_(sessions),
        store_(store),
        disk_(disk),
        touched_(std::move(touched)),
        notice_(std::move(notice)) {}

  // A named session changed and has no running turn. `then`, if given, is called once its tokens
  // are on disk, or cannot be; at once if they are. Without it, changes in quick succession are one
  // write.
  void KeepSession(Session* session, std::function<void()> then = nullptr);
  // The state of the first `n_tokens`, as far as it is computed, is worth keeping.
  void KeepState(Session* session, int64_t n_tokens);
  // The session changes or goes away: unwritten state is dropped.
  void Forget(Session* session);
  // Makes the session's file hold exactly these tokens, in order with its other writes. `is_new`:
  // in a shared store, which must not have the session yet.
  void WriteTokens(Session* session, History tokens, std::function<void(const Status&)> done,
                   bool is_new = false);

  // How a write of a session's current tokens ended. What could not be written is tried again now
  // and then, and as soon as another write succeeds.
  void NoteSave(Session* session, const Status& status);

  // Copies as much as the write rate allows now. True if that was anything.
  bool Pump();
  // When there may be more to do, in NowMicros time; none if that depends on an answer.
  std::optional<int64_t> NextWake() const;
  // Runs `then` once the session's state is in blocks, as far as it will be.
  void WhenStateIsWritten(SessionId owner, std::function<void()> then);
  // Nothing will be copied any more: runs the callbacks that wait for that.
  void StopWaiting();
  // Releases all held state. False if there was none.
  bool ReleaseMemory();

  // Sessions and prompts whose state is not all handed over, and tokens not yet written.
  int64_t pending() const { return static_cast<int64_t>(jobs_.size()) + token_writes_; }
  void FillStats(EngineStats* stats);
  // Whether all of an idle session is on disk.
  bool IsKept(const Session& session) const;

 private:
  struct Job {
    uint64_t number = 0;  // key in jobs_
    SessionId owner;
    bool named = false;
    std::string domain;
    SessionId holder;  // value 0: released; a named session's next attempt takes a new one
    int64_t n_tokens = 0;
    int64_t next_entry = 0;
    Fingerprint parent;
    std::optional<std::vector<PrefixIndex::Checkpoint>> slots;  // still to be written
    std::vector<std::function<void()>> waiting;                 // for its end
  };
  using Progress = DiskTier::Answer;  // kNo: there is no more to copy

  Job* JobOf(SessionId owner);
  Job* NewJob(SessionId owner);
  std::map<uint64_t, Job>::iterator FirstJob(bool named);
  void EndJob(Job* job);
  void Hold(const Session& session, int64_t n_tokens, Job* job);
  void LetGo(Job* job);
  Session* HolderOf(Job* job);
  Progress Advance(Job* job);
  Progress KeepPage(Job* job, const Session& holder);
  Progress KeepSlot(Job* job, const Session& holder);
  std::optional<Fingerprint> ExchangeKeptSlot(Session* session,
                                              const std::optional<Fingerprint>& key);
  void SetKeptSlot(Session* session, const Fingerprint& key);
  void RetryUnsaved();
  void FinishTokens(SessionId id, uint64_t version, const Status& status);

  StateMemory* const memory_;
  SessionTable* const sessions_;
  SessionStore* const store_;
  DiskTier* const disk_;
  const std::function<void(Session*)> touched_;
  const std::function<void(const std::string&)> notice_;
  // In order of arrival, and by owner.
  std::map<uint64_t, Job> jobs_;
  uint64_t next_job_ = 0;
  std::unordered_map<uint64_t, uint64_t> job_of_;
  int64_t pumped_us_ = 0;
  bool stopped_waiting_ = false;
  int64_t token_writes_ = 0;
  // Sessions whose last change could not be written, and the one that was last tried again.
  std::set<uint64_t> unsaved_;
  uint64_t retried_ = 0;
  int64_t retry_us_ = 0;
  int64_t failed_saves_ = 0;
  std::string save_problem_;
  // How many sessions have each recurrent state as their last.
  std::map<std::pair<uint64_t, uint64_t>, int> kept_slots_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_STORAGE_STATE_KEEPER_H_
