// The feed-forward operations of a step.
#include <algorithm>

#include "compute/gpu/builder.h"
#include "compute/kernels_gpu/streams.h"

namespace weft::gpu {

// act(gate) * up, or act(up), in the form that `down` wants. Fused with the product if that is one
// launch.
Input Builder::MultiplyToActivate(const Bound<DenseFfn>& op, const Input& x) {
  const RowSet rows = step_rows();
  const auto activated = [&](const Rows& gate, const Rows& up) {
    return ActivateArgsOf(op.spec->activation, op.spec->numbers, gate, up, rows);
  };
  const float sparsity = op.spec->sparsity;
  if (!op.down.form->int8 || sparsity != 0 || (op.gate && !Continues(op.up, op.gate))) {
    const auto [up, gate] = MultiplyAll(x, op.up, op.gate);
    if (sparsity != 0) {
      Launch(device::KeepLargest, {1, static_cast<int>(rows.most), 1, 32},
             {gate, static_cast<int32_t>(op.gate.matrix.n_out), sparsity, rows.n});
    }
    device::ActivateArgs args = activated(op.gate ? gate : up, op.gate ? up : Rows{});
    args.out = up;
    return PrepareActivated(args, op.down, rows.most);
  }
  const int64_t width = op.down.matrix.n_in;
  BoundLinear whole = op.up;
  if (op.gate) whole.matrix.n_out += op.gate.matrix.n_out;
  const Rows up = NewRows(whole.matrix.n_out);
  Product product = ProductOf(whole, x, up, step_rows());
  product.args.then = ActivateBytesOf(
      activated(op.gate ? Columns(up, width) : up, op.gate ? up : Rows{}), width, rows.most);
  product.args.arrivals = memory_.arrivals;
  n_arrivals_ = std::max(n_arrivals_, product.shape.grid_y * width / device::kBlockInputs);
  Launch(*product.kernel, product.shape, product.args);
  return {{}, product.args.then.out};
}

void Builder::Run(const Bound<DenseFfn>& op, const Rows& x, const Rows&, const Rows& out) {
  const Input input = Prepare(x, spec_.d_model, {&op.gate, &op.up, &op.output_gate}, step_rows());
  Multiply(op.down, MultiplyToActivate(op, input), out);
  if (!op.output_gate) return;
  device::GateArgs args;
  args.x = out;
  args.gate = NewRows(1);
  args.gate_step = 0;
  args.width = static_cast<int32_t>(spec_.d_model);
  args.n_rows = step_rows().n;
  Multiply(op.output_gate, input, args.gate);
  Launch(device::GateRows, ColumnsShape(spec_.d_model, size_.rows), args);
}

void Builder::Run(const Bound<PerLayerGate>& op, const Rows& x, const Rows&, const Rows& out) {
  const int64_t width = op.gate.matrix.n_out;
  const Rows gate = NewRows(width);
  Multiply(op.gate, Prepare(x, op.gate), gate);
  device::ActivateArgs args = ActivateArgsOf(
      op.spec->activation, {}, gate, Columns(per_layer_, op.spec->layer * width), step_rows());
  args.out = gate;
  Multiply(op.proj, PrepareActivated(args, op.proj, size_.rows), out);
}

// --- mixture of experts ----------------------------------------------------------------------

Builder::Routes Builder::Route(const Bound<MixtureOfExperts>& op, const Rows& logits) {
  const MixtureOfExperts& spec = *op.spec;
  const int64_t n_pairs = size_.rows * spec.n_used;
  device::RouteArgs route;
  route.scores = logits;
  route.selection_bias = op.selection_bias;
  route.router = static_cast<device::Router>(spec.weights);
  route.n_experts = spec.n_experts;
  route.n_used = spec.n_used;
  route.n_groups = spec.n_groups;
  route.n_groups_used = spec.n_groups_used;
  route.renormalize = spec.renormalize ? 1 : 0;
  route.weight_scale = spec.weight_scale;
  route.experts = arena_.Take<int32_t>(n_pairs);
  route.weights = arena_.Take<float>(n_pairs);
  route.n_rows = step_rows().n;
  Launch(device::RouteRows, {static_cast<int>(size_.rows), 1, 1, device::kRouteThreads}, route);
  return {route.experts, route.weights};
}

Builder::Pairs Builder::Sort(const MixtureOfExperts& spec, const Routes& routes) {
  const int64_t n_pairs = size_.rows * spec.n_used;
  Pairs pairs;
  pairs.places = arena_.Take<int32_t>(n_pairs);
  pairs.sources = arena_.Take<int32_t>(n_pairs);
  pairs.factors = spec.weighs_inputs ? arena_.Take<float>(n_pairs) : nullptr;
  // Enough even if every expert's last tile is partly empty.
  pairs.max_tiles = std::min<int64_t>(n_pairs, spec.n_experts + n_pairs / device::kMatmulRows);
  pairs.tiles = arena_.Take<device::MemberTile>(pairs.max_tiles);
  int32_t* const counts = arena_.Take<int32_t>(2);
  pairs.n_tiles = counts;
  pairs.rows = {counts + 1, n_pairs};

  device::SortArgs sort;
  sort.experts = routes.experts;
  sort.n_experts = spec.n_experts;
  sort.n_used = spec.n_used;
  sort.places = pairs.places;
  sort.sources = pairs.sources;
  sort.weights = routes.weights;
  sort.factors = pairs.factors;
  sort.tiles = pairs.tiles;
  sort.n_tiles = pairs.n_tiles;
  sort.n_pairs = counts + 1;
  sort.n_rows = step_rows().n;
  const int n_runs = device::CeilDiv(n_pairs, device::kSortPairs);
  const device::LaunchShape shape = {n_runs, 1, 1, device::kSortThreads};
  if (n_runs > 1) {
    sort.counts = arena_.Take<int32_t>(int64_t{n_runs} * spec.n_experts);
    Launch(device::CountPairs, shape, sort);
  }
  Launch(device::SortPairs, shape, sort);
  return pairs;
}

void Builder::MultiplyPairs(const BoundStack& stack, const Input& x, const int32_t* sources,
                            const Pairs& pairs, const Rows& out) {
  if (!stack) return;
  Product product = ProductOf(stack, x, out, pairs.rows, true);
  product.shape.grid_y = static_cast<int>(pairs.max_tiles);
  product.args.tiles = pairs.tiles;
  product.args.n_tiles = pairs.n_tiles;
  product.args.sources = sources;
  Launch(*product.kernel, product.shape, product.args);
}

void Builder::Run(const Bound<MixtureOfExperts>& op, const Rows& x, const Rows& raw,
                  const Rows& out) {
  const MixtureOfExperts& spec = *op.spec;
  const Rows logits = NewRows(spec.n_experts);
  const bool routes_x = !op.router_norm && !spec.routes_kept;
  const BoundLinear* const reads_x = routes_x ? &op.router : nullptr;
  // Experts on the host take floats.
  const Input input = op.up ? Prepare(x, spec_.d_model, {&op.up, &op.gate, reads_x}, step_rows())
                            : Entered(true, routes_x && op.router.form->int8);
  if (op.router_norm) {
    const Rows normed = Norm(op.router_norm, raw, spec_.d_model, NewRows(spec_.d_model));
    Multiply(op.router, Prepare(normed, op.router), logits);
  } else {
    Multiply(op.router, routes_x ? input : Prepare(kept_, op.router), logits);
  }
  const Routes routes = Route(op, logits);
  if (!op.up) {
    part_.then =
        HostMixture{n_host_mixtures_++, x, routes.experts, routes.weights, spec.n_used, out};
    EndPart();
    BeginPart();
    return;
  }
  const Pairs pairs = Sort(spec, routes);

  const int64_t width = op.up.matrix.n_out, n_pairs = pairs.rows.most;
  const Rows up = NewRows(width, n_pairs), gate = op.gate ? NewRows(width, n_pairs) : Rows{};
  MultiplyPairs(op.up, input, pairs.sources, pairs, up);
  MultiplyPairs(op.gate, input, pairs.sources, pairs, gate);
  const Rows given = NewRows(op.down.matrix.n_out, n_pairs);
  device::ActivateArgs activate = ActivateArgsOf(spec.activation, spec.numbers, op.gate ? gate : up,
                                                 op.gate ? up : Rows{}, pairs.rows);
  activate.out = up;
  activate.factors = pairs.factors;
  MultiplyPairs(op.down, PrepareActivated(activate, op.down, n_pairs), nullptr, pairs, given);

  device::MixArgs mix;
  mix.given = given;
  mix.places = pairs.places;
  mix.weights = spec.weighs_inputs ? nullptr : routes.weights;
  mix.out = out;
  mix.width = static_cast<int32_t>(spec_.d_model);
  mix.n_used = spec.n_used;
  mix.n_rows = step_rows().n;
  Launch(device::MixRows, ColumnsShape(spec_.d_model, size_.rows), mix);
}

}  // namespace weft::gpu
