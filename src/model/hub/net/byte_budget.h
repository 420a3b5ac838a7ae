// The bytes that downloads may still receive, all together.
//
// Any thread.
#ifndef WEFT_MODEL_HUB_NET_BYTE_BUDGET_H_
#define WEFT_MODEL_HUB_NET_BYTE_BUDGET_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/status.h"
#include "base/strings.h"

namespace weft::hub {

class ByteBudget {
 public:
  explicit ByteBudget(int64_t n_bytes) : n_bytes_(n_bytes), left_(n_bytes) {}

  // Whether `n_bytes` may arrive; takes nothing.
  Status Check(int64_t n_bytes) const { return n_bytes <= left_.load() ? OkStatus() : Refusal(); }
  // Takes bytes that have arrived. After an error nothing is left.
  Status Take(int64_t n_bytes) {
    return left_.fetch_sub(n_bytes) >= n_bytes ? OkStatus() : Refusal();
  }

 private:
  Status Refusal() const {
    const int64_t left = std::max<int64_t>(0, left_.load());
    return absl::PermissionDeniedError(StrCat(
        "clients may have this server download ", HumanBytes(static_cast<uint64_t>(n_bytes_)),
        " until it restarts, of which ", HumanBytes(static_cast<uint64_t>(left)),
        " are left: the operator can use 'weft pull NAME', or raise --pull-budget"));
  }

  const int64_t n_bytes_;
  std::atomic<int64_t> left_;
};

}  // namespace weft::hub

#endif  // WEFT_MODEL_HUB_NET_BYTE_BUDGET_H_
