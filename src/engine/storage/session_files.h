// Sessions and their files: parks, saves and restores them, keeps files up to date, loads state
// from blocks, and drops state when memory is short.
//
// While a file is read or written, its session says so (FileWork), and turns and calls wait
// (WhenFree). Only the store's worker touches the state directory; its answers arrive on the engine
// thread. Without a state directory nothing is kept, and calls that need a file are refused. With a
// shared store (session_sharing.cc) the "file" of a session is its head there, which another server
// may take. Engine thread only.
#ifndef WEFT_ENGINE_STORAGE_SESSION_FILES_H_
#define WEFT_ENGINE_STORAGE_SESSION_FILES_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/sessions/adapter_mix.h"
#include "engine/sessions/idle_sessions.h"
#include "engine/sessions/publisher.h"
#include "engine/sessions/session_table.h"
#include "engine/sessions/state_memory.h"
#include "engine/storage/disk_tier.h"
#include "engine/storage/file_works.h"
#include "engine/storage/session_store.h"
#include "engine/storage/shared_blocks.h"
#include "engine/storage/state_keeper.h"
#include "engine/storage/state_loader.h"

namespace weft {

class SessionFiles {
 public:
  struct Options {
    std::string path;     // the state directory; empty: none
    std::string model;    // Model::fingerprint()
    std::string backend;  // its name
    std::string kv_type;
    int64_t n_vocab = 0;
    int64_t row_values = 0;  // per input embedding
    // As in EngineOptions.
    int64_t max_row_bytes = 0;
    int64_t disk_bytes = 0;
    int64_t disk_bytes_per_hour = 0;
    bool share_across_domains = false;
    bool durable = false;
    SharedStoreOptions shared;
    bool shares_blocks = true;  // by way of the store
    std::string machine;        // whose blocks there have the same bits; empty: all
    std::function<void(const std::string&)> on_notice;
  };
  // What the files act on. All must outlive the object.
  struct Parts {
    SessionTable* sessions = nullptr;
    StateMemory* memory = nullptr;
    IdleSessions* idle = nullptr;
    Publisher* publisher = nullptr;
    const AdapterMixes* adapters = nullptr;
  };
  // Answers a call that may have to wait for a file.
  template <typename T>
  using ReplyWith = std::function<void(T)>;
  using Reply = ReplyWith<Status>;
  using PostBack = FileWorks::PostBack;

  SessionFiles(const Parts& parts, Options options, PostBack post_back);
  // Opens the state directory. Every saved session exists from then on, parked.
  Status Open();

  // --- waiting ----------------------------------------------------------------------
  // Calls `then` with the session once no file of it is in use and, if `with_state`, its state is
  // in memory (restored if need be); or with the error to answer with. A shared session is restored
  // in any case, and is surely this server's.
  void WhenFree(SessionId id, bool with_state, const ReplyWith<StatusOr<Session*>>& then) {
    WhenFree(id, with_state, /*is_asked=*/false, then);
  }
  // Restores the session if a turn of it waits for that, unless its file is in use: whoever uses it
  // calls again.
  void RestoreForTurn(Session* session);

  // --- calls --------------------------------------------------------------------------
  void Park(SessionId id, const Reply& reply);
  // Parks every named session that no turn or file work uses; answers with how many could be.
  void ParkIdle(const ReplyWith<StatusOr<int64_t>>& reply);
  void Save(SessionId id, const Reply& reply);
  void Restore(SessionId id, const Reply& reply);

