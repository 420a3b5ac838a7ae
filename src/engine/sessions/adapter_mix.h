// A session's adapters, as steps compute with them, as requests name them and as its file does.
// Immutable; any thread.
#ifndef WEFT_ENGINE_SESSIONS_ADAPTER_MIX_H_
#define WEFT_ENGINE_SESSIONS_ADAPTER_MIX_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/adapter_use.h"
#include "base/status.h"
#include "engine/state/session_file.h"
#include "weft/options.h"

namespace weft {

struct AdapterMix {
  std::vector<AdapterUse> uses;             // for steps
  std::vector<SessionHead::Adapter> saved;  // for files, in the same order
  Fingerprint key;                          // equal for equal adapters at equal scales
  std::string Describe() const;             // "sql at 0.5, tone at 1"
};
// Null: no adapter.
using AdapterMixRef = std::shared_ptr<const AdapterMix>;
bool SameMix(const AdapterMixRef& a, const AdapterMixRef& b);

// The adapters of one model.
class AdapterMixes {
 public:
  struct Known {
    std::string name;
    Fingerprint content;
  };
  explicit AdapterMixes(std::vector<Known> known) : known_(std::move(known)) {}

  // NOT_FOUND for a name that no adapter has, INVALID_ARGUMENT for one that comes twice or a scale
  // that is not finite. Those at scale 0 are left out.
  StatusOr<AdapterMixRef> Of(std::span<const AdapterScale> asked) const;
  // Finds the adapters by their contents, of equal ones that of the name. FAILED_PRECONDITION,
  // naming the first that is not loaded.
  StatusOr<AdapterMixRef> OfSaved(std::span<const SessionHead::Adapter> saved) const;

 private:
  AdapterMixRef Make(std::vector<AdapterUse> uses) const;
  std::string Names() const;

  const std::vector<Known> known_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_SESSIONS_ADAPTER_MIX_H_
