// Which sessions nobody uses now, in the order of their last use: whoever wants a session's
// place or its memory finds the one not used for longest without looking at the others.
//
// An index over fields that others change. Whoever changes a session notes it here; what that
// means is worked out when somebody asks next. Engine thread only.
#ifndef WEFT_ENGINE_IDLE_SESSIONS_H_
#define WEFT_ENGINE_IDLE_SESSIONS_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "engine/session_table.h"
#include "engine/state_memory.h"

namespace weft {

class IdleSessions {
 public:
  // Both must outlive the object.
  IdleSessions(const SessionTable* sessions, const StateMemory* memory)
      : sessions_(*sessions), memory_(*memory) {}

  // The session is new, or something of it has changed or is about to.
  void Note(Session* session);
  // REQUIRED before a session that was noted is removed from the table.
  void Forget(Session* session);
  // Works out what was noted. Others do that themselves; this bounds what they have to do.
  void Settle();

  // Null where there is none. The oldest of the domain that has a name and no file that
  // somebody counts on: it can be closed, and is gone then.
  Session* OldestToClose(std::string_view domain);
  // The oldest that holds memory and is not running; its turn may wait in the queue.
  Session* OldestWithState();
  // Those with a name that were not used since, of one domain or of all.
  std::vector<Session*> UnusedSince(std::optional<std::string_view> domain, int64_t used_us);
  // Whether one holds memory whose file is being written or read: it may give that back.
  bool AnyWithStateAtWork();

  // Compares the index with the sessions.
  Status CheckIntegrity();

 private:
  // A bit of Place::orders each.
  enum Which : size_t { kToClose, kWithState, kNamed, kNamedOfDomain, kAtWork, kOrders };
  // Domain (empty in the orders over all), last use, handle. Domains are the sessions' own.
  using Key = std::tuple<std::string_view, int64_t, uint64_t>;
  using Order = std::map<Key, Session*>;
  using Place = Session::IdlePlace;

  static bool IsIn(const Place& place, size_t which) { return (place.orders >> which & 1) != 0; }
  Place PlaceOf(const Session& session) const;
  static Key KeyOf(const Session& session, size_t which, int64_t used_us);
  void Put(Session* session, const Place& place);
  static Session* FirstOf(const Order& order, std::string_view domain);

  const SessionTable& sessions_;
  const StateMemory& memory_;
  std::array<Order, kOrders> orders_;
  std::vector<SessionId> noted_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_IDLE_SESSIONS_H_
