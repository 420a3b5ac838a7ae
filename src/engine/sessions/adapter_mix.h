// A session's adapters, as steps compute with them, as requests name them and as its file does.
// Immutable; any thread.
#ifndef WEFT_ENGINE_SESSIONS_ADAPTER_MIX_H_
#define WEFT_ENGINE_SESSIONS_ADAPTER_MIX_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/adapter_use.h"
#include "base/status.h"
#include "base/tokens.h"
#include "engine/state/session_file.h"
#include "weft/options.h"

namespace weft {

struct AdapterMix;
// Null: no adapter.
using AdapterMixRef = std::shared_ptr<const AdapterMix>;
struct AdapterMix {
  std::vector<AdapterUse> uses;             // for steps
  std::vector<SessionHead::Adapter> saved;  // for files, in the same order
  Fingerprint key;                          // equal for equal adapters at equal scales
  // If one of them waits for its invocation: the tokens, and the adapters that act before it does.
  std::vector<TokenId> invocation;
  AdapterMixRef before;

  std::string Describe() const;  // "sql at 0.5, tone at 1"
  // Where it acts in a text: from where the invocation begins for the last time. kNotInvoked if it
  // does not, or if none of them waits.
  int64_t InvokedAt(std::span<const TokenId> text) const;
};
bool SameMix(const AdapterMixRef& a, const AdapterMixRef& b);

inline constexpr int64_t kNotInvoked = INT64_MAX;

// The adapters of one model.
class AdapterMixes {
 public:
  struct Known {
    std::string name;
    Fingerprint content;
    std::vector<TokenId> invocation = {};  // see LoadedAdapter
  };
  explicit AdapterMixes(std::vector<Known> known) : known_(std::move(known)) {}

  // NOT_FOUND for a name that no adapter has, INVALID_ARGUMENT for one that comes twice, a scale
  // that is not finite, or two that wait for invocations. Those at scale 0 are left out.
  StatusOr<AdapterMixRef> Of(std::span<const AdapterScale> asked) const;
  // Finds the adapters by their contents, of equal ones that of the name. FAILED_PRECONDITION,
  // naming the first that is not loaded.
  StatusOr<AdapterMixRef> OfSaved(std::span<const SessionHead::Adapter> saved) const;

 private:
  AdapterMixRef Make(std::vector<AdapterUse> uses) const;
  std::string Names() const;
  bool Waits(const AdapterUse& use) const;
  int64_t NumberWaiting(std::span<const AdapterUse> uses) const;

  const std::vector<Known> known_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_SESSIONS_ADAPTER_MIX_H_
