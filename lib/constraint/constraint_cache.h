// The constraints compiled last for one vocabulary, by a key that describes them.
//
// Constraints grow while answers follow them. The cache checks their total memory on every miss and
// every kHitsBetweenTrims hits. If they exceed the limit, unused constraints discard their
// automata, least recently used first, and the constraints in use share the memory. If tenants
// share the cache, those above an equal share give first.
//
// A constraint is visible only to the tenant that compiled it: otherwise another tenant could
// measure that a schema is cached or that its automaton has grown, and so learn that somebody uses
// it. All tenants share the token table, which reveals nothing.
//
// Any thread. Two threads that ask for the same constraint at the same time may both compile it.
#ifndef WEFT_CONSTRAINT_CONSTRAINT_CACHE_H_
#define WEFT_CONSTRAINT_CONSTRAINT_CACHE_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/mutex.h"
#include "base/status.h"
#include "constraint/constraint.h"
#include "constraint/token_table.h"

namespace weft::constraint {

class ConstraintCache {
 public:
  using Made = StatusOr<std::shared_ptr<const Constraint>>;

  struct Limits {
    size_t max_kept = 64;
    // Approximate total for all constraints; those in use may exceed it.
    int64_t max_bytes = 256 << 20;
    // A constraint in use may use at least this much.
    int64_t min_share = 8 << 20;
  };

  // `make_table` makes the table of the vocabulary, once, when the first constraint needs it.
  using MakeTable = std::function<std::shared_ptr<const TokenTable>()>;
  explicit ConstraintCache(MakeTable make_table)
      : ConstraintCache(std::move(make_table), Limits{}) {}
  ConstraintCache(MakeTable make_table, const Limits& limits)
      : make_table_(std::move(make_table)), limits_(limits) {}

  // Returns the constraint that `make` built for this tenant and an equal key, or builds it now.
  // Failures are not cached. `tenant`: as TurnOptions::tenant; empty if there is only one.
  Made Get(std::string_view tenant, std::string_view key,
           FunctionRef<Made(std::shared_ptr<const TokenTable>)> make);

 private:
  static constexpr int kHitsBetweenTrims = 64;

  struct Entry {
    std::string tenant;
    std::string key;  // includes the tenant
    std::shared_ptr<const Constraint> constraint;
  };
  using Entries = std::list<Entry>;  // most recently used first
  // An entry, and its share of what is being limited: bytes, or one entry.
  struct Part {
    Entries::iterator entry;
    int64_t amount = 0;
  };

  std::shared_ptr<const TokenTable> Table();
  std::vector<std::shared_ptr<const Constraint>> Trim() WEFT_REQUIRES(mutex_);
  void TrimToCount(std::vector<std::shared_ptr<const Constraint>>* too_much) WEFT_REQUIRES(mutex_);
  void Erase(Entries::iterator entry) WEFT_REQUIRES(mutex_);
  // Sorts the parts so that those to evict first come first. `most`: the limit for all together.
  static void SortToGo(int64_t most, std::vector<Part>* parts);

  const MakeTable make_table_;
  const Limits limits_;
  Mutex table_mutex_;  // held while the table is built
  std::shared_ptr<const TokenTable> table_ WEFT_GUARDED_BY(table_mutex_);
  Mutex mutex_;
  Entries entries_ WEFT_GUARDED_BY(mutex_);
  int hits_ WEFT_GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::string_view, Entries::iterator> by_key_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_CONSTRAINT_CACHE_H_
