#include "compute/cpu/experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>

#include "compute/cpu/step_context.h"

namespace weft::cpu {

// --- routes ------------------------------------------------------------------------------

namespace {

struct Routes {
  std::vector<int32_t> experts;  // n_used for each row, best first
  std::vector<float> weights;
};

// Rows sent to experts. Each pair p = (row, choice) has a place; the places of an expert's pairs
// are adjacent.
struct Routing {
  std::vector<int64_t> places;     // per pair
  std::vector<int64_t> sources;    // per place: its row
  std::vector<float> factors;      // per place: factor of the expert's input; empty: none
  std::vector<int64_t> begins;     // per expert, and the end
  std::vector<int64_t> int8_rows;  // per place: its quantized row; each expert begins a new panel
};

// Indices of the n best scores among `candidates`, best first; ties go to the earlier one. Not a
// sort, because scores of a damaged model may be NaN, which has no order. REQUIRES: there are at
// least n candidates.
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

// The experts that may be chosen, in ascending order.
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

// Weighs each choice by kSoftmaxOfNear; `scores` are logits.
void WeighAmongNear(const VectorKernels& vec, const MixtureOfExperts& spec, const float* scores,
                    const std::vector<int>& chosen, float* weights) {
  std::vector<float> near;
  for (int i = 0; i < spec.n_used; ++i) {
    const float best = scores[chosen[i]];
    near.assign(1, best);
    for (int expert = 0; expert < spec.n_experts; ++expert) {
      if (std::find(chosen.begin(), chosen.begin() + i + 1, expert) != chosen.begin() + i + 1) {
        continue;
      }
      const float score = scores[expert];
      if (!(best - score > kNearLogits * std::max(best, std::fabs(score)))) near.push_back(score);
    }
    vec.softmax(static_cast<int64_t>(near.size()), near.data());
    weights[i] = near[0];
  }
}

// Chooses one row's experts. `scores` are the router's logits; they are overwritten.
void RouteRow(const Compute& compute, const Bound<MixtureOfExperts>& op, TokenId token,
              float* scores, int32_t* experts, float* weights) {
  const MixtureOfExperts& spec = *op.spec;
  const VectorKernels& vec = compute.vec();
  if (spec.weights == RouterWeights::kSoftmax) vec.softmax(spec.n_experts, scores);
  if (spec.weights == RouterWeights::kSigmoid) vec.sigmoid(spec.n_experts, scores);
  if (spec.weights == RouterWeights::kRootSoftplus) {
    vec.softplus(spec.n_experts, scores);
    for (int i = 0; i < spec.n_experts; ++i) scores[i] = std::sqrt(scores[i]);
  }
  std::vector<float> biased(scores, scores + spec.n_experts);
  if (op.selection_bias != nullptr) vec.add(op.selection_bias, spec.n_experts, biased.data());

  std::vector<int> chosen;
  if (op.by_token != nullptr) {
    const float* const of_token = op.by_token + token * spec.n_used;
    chosen.assign(of_token, of_token + spec.n_used);
  } else {
    chosen = Candidates(spec, biased.data());
    KeepBest(biased.data(), spec.n_used, &chosen);
  }
  for (int i = 0; i < spec.n_used; ++i) {
    experts[i] = chosen[i];
    weights[i] = scores[chosen[i]];
  }
  if (spec.weights == RouterWeights::kSoftmaxOfChosen) vec.softmax(spec.n_used, weights);
  if (spec.weights == RouterWeights::kSoftmaxOfNear) {
    WeighAmongNear(vec, spec, scores, chosen, weights);
  }
  if (spec.renormalize) {
    float sum = 0;
    for (int i = 0; i < spec.n_used; ++i) sum += weights[i];
    sum = std::max(sum, 6.1e-5f);
    for (int i = 0; i < spec.n_used; ++i) weights[i] /= sum;
  }
  for (int i = 0; i < spec.n_used; ++i) weights[i] *= spec.weight_scale;
}

Routes Route(const StepContext& context, const Bound<MixtureOfExperts>& op,
             const RowsView& logits) {
  const int64_t n = context.n_rows();
  const MixtureOfExperts& spec = *op.spec;
  const auto n_pairs = static_cast<size_t>(n * spec.n_used);
  Routes routes{std::vector<int32_t>(n_pairs), std::vector<float>(n_pairs)};
  for (int64_t row = 0; row < n; ++row) {
    RouteRow(context.compute, op, context.rows[row].token, logits.row(row),
             &routes.experts[row * spec.n_used], &routes.weights[row * spec.n_used]);
  }
  return routes;
}

Routing SortPairs(const MixtureOfExperts& spec, std::span<const int32_t> experts,
                  const float* weights) {
  const int64_t n_pairs = std::ssize(experts);
  Routing routing;
  routing.begins.assign(static_cast<size_t>(spec.n_experts) + 1, 0);
  for (const int32_t expert : experts) ++routing.begins[expert + 1];
  for (int i = 0; i < spec.n_experts; ++i) routing.begins[i + 1] += routing.begins[i];
  std::vector<int64_t> next = routing.begins;
  routing.places.resize(static_cast<size_t>(n_pairs));
  routing.sources.resize(static_cast<size_t>(n_pairs));
  routing.int8_rows.resize(static_cast<size_t>(n_pairs));
  if (spec.weighs_inputs) routing.factors.resize(static_cast<size_t>(n_pairs));
  for (int64_t pair = 0; pair < n_pairs; ++pair) {
    const int64_t place = next[experts[pair]]++;
    routing.places[pair] = place;
    routing.sources[place] = pair / spec.n_used;
    if (spec.weighs_inputs) routing.factors[place] = weights[pair];
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

// Adds the products of every expert that has pairs. Input and output rows are ordered by place.
void AddExpertProducts(const BoundStack& stack, const Routing& routing, const RowsView& x,
                       const Int8View& int8, const RowsView& out, std::vector<Product>* products) {
  for (size_t expert = 0; expert + 1 < routing.begins.size(); ++expert) {
    const int64_t begin = routing.begins[expert];
    const int64_t count = routing.begins[expert + 1] - begin;
    if (count == 0) continue;
    Product product;
    product.matrix = stack.Member(static_cast<int64_t>(expert));
    if (stack.bias != nullptr) {
      product.bias = stack.bias + static_cast<int64_t>(expert) * out.width;
    }
    if (stack.scale != nullptr) product.scale = stack.scale[expert];
    product.x.values = x.row(begin);
    product.x.values_stride = x.stride;
    if (WantsInt8(stack.first)) product.x.int8 = int8.Rows(routing.int8_rows[begin]);
    product.n_rows = count;
    product.out = out.row(begin);
    product.out_stride = out.stride;
    products->push_back(product);
  }
}

// Scratch rows, one per pair, ordered by place.
struct ExpertScratch {
  const Bound<MixtureOfExperts>& op;
  Arena* arena;
  int64_t pairs = arena->n_rows() * op.spec->n_used;
  // Each expert's last panel may hold only one row.
  int64_t int8_pairs = pairs + op.spec->n_experts * (kPanelRows - 1);
  RowsView gathered = arena->Rows(op.up.first.n_in, pairs);
  Int8View input = arena->Int8(op.up.first.n_in, int8_pairs);
  RowsView up = arena->Rows(op.up.first.n_out, pairs);  // then the activated product
  RowsView gate = arena->Rows(op.gate.first.n_out, pairs);
  Int8View inner = arena->Int8(op.down.first.n_in, int8_pairs);
  RowsView given = arena->Rows(op.down.first.n_out, pairs);
};

struct RouterScratch {
  const Bound<MixtureOfExperts>& op;
  Arena* arena;
  RowsView input = arena->Rows(op.router.matrix.n_in);
  Int8View int8 = arena->Int8(op.router.matrix.n_in);
  RowsView logits = arena->Rows(op.spec->n_experts);
};

}  // namespace

// --- experts -----------------------------------------------------------------------------

void PlanExperts(const Bound<MixtureOfExperts>& op, Arena* arena) {
  static_cast<void>(ExpertScratch{op, arena});
}

void RunExperts(Compute* computes, const Bound<MixtureOfExperts>& op, const RoutedRows& rows,
                Arena* arena, const RowsView& out) {
  const MixtureOfExperts& spec = *op.spec;
  Compute& compute = *computes;
  const ExpertScratch scratch{op, arena};
  const auto n_pairs = static_cast<size_t>(scratch.pairs);
  const Routing routing = SortPairs(spec, std::span(rows.experts, n_pairs), rows.weights);

  const RowsView &gathered = scratch.gathered, &up = scratch.up, &gate = scratch.gate;
  const bool input_int8 = WantsInt8(op.up.first) || (op.gate && WantsInt8(op.gate.first));
  compute.ForEach(scratch.pairs, gathered.width * kStep, [&](int64_t place, int) {
    float* const to = gathered.row(place);
    std::memcpy(to, rows.values + routing.sources[place] * gathered.width,
                sizeof(float) * static_cast<size_t>(gathered.width));
    if (spec.weighs_inputs) compute.vec().scale(routing.factors[place], gathered.width, to);
    if (input_int8) compute.QuantizeRow(to, scratch.input, routing.int8_rows[place]);
  });
  std::vector<Product> products;
  AddExpertProducts(op.up, routing, gathered, scratch.input, up, &products);
  if (op.gate) AddExpertProducts(op.gate, routing, gathered, scratch.input, gate, &products);
  compute.Multiply(products);

  const bool inner_int8 = WantsInt8(op.down.first);
  const ActivationShape form = ShapeOf(spec.activation, spec.numbers);
  compute.ForEach(scratch.pairs, up.width * kExp, [&](int64_t place, int) {
    compute.vec().activate(form, op.gate ? gate.row(place) : up.row(place),
                           op.gate ? up.row(place) : nullptr, up.width, up.row(place));
    if (inner_int8) {
      compute.QuantizeRow(up.row(place), scratch.inner, routing.int8_rows[place]);
    }
  });
  products.clear();
  AddExpertProducts(op.down, routing, up, scratch.inner, scratch.given, &products);
  compute.Multiply(products);

  compute.ForEach(rows.n, out.width * spec.n_used * kStep, [&](int64_t row, int) {
    std::fill_n(out.row(row), out.width, 0.0f);
    for (int i = 0; i < spec.n_used; ++i) {
      const int64_t pair = row * spec.n_used + i;
      compute.vec().add_scaled(scratch.given.row(routing.places[pair]), out.width,
                               spec.weighs_inputs ? 1.0f : rows.weights[pair], out.row(row));
    }
  });
}

// --- the operation -----------------------------------------------------------------------

void PlanOp(const Bound<MixtureOfExperts>& op, Arena* arena) {
  static_cast<void>(RouterScratch{op, arena});
  PlanExperts(op, arena);
}

void RunOp(StepContext* context, const Bound<MixtureOfExperts>& op, const RowsView& x,
           const RowsView& raw, const RowsView& out) {
  Compute& compute = context->compute;
  const int64_t n = context->n_rows();
  Arena arena = context->scratch.ForRows(n);
  const RouterScratch scratch{op, &arena};

  RowsView input = op.spec->routes_kept ? context->scratch.kept : x;
  if (op.router_norm) {
    input = scratch.input;
    compute.ForEach(n, x.width * kStep, [&](int64_t row, int) {
      compute.NormRow(op.router_norm, raw.row(row), x.width, input.row(row));
    });
  }
  const ActivationRows routed = compute.Input(input, n, {&op.router}, scratch.int8);
  compute.Multiply({MakeProduct(op.router, routed, n, scratch.logits)});
  const Routes routes = Route(*context, op, scratch.logits);
  WEFT_CHECK(x.stride == x.width, "rows of the stream follow each other");
  RunExperts(&compute, op, {n, x.values, routes.experts.data(), routes.weights.data()}, &arena,
             out);
}

}  // namespace weft::cpu
