// The feed-forward operations of a step.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "backend/cpu/step_context.h"

namespace weft::cpu {

// --- dense -----------------------------------------------------------------------------

ScratchWidths WidthsOf(const Bound<DenseFfn>& op) {
  ScratchWidths widths;
  widths.a = op.up.matrix.n_out;
  widths.b = op.gate ? op.gate.matrix.n_out : 0;
  widths.c = 1;
  widths.int8_input = op.up.matrix.n_in;
  widths.int8_inner = op.down.matrix.n_in;
  return widths;
}

//   a: up, then the activated product; b: gate; c: the output gate
void RunOp(StepContext* context, const Bound<DenseFfn>& op, const RowsView& x, const RowsView&,
           const RowsView& out) {
  const DenseFfn& spec = *op.spec;
  Compute& compute = context->compute;
  const int64_t n = context->n_rows();
  const RowsView up = View(context->scratch.a, op.up.matrix.n_out);
  const RowsView gate = View(context->scratch.b, op.up.matrix.n_out);
  const RowsView output_gate = View(context->scratch.c, 1);

  const ActivationRows input =
      compute.Input(x, n, {&op.gate, &op.up, &op.output_gate}, &context->scratch.int8_input);
  Product products[3] = {MakeProduct(op.up, input, n, up)};
  size_t n_products = 1;
  if (op.gate) products[n_products++] = MakeProduct(op.gate, input, n, gate);
  if (op.output_gate) products[n_products++] = MakeProduct(op.output_gate, input, n, output_gate);
  compute.Multiply(std::span<const Product>(products, n_products));

  const bool int8 = WantsInt8(op.down.matrix);
  compute.ForEach(n, up.width * 4, [&](int64_t row, int) {
    compute.vec().activate(KindOf(spec.activation), op.gate ? gate.row(row) : up.row(row),
                           op.gate ? up.row(row) : nullptr, up.width, spec.limit, up.row(row));
    if (int8) compute.QuantizeRow(up.row(row), up.width, &context->scratch.int8_inner, row);
  });
  ActivationRows inner;
  inner.values = up.values;
  inner.values_stride = up.stride;
  if (int8) inner.int8 = context->scratch.int8_inner.Rows(0, up.width);
  compute.Multiply({MakeProduct(op.down, inner, n, out)});

  if (!op.output_gate) return;
  compute.ForEach(n, out.width, [&](int64_t row, int) {
    compute.vec().sigmoid(1, output_gate.row(row));
    compute.vec().scale(*output_gate.row(row), out.width, out.row(row));
  });
}

// --- per-layer gate ----------------------------------------------------------------------

ScratchWidths WidthsOf(const Bound<PerLayerGate>& op) {
  ScratchWidths widths;
  widths.a = op.gate.matrix.n_out;
  widths.int8_input = op.gate.matrix.n_in;
  widths.int8_inner = op.proj.matrix.n_in;
  return widths;
}

//   a: gate, then the activated product
void RunOp(StepContext* context, const Bound<PerLayerGate>& op, const RowsView& x, const RowsView&,
           const RowsView& out) {
  Compute& compute = context->compute;
  const int64_t n = context->n_rows();
  const RowsView gate = View(context->scratch.a, op.gate.matrix.n_out);
  const ActivationRows input = compute.Input(x, n, {&op.gate}, &context->scratch.int8_input);
  compute.Multiply({MakeProduct(op.gate, input, n, gate)});
  compute.ForEach(n, gate.width * 4, [&](int64_t row, int) {
    const float* const own = context->scratch.per_layer.row(row) + op.spec->layer * gate.width;
    compute.vec().activate(KindOf(op.spec->activation), gate.row(row), own, gate.width, 0,
                           gate.row(row));
  });
  const ActivationRows inner = compute.Input(gate, n, {&op.proj}, &context->scratch.int8_inner);
  compute.Multiply({MakeProduct(op.proj, inner, n, out)});
}

// --- mixture of experts ------------------------------------------------------------------

namespace {

// The step's rows sent to experts: pair p = (row, choice) has a place among the pairs
// of its expert, which lie side by side.
struct Routing {
  std::vector<int> experts;        // per pair, in the order of choice
  std::vector<float> weights;      // per pair
  std::vector<int64_t> places;     // per pair
  std::vector<int64_t> sources;    // per place: its row
  std::vector<int64_t> begins;     // per expert, and the end
  std::vector<int64_t> int8_rows;  // per place: its quantized row; an expert's begin a panel
};

// Indices of the n best scores among `candidates`, best first, ties to the earlier.
// Not a sort: scores of a damaged model may be NaN, which has no order.
// REQUIRES: there are that many candidates.
void KeepBest(const float* scores, int n, std::vector<int>* candidates) {
  for (auto place = candidates->begin(); place != candidates->begin() + n; ++place) {
    auto best = place;
    for (auto it = place + 1; it != candidates->end(); ++it) {
      if (scores[*it] > scores[*best]) best = it;
    }
    std::rotate(place, best, best + 1);  // the others stay in order
  }
  candidates->resize(static_cast<size_t>(n));
}

std::vector<int> Numbers(int begin, int end) {
  std::vector<int> numbers(static_cast<size_t>(end - begin));
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

// The experts that may be chosen, ascending.
std::vector<int> Candidates(const MixtureOfExperts& spec, const float* scores) {
  if (spec.n_groups_used >= spec.n_groups) return Numbers(0, spec.n_experts);
  const int size = spec.n_experts / spec.n_groups;
  std::vector<float> group_scores;
  for (int group = 0; group < spec.n_groups; ++group) {
    std::vector<int> best = Numbers(group * size, (group + 1) * size);
    KeepBest(scores, std::min(2, size), &best);
    float sum = 0;
    for (const int expert : best) sum += scores[expert];
    group_scores.push_back(sum);
  }
  std::vector<int> groups = Numbers(0, spec.n_groups);
  KeepBest(group_scores.data(), spec.n_groups_used, &groups);
  std::sort(groups.begin(), groups.end());
  std::vector<int> experts;
  for (const int group : groups) {
    for (int i = 0; i < size; ++i) experts.push_back(group * size + i);
  }
  return experts;
}

// Chooses the experts of one row. `scores` are the router's logits, and overwritten.
void RouteRow(const Compute& compute, const Bound<MixtureOfExperts>& op, float* scores,
              int* experts, float* weights) {
  const MixtureOfExperts& spec = *op.spec;
  const VectorKernels& vec = compute.vec();
  if (spec.weights == RouterWeights::kSoftmax) vec.softmax(spec.n_experts, scores);
  if (spec.weights == RouterWeights::kSigmoid) vec.sigmoid(spec.n_experts, scores);
  std::vector<float> biased(scores, scores + spec.n_experts);
  if (op.selection_bias != nullptr) vec.add(op.selection_bias, spec.n_experts, biased.data());

  std::vector<int> chosen = Candidates(spec, biased.data());
  KeepBest(biased.data(), spec.n_used, &chosen);
  for (int i = 0; i < spec.n_used; ++i) {
    experts[i] = chosen[i];
    weights[i] = scores[chosen[i]];
  }
  if (spec.weights == RouterWeights::kSoftmaxOfChosen) vec.softmax(spec.n_used, weights);
  if (spec.renormalize) {
    float sum = 0;
    for (int i = 0; i < spec.n_used; ++i) sum += weights[i];
    sum = std::max(sum, 6.1e-5f);
    for (int i = 0; i < spec.n_used; ++i) weights[i] /= sum;
  }
  for (int i = 0; i < spec.n_used; ++i) weights[i] *= spec.weight_scale;
}

Routing Route(const Compute& compute, const Bound<MixtureOfExperts>& op, const RowsView& logits,
              int64_t n) {
  const MixtureOfExperts& spec = *op.spec;
  const int64_t n_pairs = n * spec.n_used;
  Routing routing;
  routing.experts.resize(static_cast<size_t>(n_pairs));
  routing.weights.resize(static_cast<size_t>(n_pairs));
  for (int64_t row = 0; row < n; ++row) {
    RouteRow(compute, op, logits.row(row), &routing.experts[row * spec.n_used],
             &routing.weights[row * spec.n_used]);
  }
  routing.begins.assign(static_cast<size_t>(spec.n_experts) + 1, 0);
  for (const int expert : routing.experts) ++routing.begins[expert + 1];
  for (int i = 0; i < spec.n_experts; ++i) routing.begins[i + 1] += routing.begins[i];
  std::vector<int64_t> next = routing.begins;
  routing.places.resize(static_cast<size_t>(n_pairs));
  routing.sources.resize(static_cast<size_t>(n_pairs));
  routing.int8_rows.resize(static_cast<size_t>(n_pairs));
  for (int64_t pair = 0; pair < n_pairs; ++pair) {
    const int64_t place = next[routing.experts[pair]]++;
    routing.places[pair] = place;
    routing.sources[place] = pair / spec.n_used;
  }
  int64_t int8_row = 0;
  for (int i = 0; i < spec.n_experts; ++i) {
    for (int64_t place = routing.begins[i]; place < routing.begins[i + 1]; ++place) {
      routing.int8_rows[place] = int8_row++;
    }
    int8_row = WholePanels(int8_row);
  }
  return routing;
}

// Adds the products of every expert that has pairs. Rows of input and output are
// places.
void AddExpertProducts(const BoundStack& stack, const Routing& routing, const float* values,
                       Int8Buffer* int8, float* out, std::vector<Product>* products) {
  const int64_t n_in = stack.first.n_in, n_out = stack.first.n_out;
  for (size_t expert = 0; expert + 1 < routing.begins.size(); ++expert) {
    const int64_t begin = routing.begins[expert];
    const int64_t count = routing.begins[expert + 1] - begin;
    if (count == 0) continue;
    Product product;
    product.matrix = stack.Member(static_cast<int64_t>(expert));
    if (stack.bias != nullptr) product.bias = stack.bias + static_cast<int64_t>(expert) * n_out;
    if (stack.scale != nullptr) product.scale = stack.scale[expert];
    product.x.values = values + begin * n_in;
    product.x.values_stride = n_in;
    if (WantsInt8(stack.first)) product.x.int8 = int8->Rows(routing.int8_rows[begin], n_in);
    product.n_rows = count;
    product.out = out + begin * n_out;
    product.out_stride = n_out;
    products->push_back(product);
  }
}

}  // namespace

ScratchWidths WidthsOf(const Bound<MixtureOfExperts>& op) {
  const MixtureOfExperts& spec = *op.spec;
  const int64_t n_used = spec.n_used;
  const int64_t d_in = op.up.first.n_in, d_inner = op.up.first.n_out;
  ScratchWidths widths;
  widths.a = n_used * d_inner;
  widths.b = n_used * d_inner;
  widths.c = std::max(n_used * op.down.first.n_out, op.router.matrix.n_in);
  widths.d = std::max<int64_t>(spec.n_experts, n_used * d_in);
  widths.int8_input = std::max(op.router.matrix.n_in, n_used * d_in);
  widths.int8_inner = n_used * d_inner;
  // Each expert's last panel may hold one row alone.
  const int64_t spare_rows = spec.n_experts * (kPanelRows - 1);
  widths.int8_spare = spare_rows * std::max(d_in, d_inner);
  return widths;
}

//   a: up, then the activated product, b: gate (rows by place); c: the router's
//   input, later what the experts give; d: the router's logits, later the inputs
//   gathered by place
void RunOp(StepContext* context, const Bound<MixtureOfExperts>& op, const RowsView& x,
           const RowsView& raw, const RowsView& out) {
  const MixtureOfExperts& spec = *op.spec;
  Compute& compute = context->compute;
  Scratch& scratch = context->scratch;
  const int64_t n = context->n_rows();

  RowsView router_input = x;
  if (op.router_norm) {
    router_input = View(scratch.c, x.width);
    compute.ForEach(n, x.width, [&](int64_t row, int) {
      compute.NormRow(op.router_norm, raw.row(row), x.width, router_input.row(row));
    });
  }
  const RowsView logits = View(scratch.d, spec.n_experts);
  const ActivationRows routed = compute.Input(router_input, n, {&op.router}, &scratch.int8_input);
  compute.Multiply({MakeProduct(op.router, routed, n, logits)});
  const Routing routing = Route(compute, op, logits, n);

  const int64_t n_pairs = n * spec.n_used;
  const int64_t d_in = op.up.first.n_in, d_inner = op.up.first.n_out;
  const bool input_int8 = WantsInt8(op.up.first) || (op.gate && WantsInt8(op.gate.first));
  compute.ForEach(n_pairs, d_in, [&](int64_t place, int) {
    float* const to = scratch.d + place * d_in;
    std::memcpy(to, x.row(routing.sources[place]), sizeof(float) * static_cast<size_t>(d_in));
    if (input_int8) {
      compute.QuantizeRow(to, d_in, &scratch.int8_input, routing.int8_rows[place]);
    }
  });
  std::vector<Product> products;
  AddExpertProducts(op.up, routing, scratch.d, &scratch.int8_input, scratch.a, &products);
  if (op.gate) {
    AddExpertProducts(op.gate, routing, scratch.d, &scratch.int8_input, scratch.b, &products);
  }
  compute.Multiply(products);

  const bool inner_int8 = WantsInt8(op.down.first);
  compute.ForEach(n_pairs, d_inner * 4, [&](int64_t place, int) {
    float* const up = scratch.a + place * d_inner;
    compute.vec().activate(KindOf(spec.activation), op.gate ? scratch.b + place * d_inner : up,
                           op.gate ? up : nullptr, d_inner, spec.limit, up);
    if (inner_int8) {
      compute.QuantizeRow(up, d_inner, &scratch.int8_inner, routing.int8_rows[place]);
    }
  });
  products.clear();
  AddExpertProducts(op.down, routing, scratch.a, &scratch.int8_inner, scratch.c, &products);
  compute.Multiply(products);

  compute.ForEach(n, out.width * spec.n_used, [&](int64_t row, int) {
    std::fill_n(out.row(row), out.width, 0.0f);
    for (int i = 0; i < spec.n_used; ++i) {
      const int64_t pair = row * spec.n_used + i;
      compute.vec().add_scaled(scratch.c + routing.places[pair] * out.width, out.width,
                               routing.weights[pair], out.row(row));
    }
  });
}

}  // namespace weft::cpu
