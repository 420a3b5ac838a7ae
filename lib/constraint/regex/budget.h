// What the work on regular languages has cost, and how much it may cost.
//
// Work counts every step; bytes count what a pool holds. After a limit, `exhausted()` is true and
// stays true. One thread at a time.
#ifndef WEFT_CONSTRAINT_REGEX_BUDGET_H_
#define WEFT_CONSTRAINT_REGEX_BUDGET_H_

#include <algorithm>
#include <cstdint>

#include "constraint/regex/step_meter.h"

namespace weft::constraint {

class RegexBudget {
 public:
  void SetLimits(int64_t max_work, int64_t max_bytes) {
    max_work_ = max_work;
    max_bytes_ = max_bytes;
  }
  void Spend(int64_t work, int64_t bytes = 0) {
    work_ += work;
    bytes_ += bytes;
    if (work_ > max_work_ || bytes_ > max_bytes_) exhausted_ = true;
  }
  // Work that is the same whether parts of its result are cached or not.
  void Step(int64_t steps) {
    CountSteps(steps);
    Spend(steps);
  }
  // Such steps whose work is spent elsewhere.
  void CountSteps(int64_t steps) { steps_ += steps; }

  bool exhausted() const { return exhausted_; }
  int64_t work() const { return work_; }
  int64_t work_left() const { return std::max<int64_t>(max_work_ - work_, 0); }
  int64_t bytes() const { return bytes_; }
  int64_t steps() const { return steps_; }
  // What it would have cost without caches.
  StepMeter& meter() { return meter_; }
  const StepMeter& meter() const { return meter_; }

 private:
  int64_t work_ = 0, bytes_ = 0;
  int64_t steps_ = 0;  // the part of work_ that does not depend on earlier questions
  StepMeter meter_;
  int64_t max_work_ = INT64_MAX, max_bytes_ = INT64_MAX;
  bool exhausted_ = false;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_REGEX_BUDGET_H_
