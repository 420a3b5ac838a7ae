// What steps and masks cost, whatever is cached.
//
// One thread at a time; a copy counts on its own.
#ifndef WEFT_CONSTRAINT_REGEX_STEP_METER_H_
#define WEFT_CONSTRAINT_REGEX_STEP_METER_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace weft::constraint {

// Counts the steps of an operation as if nothing of it had been cached: the cost of a text or mask
// must not depend on earlier questions. Cheap steps are not counted here; their callers count them.
class StepMeter {
 public:
  static constexpr int64_t kTooMuch = int64_t{1} << 40;
  // Cheaper searches are not metered.
  static constexpr int64_t kDearSearch = 128;

  // The cost of a step itself, and of the search for a way to the end after it.
  struct Cost {
    int64_t step = 0, search = 0;
    int64_t Sum() const { return std::min(step + search, kTooMuch); }
  };

  int64_t spent() const { return spent_; }
  void Spend(int64_t steps) { spent_ = std::min(spent_ + steps, kTooMuch); }
  void Reset(int64_t spent) {
    spent_ = spent;
    ++resets_;
  }
  // Costs between BeginAside and EndAside go to aside() instead of spent(), and each costly step
  // counts every time.
  void BeginAside() {
    is_aside_ = true;
    aside_ = {};
  }
  const Cost& aside() const { return aside_; }
  void EndAside() { is_aside_ = false; }
  // Adds a costly step by the bytes [first, last] to the list `known` (-1: empty), counts it as
  // taken, and returns the new list.
  int32_t Learn(int32_t known, int first, int last, const Cost& cost);
  // The same for a step whose search, an entry made by AddSearch, is shared with other steps: it
  // counts once for all of them.
  int32_t LearnTo(int32_t search, int32_t known, int first, int last, const Cost& cost);
  int32_t AddSearch(int64_t steps);
  // Takes the step in the list `known` that has this byte. It counts once between two calls of
  // Reset.
  void Pass(int32_t known, uint8_t byte);

 private:
  struct Dear {
    uint8_t first = 0, last = 0;
    Cost cost;
    uint64_t passed = 0;  // value of resets_ when it was last taken
    int32_t next = -1;    // next in the same list
    int32_t search = -1;  // a search shared with other steps
  };
  int64_t spent_ = 0;
  bool is_aside_ = false;
  Cost aside_;
  uint64_t resets_ = 1;
  std::vector<Dear> dear_;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_REGEX_STEP_METER_H_
