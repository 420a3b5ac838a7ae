// Experts that the host computes for a device, which computes all else of a model.
//
// The device's weights are of a spec whose mixtures lack gate, up and down. Its router chooses;
// rows, choices and weights come down, and what the experts give goes back, once per mixture.
//
// Belongs to the executor that it is made for, and to its thread. The executor's two steps may take
// turns: a call leaves nothing behind.
#ifndef WEFT_BACKEND_HOST_EXPERTS_H_
#define WEFT_BACKEND_HOST_EXPERTS_H_

#include <cstdint>

#include "base/status.h"

namespace weft {

struct RoutedRows {
  int64_t n = 0;                     // at most ExecutorOptions::max_step_tokens
  const float* values = nullptr;     // d_model for each row
  const int32_t* experts = nullptr;  // n_used for each row, in the order of choice
  const float* weights = nullptr;    // of those
};

class HostExperts {
 public:
  virtual ~HostExperts() = default;
  // What mixture `mixture` gives for each row, into n rows of d_model values. Mixtures without
  // experts are numbered in the spec's order, from 0. A row's bits depend on the row alone.
  virtual Status Compute(int64_t mixture, const RoutedRows& rows, float* out) = 0;
  virtual int64_t scratch_bytes() const = 0;
};

}  // namespace weft

#endif  // WEFT_BACKEND_HOST_EXPERTS_H_
