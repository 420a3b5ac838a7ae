// What this machine can do at most, measured when asked for.
#ifndef WEFT_CLI_BENCH_MACHINE_LIMITS_H_
#define WEFT_CLI_BENCH_MACHINE_LIMITS_H_

#include <cstdint>

#include "base/status.h"
#include "formats/model_file.h"
#include "model/model_spec.h"

namespace weft::cli {

struct MachineLimits {
  double read_bytes_per_s = 0;
  double int8_macs_per_s = 0;
};

// Takes about a second on `n_threads` threads (0: one per core).
MachineLimits MeasureMachineLimits(int n_threads);

// What one token costs a model, by its spec: multiply-adds, and bytes of weights that
// must be read once per step whatever the number of rows.
struct ModelCost {
  double macs_per_row = 0;         // without the output matrix
  double macs_without_logits = 0;  // of a row of which only the state is wanted
  double output_macs = 0;          // of the output matrix, per row of logits
  double dense_bytes = 0;          // read by every step, the output matrix included
  // Experts: bytes of one of them over all layers, how many there are and are used.
  double expert_bytes = 0;
  double n_experts = 0;
  double n_used = 0;

  // Bytes of weights that a step of `rows` rows reads, expert choices being random.
  double StepBytes(double rows) const;
};
ModelCost CostOf(const ModelFile& file, const ModelSpec& spec);

// The tokens per second that the limits allow: `rows` rows per step, all with logits,
// reading and computing overlapped.
double DecodeLimit(const ModelCost& cost, const MachineLimits& limits, double rows,
                   double kv_bytes_per_row);
// The same for a prompt, of whose tokens, but for the last, only the state is wanted.
double PromptLimit(const ModelCost& cost, const MachineLimits& limits);

// What this process has in memory now, mapped files included where they were touched.
int64_t ResidentBytes();

}  // namespace weft::cli

#endif  // WEFT_CLI_BENCH_MACHINE_LIMITS_H_
