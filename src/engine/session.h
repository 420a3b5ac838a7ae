// A conversation inside the engine. Engine thread only.
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
  bool counted = true;  // false: it is destroyed with its turn

  // The whole conversation. The state of the first `computed` tokens is in the tables (each covers
  // exactly that many positions) and the slot; the next turn computes the rest.
  std::vector<TokenId> tokens;
  int64_t computed = 0;
  // Between StateMemory::Prepare and Commit this exceeds `computed`: the tables have room for that
  // many tokens and, once the backend has touched it, the slot matches neither position.
  int64_t prepared = 0;
  std::vector<PageTable> tables;  // one per layer group; empty until first used
  // Models with recurrent state only, once something is computed. Shared with forks and the prefix
  // index, like pages, and copied before writing.
  PoolRef slot;
  // How many tokens' state the prefix index already holds.
  int64_t indexed = 0;
  // Positions of the latest turn at which others are likely to start, at which to keep a checkpoint
  // in addition to the regular ones; and the last one that only marks the turn's progress (0:
  // none).
  std::vector<int64_t> checkpoints_wanted;
  int64_t tail_checkpoint = 0;

  // If poisoned: the positions before this are sound; a fork may start there.
  int64_t sound_tokens = 0;
  std::string note;  // for the user, e.g. about a damaged file

  // Tokens of the conversation, in memory or on disk.
  int64_t n_tokens() const {
    return state == SessionState::kParked ? saved_tokens : static_cast<int64_t>(tokens.size());
  }

  // The published view predates its last change; and what the view says about sharing.
  bool is_touched = false;
  int64_t published_shared_pages = 0, published_shared_with = 0;
  // Its place among the idle sessions, and whether that is out of date. Accessed by IdleSessions
  // only.
  struct IdlePlace {
    unsigned orders = 0;
    int64_t used_us = 0;
    bool operator==(const IdlePlace&) const = default;
  } idle_place;
  bool is_noted = false;

  ActiveTurn* turn = nullptr;  // queued or running
  // Part of a long step, paused or not: tokens, tables and slot must not change until the step has
  // ended.
  bool in_step = false;
  // A file is being read or written for it: no turn starts, and calls that need the file wait.
  bool file_work = false;
  bool restoring = false;  // the file work is a restore; it stays parked until then
  std::vector<std::function<void()>> after_file_work;
  // The state directory has a file that someone relies on, with this many tokens. While the session
  // is parked, its tokens exist only there.
  bool saved = false;
  int64_t saved_tokens = 0;
  // Independently of that, tokens are written automatically whenever they change. How often they
  // changed, which of these versions the file has, and how many writes are in flight.
  bool kept = false;
  uint64_t changes = 0;
  uint64_t kept_version = 0;
  int keeps_under_way = 0;
  bool keep_again = false;
  // The most recently kept recurrent state, which the next one replaces.
  std::optional<Fingerprint> kept_slot;
  // How far the running turn's state is kept.
  int64_t kept_tokens = 0;
  // Tokens whose state came from disk, until a turn has reported them to its client.
  int64_t from_disk = 0;
  // Exists only to hold state on its way to disk.
  bool holds_for_disk = false;
  bool has_file() const { return saved || kept || keeps_under_way > 0; }
  int64_t last_used_us = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_SESSION_H_
