// The domain of a session's prefixes: its owner's, marked with the adapters that the session's
// tokens are computed with. So prefixes in memory and on disk are found only by sessions with equal
// adapters, and the rest of the storage knows nothing of adapters.
#ifndef WEFT_ENGINE_STATE_PREFIX_DOMAIN_H_
#define WEFT_ENGINE_STATE_PREFIX_DOMAIN_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "base/strings.h"
#include "engine/state/session_file.h"

namespace weft {

// Begins a marked domain; no owner's domain begins with it.
inline constexpr char kAdapterMark = '\x1f';
inline constexpr size_t kAdapterMarkBytes = 33;  // and 32 hexadecimal digits

inline std::string PrefixDomain(std::string_view domain, const Fingerprint& adapters) {
  return StrCat(std::string_view(&kAdapterMark, 1), adapters.ToHex(), domain);
}

// The name of the domain's tree of prefixes, if all owners share theirs or if each has its own.
inline std::string_view TreeOf(std::string_view prefix_domain, bool is_shared) {
  if (!is_shared) return prefix_domain;
  return prefix_domain.starts_with(kAdapterMark) ? prefix_domain.substr(0, kAdapterMarkBytes)
                                                 : std::string_view();
}

}  // namespace weft

#endif  // WEFT_ENGINE_STATE_PREFIX_DOMAIN_H_
