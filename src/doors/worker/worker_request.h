// Parses a line from a worker's client: the JSONL protocol of ExecuTorch's model workers. Pure
// functions; any thread.
#ifndef WEFT_DOORS_WORKER_WORKER_REQUEST_H_
#define WEFT_DOORS_WORKER_WORKER_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "answer/ask.h"
#include "base/status.h"
#include "model/sampling/sampling_parameters.h"

namespace weft::serve {

struct WorkerRequest {
  enum class Op { kGenerate, kOpen, kClose, kReset };
  // Text to encode, or tokens to use as they are.
  using Segment = std::variant<std::string, std::vector<int32_t>>;

  Op op = Op::kGenerate;
  std::string session_id;  // empty: anonymous; kGenerate only

  // kGenerate only.
  std::vector<Segment> prompt;
  int64_t max_new_tokens = -1;  // <= 0: until the context is full
  SamplingAdvice sampling;      // before the worker's own, see WorkerOptions
  uint64_t seed = 0;            // 0: random
  std::vector<std::string> stop;
  // The required form of the answer, from json_schema, grammar or regex.
  std::optional<AnswerRule> answer;
  // Fields that the protocol does not have; for the log.
  std::vector<std::string> unknown;
};

// INVALID_ARGUMENT, in the protocol's own wording where it has one. Token ids are only checked to
// fit 32 bits.
StatusOr<WorkerRequest> ParseWorkerRequest(std::string_view line);

}  // namespace weft::serve

#endif  // WEFT_DOORS_WORKER_WORKER_REQUEST_H_
