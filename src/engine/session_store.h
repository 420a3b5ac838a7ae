// Session files, written and read beside the engine.
//
// Every operation is handed to one worker thread, which alone touches the state
// directory, and answers by a callback on the engine thread. What is written is a
// snapshot, so the session can go on while its file is made. Engine thread only.
#ifndef WEFT_ENGINE_SESSION_STORE_H_
#define WEFT_ENGINE_SESSION_STORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/tokens.h"
#include "engine/state_memory.h"
#include "engine/worker.h"
#include "state/session_file.h"
#include "state/state_directory.h"

namespace weft {

// A session's tokens and state, apart from the engine's memory.
struct SessionSnapshot {
  std::vector<TokenId> tokens;
  StateMemory::SavedState state;
  int64_t used_us = 0;  // when it last was, since 1970
  std::string note;     // why there is no state, if it was lost
};

class SessionStore {
 public:
  // What a file must agree with to be of use here.
  struct Identity {
    std::string model;   // Model::fingerprint()
    std::string layout;  // describes backend, KV type and page sizes
    std::string kv_type;
    StateLayout sizes;
  };
  // Runs a callback on the engine thread.
  using PostBack = std::function<void(std::function<void()>)>;

  static StatusOr<std::unique_ptr<SessionStore>> Open(const std::string& path, Identity identity,
                                                      PostBack post_back);

  const std::string& path() const { return directory_->path(); }
  // For more work that must not stand between two steps; in order with this one's.
  Worker* worker() { return &worker_; }

  // What the directory holds. Before the first operation only.
  StatusOr<std::vector<SavedSession>> ListAll(std::vector<std::string>* strangers) const {
    return directory_->ListAll(strangers);
  }
  // What is being saved, and what waits for that, fails soon. Any thread.
  void Abandon() { abandoned_ = true; }

  // `done(OK)` means that it is on disk.
  void Save(const std::string& domain, const std::string& name, SessionSnapshot snapshot,
            std::function<void(Status)> done);
  // State that is damaged, or in another layout, is left out and noted; damage in the
  // head, or another model's file, is an error.
  void Load(const std::string& domain, const std::string& name,
            std::function<void(StatusOr<SessionSnapshot>)> done);
  void Remove(const std::string& domain, const std::string& name, std::function<void(Status)> done);
  void Rename(const std::string& domain, const std::string& from, const std::string& to,
              std::function<void(Status)> done);

 private:
  SessionStore(std::unique_ptr<StateDirectory> directory, Identity identity, PostBack post_back)
      : directory_(std::move(directory)),
        identity_(std::move(identity)),
        post_back_(std::move(post_back)) {}

  // On the worker.
  SessionHead MakeHead(const std::string& domain, const std::string& name,
                       const SessionSnapshot& snapshot) const;
  StatusOr<SessionSnapshot> LoadNow(const std::string& domain, const std::string& name) const;
  Status RenameNow(const std::string& domain, const std::string& from, const std::string& to);

  const std::unique_ptr<StateDirectory> directory_;
  const Identity identity_;
  const PostBack post_back_;
  std::atomic<bool> abandoned_{false};
  Worker worker_;  // last, so that it ends first
};

}  // namespace weft

#endif  // WEFT_ENGINE_SESSION_STORE_H_
