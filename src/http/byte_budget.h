// Bytes that requests hold while they are read and answered: at most so many in all, and of
// one account (a key, an address) at most a share, so that nobody can take what all need.
//
// Any thread. The budget outlives its holds.
#ifndef WEFT_HTTP_BYTE_BUDGET_H_
#define WEFT_HTTP_BYTE_BUDGET_H_

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
  // `total` is what all hold together, `share` what one account does.
  ByteBudget(uint64_t total, uint64_t share) : total_(total), share_(share) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  // What one request holds; given back at its end.
  class Hold {
   public:
    Hold() = default;
    Hold(ByteBudget* budget, std::string account) : budget_(budget), account_(std::move(account)) {}
    ~Hold() { (void)Resize(0); }
    Hold(Hold&& other) noexcept { *this = std::move(other); }
    Hold& operator=(Hold&& other) noexcept;

    // RESOURCE_EXHAUSTED when the account would hold more than its share, UNAVAILABLE when all
    // would hold too much; the hold stays as it was then. A request that is the only one is
    // never refused: it would be so for ever. Larger than the share of its account, it counts
    // as that, so that others keep theirs.
    Status Resize(uint64_t bytes);
    // The same of what is there already: never refused, it counts against what comes next.
    void Take(uint64_t bytes);

   private:
    ByteBudget* budget_ = nullptr;
    std::string account_;
    uint64_t bytes_ = 0;
  };

  uint64_t held() const;
  // Those that hold something.
  size_t n_accounts() const;

 private:
  Status Check(uint64_t of_account, uint64_t from, uint64_t to) const WEFT_REQUIRES(mutex_);
  Status Change(const std::string& account, uint64_t from, uint64_t to, bool may_refuse);

  const uint64_t total_, share_;
  mutable Mutex mutex_;
  uint64_t held_ WEFT_GUARDED_BY(mutex_) = 0;
  std::map<std::string, uint64_t> of_account_ WEFT_GUARDED_BY(mutex_);  // none is 0
};

// About how much memory reading `json` and answering takes, from what it consists of.
uint64_t EstimateParsedBytes(std::string_view json);

}  // namespace weft::serve

#endif  // WEFT_HTTP_BYTE_BUDGET_H_
