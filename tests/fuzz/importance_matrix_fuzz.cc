// Importance matrices of the older form, from anywhere. Reading one must end in numbers that can be
// used as weights, or in a sentence.
#include <cmath>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "model/formats/importance_matrix.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto matrix = weft::ImportanceMatrix::FromOldForm("file", std::as_bytes(std::span(data, size)));
  if (!matrix.ok()) {
    WEFT_CHECK(!matrix.status().message().empty(), "a sentence");
    return 0;
  }
  const weft::ImportanceMatrix read = *matrix;
  size_t n_values = 0;
  for (const auto& [tensor, entry] : read.entries) {
    n_values += entry.sums.size();
    const auto means = read.MeansOf(tensor, static_cast<int64_t>(entry.sums.size()), 1);
    WEFT_CHECK(means.ok() && means->size() == entry.sums.size(), "a mean for each sum");
    for (const float mean : *means) WEFT_CHECK(std::isfinite(mean) && mean >= 0, "usable weights");
  }
  WEFT_CHECK(n_values * sizeof(float) <= size, "no more values than were sent");
  WEFT_CHECK(matrix->Add(read).ok(), "a matrix can be added to itself");
  return 0;
}
