// A store that several servers share, so that conversations outlive the machine they run on.
//
// Servers use an ObjectStore under the engine's options. It has two kinds of objects: blocks of
// computed state, which never change and may go at any time, and one head per named session, which
// only a conditional write changes. A turn is acknowledged once its head is written, so of two
// servers that go on with one session the slower one learns that it lost, and keeps nothing.
#ifndef WEFT_SHARED_STORE_H_
#define WEFT_SHARED_STORE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

// Objects by name. Any number of threads. Each call blocks until it is done or its time is over.
class ObjectStore {
 public:
  struct Object {
    std::string body;
    std::string tag;  // of this version; another version has another tag
  };
  // What a write requires of the object that is there.
  struct Condition {
    static Condition None() { return {}; }
    static Condition Absent() { return {.kind = kAbsent}; }
    static Condition Unchanged(std::string tag) { return {kUnchanged, std::move(tag)}; }
    enum Kind { kNone, kAbsent, kUnchanged } kind = kNone;
    std::string tag = {};
  };

  virtual ~ObjectStore() = default;
  // NOT_FOUND: there is none. UNAVAILABLE or DEADLINE_EXCEEDED: another try may succeed. Others:
  // the store refuses, and why.
  virtual absl::StatusOr<Object> Get(const std::string& name) = 0;
  // Answers with the new version's tag. FAILED_PRECONDITION: the condition does not hold, and
  // nothing is written. Any other error: it may have been written, or may still be.
  virtual absl::StatusOr<std::string> Put(const std::string& name, std::string_view body,
                                          const Condition& condition) = 0;
  // OK if there is none either.
  virtual absl::Status Remove(const std::string& name) = 0;
};

struct SharedStoreOptions {
  std::shared_ptr<ObjectStore> objects = {};  // null: sessions live in the state directory alone
  // This server's address for clients. Another server that is asked for one of its sessions answers
  // with it.
  std::string worker_url = {};
  // How long a server keeps a session after it last said so. Advice alone: it saves others from
  // computing in vain, and no clock decides which history is right.
  std::chrono::milliseconds lease{30000};
};

// Why a named session cannot be used here, as its status tells.
enum class SessionTrouble {
  kNone,         // something else
  kElsewhere,    // another server has it
  kMoved,        // another server took it while this one computed: nothing of the turn is kept
  kUnavailable,  // the store does not answer: the turn may or may not be kept
};
SessionTrouble TroubleOf(const absl::Status& status);
// Of kElsewhere: the other server's address, and in how many seconds to ask again.
std::string OwnerOf(const absl::Status& status);
int64_t RetrySecondsOf(const absl::Status& status);

}  // namespace weft

#endif  // WEFT_SHARED_STORE_H_
