// A step's run with something of a test's own in it and after it, for executors that disturb a
// real one.
#ifndef WEFT_TESTS_SUPPORT_WRAPPED_RUN_H_
#define WEFT_TESTS_SUPPORT_WRAPPED_RUN_H_

#include <functional>
#include <memory>
#include <utility>

#include "backend/backend.h"

namespace weft::testing {

class WrappedRun : public StepRun {
 public:
  // `after` is called with how the step ended; its status is the run's.
  // `before`, if any, is called whenever the run goes on, `between` wherever it can pause.
  WrappedRun(std::unique_ptr<StepRun> inner, std::function<Status(Status)> after,
             std::function<void()> between = {}, std::function<void()> before = {})
      : inner_(std::move(inner)),
        after_(std::move(after)),
        between_(std::move(between)),
        before_(std::move(before)) {}

  StatusOr<bool> Advance(FunctionRef<bool()> pause) override {
    if (before_) before_();
    const StatusOr<bool> done = inner_->Advance([&] {
      if (between_) between_();
      return pause();
    });
    if (done.ok() && !*done) return false;
    WEFT_RETURN_IF_ERROR(after_(done.status()));
    return true;
  }

 private:
  const std::unique_ptr<StepRun> inner_;
  const std::function<Status(Status)> after_;
  const std::function<void()> between_;
  const std::function<void()> before_;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_WRAPPED_RUN_H_
