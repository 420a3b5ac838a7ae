#include "answer/vectors.h"

#include <cmath>

#include "base/strings.h"

namespace weft::serve {

Status CheckGivesVectors(const Model& model, std::string_view name) {
  if (model.uses().vectors) return OkStatus();
  const char* const hint = model.uses().text ? "; --pooling makes the server give them" : "";
  return InvalidArgument("the model ", name, " gives no embeddings: it is for ", model.purpose(),
                         hint);
}

std::vector<float> UnitVector(std::span<const float> vector, int64_t dimensions) {
  if (dimensions > 0) vector = vector.first(static_cast<size_t>(dimensions));
  double sum = 0;
  for (const float value : vector) sum += static_cast<double>(value) * static_cast<double>(value);
  const double factor = sum > 0 ? 1 / std::sqrt(sum) : 0;
  std::vector<float> unit;
  unit.reserve(vector.size());
  for (const float value : vector) {
    unit.push_back(static_cast<float>(static_cast<double>(value) * factor));
  }
  return unit;
}

}  // namespace weft::serve
