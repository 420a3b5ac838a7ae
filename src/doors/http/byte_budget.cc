#include "doors/http/byte_budget.h"

#include <algorithm>
#include <array>
#include <utility>

#include "json/json_fields.h"

namespace weft::serve {

ByteBudget::Hold& ByteBudget::Hold::operator=(Hold&& other) noexcept {
  if (this == &other) return *this;
  (void)Resize(0);
  budget_ = std::exchange(other.budget_, nullptr);
  account_ = std::move(other.account_);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

Status ByteBudget::Hold::Resize(uint64_t bytes) {
  if (budget_ == nullptr) return OkStatus();
  bytes = std::min(bytes, budget_->share_);
  if (bytes == bytes_) return OkStatus();
  WEFT_RETURN_IF_ERROR(budget_->Change(account_, bytes_, bytes, /*may_refuse=*/true));
  bytes_ = bytes;
  return OkStatus();
}

void ByteBudget::Hold::Take(uint64_t bytes) {
  if (budget_ == nullptr) return;
  (void)budget_->Change(account_, bytes_, bytes, /*may_refuse=*/false);
  bytes_ = bytes;
}

uint64_t ByteBudget::ShareBeside(uint64_t others) const {
  const auto left = static_cast<double>(total_ - std::min(total_, others));
  const double share =
      left * static_cast<double>(share_) / static_cast<double>(std::max<uint64_t>(1, total_));
  return std::min(share_, static_cast<uint64_t>(share));
}

Status ByteBudget::Check(uint64_t of_account, uint64_t from, uint64_t to) const {
  if (to <= from) return OkStatus();
  const uint64_t more = to - from;
  if (of_account > from && of_account + more > ShareBeside(held_ - of_account)) {
    return ResourceExhausted("too many of your large requests are in progress; try again later");
  }
  if (held_ > from && held_ + more > total_) {
    return Unavailable("the server has too many large requests in progress; try again later");
  }
  return OkStatus();
}

Status ByteBudget::Change(const std::string& account, uint64_t from, uint64_t to, bool may_refuse) {
  MutexLock lock(&mutex_);
  const auto entry = of_account_.find(account);
  const uint64_t of_account = entry == of_account_.end() ? 0 : entry->second;
  if (may_refuse) WEFT_RETURN_IF_ERROR(Check(of_account, from, to));
  held_ = held_ - from + to;
  if (of_account - from + to > 0) {
    of_account_[account] = of_account - from + to;
  } else if (entry != of_account_.end()) {
    of_account_.erase(entry);
  }
  return OkStatus();
}

uint64_t ByteBudget::held() const {
  MutexLock lock(&mutex_);
  return held_;
}

size_t ByteBudget::n_accounts() const {
  MutexLock lock(&mutex_);
  return of_account_.size();
}

uint64_t EstimateParsedBytes(std::string_view json) {
  // The body, its strings as values, in the chat request, and in the rendered prompt.
  constexpr uint64_t kCopies = 5;
  // A value in its list or object, and the list's spare capacity.
  constexpr uint64_t kValueBytes = 96;
  static constexpr auto kBeginsValue = [] {
    std::array<uint8_t, 256> begins = {};
    for (const char c : {',', ':', '[', '{'}) begins[static_cast<unsigned char>(c)] = 1;
    return begins;
  }();
  uint64_t values = 1;
  for (const char c : json) values += kBeginsValue[static_cast<unsigned char>(c)];
  // Further values are refused before they are created.
  values = std::min<uint64_t>(values, JsonLimits().max_values);
  return json.size() * kCopies + values * kValueBytes;
}

}  // namespace weft::serve
