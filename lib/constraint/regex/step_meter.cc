#include "constraint/regex/step_meter.h"

#include <algorithm>
#include <utility>

namespace weft::constraint {

int32_t StepMeter::Learn(int32_t known, int first, int last, const Cost& cost) {
  return LearnTo(-1, known, first, last, cost);
}

int32_t StepMeter::AddSearch(int64_t steps) {
  dear_.push_back({.cost = {.search = steps}});
  return static_cast<int32_t>(dear_.size()) - 1;
}

int32_t StepMeter::LearnTo(int32_t search, int32_t known, int first, int last, const Cost& cost) {
  const auto id = static_cast<int32_t>(dear_.size());
  dear_.push_back({.first = static_cast<uint8_t>(first),
                   .last = static_cast<uint8_t>(last),
                   .cost = cost,
                   .next = known,
                   .search = search});
  Pass(id, static_cast<uint8_t>(first));
  return id;
}

void StepMeter::Pass(int32_t known, uint8_t byte) {
  for (int32_t i = known; i >= 0; i = dear_[static_cast<size_t>(i)].next) {
    Dear& dear = dear_[static_cast<size_t>(i)];
    if (byte < dear.first || byte > dear.last) continue;
    if (is_aside_) {
      aside_.step = std::min(aside_.step + dear.cost.step, kTooMuch);
      aside_.search = std::min(aside_.search + dear.cost.search, kTooMuch);
    } else if (std::exchange(dear.passed, resets_) != resets_) {
      Spend(dear.cost.step);
      Dear& searched = dear.search < 0 ? dear : dear_[static_cast<size_t>(dear.search)];
      const bool counts = dear.search < 0 || std::exchange(searched.passed, resets_) != resets_;
      if (counts) Spend(searched.cost.search);
    }
    return;
  }
}

}  // namespace weft::constraint
