// The vectors of texts, as all doors give them. Pure functions; any thread.
#ifndef WEFT_ANSWER_VECTORS_H_
#define WEFT_ANSWER_VECTORS_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "weft/model.h"

namespace weft::serve {

// INVALID_ARGUMENT unless the model gives vectors; `name`: the model's for clients.
Status CheckGivesVectors(const Model& model, std::string_view name);

// The first `dimensions` of the vector's numbers (0: all of them), of length 1.
std::vector<float> UnitVector(std::span<const float> vector, int64_t dimensions);

}  // namespace weft::serve

#endif  // WEFT_ANSWER_VECTORS_H_
