// Session files, read and written in the background.
//
// Every operation is handed to one worker thread, which alone touches the state directory, and
// answers through a callback on the engine thread. Files are written from snapshots, so the session
// can continue meanwhile. With a shared store, the tokens of sessions are there instead
// (SharedSessions), and the directory has sessions from before alone. Engine thread only.
#ifndef WEFT_ENGINE_STORAGE_SESSION_STORE_H_
#define WEFT_ENGINE_STORAGE_SESSION_STORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/tokens.h"
#include "engine/sessions/adapter_mix.h"
#include "engine/sessions/state_memory.h"
#include "engine/state/session_file.h"
#include "engine/state/state_directory.h"
#include "engine/storage/shared_sessions.h"
#include "engine/storage/worker.h"

namespace weft {

// A session's tokens and state, outside the engine's memory.
struct SessionSnapshot {
  History tokens;
  std::vector<SessionHead::Adapter> adapters;
  int64_t invoked_at = kNotInvoked;  // see Session
  StateMemory::SavedState state;
  int64_t used_us = 0;  // last use, since 1970
  std::string note;     // why there is no state, if it was lost
  // Of a shared store: it has no such session yet. The tokens are from the state directory, if any.
  bool is_new = false;
  // Of a shared store: for how many of the tokens there is state, which blocks may have.
  int64_t state_tokens = 0;
};

class SessionStore {
 public:
  // A file must match all of these to be usable.
  struct Identity {
    std::string model;   // Model::fingerprint()
    std::string layout;  // describes backend, KV type and page sizes
    std::string kv_type;
    StateLayout sizes;
    int64_t row_values = 0;     // per input embedding
    int64_t max_row_bytes = 0;  // input embeddings per session
  };
  // Runs a callback on the engine thread.
  using PostBack = std::function<void(std::function<void()>)>;

  // `rows` takes the rows of sessions that are read; it must outlive the object.
  static StatusOr<std::unique_ptr<SessionStore>> Open(
      const std::string& path, Identity identity, const SharedStoreOptions& shared, RowTable* rows,
      PostBack post_back, const std::function<void(const std::string&)>& notice = {});

  const std::string& path() const { return directory_->path(); }
  // For other work that must not block a step.
  Worker* worker() { return &worker_; }

  // The directory's sessions. Call only before the first operation.
  StatusOr<std::vector<SavedSession>> ListAll(std::vector<std::string>* strangers);
  // Makes running and queued saves fail soon. Any thread.
  void Abandon() {
    abandoned_ = true;
    if (shared_ != nullptr) shared_->Abandon();
  }
  bool HasFile(const std::string& domain, const std::string& name) const {
    return files_.contains({domain, name});
  }
  // Null: sessions are in the directory. Calls for which this class has one go through that.
  SharedSessions* shared() const { return shared_.get(); }

  // An upper bound for the size of the snapshot's file on disk.
  static int64_t BytesOfFile(const SessionSnapshot& snapshot);
  // Bytes of all files, including those being written. `changed` is called whenever that changes.
  int64_t file_bytes() const { return file_bytes_; }
  void WatchFileBytes(std::function<void(int64_t)> changed) { changed_ = std::move(changed); }
  // Bytes of the files that were written since the store was opened.
  int64_t written_bytes() const { return written_bytes_; }

  // `done(OK)` means that the session is on disk, or in the shared store.
  void Save(const std::string& domain, const std::string& name, SessionSnapshot snapshot,
            std::function<void(Status)> done);
  // State that is damaged, or in another layout, is dropped and noted. A damaged head, another
  // model's file, and more rows than a session may hold are errors. Tenants take turns.
  // With a shared store, it is this server's from then on.
  void Load(const std::string& tenant, const std::string& domain, const std::string& name,
            std::function<void(StatusOr<SessionSnapshot>)> done);
  void Remove(const std::string& domain, const std::string& name, std::function<void(Status)> done);
  // Removes the file; from a shared store, too, unless another server has changed the session since
  // this one did.
  void RemoveIdle(const std::string& domain, const std::string& name,
                  std::function<void(Status)> done);
  // How many tokens the shared store has, and the other server that has the session now. NOT_FOUND
  // if there is none.
  struct Seen {
    int64_t n_tokens = 0;
    std::string owner;
  };
  void Look(const std::string& domain, const std::string& name,
            std::function<void(StatusOr<Seen>)> done);
  // A session that neither the shared store nor the directory may have yet: ALREADY_EXISTS.
  void CreateShared(const std::string& domain, const std::string& name, SessionSnapshot snapshot,
                    std::function<void(Status)> done);
  void Rename(const std::string& domain, const std::string& from, const std::string& to,
              std::function<void(Status)> done);
  // Runs `then` once the worker has done all earlier work, blocks included.
  void AfterBlocks(std::function<void()> then) {
    worker_.PostLast([this, then = std::move(then)] { post_back_(then); });
  }

 private:
  SessionStore(std::unique_ptr<StateDirectory> directory, Identity identity, RowTable* rows,
               PostBack post_back)
      : directory_(std::move(directory)),
        identity_(std::move(identity)),
        rows_(*rows),
        post_back_(std::move(post_back)) {}

  // On the worker thread.
  SessionHead MakeHead(const std::string& domain, const std::string& name,
                       const SessionSnapshot& snapshot) const;
  Status CheckRows(const SessionHead& head) const;
  StatusOr<History> ReadTokens(SessionReader* reader, RowTable* rows) const;
  // `rows` takes the rows that are read. Null: they only go into another file, so their number is
  // not limited.
  StatusOr<SessionSnapshot> LoadNow(const std::string& domain, const std::string& name,
                                    RowTable* rows) const;
  StatusOr<SessionSnapshot> ReadSnapshot(SessionReader* reader, RowTable* rows) const;
  // On the shared store's threads.
  StatusOr<std::string> MakeBytes(const std::string& domain, const std::string& name,
                                  const SessionSnapshot& snapshot) const;
  StatusOr<SessionSnapshot> ReadShared(const std::string& domain, const std::string& name,
                                       std::string_view bytes) const;
  Status RenameNow(const std::string& domain, const std::string& from, const std::string& to);
  // On the engine thread.
  void SaveShared(const std::string& domain, const std::string& name, bool is_new,
                  SessionSnapshot snapshot, std::function<void(Status)> done);
  void LoadShared(const std::string& tenant, const std::string& domain, const std::string& name,
                  std::function<void(StatusOr<SessionSnapshot>)> done);
  // From before there was a shared store.
  void LoadOld(const std::string& tenant, const std::string& domain, const std::string& name,
               std::function<void(StatusOr<SessionSnapshot>)> done);
  void RemoveFile(const std::string& domain, const std::string& name,
                  std::function<void(Status)> done);
  void AddFileBytes(int64_t bytes);
  void SetFile(const std::string& domain, const std::string& name, int64_t bytes);

  const std::unique_ptr<StateDirectory> directory_;
  const Identity identity_;
  RowTable& rows_;
  const PostBack post_back_;
  std::atomic<bool> abandoned_{false};
  std::map<std::pair<std::string, std::string>, int64_t> files_;  // bytes by domain and name
  int64_t file_bytes_ = 0;
  int64_t written_bytes_ = 0;
  std::function<void(int64_t)> changed_;
  // Last, so that their threads end first.
  Worker worker_;
  std::unique_ptr<SharedSessions> shared_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_STORAGE_SESSION_STORE_H_
