// Limits the bytes that requests hold while they are read and answered: a total, and for an account
// (a key or an address) a share of the bytes that others leave. So however many accounts fill
// theirs, the next one finds room.
//
// Any thread. The budget outlives its holds.
#ifndef WEFT_DOORS_HTTP_BYTE_BUDGET_H_
#define WEFT_DOORS_HTTP_BYTE_BUDGET_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"

namespace weft::serve {

class ByteBudget {
 public:
  // `total` is the limit for all accounts together, `share` the limit for an account alone. With
  // others, each gets the fraction share / total of the bytes that they leave.
  ByteBudget(uint64_t total, uint64_t share) : total_(total), share_(share) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  // One request's bytes; released by the destructor.
  class Hold {
   public:
    Hold() = default;
    Hold(ByteBudget* budget, std::string account) : budget_(budget), account_(std::move(account)) {}
    ~Hold() { (void)Resize(0); }
    Hold(Hold&& other) noexcept { *this = std::move(other); }
    Hold& operator=(Hold&& other) noexcept;

    // RESOURCE_EXHAUSTED if the account would exceed its share, UNAVAILABLE if the total would be
    // exceeded; the hold is then unchanged. A request that is the only one is never refused, or it
    // would be refused forever. If it exceeds its account's share, it counts as exactly the share,
    // so that others keep theirs.
    Status Resize(uint64_t bytes);
    // The same for bytes that already exist: never refused, but counts against later requests.
    void Take(uint64_t bytes);

   private:
    ByteBudget* budget_ = nullptr;
    std::string account_;
    uint64_t bytes_ = 0;
  };

  uint64_t held() const;
  // Accounts that hold something.
  size_t n_accounts() const;

 private:
  uint64_t ShareBeside(uint64_t others) const;
  Status Check(uint64_t of_account, uint64_t from, uint64_t to) const WEFT_REQUIRES(mutex_);
  Status Change(const std::string& account, uint64_t from, uint64_t to, bool may_refuse);

  const uint64_t total_, share_;
  mutable Mutex mutex_;
  uint64_t held_ WEFT_GUARDED_BY(mutex_) = 0;
  std::map<std::string, uint64_t> of_account_ WEFT_GUARDED_BY(mutex_);  // no zero entries
};

// Estimates the memory for parsing `json` and answering it, from its structure.
uint64_t EstimateParsedBytes(std::string_view json);

}  // namespace weft::serve

#endif  // WEFT_DOORS_HTTP_BYTE_BUDGET_H_
