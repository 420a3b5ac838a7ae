// The blocks and paths of a spec over a backend's own form of tensors. A backend defines its own
// `Norm` and `Bound<Operation>`; the structure around them is the spec's.
#ifndef WEFT_BACKEND_BOUND_SPEC_H_
#define WEFT_BACKEND_BOUND_SPEC_H_

#include <utility>
#include <variant>
#include <vector>

#include "model/model_spec.h"

namespace weft {

template <template <typename> typename Bound, typename... Operations>
std::variant<Bound<Operations>...> BindAll(const std::variant<Operations...>&);
// A variant of all bound operations.
template <template <typename> typename Bound>
using BoundOpOf = decltype(BindAll<Bound>(std::declval<Op>()));

template <typename Norm, typename BoundOp>
struct BoundPathOf {
  Norm pre;
  BoundOp op;
  Norm post;
  float scale = 1;
};

template <typename Norm, typename BoundPath>
struct BoundBlockOf {
  bool keeps_input = false;
  Norm pre;
  std::vector<BoundPath> paths;
  Norm post;
  float residual_scale = 1;
  float stream_scale = 1;
  Norm stream_norm;
};

// Binds each tensor of an operation with the binder's `Of`.
template <typename Binder>
struct TensorBinder : OperationVisitor {
  explicit TensorBinder(Binder* its_binder) : binder(its_binder) {}
  void Tensor(const auto& part, const Shape&, auto& bound) { bound = binder->Of(part); }
  Binder* const binder;
};

}  // namespace weft

#endif  // WEFT_BACKEND_BOUND_SPEC_H_
