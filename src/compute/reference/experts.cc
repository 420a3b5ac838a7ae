// The mixture of experts, of blocks.h.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "compute/reference/blocks.h"

namespace weft::reference {

namespace {

std::vector<double> Softmax(std::span<const double> logits) {
  const double largest = *std::ranges::max_element(logits);
  std::vector<double> out;
  double sum = 0;
  for (const double logit : logits) {
    out.push_back(std::exp(logit - largest));
    sum += out.back();
  }
  for (double& p : out) p /= sum;
  return out;
}

// Indices of the `n` largest of the candidates, largest first, ties to the earlier
// candidate. Not a sort: scores of a damaged model may be NaN, which has no order.
// REQUIRES: there are that many candidates.
std::vector<int> Best(std::span<const double> scores, std::vector<int> candidates, int n) {
  std::vector<int> chosen;
  while (static_cast<int>(chosen.size()) < n) {
    auto best = candidates.begin();
    for (auto it = candidates.begin(); it != candidates.end(); ++it) {
      if (scores[*it] > scores[*best]) best = it;
    }
    chosen.push_back(*best);
    candidates.erase(best);
  }
  return chosen;
}

std::vector<int> Numbers(int begin, int end) {
  std::vector<int> numbers(end - begin);
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

// The experts that may be chosen: those of the best groups.
std::vector<int> Candidates(const MixtureOfExperts& op, std::span<const double> scores) {
  if (op.n_groups_used >= op.n_groups) return Numbers(0, op.n_experts);
  const int group_size = op.n_experts / op.n_groups;
  std::vector<double> group_scores;
  for (int g = 0; g < op.n_groups; ++g) {
    double score = 0;
    const std::vector<int> members = Numbers(g * group_size, (g + 1) * group_size);
    for (const int expert : Best(scores, members, std::min(2, group_size))) {
      score += scores[expert];
    }
    group_scores.push_back(score);
  }
  std::vector<int> candidates;
  std::vector<int> groups = Best(group_scores, Numbers(0, op.n_groups), op.n_groups_used);
  std::ranges::sort(groups);
  for (const int g : groups) {
    const std::vector<int> members = Numbers(g * group_size, (g + 1) * group_size);
    candidates.insert(candidates.end(), members.begin(), members.end());
  }
  return candidates;
}

struct Choice {
  std::vector<int> experts;     // in the order of choice
  std::vector<double> weights;  // one per expert
};

std::vector<double> WeighAmongNear(std::span<const double> logits, std::span<const int> chosen) {
  std::vector<double> weights;
  for (size_t i = 0; i < chosen.size(); ++i) {
    const double best = logits[chosen[i]];
    double sum = 0;
    for (int expert = 0; expert < std::ssize(logits); ++expert) {
      const double logit = logits[expert];
      const bool is_taken = std::ranges::count(chosen.first(i), expert) > 0;
      const bool is_far = best - logit > kNearLogits * std::max(best, std::fabs(logit));
      if (!is_taken && !is_far) sum += std::exp(logit - best);
    }
    weights.push_back(1 / sum);
  }
  return weights;
}

// `by_token`: the experts that the row's token chooses; empty: scores choose.
Choice Route(const MixtureOfExperts& op, std::span<const float> logits,
             std::span<const float> selection_bias, std::span<const float> by_token) {
  std::vector<double> scores(logits.begin(), logits.end());
  if (op.weights == RouterWeights::kSoftmax) scores = Softmax(scores);
  if (op.weights == RouterWeights::kSigmoid) {
    for (double& score : scores) score = Sigmoid(score);
  }
  if (op.weights == RouterWeights::kRootSoftplus) {
    for (double& score : scores) score = std::sqrt(Softplus(score));
  }
  std::vector<double> biased = scores;
  for (size_t i = 0; i < selection_bias.size(); ++i) biased[i] += selection_bias[i];

  Choice choice;
  choice.experts = {by_token.begin(), by_token.end()};
  if (by_token.empty()) choice.experts = Best(biased, Candidates(op, biased), op.n_used);
  for (const int expert : choice.experts) choice.weights.push_back(scores[expert]);
  if (op.weights == RouterWeights::kSoftmaxOfChosen) choice.weights = Softmax(choice.weights);
  if (op.weights == RouterWeights::kSoftmaxOfNear) {
    choice.weights = WeighAmongNear(scores, choice.experts);
  }
  double sum = 0;
  for (const double weight : choice.weights) sum += weight;
  for (double& weight : choice.weights) {
    if (op.renormalize) weight /= std::max(sum, 6.1e-5);
    weight *= op.weight_scale;
  }
  return choice;
}

// `weight` multiplies the input.
std::vector<float> RunExpert(const Tensors& tensors, const MixtureOfExperts& op, int expert,
                             double weight, std::span<const float> x) {
  std::vector<float> up = ApplyMember(tensors, op.up, expert, x);
  for (float& v : up) v = static_cast<float>(v * weight);
  if (op.gate) {
    const std::vector<float> gate = ApplyMember(tensors, op.gate, expert, x);
    for (size_t i = 0; i < up.size(); ++i) {
      const auto weighed = static_cast<float>(gate[i] * weight);
      up[i] = Activate(op.activation, op.numbers, weighed, &up[i]);
    }
  } else {
    for (float& v : up) v = Activate(op.activation, op.numbers, v, nullptr);
  }
  return ApplyMember(tensors, op.down, expert, up);
}

}  // namespace

Rows RunOp(const StepContext& context, const MixtureOfExperts& op, const Rows& x, const Rows& raw) {
  const Tensors& tensors = context.tensors;
  Rows router_input = op.router_norm ? raw : op.routes_kept ? context.kept : x;
  ApplyNorm(tensors, op.router_norm, &router_input);
  const Rows logits = ApplyLinear(tensors, op.router, router_input);
  const std::vector<float> selection_bias = tensors.Vector(op.selection_bias);
  Rows out(x.count(), op.down.n_out);
  for (int64_t i = 0; i < x.count(); ++i) {
    std::vector<float> by_token;
    if (op.by_token) by_token = tensors.Row(op.by_token, context.rows[i].token);
    const Choice choice = Route(op, logits.row(i), selection_bias, by_token);
    std::vector<double> sum(op.down.n_out);
    for (size_t e = 0; e < choice.experts.size(); ++e) {
      const double weight = choice.weights[e];
      const double before = op.weighs_inputs ? weight : 1, after = op.weighs_inputs ? 1 : weight;
      const std::vector<float> y = RunExpert(tensors, op, choice.experts[e], before, x.row(i));
      for (size_t j = 0; j < y.size(); ++j) sum[j] += after * y[j];
    }
    std::ranges::transform(sum, out.row(i).begin(), [](double v) { return float(v); });
  }
  return out;
}

}  // namespace weft::reference
