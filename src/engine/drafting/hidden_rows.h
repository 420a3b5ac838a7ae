// The hidden values of a model's latest rows, kept until a prediction head has used them.
// Engine thread only.
#ifndef WEFT_ENGINE_DRAFTING_HIDDEN_ROWS_H_
#define WEFT_ENGINE_DRAFTING_HIDDEN_ROWS_H_

#include <cstdint>
#include <span>
#include <vector>

namespace weft {

class HiddenRows {
 public:
  // REQUIRES: width > 0. Keeps the latest `most` rows.
  HiddenRows(int64_t width, int64_t most) : width_(width), max_(most) {}

  // It holds the rows [begin(), end()) of the text.
  int64_t begin() const { return begin_; }
  int64_t end() const { return begin_ + std::ssize(values_) / width_; }
  // Replaces all rows from `first` on. If that leaves a gap after the earlier rows, these are
  // dropped.
  void Put(int64_t first, std::span<const float> rows);
  void ForgetBefore(int64_t row);
  // Adds rows of zeros before begin(), from `row` on. REQUIRES: row <= begin().
  void PadFrom(int64_t row);
  // REQUIRES: it has these rows.
  std::span<const float> Rows(int64_t first, int64_t n) const {
    return std::span(values_).subspan(static_cast<size_t>((first - begin_) * width_),
                                      static_cast<size_t>(n * width_));
  }

 private:
  const int64_t width_, max_;
  int64_t begin_ = 0;
  std::vector<float> values_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_DRAFTING_HIDDEN_ROWS_H_
