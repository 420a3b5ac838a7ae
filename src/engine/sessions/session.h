// A conversation inside the engine. Engine thread only.
#ifndef WEFT_ENGINE_SESSIONS_SESSION_H_
#define WEFT_ENGINE_SESSIONS_SESSION_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/adapter_use.h"
#include "base/status.h"
#include "base/tokens.h"
#include "engine/sessions/adapter_mix.h"
#include "engine/sessions/session_stages.h"
#include "engine/state/history.h"
#include "engine/state/page_pool.h"
#include "engine/state/page_table.h"
#include "engine/state/session_file.h"
#include "weft/engine.h"

namespace weft {

// Each part of the engine has a view of the session that only it changes.

// The computed state. StateMemory's.
class StateView {
 public:
  int64_t computed() const { return computed_; }
  // Between StateMemory::Prepare and Commit this exceeds `computed`: the tables have room for that
  // many tokens and, once the backend has touched it, the slot matches neither position.
  int64_t prepared() const { return prepared_; }
  // One per layer group, each of exactly the prepared positions; empty until first used.
  const std::vector<PageTable>& tables() const { return tables_; }
  // Models with recurrent state only, once something is computed. Shared with forks and the prefix
  // index, like pages, and copied before writing.
  const PoolRef& slot() const { return slot_; }

 private:
  friend class StateMemory;
  int64_t computed_ = 0;
  int64_t prepared_ = 0;
  std::vector<PageTable> tables_;
  PoolRef slot_;
  // The slot before a step that computes guesses, while it runs.
  PoolRef slot_before_guesses_;
  // How many tokens' state the prefix index already holds.
  int64_t indexed_ = 0;
  // Positions of the latest turn at which others are likely to start, at which to keep a checkpoint
  // in addition to the regular ones; and the last one that only marks the turn's progress (0:
  // none).
  std::vector<int64_t> checkpoints_wanted_;
  int64_t tail_checkpoint_ = 0;
  // When its conversation began, by the prefix index's order of use; 0: no turn has begun.
  uint64_t begun_ = 0;
};

// Publisher's.
class PublishedView {
  friend class Publisher;
  bool is_touched_ = false;  // the published view predates its last change
  // What the published view says about sharing.
  int64_t shared_pages_ = 0, shared_with_ = 0;
};

// Its place among the idle sessions. IdleSessions'.
class IdleView {
 public:
  struct Place {
    unsigned orders = 0;
    int64_t used_us = 0;
    int64_t kept_us = 0;  // its key in the orders of eviction
    bool operator==(const Place&) const = default;
  };
  bool is_in_an_order() const { return place_.orders != 0; }

 private:
  friend class IdleSessions;
  Place place_;
  bool is_noted_ = false;  // the place is out of date
};

// The work on its file, and callbacks for when it ends. FileWorks'.
class FileWorkView {
 public:
  FileWork kind() const { return kind_.get(); }

 private:
  friend class FileWorks;
  Staged<FileWork> kind_{FileWork::kNone};
  std::vector<std::function<void()>> waiting_;
};

// How far its file is up to date. StateKeeper's.
class KeepView {
 public:
  // Which version of its tokens (Session::changes) the file has.
  uint64_t version() const { return version_; }
  int n_under_way() const { return n_under_way_; }  // writes

 private:
  friend class StateKeeper;
  friend struct Session;
  uint64_t version_ = 0;
  int n_under_way_ = 0;
  bool is_due_again_ = false;  // another write, after those
  // The most recently kept recurrent state, which the next one replaces.
  std::optional<Fingerprint> slot_;
};

struct Session {
  Session(SessionRole session_role, SessionStage first) : role(session_role), stage(first) {}

  const SessionRole role;
  SessionId id;
  std::string name;
  std::string domain;
  std::string prefix_domain;  // where all its tokens are found: prefix_domain.h
  std::string before_domain;  // where those before `invoked_at` are found, if it is invoked
  std::string tenant;         // in its latest turn: reading its files is charged to it
  Staged<SessionStage> stage;
  bool has_turn = false;  // queued, running, or ended and about to be retired

