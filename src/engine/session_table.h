// Sessions by handle and by name.
//
// A handle is 64 bits: the engine's tag, a generation, and an index. A slot of the
// table gets a new generation each time it is reused, so a handle of a closed
// session, or of another engine, never finds anything. Engine thread only.
#ifndef WEFT_ENGINE_SESSION_TABLE_H_
#define WEFT_ENGINE_SESSION_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/session.h"

namespace weft {

class SessionTable {
 public:
  // `tag` tells this engine from every other of the process.
  // `max_per_domain` 0: as many as there may be in all.
  SessionTable(uint16_t tag, int max_sessions, int max_per_domain = 0);

  // ALREADY_EXISTS for a name in use in the domain, RESOURCE_EXHAUSTED when it or all of
  // the table is full (the error does not tell one domain how many the others have),
  // INVALID_ARGUMENT for a name that is too long or not printable.
  StatusOr<Session*> Create(std::string_view domain, std::string_view name);
  // One that a file is there of. It is counted, and there whatever the limit: it has been
  // promised that it can be found again.
  StatusOr<Session*> CreateSaved(std::string_view domain, std::string_view name);
  // One without a name that goes with its turn. Turns are bounded themselves, so it is not
  // counted: those that stay cannot keep a turn from running.
  StatusOr<Session*> CreateForTurn(std::string_view domain);
  // Null for a handle that was never given out, was closed, or is of another engine.
  Session* Find(SessionId id) const;
  // The same as a status that says which.
  StatusOr<Session*> Get(SessionId id) const;
  // Where a handle's session is in the table: below the number that were ever there at once.
  static size_t IndexOf(SessionId id);
  // Why an engine with this tag has no session with that handle.
  static Status NoSession(uint16_t tag, SessionId id);
  Session* FindByName(std::string_view domain, std::string_view name) const;
  Status Rename(Session* session, std::string_view name);
  // The handle is dead and the session destroyed when this returns.
  void Remove(Session* session);

  uint16_t tag() const { return tag_; }
  // Places of the table, taken or not, and what is at one of them: null when it is free.
  size_t n_places() const { return entries_.size(); }
  Session* At(size_t place) const {
    ++n_visited_;
    return entries_[place].session.get();
  }
  void ForEach(const std::function<void(Session*)>& visit) const;
  // Places that At and ForEach have looked at: what all walks over the table have cost.
  int64_t n_visited() const { return n_visited_; }
  int size() const { return n_sessions_; }  // that are counted

 private:
  struct Entry {
    uint32_t generation = 0;
    std::unique_ptr<Session> session;
  };
  using NameKey = std::pair<std::string, std::string>;

  // OK when both are fit, and the name is free.
  Status CheckNames(std::string_view domain, std::string_view name) const;
  Session* Insert(std::string_view domain, std::string_view name, bool counted);

  const uint16_t tag_;
  const int max_sessions_;
  const int max_per_domain_;
  int n_sessions_ = 0;
  mutable int64_t n_visited_ = 0;
  std::map<std::string, int, std::less<>> of_domain_;  // that are counted; none is 0
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;
  std::map<NameKey, Session*> names_;
};

// At most 128 bytes, no control characters.
Status ValidateSessionName(std::string_view name);

}  // namespace weft

#endif  // WEFT_ENGINE_SESSION_TABLE_H_
