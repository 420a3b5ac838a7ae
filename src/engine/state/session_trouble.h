// Why a session in a shared store cannot be used, as a status that says so to programs, too
// (TroubleOf in weft/shared_store.h).
#ifndef WEFT_ENGINE_STATE_SESSION_TROUBLE_H_
#define WEFT_ENGINE_STATE_SESSION_TROUBLE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "weft/shared_store.h"

namespace weft {

// ABORTED. `owner`: the other server's address.
Status SessionElsewhere(std::string_view owner, int64_t retry_s);
// ABORTED.
Status SessionMoved();
// Whether the same call of a store may succeed later.
inline bool MayPass(const Status& status) {
  return status.code() == StatusCode::kUnavailable ||
         status.code() == StatusCode::kDeadlineExceeded;
}
// UNAVAILABLE. `why` is the store's error, for the operator: clients are not told.
Status StoreUnavailable(const Status& why);
std::string WhyUnavailable(const Status& status);

}  // namespace weft

#endif  // WEFT_ENGINE_STATE_SESSION_TROUBLE_H_
