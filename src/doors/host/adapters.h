// The LoRA adapters of a served model as requests name them: by number, in the order of the flags,
// or by name; and how strongly each acts where a request says nothing, which clients may change.
//
// Any thread.
#ifndef WEFT_DOORS_HOST_ADAPTERS_H_
#define WEFT_DOORS_HOST_ADAPTERS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "weft/options.h"

namespace weft::serve {

class Adapters {
 public:
  struct Adapter {
    std::string name;
    std::string file_name;
    float own_scale = 1;  // where a request names it as its model
    float scale = 0;      // where it says nothing
  };
  struct Choice {
    int64_t number = 0;
    float scale = 0;
  };

  explicit Adapters(std::vector<Adapter> adapters) : adapters_(std::move(adapters)) {}

  std::vector<Adapter> List() const WEFT_EXCLUDES(mutex_);
  // For requests that say nothing.
  std::vector<AdapterScale> Defaults() const WEFT_EXCLUDES(mutex_);
  // These from now on; those not among them are off. INVALID_ARGUMENT, as of Of.
  Status SetDefaults(std::span<const Choice> choices) WEFT_EXCLUDES(mutex_);
  // The chosen ones. INVALID_ARGUMENT for a number that no adapter has, or one given twice.
  StatusOr<std::vector<AdapterScale>> Of(std::span<const Choice> choices) const
      WEFT_EXCLUDES(mutex_);
  // The adapter in a model's name: "sql" or "base:sql". Empty: the name has none.
  std::vector<AdapterScale> InName(std::string_view model) const WEFT_EXCLUDES(mutex_);

 private:
  Status Check(std::span<const Choice> choices) const WEFT_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::vector<Adapter> adapters_ WEFT_GUARDED_BY(mutex_);
};

// "base" of "base:sql"; the whole name if it has no colon.
std::string_view BaseOfName(std::string_view model);

}  // namespace weft::serve

#endif  // WEFT_DOORS_HOST_ADAPTERS_H_
