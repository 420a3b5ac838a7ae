// The constraints that were compiled last for one vocabulary, by what they say.
//
// Constraints grow while answers follow them. What they take together is looked at whenever one
// comes, and at times else: then those that nobody follows give their automata back, the longest
// unused first, and the others share what there is. If tenants share the cache, those with more
// than an equal share give first.
//
// What a tenant compiled only that tenant gets: that a schema is there already, or its automaton
// grown, could be measured, and would tell another tenant that it is used. All share the table of
// tokens, which says nothing about anybody.
//
// Any thread. Two that ask for the same at the same time may both compile it.
#ifndef WEFT_CONSTRAINT_CONSTRAINT_CACHE_H_
#define WEFT_CONSTRAINT_CONSTRAINT_CACHE_H_

#include <cstdint>
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
#include "tokenizer/tokenizer.h"

namespace weft::constraint {

class ConstraintCache {
 public:
  using Made = StatusOr<std::shared_ptr<const Constraint>>;

  struct Limits {
    size_t most_kept = 64;
    // What all take together, about; those in use may take more.
    int64_t most_bytes = 256 << 20;
    // A constraint in use has this at least.
    int64_t least_share = 8 << 20;
  };

  explicit ConstraintCache(std::shared_ptr<const Tokenizer> tokenizer)
      : ConstraintCache(std::move(tokenizer), Limits{}) {}
  ConstraintCache(std::shared_ptr<const Tokenizer> tokenizer, const Limits& limits)
      : tokenizer_(std::move(tokenizer)), limits_(limits) {}

  // What `make` made for the tenant and an equal key, or makes now. Failures are not kept.
  // `tenant`: as TurnOptions::tenant; empty where there is only one.
  Made Get(std::string_view tenant, std::string_view key,
           FunctionRef<Made(std::shared_ptr<const TokenTable>)> make);

 private:
  static constexpr int kHitsBetweenTrims = 64;

  struct Entry {
    std::string tenant;
    std::string key;  // includes the tenant
    std::shared_ptr<const Constraint> constraint;
  };
  using Entries = std::list<Entry>;  // used last first
  // An entry, and how much of the cache it takes.
  struct Part {
    Entries::iterator entry;
    int64_t amount = 0;
  };

  std::shared_ptr<const TokenTable> Table();
  std::vector<std::shared_ptr<const Constraint>> Trim() WEFT_REQUIRES(mutex_);
  void TrimToCount(std::vector<std::shared_ptr<const Constraint>>* too_much) WEFT_REQUIRES(mutex_);
  void Erase(Entries::iterator entry) WEFT_REQUIRES(mutex_);
  // Sorts them, the one that should go first first. `most`: what all may take.
  static void SortToGo(int64_t most, std::vector<Part>* parts);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const Limits limits_;
  Mutex table_mutex_;  // held while the table is made
  std::shared_ptr<const TokenTable> table_ WEFT_GUARDED_BY(table_mutex_);
  Mutex mutex_;
  Entries entries_ WEFT_GUARDED_BY(mutex_);
  int hits_ WEFT_GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::string_view, Entries::iterator> by_key_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_CONSTRAINT_CACHE_H_