  // --- changes of a session change its file -------------------------------------------
  // Whether a change of the session has to change a file too.
  bool HasFile(const Session& session) const {
    return keeper_ != nullptr && (session.has_file() || IsShared(session));
  }
  // Makes the file hold these tokens instead of whatever is written or queued. The session waits
  // until it does. REQUIRES of these three: HasFile, and no file work.
  void Rewrite(Session* session, History tokens, const Reply& reply);
  // The same with no tokens; removes the file where even that cannot be written.
  void Empty(Session* session, const std::function<void(const Status&, bool has_file)>& reply);
  // The session has its new name already, and gets the old one back if the file cannot follow. A
  // session without a name has no file.
  void Rename(Session* session, const std::string& old_name, const Reply& reply);
  // The session goes away: drops its pending loads and writes.
  void Forget(Session* session);
  // A session that has been destroyed, after Forget.
  struct Closed {
    SessionId id;
    std::string domain, name;
    bool is_saved = false;
    int64_t saved_tokens = 0;
    int64_t last_used_us = 0;
  };
  static Closed DescribeForClose(const Session& session);
  // REQUIRES: it had a file. That is removed, or without `forget` found again, as a parked session
  // if that is in the state directory.
  void CloseFile(const Closed& closed, bool forget, const Reply& reply);

  // --- keeping ------------------------------------------------------------------------
  // A session that has no running turn has changed: if it has a name, its tokens are written.
  // `then`, if given, is called at once, or with Options::durable once they are written or cannot
  // be. In a shared store they are written in any case; an error is why they are not, and the
  // session is given up here.
  void KeepChanged(Session* session, const Reply& then = nullptr);
  // The computed state of the first tokens is worth keeping.
  void KeepState(Session* session, int64_t n_tokens);
  // The session found its first `n_tokens` in memory: whatever the disk has of them was of use too.
  void UseBlocks(const Session& session, int64_t n_tokens);
  // What the disk has of these tokens is as recent as if it had just been used.
  void RefreshBlocks(const std::string& domain, PrefixIndex::Tokens tokens);
  bool keeps() const { return keeper_ != nullptr; }
  bool has_blocks() const { return disk_ != nullptr; }
  DiskTier* disk() const { return disk_.get(); }  // null: none
  // Copies as much to disk as the write rate allows now. True if that was anything.
  bool Pump();
  // See StateKeeper::NextWake.
  std::optional<int64_t> NextWake() const;
  // See StateLoader.
  bool StartLoad(Session* session, int64_t max_tokens, std::function<void()> done);
  void AbandonLoad(Session* session);

  // --- a shared store (session_sharing.cc) ----------------------------------------------
  bool is_shared() const { return store_ != nullptr && store_->shared() != nullptr; }
  bool IsShared(const Session& session) const {
    return is_shared() && !session.name.empty() && session.role == SessionRole::kConversation;
  }
  // The session is in the table under a name that the store may have: as parked until it is asked.
  void Expect(Session* session);
  // Whether neither the store nor the state directory had anything of it.
  static bool IsNew(const Session& session) {
    return session.tokens.empty() && !session.has_file();
  }
  // Writes a new session. After an error it is to be destroyed. REQUIRES: IsShared, no file work.
  void CreateShared(Session* session, const Reply& reply);
  // A session that could not be read can still be emptied or removed.
  static bool IsUnreadable(const Status& status);
  // Nothing of the session is remembered here: it has been destroyed.
  void ForgetShared(const Session& session) {
    if (IsShared(session)) store_->shared()->Forget(session.domain, session.name);
  }
  // The session, which has been destroyed, was idle: it goes if nobody else has used it.
  void ForgetIdle(const Closed& closed);
  // What the store has of a session that is not here, or may have moved.
  void Look(const std::string& domain, const std::string& name,
            const ReplyWith<StatusOr<SessionStore::Seen>>& reply);
  // Whether the session is surely as it is here. While a commit is under way nobody knows.
  bool IsCurrent(const Session& session) const {
    if (!IsShared(session) || session.has_turn) return true;
    return !session.is_at_work() && store_->shared()->IsHeld(session.domain, session.name);
  }
  // Gives the session up in the store once that has all of its state. REQUIRES: IsShared, no turn
  // and no file work. It is to be destroyed if that succeeds.
  void Release(Session* session, const Reply& reply);

