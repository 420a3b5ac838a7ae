// Brings what was computed to the disk, in the background: the tokens of named sessions at
// once, whenever they changed, and the blocks of their state and of prompts worth it as the
// pace allows. So a process that dies loses no conversation, and computes little again.
//
// A block is copied out of the engine's memory between two steps, a few at a time. Until its
// turn comes the state is held by a session of its own that shares the pages; where memory is
// short that is given up first. Engine thread only.
#ifndef WEFT_ENGINE_STATE_KEEPER_H_
#define WEFT_ENGINE_STATE_KEEPER_H_

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
#include "engine/disk_tier.h"
#include "engine/session_store.h"
#include "engine/session_table.h"
#include "engine/state_memory.h"

namespace weft {

class StateKeeper {
 public:
  // `disk` may be null: then tokens alone are kept. All must outlive the object; what `store`
  // answers after it is ignored. `touched` is called with sessions whose description changed.
  StateKeeper(StateMemory* memory, SessionTable* sessions, SessionStore* store, DiskTier* disk,
              std::function<void(Session*)> touched)
      : memory_(memory),
        sessions_(sessions),
        store_(store),
        disk_(disk),
        touched_(std::move(touched)) {}

  // A session with a name changed, and no turn of it runs.
  void KeepSession(Session* session);
  // The state of the first `n_tokens` is worth keeping, at most of those computed.
  void KeepState(Session* session, int64_t n_tokens);
  // It changes, or goes: what was not written yet is not written any more.
  void Forget(Session* session);
  // Its file is to hold just these tokens. Written in order with everything else of it.
  void WriteTokens(Session* session, std::vector<TokenId> tokens,
                   std::function<void(const Status&)> done);

  // Copies what the pace allows now. True if that was anything.
  bool Pump();
  // When there may be more to do, in the time of NowMicros, if that needs no answer.
  std::optional<int64_t> NextWake() const;
  // Lets go of all that is held. False: that was nothing.
  bool ReleaseMemory();

  // Sessions and prompts whose state is not all handed over, and tokens not yet written.
  int64_t pending() const { return static_cast<int64_t>(jobs_.size()) + token_writes_; }
  bool writes_tokens() const { return token_writes_ > 0; }
  // Whether the disk has all of an idle session.
  bool IsKept(const Session& session) const;

 private:
  struct Job {
    uint64_t number = 0;  // in jobs_
    SessionId owner;
    bool named = false;
    std::string domain;
    SessionId holder;  // value 0: it let go; a named session's next try takes it anew
    int64_t n_tokens = 0;
    int64_t next_entry = 0;
    Fingerprint parent;
    std::optional<std::vector<PrefixIndex::Checkpoint>> slots;  // those still to be written
  };
  enum class Progress { kCopied, kLater, kDone };

  Job* JobOf(SessionId owner);
  Job* NewJob(SessionId owner);
  void EndJob(Job* job);
  void Hold(const Session& session, int64_t n_tokens, Job* job);
  void LetGo(Job* job);
  Session* HolderOf(Job* job);
  Progress Advance(Job* job);
  Progress KeepPage(Job* job, const Session& holder);
  Progress KeepSlot(Job* job, const Session& holder);
  Progress KeepBlock(const Job& job, BlockInfo info,
                     const std::function<StatusOr<std::vector<std::byte>>()>& read);
  std::optional<Fingerprint> ExchangeKeptSlot(Session* session,
                                              const std::optional<Fingerprint>& key);
  void SetKeptSlot(Session* session, const Fingerprint& key);
  void FinishTokens(SessionId id, uint64_t version, const Status& status);

  StateMemory* const memory_;
  SessionTable* const sessions_;
  SessionStore* const store_;
  DiskTier* const disk_;
  const std::function<void(Session*)> touched_;
  // In order of arrival; by whose they are; those of prompts, and those that hold memory.
  std::map<uint64_t, Job> jobs_;
  uint64_t next_job_ = 0;
  std::unordered_map<uint64_t, uint64_t> job_of_;
  std::set<uint64_t> of_prompts_;
  std::set<uint64_t> holding_;
  int64_t token_writes_ = 0;
  // How many sessions have that recurrent state as their last.
  std::map<std::pair<uint64_t, uint64_t>, int> kept_slots_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_STATE_KEEPER_H_
