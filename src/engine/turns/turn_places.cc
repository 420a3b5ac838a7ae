#include "engine/turns/turn_places.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

namespace weft {
namespace {

bool CanStart(const ActiveTurn& turn) {
  return turn.session->stage == SessionStage::kQueued && !turn.session->is_at_work();
}

bool CanGive(const Lane& lane) {
  // A lane that waits for the disk is soon done with that.
  return !lane.in_step() &&
         lane.stage.IsAnyOf(LaneStage::kReady, LaneStage::kWaitsForSibling, LaneStage::kPreempted);
}

int64_t WithoutPlace(const ActiveTurn& turn) {
  return std::count_if(turn.lanes.begin(), turn.lanes.end(),
                       [](const auto& lane) { return lane->stage == LaneStage::kWaitsForPlace; });
}

// A turn takes one until it is retired, or all that is left of it waits for places.
int64_t PlacesOf(const ActiveTurn& turn) {
  const auto held = std::count_if(turn.lanes.begin(), turn.lanes.end(),
                                  [](const auto& lane) { return lane->holds_place(); });
  return std::max<int64_t>(held, WithoutPlace(turn) == 0 ? 1 : 0);
}

// Its tenant's later turns would take the memory that it waits for.
bool HoldsOthersBack(const ActiveTurn& turn) {
  return !turn.is_stalled() &&
         std::any_of(turn.lanes.begin(), turn.lanes.end(),
                     [](const auto& lane) { return lane->stage == LaneStage::kPreempted; });
}

}  // namespace

Status TurnPlaces::CheckQueue(std::string_view tenant) const {
  const Tenant* const known = shares_.Find(tenant);
  const auto is_own = [known](const auto& turn) { return turn->tenant == known; };
  const int64_t n_queued = std::count_if(queued_.begin(), queued_.end(), is_own);
  int64_t n_running = 0;
  for (const auto& turn : running_) n_running += is_own(turn) ? 1 : 0;
  const int64_t places = shares_.ShareOf(tenant, max_running_) - n_running;
  if (n_queued < shares_.ShareOf(tenant, max_queued_) + std::max<int64_t>(0, places)) {
    return OkStatus();
  }
  return ResourceExhausted("the queue is full: ", n_running, " turns run and ", n_queued,
                           " wait; try again later");
}

void TurnPlaces::Leave(ActiveTurn* turn) {
  shares_.Leave(turn->options.tenant);
  turn->tenant = nullptr;
}

void TurnPlaces::Count() {
  shares_.BeginRound();
  for (const auto& turn : queued_) turn->tenant->wanted += CanStart(*turn) ? 1 : 0;
  for (const auto& turn : running_) {
    Tenant* const tenant = turn->tenant;
    tenant->held += PlacesOf(*turn);
    for (const auto& lane : turn->lanes) tenant->can_give += CanGive(*lane) ? 1 : 0;
    tenant->wanted += WithoutPlace(*turn);
  }
  for (const auto& turn : running_) {
    if (HoldsOthersBack(*turn)) turn->tenant->wanted = 0;
  }
}

int64_t TurnPlaces::Free() const {
  int64_t n = 0;
  for (const auto& turn : running_) {
    const int64_t places = PlacesOf(*turn);
    n += shares_.IsShared() ? places : std::min<int64_t>(places, 1);
  }
  return max_running_ - n;
}

void TurnPlaces::Share(FunctionRef<void(ActiveTurn*)> start,
                       FunctionRef<void(ActiveTurn*, Lane*)> resume) {
  if (!shares_.IsShared()) {
    for (const auto& turn : running_) {
      for (const auto& lane : turn->lanes) {
        if (lane->stage == LaneStage::kWaitsForPlace) resume(turn.get(), lane.get());
      }
    }
  }
  Count();
  while (true) {
    const TenantShares::Move move = shares_.NextMove(Free());
    if (move.from == nullptr && move.to == nullptr) return;
    if (move.from != nullptr) GiveBack(move.from);
    if (move.to != nullptr && !Take(move.to, start, resume)) move.to->wanted = 0;
  }
}

// The last of its least important lanes.
void TurnPlaces::GiveBack(Tenant* tenant) {
  ActiveTurn* chosen = nullptr;
  for (auto turn = running_.rbegin(); turn != running_.rend(); ++turn) {
    if ((*turn)->tenant != tenant) continue;
    const auto& lanes = (*turn)->lanes;
    if (!std::any_of(lanes.begin(), lanes.end(), [](const auto& l) { return CanGive(*l); })) {
      continue;
    }
    if (chosen == nullptr || (*turn)->options.priority < chosen->options.priority) {
      chosen = turn->get();
    }
  }
  if (chosen == nullptr) return void(tenant->can_give = 0);
  const auto last = std::find_if(chosen->lanes.rbegin(), chosen->lanes.rend(),
                                 [](const auto& lane) { return CanGive(*lane); });
  (*last)->stage.Become(LaneStage::kWaitsForPlace);
  --tenant->held;
  --tenant->can_give;
  ++tenant->wanted;
}

// A lane that had one before goes before turns that have not begun.
bool TurnPlaces::Take(Tenant* tenant, FunctionRef<void(ActiveTurn*)> start,
                      FunctionRef<void(ActiveTurn*, Lane*)> resume) {
  ActiveTurn* waiting = nullptr;
  for (const auto& turn : running_) {
    if (turn->tenant != tenant || WithoutPlace(*turn) == 0) continue;
    if (waiting == nullptr || turn->options.priority > waiting->options.priority) {
      waiting = turn.get();
    }
  }
  auto best = queued_.end();
  for (auto it = queued_.begin(); it != queued_.end(); ++it) {
    if ((*it)->tenant != tenant || !CanStart(**it)) continue;
    if (best == queued_.end() || (*it)->options.priority > (*best)->options.priority) best = it;
  }
  if (waiting == nullptr && best == queued_.end()) return false;
  ++tenant->held;
  --tenant->wanted;
  if (waiting != nullptr &&
      (best == queued_.end() || (*best)->options.priority <= waiting->options.priority)) {
    const auto lane = std::find_if(
        waiting->lanes.begin(), waiting->lanes.end(),
        [](const auto& candidate) { return candidate->stage == LaneStage::kWaitsForPlace; });
    resume(waiting, lane->get());
    return true;
  }
  ActiveTurn* const turn = best->get();
  running_.splice(PlaceInOrder(tenant), queued_, best);
  start(turn);
  return true;
}

// Memory is given in the order of running turns. A new turn goes after its tenant's own, and before
// those of tenants that have more by weight.
TurnList::iterator TurnPlaces::PlaceInOrder(const Tenant* tenant) {
  std::map<const Tenant*, int64_t> n_lanes;
  std::vector<double> ranks;
  const auto rank_of_next = [&](const Tenant* of, int64_t n) {
    return static_cast<double>(n_lanes[of] += n) / of->weight;
  };
  for (const auto& turn : running_) {
    ranks.push_back(rank_of_next(turn->tenant, std::max<int64_t>(1, std::ssize(turn->lanes))));
  }
  const double rank = rank_of_next(tenant, 1);
  auto at = running_.end();
  while (at != running_.begin() && (*std::prev(at))->tenant != tenant && ranks.back() > rank) {
    --at;
    ranks.pop_back();
  }
  return at;
}

}  // namespace weft
