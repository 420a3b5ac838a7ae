// Comparison of rows of logits.
#ifndef WEFT_TESTS_SUPPORT_LOGITS_H_
#define WEFT_TESTS_SUPPORT_LOGITS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace weft::testing {

inline std::span<const float> LogitRow(std::span<const float> logits, int64_t n_vocab,
                                       int64_t row) {
  return logits.subspan(row * n_vocab, n_vocab);
}

inline bool SameBytes(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

inline int ArgMax(std::span<const float> row) {
  return static_cast<int>(std::ranges::max_element(row) - row.begin());
}

// The largest value minus the second largest.
inline float Margin(std::span<const float> row) {
  const int best = ArgMax(row);
  float second = -INFINITY;
  for (size_t i = 0; i < row.size(); ++i) {
    if (static_cast<int>(i) != best) second = std::max(second, row[i]);
  }
  return row[best] - second;
}

// Infinite if the sizes differ or a value is NaN.
inline double MaxDifference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - b[i]);
    if (!(difference <= largest)) largest = std::isnan(difference) ? INFINITY : difference;
  }
  return largest;
}

inline std::vector<double> LogSoftmax(std::span<const float> row) {
  const double largest = *std::ranges::max_element(row);
  double sum = 0;
  for (const float v : row) sum += std::exp(v - largest);
  std::vector<double> out;
  for (const float v : row) out.push_back(v - largest - std::log(sum));
  return out;
}

// The mean over rows of KL(softmax(p) || softmax(q)), in nats.
// REQUIRES: equal sizes, whole rows.
inline double MeanKl(std::span<const float> p, std::span<const float> q, int64_t n_vocab) {
  const int64_t n_rows = static_cast<int64_t>(p.size()) / n_vocab;
  double total = 0;
  for (int64_t r = 0; r < n_rows; ++r) {
    const std::vector<double> log_p = LogSoftmax(LogitRow(p, n_vocab, r));
    const std::vector<double> log_q = LogSoftmax(LogitRow(q, n_vocab, r));
    for (int64_t i = 0; i < n_vocab; ++i) {
      total += std::exp(log_p[i]) * (log_p[i] - log_q[i]);
    }
  }
  return total / static_cast<double>(n_rows);
}

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_LOGITS_H_
