// The constraints that were compiled last for one vocabulary, by what they say.
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

  explicit ConstraintCache(std::shared_ptr<const Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)) {}

  // What `make` made for an equal key, or makes now. Failures are not kept.
  Made Get(const std::string& key, FunctionRef<Made(std::shared_ptr<const TokenTable>)> make);

 private:
  // What is kept takes at most about so much, but the newest stays whatever it takes.
  static constexpr size_t kMostKept = 64;
  static constexpr int64_t kMostBytes = 256 << 20;

  struct Entry {
    std::string key;
    std::shared_ptr<const Constraint> constraint;
  };

  std::shared_ptr<const TokenTable> Table();
  void DropWhatIsTooMuch() WEFT_REQUIRES(mutex_);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  Mutex table_mutex_;  // held while the table is made
  std::shared_ptr<const TokenTable> table_ WEFT_GUARDED_BY(table_mutex_);
  Mutex mutex_;
  std::list<Entry> entries_ WEFT_GUARDED_BY(mutex_);  // used last first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_CONSTRAINT_CACHE_H_
