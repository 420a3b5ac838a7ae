// Reads the computed state of sessions from blocks on disk, run by run, while other sessions go on.
// Engine thread only.
#ifndef WEFT_ENGINE_STORAGE_STATE_LOADER_H_
#define WEFT_ENGINE_STORAGE_STATE_LOADER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/sessions/publisher.h"
#include "engine/sessions/session_table.h"
#include "engine/sessions/state_memory.h"
#include "engine/storage/disk_tier.h"
#include "engine/storage/file_works.h"
#include "engine/storage/shared_blocks.h"

namespace weft {

class StateLoader {
 public:
  // All must outlive the object. `make_room` takes memory from somebody; false if nobody can give.
  // `shared` may be null.
  StateLoader(StateMemory* memory, const SessionTable* sessions, Publisher* publisher,
              FileWorks* works, DiskTier* disk, SharedBlocks* shared,
              std::function<bool()> make_room)
      : memory_(memory),
        sessions_(*sessions),
        publisher_(publisher),
        works_(works),
        disk_(disk),
        shared_(shared),
        make_room_(std::move(make_room)) {}

  // Starts reading state from disk, and what a shared store has more of it, beyond the session's
  // own, up to `max_tokens` of its tokens;
  // calls `done` once it is in memory or has turned out to be unavailable. False, without calling
  // `done`, if there is nothing. REQUIRES: no file work for the session.
  bool Start(Session* session, int64_t max_tokens, std::function<void()> done);
  // Stops reading; `done` is not called. Does nothing if nothing is being read.
  void Abandon(Session* session);

 private:
  struct Load {
    uint64_t serial = 0;
    BlockMatch match;
    std::string domain;  // the match's
    int64_t max_tokens = 0;
    int64_t from = 0;         // tokens in memory before
    int64_t computed = 0;     // tokens in memory now
    int64_t pages_asked = 0;  // in the run being read
    std::function<void()> done;
  };

  // Lets the store bring to the disk what that lacks. False if it has nothing that is worth it.
  bool Fetch(const Session& session, const Load& load);
  void ReadFetched(SessionId id);
  // Finds the longest prefix on disk.
  void Match(const Session& session, Load* load) const;
  void ReadRun(SessionId id);
  void TakeRun(SessionId id, std::vector<DiskTier::Loaded> blocks, size_t n_asked,
               const Status& read);
  Status Append(Session* session, Load* load, std::vector<DiskTier::Loaded> blocks, bool whole);
  void TryWithoutDamage(Session* session, Load* load);
  void End(SessionId id);

  StateMemory* const memory_;
  const SessionTable& sessions_;
  Publisher* const publisher_;
  FileWorks* const works_;
  DiskTier* const disk_;
  SharedBlocks* const shared_;
  const std::function<bool()> make_room_;
  std::map<uint64_t, Load> loads_;  // by handle
  uint64_t next_load_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_STORAGE_STATE_LOADER_H_
