// The feed-forward operations of step_context.h.
#include <algorithm>
#include <limits>
#include <vector>

#include "compute/mlx/step_context.h"

namespace weft::mlx {

mx::array RunOp(StepContext* context, const Bound<DenseFfn>& op, const mx::array& x,
                const mx::array& /*raw*/) {
  const DenseFfn& spec = *op.spec;
  const mx::array up = context->Apply(op.up, x);
  const mx::array inner =
      op.gate ? Activate(spec.activation, spec.numbers, context->Apply(op.gate, x), &up)
              : Activate(spec.activation, spec.numbers, up, nullptr);
  const mx::array out = context->Apply(op.down, inner);
  return op.output_gate ? out * mx::sigmoid(context->Apply(op.output_gate, x)) : out;
}

namespace {

// The indices of the `n` best scores in the last dimension, best first; ties go to the lower index.
// Indices stay in range even if scores are NaN.
mx::array Best(const mx::array& scores, int n) {
  return Columns(mx::argsort(mx::negative(scores), -1), 0, n);
}

// Sets scores outside the best groups to minus infinity.
mx::array OfBestGroups(const MixtureOfExperts& spec, const mx::array& scores) {
  if (spec.n_groups_used >= spec.n_groups) return scores;
  const int group_size = spec.n_experts / spec.n_groups;
  const mx::array groups = AsHeads(scores, spec.n_groups);
  const int n_counted = std::min(2, group_size);
  const mx::array counted = Columns(mx::sort(groups, -1), group_size - n_counted, n_counted);
  const mx::array order = mx::argsort(mx::negative(mx::sum(counted, -1)), -1);
  // The rank of each group.
  const mx::array places = mx::argsort(order, -1);
  const mx::array chosen = mx::less(places, mx::array(spec.n_groups_used, places.dtype()));
  return AsRows(mx::where(mx::expand_dims(chosen, -1), groups,
                          mx::array(-std::numeric_limits<float>::infinity())));
}

struct Choice {
  mx::array experts;  // [rows, n_used]
  mx::array weights;  // likewise
};

Choice Route(const Bound<MixtureOfExperts>& op, const mx::array& logits) {
  const MixtureOfExperts& spec = *op.spec;
  mx::array scores = logits;
  if (spec.weights == RouterWeights::kSoftmax) scores = mx::softmax(logits, -1, /*precise=*/true);
  if (spec.weights == RouterWeights::kSigmoid) scores = mx::sigmoid(logits);
  const mx::array biased = op.selection_bias ? scores + *op.selection_bias : scores;
  const mx::array experts = Best(OfBestGroups(spec, biased), spec.n_used);
  mx::array weights = mx::take_along_axis(scores, experts, -1);
  if (spec.weights == RouterWeights::kSoftmaxOfChosen) weights = mx::softmax(weights, -1, true);
  if (spec.renormalize) {
    weights = weights / mx::maximum(mx::sum(weights, -1, /*keepdims=*/true), mx::array(6.1e-5f));
  }
  if (spec.weight_scale != 1) weights = weights * mx::array(spec.weight_scale);
  return {experts, weights};
}

}  // namespace

mx::array RunOp(StepContext* context, const Bound<MixtureOfExperts>& op, const mx::array& x,
                const mx::array& raw) {
  const MixtureOfExperts& spec = *op.spec;
  const mx::array router_input = op.router_norm     ? ApplyNorm(op.router_norm, raw)
                                 : spec.routes_kept ? *context->kept
                                                    : x;
  const Choice choice = Route(op, context->Apply(op.router, router_input));
  const mx::array input = mx::expand_dims(x, 1), weights = mx::expand_dims(choice.weights, -1);
  const auto enter = [&](const BoundStack& stack) {
    const mx::array product = ApplyMembers(stack, input, choice.experts);
    return spec.weighs_inputs ? product * weights : product;
  };
  const mx::array up = enter(op.up);
  const mx::array inner = op.gate ? Activate(spec.activation, spec.numbers, enter(op.gate), &up)
                                  : Activate(spec.activation, spec.numbers, up, nullptr);
  const mx::array out = ApplyMembers(op.down, inner, choice.experts);
  return mx::sum(spec.weighs_inputs ? out : out * weights, 1);
}

mx::array RunOp(StepContext* context, const Bound<PerLayerGate>& op, const mx::array& x,
                const mx::array& /*raw*/) {
  const int64_t width = context->spec().per_layer_input->width;
  const mx::array own = Columns(*context->per_layer_inputs, op.spec->layer * width, width);
  return context->Apply(op.proj,
                        Activate(op.spec->activation, {}, context->Apply(op.gate, x), &own));
}

}  // namespace weft::mlx
