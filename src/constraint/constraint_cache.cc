#include "constraint/constraint_cache.h"

#include <algorithm>

#include "constraint/vocabulary_bytes.h"

namespace weft::constraint {

std::shared_ptr<const TokenTable> ConstraintCache::Table() {
  MutexLock lock(&table_mutex_);
  if (table_ == nullptr) table_ = TableOf(*tokenizer_);
  return table_;
}

ConstraintCache::Made ConstraintCache::Get(
    const std::string& key, FunctionRef<Made(std::shared_ptr<const TokenTable>)> make) {
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
    if (by_key_.contains(key)) return wanted;  // somebody was quicker
    entries_.push_front({key, wanted});
    by_key_.emplace(entries_.front().key, entries_.begin());
    too_much = Trim();
  }
  // Whoever begins to use one of them at this moment waits for it, and nobody else.
  for (const auto& constraint : too_much) constraint->GiveBack();
  return wanted;
}

// Returns those that shall give their automata back. All are asked what they take; they are few.
std::vector<std::shared_ptr<const Constraint>> ConstraintCache::Trim() {
  std::vector<std::shared_ptr<const Constraint>> too_much;
  const auto is_idle = [](const Entry& entry) { return entry.constraint.use_count() == 1; };
  for (; entries_.size() > limits_.most_kept; entries_.pop_back()) {
    by_key_.erase(entries_.back().key);
    // Freed outside of the lock.
    if (is_idle(entries_.back())) too_much.push_back(entries_.back().constraint);
  }
  int64_t bytes = 0, in_use = 0;
  for (const Entry& entry : entries_) {
    bytes += entry.constraint->bytes() + static_cast<int64_t>(entry.key.size());
    in_use += is_idle(entry) ? 0 : 1;
  }
  const int64_t share =
      std::max(limits_.most_bytes / std::max<int64_t>(in_use, 1), limits_.least_share);
  for (const Entry& entry : entries_) entry.constraint->SetShare(share);
  for (auto it = entries_.end(); it != entries_.begin() && bytes > limits_.most_bytes;) {
    --it;
    if (!is_idle(*it)) continue;
    bytes -= it->constraint->bytes() - it->constraint->least_bytes();
    too_much.push_back(it->constraint);
  }
  // Even what they are made of is too much.
  for (auto it = entries_.end(); it != entries_.begin() && bytes > limits_.most_bytes;) {
    --it;
    // Those that are to give back are held once more.
    const bool idle = std::ranges::find(too_much, it->constraint) != too_much.end();
    if (!idle) continue;
    bytes -= it->constraint->least_bytes() + static_cast<int64_t>(it->key.size());
    by_key_.erase(it->key);
    it = entries_.erase(it);
  }
  return too_much;
}

}  // namespace weft::constraint
