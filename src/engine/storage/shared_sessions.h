// Named sessions in a shared store, for the engine thread: hands each call to a thread that waits
// for the store, in order for each session, and knows until when this server has a session.
//
// Callbacks come on the engine thread. Engine thread only.
#ifndef WEFT_ENGINE_STORAGE_SHARED_SESSIONS_H_
#define WEFT_ENGINE_STORAGE_SHARED_SESSIONS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/status.h"
#include "engine/storage/session_heads.h"
#include "engine/storage/worker.h"
#include "weft/engine.h"
#include "weft/shared_store.h"

namespace weft {

class SharedSessions {
 public:
  using PostBack = std::function<void(std::function<void()>)>;
  using Done = std::function<void(Status)>;
  using Taken = SessionHeads::Taken;
  // Makes the session's bytes, on the store's thread.
  using Make = std::function<StatusOr<SessionHeads::Contents>()>;

  // `notice`, which may be empty, gets sentences for the operator.
  SharedSessions(SessionHeads::Options options, PostBack post_back,
                 std::function<void(const std::string&)> notice)
      : heads_(std::move(options)), post_back_(std::move(post_back)), notice_(std::move(notice)) {}

  // What is under way ends soon.
  ~SharedSessions() { heads_.Abandon(); }

  // `take` is called on the store's thread.
  void Take(const std::string& domain, const std::string& name,
            std::function<void(StatusOr<Taken>)> take);
  // See SessionHeads. `is_new`: Create.
  void Commit(const std::string& domain, const std::string& name, bool is_new, Make make,
              Done done);
  void Confirm(const std::string& domain, const std::string& name, Done done);
  // Does nothing, without calling `done`, while the claim is fresh or is being renewed.
  void Renew(const std::string& domain, const std::string& name, Done done);
  // The session is not used here any more.
  void Forget(const std::string& domain, const std::string& name);
  void Release(const std::string& domain, const std::string& name, Done done);
  void Remove(const std::string& domain, const std::string& name, Done done);
  void RemoveOwn(const std::string& domain, const std::string& name, Done done);
  // `peek` is called on the store's thread.
  void Peek(const std::string& domain, const std::string& name,
            std::function<void(StatusOr<SessionHeads::Seen>)> peek);

  // Whether this server surely has the session for a while: no other takes it.
  bool IsHeld(const std::string& domain, const std::string& name) const;
  // Whether others may have to wait for this server.
  bool MayHold(const std::string& domain, const std::string& name) const {
    return held_.contains({domain, name});
  }
  // How often to look which sessions to renew: those that have a turn.
  int64_t renewal_us() const { return LeaseMicros() / 6; }
  void Abandon() { heads_.Abandon(); }
  void FillStats(EngineStats* stats) const {
    stats->store_errors = n_errors_;
    stats->store_problem = problem_;
  }

 private:
  using Key = std::pair<std::string, std::string>;
  int64_t LeaseMicros() const { return heads_.lease().count() * 1000; }
  // Runs the call; a success has the session for another lease, or not any more.
  void Run(const Key& key, bool keeps, std::function<Status()> call, Done done);
  Worker& WorkerOf(const Key& key);
  void NoteHeld(const Key& key, int64_t until_us);
  // Whether the store answers, which the operator is told when it changes.
  void NoteAnswer(const Status& status);

  SessionHeads heads_;
  const PostBack post_back_;
  const std::function<void(const std::string&)> notice_;
  int64_t n_errors_ = 0;
  std::string problem_;
  std::map<Key, int64_t> held_;  // until when, in NowMicros time
  std::set<Key> renewing_;
  std::array<Worker, 8> workers_;  // last, so that they end first
};

}  // namespace weft

#endif  // WEFT_ENGINE_STORAGE_SHARED_SESSIONS_H_
