// Experts computed on the host for a device that computes the rest of the model.
//
// The device's weights come from a spec whose mixtures lack gate, up and down. The device routes;
// rows, experts and weights are downloaded, and the experts' outputs uploaded, once per mixture.
//
// Belongs to the executor it is made for, and to its thread. Calls keep no state, so the executor's
// two open steps may alternate.
#ifndef WEFT_COMPUTE_HOST_EXPERTS_H_
#define WEFT_COMPUTE_HOST_EXPERTS_H_

#include <cstdint>

#include "base/status.h"

namespace weft {

struct RoutedRows {
  int64_t n = 0;                     // at most ExecutorOptions::max_step_tokens
  const float* values = nullptr;     // d_model for each row
  const int32_t* experts = nullptr;  // n_used for each row, best first
  const float* weights = nullptr;    // their weights
};

class HostExperts {
 public:
  virtual ~HostExperts() = default;
  // Writes mixture `mixture`'s output for each row, as n rows of d_model values. Mixtures without
  // experts are numbered in the spec's order, from 0. A row's bits depend on the row alone.
  virtual Status Compute(int64_t mixture, const RoutedRows& rows, float* out) = 0;
  virtual int64_t scratch_bytes() const = 0;
};

}  // namespace weft

#endif  // WEFT_COMPUTE_HOST_EXPERTS_H_
