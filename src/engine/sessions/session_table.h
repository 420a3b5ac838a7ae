// Sessions by handle and by name.
//
// A handle is 64 bits: the engine's tag, a generation and an index. A table entry gets a new
// generation each time it is reused, so the handle of a closed session, or of another engine, never
// finds anything. Engine thread only.
#ifndef WEFT_ENGINE_SESSIONS_SESSION_TABLE_H_
#define WEFT_ENGINE_SESSIONS_SESSION_TABLE_H_

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
#include "engine/sessions/session.h"

namespace weft {

class SessionTable {
 public:
  // `tag` distinguishes the engines of one process. `max_per_domain` 0: the same as max_sessions.
  SessionTable(uint16_t tag, int max_sessions, int max_per_domain = 0);

  // ALREADY_EXISTS for a name in use in the domain, RESOURCE_EXHAUSTED if the domain or the whole
  // table is full (the error does not reveal how many sessions other domains have),
  // INVALID_ARGUMENT for a name that is too long or not printable.
  StatusOr<Session*> Create(std::string_view domain, std::string_view name);
  // For a session that has a file: parked and saved. It is counted but exempt from the limit: it
  // was promised that it can be found again.
  StatusOr<Session*> CreateSaved(std::string_view domain, std::string_view name);
  // For an anonymous session that is destroyed with its turn. Turns have their own limit, so it is
  // not counted: permanent sessions cannot keep a turn from running.
  StatusOr<Session*> CreateForTurn(std::string_view domain);
  // For state on its way to disk; not counted either.
  StatusOr<Session*> CreateHolder(std::string_view domain);
  // Null for a handle that was never issued, was closed, or belongs to another engine.
  Session* Find(SessionId id) const;
  // The same, with a status that says which.
  StatusOr<Session*> Get(SessionId id) const;
  // The handle's index in the table; below the largest number of sessions that ever existed at
  // once.
  static size_t IndexOf(SessionId id);
  // Why an engine with this tag has no such session.
  static Status NoSession(uint16_t tag, SessionId id);
  Session* FindByName(std::string_view domain, std::string_view name) const;
  Status Rename(Session* session, std::string_view name);
  // Destroys the session; its handle is invalid from now on.
  void Remove(Session* session);

  uint16_t tag() const { return tag_; }
  // Table entries, used or free, and the session in one of them: null if it is free.
  size_t n_places() const { return entries_.size(); }
  Session* At(size_t place) const {
    ++n_visited_;
    return entries_[place].session.get();
  }
  void ForEach(const std::function<void(Session*)>& visit) const;
  // Entries that At and ForEach have visited: the total cost of scans.
  int64_t n_visited() const { return n_visited_; }
  int size() const { return n_sessions_; }  // counted sessions only

 private:
  struct Entry {
    uint32_t generation = 0;
    std::unique_ptr<Session> session;
  };
  using NameKey = std::pair<std::string, std::string>;

  // OK if both are valid and the name is free.
  Status CheckNames(std::string_view domain, std::string_view name) const;
  Session* Insert(std::string_view domain, std::string_view name, std::unique_ptr<Session> session);

  const uint16_t tag_;
  const int max_sessions_;
  const int max_per_domain_;
  int n_sessions_ = 0;
  mutable int64_t n_visited_ = 0;
  std::map<std::string, int, std::less<>>
      of_domain_;  // counted sessions per domain; no zero entries
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;
  std::map<NameKey, Session*> names_;
};

// At most 128 bytes, no control characters.
Status ValidateSessionName(std::string_view name);

}  // namespace weft

#endif  // WEFT_ENGINE_SESSIONS_SESSION_TABLE_H_
