// A backend whose models have recurrent state. Another backend computes them; slots record which
// tokens went through them, how many, and in which order.
//
// A slot's contents change the logits, so a wrong slot changes the output. If a slot's history is
// not exactly the tokens before a step's, the step fails with an error that says so. That includes
// slots that were never written, or were touched by a failed step.
//
// Threads: as Backend and Executor.
#ifndef WEFT_TESTS_SUPPORT_RECURRENT_BACKEND_H_
#define WEFT_TESTS_SUPPORT_RECURRENT_BACKEND_H_

#include <cstdint>
#include <memory>

#include "tests/support/wrapped_backend.h"

namespace weft::testing {

class RecurrentBackend : public WrappedBackend {
 public:
  static constexpr int64_t kSlotBytes = 8192;

  explicit RecurrentBackend(const Backend* inner) : WrappedBackend(inner) {}

  std::string_view name() const override { return "recurrent"; }
  const BackendCapabilities& capabilities() const override { return capabilities_; }
  StatusOr<std::shared_ptr<const Weights>> Load(std::shared_ptr<const ModelFile> file,
                                                ModelSpec spec,
                                                const LoadOptions& options) const override;
  StatusOr<std::unique_ptr<StateStore>> NewState(const Weights& weights,
                                                 const StateOptions& options) const override;
  StatusOr<std::unique_ptr<Executor>> NewExecutor(std::shared_ptr<const Weights> weights,
                                                  StateStore* state,
                                                  const ExecutorOptions& options) const override;

 private:
  const BackendCapabilities capabilities_ = WithoutBest(WrappedBackend::capabilities());
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_RECURRENT_BACKEND_H_