  // --- memory -------------------------------------------------------------------------
  // Frees memory that no running turn needs: state that only waits to be written, then the state of
  // the least recently used session that is not running. That one is parked if it can have a file;
  // otherwise it keeps its tokens, from which its next turn recomputes the state. False if there
  // was nothing.
  bool GiveUpIdleState();
  // Makes room for this many bytes of new rows: like StateMemory::MakeRoomForRows, but if need be
  // also drops idle sessions that are in their files, least recently used first, except `spared`.
  Status MakeRoomForRows(int64_t bytes, const Session* spared);

  // --- shutdown -------------------------------------------------------------------------
  // Whether something is still on its way to disk.
  bool StillKeeping();
  // Drops the writes that the disk is too slow for: blocks of state.
  void StopKeeping();
  // Saves the rest.
  void ParkAll();
  bool FileWorkPending() const { return works_.any(); }
  // Cuts saving short.
  void AbandonSaves();
  // Names everything that is not on disk.
  Status SaveOutcome() const;
  // From now on calls that need a file are refused: nothing would answer them.
  void CloseStore() { store_closed_ = true; }

  void FillStats(EngineStats* stats) const;
  Status CheckIntegrity() const;

 private:
  struct WaitingSave {
    SessionId id;
    bool park = false;
    bool free_now = false;
    Reply reply;
  };

  // `is_asked`: a shared store has just been.
  void WhenFree(SessionId id, bool with_state, bool is_asked,
                const ReplyWith<StatusOr<Session*>>& then);
  Status OpenBlocks(const std::string& layout);
  void OpenSharedBlocks(const std::string& identity);
  void Confirm(Session* session, const std::function<void(const Status&)>& then);
  void Commit(Session* session, const Reply& then);
  void ParkShared(Session* session, bool park, const Reply& reply);
  void NoteCommitted(Session* session, uint64_t version);
  void Unload(Session* session);
  void Renew();
  void GiveUp(SessionId id, const Reply& reply);
  void OfferBlocks(const Session& session);
  void ReleaseAll();
  Status CheckSavable(const Session& session) const;
  StatusOr<SessionSnapshot> SnapshotOf(const Session& session);
  void StartSave(Session* session, bool park, bool free_now, const Reply& reply);
  bool SaveHasRoom(const Session& session) const;
  void PumpSaves();
  void SaveNow(Session* session, const WaitingSave& save);
  void FinishSave(Session* session, bool park, int64_t n_tokens, const Status& status);
  void BecomeParked(Session* session);
  void StartRestore(Session* session, const Reply& reply);
  void FinishRestore(SessionId id, StatusOr<SessionSnapshot> loaded, const Reply& reply);
  void TakeRestored(Session* session, SessionSnapshot loaded);
  Status ListParked(const Closed& closed, const std::string& note);
  bool TakeIdleSession();

  SessionTable* const sessions_;
  StateMemory* const memory_;
  IdleSessions* const idle_;
  Publisher* const publisher_;
  const AdapterMixes* const adapters_;
  const Options options_;
  const PostBack post_back_;
  FileWorks works_;
  // All null without a state directory; no blocks without the prefix cache.
  std::unique_ptr<SessionStore> store_;
  std::unique_ptr<DiskTier> disk_;
  std::unique_ptr<StateKeeper> keeper_;
  std::unique_ptr<StateLoader> loader_;
  std::unique_ptr<SharedBlocks> blocks_;  // null without a shared store
  int64_t renewed_us_ = 0;
  uint64_t looks_ = 0;  // as works: no session has these numbers

  // Saves wait until earlier ones are written: each holds a copy of its session.
  std::deque<WaitingSave> saves_;
  int64_t save_bytes_ = 0;  // being written by the store
  bool saves_abandoned_ = false;
  bool store_closed_ = false;
  std::vector<std::string> not_saved_;  // names, and why the first one failed
  Status not_saved_because_;
  int64_t parks_ = 0, restores_ = 0, dropped_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_STORAGE_SESSION_FILES_H_
