// The heads of named sessions in a shared store: takes, commits, renews and gives up sessions by
// conditional writes alone.
//
// Whoever writes a head names the version that it replaces. So a server that was stopped, cut off
// or replaced, and goes on with an old version, cannot write: it learns that the session has moved.
// Leases only tell others when to try. A write whose answer is lost is settled by reading the head
// back: every version has an id that its writer recognises.
//
// Threads: any number, but one at a time for each session. Each call waits for the store.
#ifndef WEFT_ENGINE_STORAGE_SESSION_HEADS_H_
#define WEFT_ENGINE_STORAGE_SESSION_HEADS_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "engine/state/shared_head.h"
#include "weft/shared_store.h"

namespace weft {

class SessionHeads {
 public:
  struct Options {
    std::shared_ptr<ObjectStore> objects;
    std::string owner;  // this server's address
    std::chrono::milliseconds lease{30000};
    // How long to go on trying while the store does not answer, but for no longer than a lease:
    // then another server may have the session.
    std::chrono::milliseconds max_patience{5000};
  };
  explicit SessionHeads(Options options) : options_(std::move(options)) {}

  // All errors are troubles (TroubleOf) where nothing else is said. After an error nothing is known
  // of the session: it is taken again before it is used.
  struct Contents {
    std::string session;       // empty: the store has none
    int64_t state_tokens = 0;  // see SharedHead
  };
  struct Taken : Contents {
    bool was_deleted = false;
  };
  // From now on this server has the session; a new one once it is committed. An object that is no
  // head is DATA_LOSS, or UNIMPLEMENTED, and may be replaced.
  StatusOr<Taken> Take(const std::string& domain, const std::string& name);
  // The session is new. ALREADY_EXISTS if the store has one of that name.
  Status Create(const std::string& domain, const std::string& name, Contents contents);
  // Replaces what Take, Create or the last Commit left. REQUIRES one of them.
  Status Commit(const std::string& domain, const std::string& name, Contents contents);
  // Makes sure that what this server knows of the session is what the store has, and has it for
  // another lease.
  Status Confirm(const std::string& domain, const std::string& name);
  // The same while a turn runs: with one attempt, and an error of the store changes nothing.
  Status Renew(const std::string& domain, const std::string& name);
  // Any server may have it from now on. OK if this one does not have it.
  Status Release(const std::string& domain, const std::string& name);
  // OK if there is none. One that cannot be read goes, too.
  Status Remove(const std::string& domain, const std::string& name);
  // Only if nobody has changed it since this server did.
  Status RemoveOwn(const std::string& domain, const std::string& name);
  // Looks without taking, unless a write of this server may still come: NOT_FOUND if there is none.
  struct Seen {
    std::string owner;  // another server that has it now
    std::string session;
  };
  StatusOr<Seen> Peek(const std::string& domain, const std::string& name);

  // The session is not used here any more: nothing of it is remembered.
  void Forget(const std::string& domain, const std::string& name);
  bool HasClaim(const std::string& domain, const std::string& name) const {
    return ClaimOn({domain, name}).has_value();
  }
  // Makes running and later calls fail soon.
  void Abandon() { is_abandoned_ = true; }
  std::chrono::milliseconds lease() const { return options_.lease; }

 private:
  using Key = std::pair<std::string, std::string>;
  // What the store has as far as this server knows, and may replace.
  struct Claim {
    ObjectStore::Condition condition;
    uint64_t epoch = 0;
    Fingerprint commit;
    // Renewals of which nobody knows whether they are, or will be, there instead.
    std::vector<Fingerprint> unsettled;
    bool Knows(const Fingerprint& found) const {
      return found == commit || std::ranges::find(unsettled, found) != unsettled.end();
    }
  };
  // What is there.
  struct Found {
    std::optional<SharedHead> head;  // nullopt: no object
    Status damage;                   // why the object is no head, which is then empty
    ObjectStore::Condition condition;
  };

  std::optional<Claim> ClaimOn(const Key& key) const;
  void SetClaim(const Key& key, std::optional<Claim> claim);
  static Claim ClaimOf(const SharedHead& head, ObjectStore::Condition condition);
  // `always`: also after a call that the store left without an answer.
  StatusOr<Found> Look(const Key& key, bool always = false);
  // Elsewhere, if another server has it now.
  Status CheckOwner(const SharedHead& head) const;
  // Writes the head as the next version after `found`, and claims it.
  Status Write(const Key& key, const Claim& former, SharedHead head);
  // The tag of the head, once it is certain that it replaces `former`. Empty: it did, and another
  // server has gone on from it.
  StatusOr<std::string> Settle(const std::string& name, const SharedHead& head, Claim former);
  // Waits longer each time; false if the time is over. The first attempt is made at once.
  bool WaitBefore(int attempt, int64_t end_us) const;
  // Whether calls that others can make again fail without asking.
  bool rests() const { return NowMicros() < rests_until_us_; }
  // Whether a write of this server may still come.
  bool MayComeLate(const Key& key) const;
  Status Failed(const Status& why);
  std::chrono::milliseconds patience() const {
    return std::min(options_.max_patience, options_.lease);
  }
  int64_t Until() const;

  const Options options_;
  std::atomic<bool> is_abandoned_{false};
  // A store that hangs is not asked again for a moment: others wait for the threads.
  std::atomic<int64_t> rests_until_us_{0};
  mutable Mutex mutex_;
  std::map<Key, Claim> claims_ WEFT_GUARDED_BY(mutex_);
  // Sessions with a write whose end is unknown, until they are taken or written again.
  std::set<Key> late_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft

#endif  // WEFT_ENGINE_STORAGE_SESSION_HEADS_H_
