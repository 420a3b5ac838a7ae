// Any bytes as the parameters of an Ollama model: whatever is taken makes sense.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "model/hub/model_advice.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const weft::SamplingAdvice advice =
      weft::hub::ParseOllamaParameters({reinterpret_cast<const char*>(data), size});
  for (const weft::SamplingParameter& field : weft::SamplingParameters()) {
    const auto& number = advice.*field.advice;
    WEFT_CHECK(!number || field.Takes(*number), "advice that makes no sense");
  }
  WEFT_CHECK(advice.stop.size() <= 64, "too many stops");
  for (const std::string& stop : advice.stop) WEFT_CHECK(!stop.empty(), "an empty stop");
  return 0;
}
