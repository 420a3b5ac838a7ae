#include "engine/turns/tenant_shares.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace weft {
namespace {

// How long a place is kept before it changes hands for want of places, shared among all with work.
constexpr double kSliceUs = 100'000;
// The largest deficit, shared in the same way: whoever wanted little for long may not make up for
// it.
constexpr double kMaxDeficitUs = 1'000'000;

}  // namespace

double TenantShares::WeightOf(std::string_view name) const {
  const auto found = weights_.find(name);
  return found == weights_.end() ? 1 : found->second;
}

double TenantShares::TotalWeight() const {
  double total = 0;
  for (const auto& [name, tenant] : tenants_) total += tenant.n_turns > 0 ? tenant.weight : 0;
  return total;
}

double TenantShares::Floor() const {
  double floor_us = std::numeric_limits<double>::infinity();
  for (const auto& [name, tenant] : tenants_) {
    if (tenant.n_turns > 0) floor_us = std::min(floor_us, tenant.clock_us);
  }
  return floor_us;
}

const Tenant* TenantShares::Find(std::string_view name) const {
  const auto found = tenants_.find(name);
  return found == tenants_.end() || found->second.n_turns == 0 ? nullptr : &found->second;
}

Tenant* TenantShares::Join(std::string_view name) {
  auto found = tenants_.find(name);
  if (found == tenants_.end()) {
    found = tenants_.emplace(name, Tenant{.weight = WeightOf(name)}).first;
  }
  Tenant& tenant = found->second;
  if (tenant.n_turns == 0) {
    if (n_with_work_ > 0) tenant.clock_us = std::max(tenant.clock_us, Floor());
    tenant.id = next_id_++;
    ++n_with_work_;
  }
  ++tenant.n_turns;
  return &tenant;
}

void TenantShares::Leave(std::string_view name) {
  Tenant& tenant = tenants_.find(name)->second;
  tenant.held = tenant.can_give = tenant.wanted = 0;
  if (--tenant.n_turns > 0) return;
  --n_with_work_;
  // A tenant without work is remembered as long as its clock is ahead of others'.
  const double floor_us = Floor();
  std::erase_if(tenants_, [&](const auto& entry) {
    return entry.second.n_turns == 0 && (n_with_work_ == 0 || entry.second.clock_us <= floor_us);
  });
}

int64_t TenantShares::ShareOf(std::string_view name, int64_t n) const {
  const double own = WeightOf(name);
  const double total = TotalWeight() + (Find(name) == nullptr ? own : 0);
  const auto share = static_cast<int64_t>(std::floor(static_cast<double>(n) * own / total + 1e-9));
  return std::clamp<int64_t>(share, std::min<int64_t>(n, 1), n);
}

void TenantShares::BeginRound() {
  double first_us = 0;
  for (const auto& [name, tenant] : tenants_) {
    if (tenant.n_turns > 0) first_us = std::max(first_us, tenant.clock_us);
  }
  const double floor_us = first_us - kMaxDeficitUs / std::max(TotalWeight(), 1e-9);
  for (auto& [name, tenant] : tenants_) {
    tenant.held = tenant.can_give = tenant.wanted = 0;
    if (tenant.n_turns > 0) tenant.clock_us = std::max(tenant.clock_us, floor_us);
  }
}

std::vector<Tenant*> TenantShares::WantingInOrder() {
  std::vector<Tenant*> wanting;
  for (auto& [name, tenant] : tenants_) {
    if (tenant.wanted > 0) wanting.push_back(&tenant);
  }
  const auto key = [](const Tenant* t) {
    return std::tuple(t->RankOfPlace(t->held + 1), t->clock_us, t->id);
  };
  std::sort(wanting.begin(), wanting.end(),
            [&](const Tenant* a, const Tenant* b) { return key(a) < key(b); });
  return wanting;
}

// Whose last place has the highest rank, of those above 0; null if there is none.
Tenant* TenantShares::HolderOfMost() {
  Tenant* most = nullptr;
  for (auto& [name, tenant] : tenants_) {
    if (tenant.can_give == 0 || tenant.held < 2) continue;
    if (most == nullptr || tenant.RankOfPlace(tenant.held) > most->RankOfPlace(most->held)) {
      most = &tenant;
    }
  }
  return most;
}

// The holder that has had the most time, if that is a slice more than `to` has had.
Tenant* TenantShares::HolderAhead(const Tenant& to) {
  Tenant* ahead = nullptr;
  for (auto& [name, tenant] : tenants_) {
    if (tenant.can_give == 0) continue;
    if (ahead == nullptr || tenant.clock_us > ahead->clock_us) ahead = &tenant;
  }
  const double slice_us = kSliceUs / TotalWeight();
  return ahead != nullptr && ahead->clock_us > to.clock_us + slice_us ? ahead : nullptr;
}

// Terminates: each move takes a place to a lower rank, or one of rank 0 to an earlier clock.
Tenant* TenantShares::NextToGive(const Tenant& to) {
  Tenant* const most = HolderOfMost();
  const bool has_more =
      most != nullptr && most->RankOfPlace(most->held) > to.RankOfPlace(to.held + 1);
  if (has_more) return most;
  return to.held == 0 ? HolderAhead(to) : nullptr;
}

TenantShares::Move TenantShares::NextMove(int64_t n_free) {
  if (n_free < 0) {
    Tenant* const from = HolderOfMost();
    if (from != nullptr) return {.from = from};
  }
  for (Tenant* const to : WantingInOrder()) {
    if (n_free > 0) return {.to = to};
    Tenant* const from = NextToGive(*to);
    if (from != nullptr) return {.from = from, .to = to};
  }
  return {};
}

}  // namespace weft
