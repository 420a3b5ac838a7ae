#include "engine/drafting/hidden_rows.h"

#include <algorithm>

namespace weft {

void HiddenRows::Put(int64_t first, std::span<const float> rows) {
  if (first < begin_ || first > end()) {
    values_.clear();
    begin_ = first;
  }
  values_.resize(static_cast<size_t>((first - begin_) * width_));
  ForgetBefore(first - max_);
  values_.insert(values_.end(), rows.begin(), rows.end());
}

void HiddenRows::ForgetBefore(int64_t row) {
  const int64_t n = std::clamp<int64_t>(row - begin_, 0, end() - begin_);
  values_.erase(values_.begin(), values_.begin() + n * width_);
  begin_ += n;
}

void HiddenRows::PadFrom(int64_t row) {
  values_.insert(values_.begin(), static_cast<size_t>((begin_ - row) * width_), 0.0f);
  begin_ = row;
}

}  // namespace weft
