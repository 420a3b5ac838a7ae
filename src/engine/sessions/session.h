// A conversation inside the engine. Engine thread only.
#ifndef WEFT_ENGINE_SESSIONS_SESSION_H_
#define WEFT_ENGINE_SESSIONS_SESSION_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/tokens.h"
#include "engine/sessions/session_stages.h"
#include "state/history.h"
#include "state/page_pool.h"
#include "state/page_table.h"
#include "state/session_file.h"
#include "weft/engine.h"

namespace weft {

struct ActiveTurn;

struct Session {
  Session(SessionRole session_role, SessionStage first) : role(session_role), stage(first) {}

  const SessionRole role;
  SessionId id;
  std::string name;
  std::string domain;
  std::string tenant;  // of its latest turn: whom reading its files is charged to
  Staged<SessionStage> stage;
  ActiveTurn* turn = nullptr;  // queued, running, or ended and about to be retired

  // The whole conversation. The state of the first `computed` tokens is in the tables (each covers
  // exactly that many positions) and the slot; the next turn computes the rest.
  History tokens;
  int64_t computed = 0;
  // Between StateMemory::Prepare and Commit this exceeds `computed`: the tables have room for that
  // many tokens and, once the backend has touched it, the slot matches neither position.
  int64_t prepared = 0;
  std::vector<PageTable> tables;  // one per layer group; empty until first used
  // Models with recurrent state only, once something is computed. Shared with forks and the prefix
  // index, like pages, and copied before writing.
  PoolRef slot;
  // The slot before a step that computes guesses, while it runs.
  PoolRef slot_before_guesses;
  // How many tokens' state the prefix index already holds.
  int64_t indexed = 0;
  // Positions of the latest turn at which others are likely to start, at which to keep a checkpoint
  // in addition to the regular ones; and the last one that only marks the turn's progress (0:
  // none).
  std::vector<int64_t> checkpoints_wanted;
  int64_t tail_checkpoint = 0;

  // When its conversation began, by the prefix index's order of use; 0: no turn has begun.
  uint64_t begun = 0;

  // If poisoned: the positions before this are sound; a fork may start there.
  int64_t sound_tokens = 0;
  std::string note;     // for the user, e.g. about a damaged file
  std::string unsaved;  // see SessionInfo

  bool is_parked() const { return stage.IsAnyOf(SessionStage::kParked, SessionStage::kAwaited); }
  // Tokens of the conversation, in memory or on disk.
  int64_t n_tokens() const {
    return is_parked() ? saved_tokens : static_cast<int64_t>(tokens.size());
  }

  // The published view predates its last change; and what the view says about sharing.
  bool is_touched = false;
  int64_t published_shared_pages = 0, published_shared_with = 0;
  // Its place among the idle sessions, and whether that is out of date. Accessed by IdleSessions
  // only.
  struct IdlePlace {
    unsigned orders = 0;
    int64_t used_us = 0;
    int64_t kept_us = 0;  // in the orders of what is given up
    bool operator==(const IdlePlace&) const = default;
  } idle_place;
  bool is_noted = false;

  Staged<FileWork> file_work{FileWork::kNone};
  std::vector<std::function<void()>> after_file_work;
  bool is_at_work() const { return file_work != FileWork::kNone; }
  // What its file is, with how many tokens if it is saved. While the session is parked, its tokens
  // exist only there.
  Staged<OnDisk> on_disk{OnDisk::kNothing};
  int64_t saved_tokens = 0;
  bool is_saved() const { return on_disk == OnDisk::kSaved; }
  bool has_file() const { return on_disk != OnDisk::kNothing || keeps_under_way > 0; }
  // Its file has these tokens, whatever it is.
  void SetKept(uint64_t version) {
    if (on_disk == OnDisk::kNothing) on_disk.Become(OnDisk::kKept);
    kept_version = version;
  }
  bool is_kept() const { return on_disk != OnDisk::kNothing && kept_version == changes; }
  // How often its tokens changed, which of these versions the file has, how many writes are in
  // flight, and whether another is due after them.
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
  int64_t last_used_us = 0;
  // The last use of a conversation that began while this one waits for an answer (ExpectMore).
  int64_t child_used_us = 0;
};

// Why nothing may begin on the session: it has a turn, or it is poisoned.
Status RefuseBusy(const Session& session);
Status RefusePoisoned(const Session& session);

}  // namespace weft

#endif  // WEFT_ENGINE_SESSIONS_SESSION_H_
