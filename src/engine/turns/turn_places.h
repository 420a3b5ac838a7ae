// The places in steps and in the queue, and which tenant's turns and lanes get them.
//
// A running lane holds a place. A tenant alone may run max_running turns, however many lanes they
// have. As soon as others have turns too, places are counted in lanes, and TenantShares says who
// gives one back and who gets one; a lane without a place keeps its computed state and continues
// from there later. Within a tenant, turns go by priority, then by arrival. Engine thread only.
#ifndef WEFT_ENGINE_TURNS_TURN_PLACES_H_
#define WEFT_ENGINE_TURNS_TURN_PLACES_H_

#include <cstdint>
#include <string_view>

#include "base/function_ref.h"
#include "base/status.h"
#include "engine/turns/active_turn.h"
#include "engine/turns/tenant_shares.h"
#include "weft/options.h"

namespace weft {

class TurnPlaces {
 public:
  // All must outlive the object.
  TurnPlaces(const EngineOptions& options, TurnList* queued, TurnList* running)
      : max_running_(options.max_running),
        max_queued_(options.max_queued),
        shares_(options.share_weights),
        queued_(*queued),
        running_(*running) {}

  // RESOURCE_EXHAUSTED if the tenant's share of the queue is full.
  Status CheckQueue(std::string_view tenant) const;
  void Join(ActiveTurn* turn) { turn->tenant = shares_.Join(turn->options.tenant); }
  void Leave(ActiveTurn* turn);

  // Takes places back and gives them. `start`: the turn has just become one of the running ones.
  // `resume`: the lane has its place again, and is to become ready.
  void Share(FunctionRef<void(ActiveTurn*)> start, FunctionRef<void(ActiveTurn*, Lane*)> resume);

 private:
  void Count();
  int64_t Free() const;
  void GiveBack(Tenant* tenant);
  bool Take(Tenant* tenant, FunctionRef<void(ActiveTurn*)> start,
            FunctionRef<void(ActiveTurn*, Lane*)> resume);
  TurnList::iterator PlaceInOrder(const Tenant* tenant);

  const int64_t max_running_, max_queued_;
  TenantShares shares_;
  TurnList& queued_;
  TurnList& running_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_TURN_PLACES_H_
