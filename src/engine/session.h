// A conversation as the engine holds it. Engine thread only.
#ifndef WEFT_ENGINE_SESSION_H_
#define WEFT_ENGINE_SESSION_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/tokens.h"
#include "state/page_pool.h"
#include "state/page_table.h"
#include "state/session_file.h"
#include "weft/engine.h"

namespace weft {

struct ActiveTurn;

struct Session {
  SessionId id;
  std::string name;
  std::string domain;
  SessionState state = SessionState::kReady;
  bool counted = true;  // false: it goes with its turn

  // Everything said so far. The state of the first `computed` tokens lies in the
  // tables (each of exactly that many positions) and the slot; the rest is computed
  // by the next turn.
  std::vector<TokenId> tokens;
  int64_t computed = 0;
  // From StateMemory::Prepare to Commit more than `computed`: the tables have room for so
  // many, and the slot is after none of both once the backend has touched it.
  int64_t prepared = 0;
  std::vector<PageTable> tables;  // one per layer group; empty until first used
  // Of models with recurrent state, once something is computed. Shared, as pages are,
  // with forks and with the prefix index, and copied before it is written.
  PoolRef slot;
  // How much of the state the prefix index holds already.
  int64_t indexed = 0;
  // Positions of the running turn at which a checkpoint is kept, beside the regular ones;
  // and the last one that only marks how far the turn has come, 0 if there is none.
  std::vector<int64_t> checkpoints_wanted;
  int64_t tail_checkpoint = 0;

  // When poisoned: the positions before are sound, a fork may start there.
  int64_t sound_tokens = 0;
  std::string note;  // what a user should know of it, e.g. a damaged file

  // Tokens of the conversation, wherever they lie.
  int64_t n_tokens() const {
    return state == SessionState::kParked ? saved_tokens : static_cast<int64_t>(tokens.size());
  }

  // The published view of it is of before its last change; what it shows of sharing.
  bool is_touched = false;
  int64_t published_shared_pages = 0, published_shared_with = 0;
  // Where it is among those that nobody uses, and whether that is to be worked out anew.
  // IdleSessions alone writes and reads these.
  struct IdlePlace {
    unsigned orders = 0;
    int64_t used_us = 0;
    bool operator==(const IdlePlace&) const = default;
  } idle_place;
  bool is_noted = false;

  ActiveTurn* turn = nullptr;  // the one that is queued or running
  // A long step has it, paused or not: tokens, tables and slot stay as they are until the
  // step has ended.
  bool in_step = false;
  // A file is being read or written for it: no turn starts, and calls that need its
  // file wait until that is done.
  bool file_work = false;
  bool restoring = false;  // the work is a restore: it stays parked until then
  std::vector<std::function<void()>> after_file_work;
  // The state directory has a file of it that somebody counts on, with this many tokens.
  // While the session is parked its tokens are there alone.
  bool saved = false;
  int64_t saved_tokens = 0;
  // Beside that its tokens are written whenever they changed, without being asked. How often
  // they changed, which of these versions the file has, and how many writes are under way.
  bool kept = false;
  uint64_t changes = 0;
  uint64_t kept_version = 0;
  int keeps_under_way = 0;
  bool keep_again = false;
  // The recurrent state that was kept last, which the next one replaces.
  std::optional<Fingerprint> kept_slot;
  // Up to where the running turn's state is kept.
  int64_t kept_tokens = 0;
  // Tokens whose state came from the disk, until a turn has told its client.
  int64_t from_disk = 0;
  // It only holds state that is on its way to the disk.
  bool holds_for_disk = false;
  bool has_file() const { return saved || kept || keeps_under_way > 0; }
  int64_t last_used_us = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_SESSION_H_
