#include "engine/sessions/idle_sessions.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace weft {

IdleSessions::Place IdleSessions::PlaceOf(const Session& session) const {
  Place place;
  if (session.role == SessionRole::kHolder) return place;
  place.used_us = session.last_used_us;
  place.kept_us = std::max(session.last_used_us, session.child_used_us);
  if (session.is_at_work()) {
    place.orders = 1u << kAtWork;
    return place;
  }
  const bool ends = session.stage == SessionStage::kPoisoned && session.has_turn;
  const bool runs = ends || session.stage.IsAnyOf(SessionStage::kRunning, SessionStage::kInStep);
  if (!runs && memory_.BytesOf(session) > 0) place.orders |= 1u << kWithState;
  if (session.has_turn || session.name.empty()) return place;
  place.orders |= 1u << kNamed | 1u << kNamedOfDomain;
  // A parked one that no file here has is found again in the shared store.
  const bool may_close = session.stage.IsAnyOf(SessionStage::kReady, SessionStage::kParked);
  if (may_close && !session.is_saved()) place.orders |= 1u << kToClose;
  return place;
}

IdleSessions::Key IdleSessions::KeyOf(const Session& session, size_t which, const Place& place) {
  const bool of_domain = which == kToClose || which == kNamedOfDomain;
  const bool is_given_up = which == kToClose || which == kWithState;
  return {of_domain ? session.domain : std::string_view(),
          is_given_up ? place.kept_us : place.used_us, session.id.value};
}

void IdleSessions::Put(Session* session, const Place& place) {
  const Place former = std::exchange(session->idle.place_, place);
  if (place == former) return;
  for (size_t which = 0; which < kOrders; ++which) {
    if (IsIn(former, which)) orders_[which].erase(KeyOf(*session, which, former));
    if (IsIn(place, which)) {
      orders_[which].emplace(KeyOf(*session, which, place), session);
    }
  }
}

void IdleSessions::Note(Session* session) {
  if (std::exchange(session->idle.is_noted_, true)) return;
  noted_.push_back(session->id);
}

void IdleSessions::Forget(Session* session) { Put(session, {}); }

void IdleSessions::Settle() {
  for (const SessionId id : std::exchange(noted_, {})) {
    Session* const session = sessions_.Find(id);
    if (session == nullptr) continue;
    session->idle.is_noted_ = false;
    Put(session, PlaceOf(*session));
  }
}

Session* IdleSessions::FirstOf(const Order& order, std::string_view domain) {
  const auto first = order.lower_bound({domain, std::numeric_limits<int64_t>::min(), 0});
  return first != order.end() && std::get<0>(first->first) == domain ? first->second : nullptr;
}

Session* IdleSessions::OldestToClose(std::string_view domain) {
  Settle();
  return FirstOf(orders_[kToClose], domain);
}

Session* IdleSessions::OldestWithState() {
  Settle();
  return FirstOf(orders_[kWithState], "");
}

std::vector<Session*> IdleSessions::UnusedSince(std::optional<std::string_view> domain,
                                                int64_t used_us) {
  Settle();
  std::vector<Session*> found;
  const Order& order = orders_[domain.has_value() ? kNamedOfDomain : kNamed];
  const std::string_view wanted = domain.value_or("");
  auto it = order.lower_bound({wanted, std::numeric_limits<int64_t>::min(), 0});
  for (; it != order.end(); ++it) {
    const auto& [of_domain, last_used_us, id] = it->first;
    if (of_domain != wanted || last_used_us > used_us) break;
    found.push_back(it->second);
  }
  return found;
}

bool IdleSessions::AnyWithStateAtWork() {
  Settle();
  // The first almost always qualifies, since work reads or writes state.
  return std::ranges::any_of(
      orders_[kAtWork], [this](const auto& entry) { return memory_.BytesOf(*entry.second) > 0; });
}

Status IdleSessions::CheckIntegrity() {
  Settle();
  Status status;
  std::array<size_t, kOrders> counts{};
  sessions_.ForEach([&](Session* session) {
    const Place place = PlaceOf(*session);
    if (place != session->idle.place_) {
      status.Update(Internal("session \"", Printable(session->name),
                             "\" is not where it belongs in the order of use"));
    }
    for (size_t which = 0; which < kOrders; ++which) counts[which] += IsIn(place, which) ? 1 : 0;
  });
  for (size_t which = 0; which < kOrders; ++which) {
    if (orders_[which].size() == counts[which]) continue;
    status.Update(Internal("an order of use holds ", orders_[which].size(), " sessions, not ",
                           counts[which]));
  }
  return status;
}

}  // namespace weft
