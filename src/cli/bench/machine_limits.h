// Measures this machine's maximum performance.
#ifndef WEFT_CLI_BENCH_MACHINE_LIMITS_H_
#define WEFT_CLI_BENCH_MACHINE_LIMITS_H_

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "model/formats/model_file.h"
#include "model/model_spec.h"

namespace weft::cli {

struct MachineLimits {
  double read_bytes_per_s = 0;
  double int8_macs_per_s = 0;
  double float_macs_per_s = 0;  // 0: not known
};

enum class LimitKind { kUnknown, kReading, kMultiplying };
std::string_view NameOf(LimitKind kind);

// A stage's bottleneck, and the share of that limit that it reaches.
struct StageLimit {
  LimitKind kind = LimitKind::kUnknown;
  double share = 0;
};
// For a stage that takes `seconds` to read `bytes` and to multiply, where the two may overlap.
StageLimit LimitOfStage(const MachineLimits& limits, double seconds, double bytes, double int8_macs,
                        double float_macs);

// Takes about a second on `n_threads` threads (0: one per core).
MachineLimits MeasureMachineLimits(int n_threads);

// A model's cost per token according to its spec: multiply-adds, and bytes of weights that every
// step must read once, whatever the number of rows.
struct ModelCost {
  double macs_per_row = 0;         // without the output matrix
  double macs_without_logits = 0;  // for a row of which only the state is needed
  double output_macs = 0;          // output matrix, per row of logits
  double dense_bytes = 0;          // read by every step, including the output matrix
  // Experts: bytes of one over all layers, how many exist and how many are used.
  double expert_bytes = 0;
  double n_experts = 0;
  double n_used = 0;

  // Bytes of weights read by a step of `rows` rows, assuming random expert choices.
  double StepBytes(double rows) const;
};
ModelCost CostOf(const ModelFile& file, const ModelSpec& spec);

// The tokens per second that the limits allow: `rows` rows per step, all with logits, with reading
// and computing overlapped.
struct RateLimit {
  double tokens_per_s = 0;
  LimitKind kind = LimitKind::kUnknown;
};
RateLimit DecodeLimit(const ModelCost& cost, const MachineLimits& limits, double rows,
                      double kv_bytes_per_row);
// The same for a prompt, where all tokens except the last need only the state.
RateLimit PromptLimit(const ModelCost& cost, const MachineLimits& limits);

}  // namespace weft::cli

#endif  // WEFT_CLI_BENCH_MACHINE_LIMITS_H_
