// Sessions not in use, ordered by last use, so that the least recently used one can be found
// without a scan when a place or memory is needed. A session is given up before the
// conversations that wait for it (Session::child_used_us).
//
// An index over fields that others change. Call Note after changing a session; the index is updated
// at the next query. Engine thread only.
#ifndef WEFT_ENGINE_SESSIONS_IDLE_SESSIONS_H_
#define WEFT_ENGINE_SESSIONS_IDLE_SESSIONS_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "engine/sessions/session_table.h"
#include "engine/sessions/state_memory.h"

namespace weft {

class IdleSessions {
 public:
  // Both must outlive the object.
  IdleSessions(const SessionTable* sessions, const StateMemory* memory)
      : sessions_(*sessions), memory_(*memory) {}

  // The session is new, has changed or is about to.
  void Note(Session* session);
  // REQUIRED before a noted session is removed from the table.
  void Forget(Session* session);
  // Applies the noted changes. Queries do that too; calling it regularly bounds their work.
  void Settle();

  // Null if there is none. The oldest named session of the domain without a file that anyone relies
  // on: it can be closed, and is then lost.
  Session* OldestToClose(std::string_view domain);
  // The oldest that holds memory and is not running; its turn may be queued.
  Session* OldestWithState();
  // The named sessions not used since `used_us`, of one domain or of all.
  std::vector<Session*> UnusedSince(std::optional<std::string_view> domain, int64_t used_us);
  // Whether a session that holds memory has file work in progress and so may free it soon.
  bool AnyWithStateAtWork();

  // Compares the index with the sessions.
  Status CheckIntegrity();

 private:
  // Each is one bit of Place::orders.
  enum Which : size_t { kToClose, kWithState, kNamed, kNamedOfDomain, kAtWork, kOrders };
  // Domain (empty in orders over all domains), last use, handle. The view points into the session.
  using Key = std::tuple<std::string_view, int64_t, uint64_t>;
  using Order = std::map<Key, Session*>;
  using Place = IdleView::Place;

  static bool IsIn(const Place& place, size_t which) { return (place.orders >> which & 1) != 0; }
  Place PlaceOf(const Session& session) const;
  static Key KeyOf(const Session& session, size_t which, const Place& place);
  void Put(Session* session, const Place& place);
  static Session* FirstOf(const Order& order, std::string_view domain);

  const SessionTable& sessions_;
  const StateMemory& memory_;
  std::array<Order, kOrders> orders_;
  std::vector<SessionId> noted_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_SESSIONS_IDLE_SESSIONS_H_
