#include "constraint/constraint_cache.h"

#include <algorithm>

#include "base/strings.h"

namespace weft::constraint {
namespace {

// No answer uses it: the cache holds the only reference.
bool IsIdle(const std::shared_ptr<const Constraint>& constraint) {
  return constraint.use_count() == 1;
}

}  // namespace

std::shared_ptr<const TokenTable> ConstraintCache::Table() {
  MutexLock lock(&table_mutex_);
  if (table_ == nullptr) table_ = make_table_();
  return table_;
}

ConstraintCache::Made ConstraintCache::Get(
    std::string_view tenant, std::string_view key_of_tenant,
    FunctionRef<Made(std::shared_ptr<const TokenTable>)> make) {
  const std::string key = StrCat(tenant.size(), ":", tenant, key_of_tenant);
  std::shared_ptr<const Constraint> wanted;
  std::vector<std::shared_ptr<const Constraint>> too_much;
  {
    MutexLock lock(&mutex_);
    const auto found = by_key_.find(key);
    if (found != by_key_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      wanted = entries_.front().constraint;
      if (++hits_ % kHitsBetweenTrims == 0) too_much = Trim();
    }
  }
  if (wanted == nullptr) {
    WEFT_ASSIGN_OR_RETURN(wanted, make(Table()));
    MutexLock lock(&mutex_);
    if (by_key_.contains(key)) return wanted;  // another thread was faster
    entries_.push_front({std::string(tenant), key, wanted});
    by_key_.emplace(entries_.front().key, entries_.begin());
    too_much = Trim();
  }
  // Outside of the lock: only a thread that starts to use one of these has to wait.
  for (const auto& constraint : too_much) constraint->GiveBack();
  return wanted;
}

// Returns the constraints that shall discard their automata. Asks every entry for its size; there
// are few.
std::vector<std::shared_ptr<const Constraint>> ConstraintCache::Trim() {
  std::vector<std::shared_ptr<const Constraint>> too_much;
  TrimToCount(&too_much);
  int64_t bytes = 0, in_use = 0;
  std::vector<Part> parts;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    parts.push_back({entry, entry->constraint->bytes() + static_cast<int64_t>(entry->key.size())});
    bytes += parts.back().amount;
    in_use += IsIdle(entry->constraint) ? 0 : 1;
  }
  const int64_t share =
      std::max(limits_.max_bytes / std::max<int64_t>(in_use, 1), limits_.min_share);
  for (const Entry& entry : entries_) entry.constraint->SetShare(share);
  if (bytes <= limits_.max_bytes) return too_much;
  SortToGo(limits_.max_bytes, &parts);
  std::erase_if(parts, [](const Part& part) { return !IsIdle(part.entry->constraint); });
  for (const auto& [entry, amount] : parts) {
    if (bytes <= limits_.max_bytes) return too_much;
    bytes -= entry->constraint->bytes() - entry->constraint->min_bytes();
    too_much.push_back(entry->constraint);
  }
  // Even without automata the entries take too much.
  for (const auto& [entry, amount] : parts) {
    if (bytes <= limits_.max_bytes) return too_much;
    bytes -= entry->constraint->min_bytes() + static_cast<int64_t>(entry->key.size());
    Erase(entry);
  }
  return too_much;
}

void ConstraintCache::TrimToCount(std::vector<std::shared_ptr<const Constraint>>* too_much) {
  if (entries_.size() <= limits_.max_kept) return;
  std::vector<Part> parts;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) parts.push_back({entry, 1});
  SortToGo(static_cast<int64_t>(limits_.max_kept), &parts);
  for (const auto& [entry, amount] : parts) {
    if (entries_.size() <= limits_.max_kept) return;
    // Destroyed outside of the lock.
    if (IsIdle(entry->constraint)) too_much->push_back(entry->constraint);
    Erase(entry);
  }
}

void ConstraintCache::Erase(Entries::iterator entry) {
  by_key_.erase(entry->key);
  entries_.erase(entry);
}

void ConstraintCache::SortToGo(int64_t most, std::vector<Part>* parts) {
  std::unordered_map<std::string_view, int64_t> of_tenant;
  for (const Part& part : *parts) of_tenant[part.entry->tenant] += part.amount;
  const auto n_tenants = static_cast<int64_t>(of_tenant.size());
  std::reverse(parts->begin(), parts->end());  // least recently used first
  std::stable_partition(parts->begin(), parts->end(), [&](const Part& part) {
    return of_tenant[part.entry->tenant] * n_tenants > most;
  });
}

}  // namespace weft::constraint