  // The whole conversation. The state of the first `computed` tokens is in memory; the next turn
  // computes the rest.
  History tokens;
  // What they are computed with. It changes only while no token has state.
  AdapterMixRef adapters;
  // From which position on an adapter that waits for its invocation acts. A turn decides it as it
  // begins; state from the former position on is then given up.
  int64_t invoked_at = kNotInvoked;
  void SetAdapters(const AdapterMixRef& mix, int64_t invoked = kNotInvoked);
  std::span<const AdapterUse> AdaptersAt(int64_t position) const;
  // The positions from this one on that are computed with the same adapters.
  int64_t RowsAlike(int64_t position) const {
    return position < invoked_at ? invoked_at - position : INT64_MAX;
  }
  // In which domain the state of the first `n_tokens` is found. That of none: where the
  // conversation belongs.
  const std::string& DomainOf(int64_t n_tokens) const {
    return n_tokens <= invoked_at && invoked_at != kNotInvoked ? before_domain : prefix_domain;
  }
  std::vector<SessionHead::Adapter> saved_adapters() const;
  StateView state;
  int64_t computed() const { return state.computed(); }

  // If poisoned: the positions before this are sound; a fork may start there.
  int64_t sound_tokens = 0;
  std::string note;     // for the user, e.g. about a damaged file
  std::string unsaved;  // see SessionInfo

  bool is_parked() const { return stage.IsAnyOf(SessionStage::kParked, SessionStage::kAwaited); }
  // Tokens of the conversation, in memory or on disk.
  int64_t n_tokens() const {
    return is_parked() ? saved_tokens : static_cast<int64_t>(tokens.size());
  }

  PublishedView published;
  IdleView idle;
  FileWorkView file_work;
  bool is_at_work() const { return file_work.kind() != FileWork::kNone; }

  // What its file is, with how many tokens if it is saved. While the session is parked, its tokens
  // exist only there.
  Staged<OnDisk> on_disk{OnDisk::kNothing};
  int64_t saved_tokens = 0;
  // Why it could not be restored for the turn that waits for that. Scheduling ends the turn.
  Status restore_error;
  bool is_saved() const { return on_disk == OnDisk::kSaved; }
  bool has_file() const { return on_disk != OnDisk::kNothing || keep.n_under_way() > 0; }
  // Its file has these tokens, whatever it is.
  void SetKept(uint64_t version) {
    if (on_disk == OnDisk::kNothing) on_disk.Become(OnDisk::kKept);
    keep.version_ = version;
  }
  bool is_kept() const { return on_disk != OnDisk::kNothing && keep.version() == changes; }
  uint64_t changes = 0;  // how often its tokens changed
  KeepView keep;
  // Read from a shared store, which may have blocks up to here; 0: it was not, or it goes on
  // differently.
  int64_t taken_tokens = 0;
  // Tokens whose state came from disk, until a turn has reported them to its client.
  int64_t from_disk = 0;
  int64_t last_used_us = 0;
  // The last use of a conversation that began while this one waits for an answer (ExpectMore).
  int64_t child_used_us = 0;
};

// The name of a prefix domain's tree, if all owners share prefixes or if each has its own.
std::string_view PrefixTreeOf(std::string_view prefix_domain, bool is_shared);

// How many first positions of equal texts the two compute alike, and find each other's state of.
int64_t SharedPositions(const Session& a, const Session& b, bool is_shared);

// The domain of prefixes that texts with these adapters share, if one waits for its invocation:
// until then.
std::string SharedDomain(const std::string& domain, const AdapterMixRef& adapters);

// Why nothing may begin on the session: it has a turn, or it is poisoned.
Status RefuseBusy(const Session& session);
Status RefusePoisoned(const Session& session);

}  // namespace weft

#endif  // WEFT_ENGINE_SESSIONS_SESSION_H_
