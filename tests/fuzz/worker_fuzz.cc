// Fuzzing of the worker's lines: whatever comes is a request within its ranges, or a
// sentence.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "doors/worker/worker_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using weft::serve::WorkerRequest;
  const auto request = weft::serve::ParseWorkerRequest({reinterpret_cast<const char*>(data), size});
  if (!request.ok()) {
    WEFT_CHECK(!weft::Message(request.status()).empty(), "an error says nothing");
    return 0;
  }
  WEFT_CHECK(request->op == WorkerRequest::Op::kGenerate || !request->session_id.empty(),
             "a session call without a session");
  const weft::SamplingAdvice& said = request->sampling;
  WEFT_CHECK(said.top_p.value_or(1) > 0 && said.top_p.value_or(1) <= 1,
             "top_p is out of its range");
  WEFT_CHECK(said.top_k.value_or(0) >= 0 && said.temperature.value_or(0) >= 0,
             "a negative number got through");
  for (const auto& segment : request->prompt) {
    const auto* const ids = std::get_if<std::vector<int32_t>>(&segment);
    if (ids == nullptr) continue;
    for (const int32_t id : *ids) WEFT_CHECK(id >= 0, "a negative token got through");
  }
  return 0;
}
