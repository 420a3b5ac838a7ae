// A step's run with something of a test's own after it, for executors that disturb a real one.
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
  WrappedRun(std::unique_ptr<StepRun> inner, std::function<Status(Status)> after)
      : inner_(std::move(inner)), after_(std::move(after)) {}

  StatusOr<bool> Advance(FunctionRef<bool()> pause) override {
    const StatusOr<bool> done = inner_->Advance(pause);
    if (done.ok() && !*done) return false;
    WEFT_RETURN_IF_ERROR(after_(done.status()));
    return true;
  }

 private:
  const std::unique_ptr<StepRun> inner_;
  const std::function<Status(Status)> after_;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_WRAPPED_RUN_H_
