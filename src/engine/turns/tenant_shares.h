// Who is next where tenants wait for each other: for a lane's place in the steps, for rows of a
// step, for an entry of the queue.
//
// Each tenant has a clock: its compute time divided by its weight. How far it is behind others is
// its deficit, and the largest deficit goes first. A new tenant starts at the clock of the last one
// with work: time without work earns nothing. Every tenant gets a first place before any gets a
// second; then places go to the tenant with the fewest by weight. A tenant alone may hold them
// all, and gives one back when another should have it. With more tenants than places, a place
// changes hands when its holder is a slice of time ahead of a tenant without one.
//
// Policy alone: no locks, no turns and no time but what Charge tells. One thread.
#ifndef WEFT_ENGINE_TURNS_TENANT_SHARES_H_
#define WEFT_ENGINE_TURNS_TENANT_SHARES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

// A tenant with turns. The address stays the same until its last turn has left.
struct Tenant {
  uint64_t id = 0;  // in order of appearance
  double weight = 1;
  double clock_us = 0;
  int64_t n_turns = 0;
  // Told anew before NextMove: places that its lanes hold, how many of them could be given back
  // now, and how many more it could use at once.
  int64_t held = 0, can_give = 0, wanted = 0;

  void Charge(double us) { clock_us += us / weight; }
  // Places of lower rank are given first; everybody's first place is.
  double RankOfPlace(int64_t n) const { return n == 1 ? 0 : static_cast<double>(n) / weight; }
};

class TenantShares {
 public:
  using Weights = std::map<std::string, double, std::less<>>;

  // Tenants without a weight have 1. REQUIRES: weights are above 0.
  explicit TenantShares(Weights weights) : weights_(std::move(weights)) {}

  // A turn of the tenant begins to wait; it ends with Leave.
  Tenant* Join(std::string_view name);
  void Leave(std::string_view name);

  // A tenant's share of `n` things, were it among those with work: at least one of them.
  int64_t ShareOf(std::string_view name, int64_t n) const;
  // Null if it has no turns.
  const Tenant* Find(std::string_view name) const;
  bool IsShared() const { return n_with_work_ > 1; }

  // Before the places are counted anew.
  void BeginRound();
  // `from` gives a place back, `to` gets one; either may be null, and with both there is nothing to
  // do. The caller carries it out, updates the tenants' places, and asks again.
  struct Move {
    Tenant* from = nullptr;
    Tenant* to = nullptr;
  };
  // `n_free`: negative if more places are held than there are.
  Move NextMove(int64_t n_free);

 private:
  double WeightOf(std::string_view name) const;
  double TotalWeight() const;
  // The clock of the last of those with work.
  double Floor() const;
  std::vector<Tenant*> WantingInOrder();
  Tenant* HolderOfMost();
  Tenant* HolderAhead(const Tenant& to);
  Tenant* NextToGive(const Tenant& to);

  const Weights weights_;
  // Those with turns, and those without that are ahead of them still.
  std::map<std::string, Tenant, std::less<>> tenants_;
  int64_t n_with_work_ = 0;
  uint64_t next_id_ = 1;
};

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_TENANT_SHARES_H_
