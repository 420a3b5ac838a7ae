#include "constraint/constraint_cache.h"

#include "constraint/vocabulary_bytes.h"

namespace weft::constraint {

std::shared_ptr<const TokenTable> ConstraintCache::Table() {
  MutexLock lock(&table_mutex_);
  if (table_ == nullptr) table_ = TableOf(*tokenizer_);
  return table_;
}

ConstraintCache::Made ConstraintCache::Get(
    const std::string& key, FunctionRef<Made(std::shared_ptr<const TokenTable>)> make) {
  {
    MutexLock lock(&mutex_);
    const auto found = by_key_.find(key);
    if (found != by_key_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return entries_.front().constraint;
    }
  }
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<const Constraint> made, make(Table()));
  MutexLock lock(&mutex_);
  if (by_key_.contains(key)) return made;  // somebody was quicker
  entries_.push_front({key, made});
  by_key_.emplace(entries_.front().key, entries_.begin());
  DropWhatIsTooMuch();
  return made;
}

// Constraints grow while they are used, so all are asked; they are few.
void ConstraintCache::DropWhatIsTooMuch() {
  int64_t bytes = 0;
  size_t kept = 0;
  for (auto it = entries_.begin(); it != entries_.end();) {
    bytes += it->constraint->bytes() + static_cast<int64_t>(it->key.size());
    if (kept == 0 || (kept < kMostKept && bytes <= kMostBytes)) {
      ++kept;
      ++it;
      continue;
    }
    by_key_.erase(it->key);
    it = entries_.erase(it);
  }
}

}  // namespace weft::constraint
