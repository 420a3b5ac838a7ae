// Matrices from anywhere: NumPy's, safetensors, PyTorch's archives. Reading one must end in its
// vectors, all of them finite, or in a sentence. The first byte says how wide they are to be.
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "answer/row_file.h"
#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const int64_t width = 1 + data[0] % 8;
  const std::string bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  const auto rows = weft::serve::ReadRowFile(bytes, width);
  if (rows.ok()) {
    WEFT_CHECK(!rows->empty() && static_cast<int64_t>(rows->size()) % width == 0, "whole vectors");
    WEFT_CHECK(rows->size() * 2 <= bytes.size(), "no more numbers than were sent");
    for (const float value : *rows) WEFT_CHECK(std::isfinite(value), "finite numbers");
  } else {
    WEFT_CHECK(!rows.status().message().empty(), "a sentence");
  }
  const auto decoded = weft::serve::DecodeBase64(bytes);
  WEFT_CHECK(!decoded || decoded->size() <= bytes.size(), "base64 shrinks");
  return 0;
}
