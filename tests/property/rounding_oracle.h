// The expected output on a backend that does not promise the same bits: its numbers equal those of
// `reference`, except for the order of sums.
//
// One rounding may change a sampled token, and everything after it. So this does not predict the
// output: it computes the logits from which each token was sampled, and compares the
// log-probabilities that the turn reports. State of another session or position changes them by far
// more than rounding does.
#ifndef WEFT_TESTS_PROPERTY_ROUNDING_ORACLE_H_
#define WEFT_TESTS_PROPERTY_ROUNDING_ORACLE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/property/oracle.h"
#include "tests/support/model_runner.h"

namespace weft::testing {

// One thread.
class RoundingOracle : public Oracle {
 public:
  // `reference`: the model on that backend.
  explicit RoundingOracle(std::shared_ptr<const Model> reference) : Oracle(std::move(reference)) {}

  // REQUIRES: the turn reports log-probabilities of the model's own distribution.
  StatusOr<std::string> Compare(KvType kv_type, const Context& context, const TurnOptions& options,
                                int choice, const ChoiceRecord& got) override;

  // Number of compared tokens, and the largest difference of a log-probability.
  int64_t n_compared() const { return n_compared_; }
  double largest_difference() const { return largest_difference_; }

 private:
  // Logits of the last `n` of the tokens.
  StatusOr<std::vector<float>> LastRows(KvType kv_type, const Context& context, int64_t n);
  std::string CompareToken(const TokenEvent& event, const std::vector<double>& row,
                           double tolerance, bool is_greedy);

  int64_t n_compared_ = 0;
  double largest_difference_ = 0;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTY_ROUNDING_ORACLE_H_
