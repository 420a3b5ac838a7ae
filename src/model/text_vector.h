// From the rows of a text to one vector, or to scores.
#ifndef WEFT_MODEL_TEXT_VECTOR_H_
#define WEFT_MODEL_TEXT_VECTOR_H_

#include <optional>
#include <string_view>
#include <vector>

#include "model/operation_parts.h"

namespace weft {

// Which rows a text's vector is computed from.
enum class Pooling {
  kNone,   // each row is a vector of its own
  kMean,   // the mean of all rows
  kFirst,  // the first row: "cls"
  kLast,
};
// "none", "mean", "cls", "last".
std::string_view NameOf(Pooling pooling);
std::optional<Pooling> FindPooling(std::string_view name);

enum class HeadActivation { kNone, kTanh, kGeluErf };

// y = norm(activation(linear(x)))
struct HeadLayer {
  Linear linear;
  HeadActivation activation = HeadActivation::kNone;
  Norm norm;
};

// vector = head(pooled rows). `scores`: the head's values are not a vector, but scores; the first
// one says how well the two texts of a pair match.
struct TextVector {
  Pooling pooling = Pooling::kMean;
  std::vector<HeadLayer> head;
  bool scores = false;
  bool softmax = false;  // over the scores
};

}  // namespace weft

#endif  // WEFT_MODEL_TEXT_VECTOR_H_
