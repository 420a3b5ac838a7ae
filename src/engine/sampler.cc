#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/random.h"

namespace weft {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Beyond this many nats below the best, a token's share of the probability is
// under 1e-17 even for a vocabulary of a million: it is not worth sorting.
constexpr float kNegligibleNats = 54.0f;

constexpr uint32_t kSignBit = 0x80000000;

// The greatest of the values that are numbers, or minus infinity. Vocabularies are
// large: in lanes, which the compiler makes one register.
float Greatest(std::span<const float> values) {
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> lanes;
  lanes.fill(kNever);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float value = values[i + lane];
      lanes[lane] = value > lanes[lane] ? value : lanes[lane];
    }
  }
  float max = *std::max_element(lanes.begin(), lanes.end());
  for (; i < values.size(); ++i) max = values[i] > max ? values[i] : max;
  return max;
}

}  // namespace

Status ValidateSampling(const SamplingOptions& options, int64_t n_vocab) {
  const auto finite = [](float value) { return std::isfinite(value); };
  if (!finite(options.temperature) || options.temperature < 0) {
    return InvalidArgument("temperature must be a finite number >= 0");
  }
  if (options.top_k < 0) return InvalidArgument("top_k must be >= 0 (0 turns it off)");
  if (!finite(options.top_p) || options.top_p <= 0 || options.top_p > 1) {
    return InvalidArgument("top_p must be finite and in (0, 1]");
  }
  if (!finite(options.min_p) || options.min_p < 0 || options.min_p > 1) {
    return InvalidArgument("min_p must be in [0, 1]");
  }
  if (!finite(options.repetition_penalty) || options.repetition_penalty <= 0) {
    return InvalidArgument("repetition_penalty must be a finite number > 0 (1 turns it off)");
  }
  if (!finite(options.frequency_penalty) || !finite(options.presence_penalty)) {
    return InvalidArgument("frequency_penalty and presence_penalty must be finite");
  }
  if (options.penalty_window < -1) {
    return InvalidArgument("penalty_window must be >= -1 (-1: the whole context)");
  }
  for (const auto& [token, bias] : options.logit_bias) {
    if (token < 0 || token >= n_vocab) {
      return InvalidArgument("logit_bias names token ", token, ", but the vocabulary has ", n_vocab,
                             " tokens");
    }
    if (std::isnan(bias)) return InvalidArgument("logit_bias of token ", token, " is not a number");
  }
  return OkStatus();
}

bool IsSound(std::span<const float> logits) {
  // Bits of NaN, infinity and above are those of no number; minus infinity bans a token.
  constexpr uint32_t kInfinity = 0x7F800000;
  uint32_t broken = 0;
  for (const float logit : logits) {
    const auto bits = std::bit_cast<uint32_t>(logit);
    const bool is_number = (bits & ~kSignBit) < kInfinity;
    broken |= is_number || bits == (kInfinity | kSignBit) ? 0 : 1;
  }
  return broken == 0 && Greatest(logits) > kNever;
}

TokenId ArgMax(std::span<const float> logits) {
  const float max = Greatest(logits);
  if (max == kNever) return kNoToken;
  return static_cast<TokenId>(std::find(logits.begin(), logits.end(), max) - logits.begin());
}

double LogSumExp(std::span<const float> logits) {
  const float max = Greatest(logits);
  if (max == kNever) return kNever;
  double sum = 0;
  for (const float logit : logits) {
    if (logit - max > -kNegligibleNats) sum += std::exp(static_cast<double>(logit - max));
  }
  return static_cast<double>(max) + std::log(sum);
}

std::vector<TokenLogprob> TopLogprobs(std::span<const float> logits, double log_sum_exp, int n) {
  std::vector<TokenLogprob> best;
  if (n <= 0) return best;
  const auto better = [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.logprob != b.logprob ? a.logprob > b.logprob : a.token < b.token;
  };
  // A heap whose front is the worst kept so far.
  for (size_t i = 0; i < logits.size(); ++i) {
    const TokenLogprob entry{static_cast<TokenId>(i), logits[i]};
    if (best.size() < static_cast<size_t>(n)) {
      best.push_back(entry);
      std::push_heap(best.begin(), best.end(), better);
    } else if (better(entry, best.front())) {
      std::pop_heap(best.begin(), best.end(), better);
      best.back() = entry;
      std::push_heap(best.begin(), best.end(), better);
    }
  }
  std::sort_heap(best.begin(), best.end(), better);
  for (TokenLogprob& entry : best) {
    entry.logprob = static_cast<float>(static_cast<double>(entry.logprob) - log_sum_exp);
  }
  return best;
}

Sampler::Sampler(SamplingOptions options, uint64_t seed)
    : options_(std::move(options)), seed_(seed) {}

TokenId Sampler::Sample(std::span<float> logits, std::span<const TokenId> context, int64_t position,
                        const std::vector<bool>& allowed) {
  for (const auto& [token, bias] : options_.logit_bias) {
    logits[static_cast<size_t>(token)] += bias;
  }
  Penalize(logits, context);
  if (!allowed.empty()) {
    for (size_t i = 0; i < logits.size(); ++i) {
      if (!allowed[i]) logits[i] = kNever;
    }
  }
  if (options_.temperature == 0) {
    const TokenId best = ArgMax(logits);
    candidates_.clear();
    if (best != kNoToken) candidates_.push_back({best, logits[static_cast<size_t>(best)]});
    return best;
  }
  CollectCandidates(logits);
  if (candidates_.empty()) return kNoToken;
  CutTopP();
  CutMinP();
  return Draw(position);
}

void Sampler::Penalize(std::span<float> logits, std::span<const TokenId> context) {
  const bool repetition = options_.repetition_penalty != 1.0f;
  const bool counts = options_.frequency_penalty != 0 || options_.presence_penalty != 0;
  if ((!repetition && !counts) || options_.penalty_window == 0) return;
  size_t n = context.size();
  if (options_.penalty_window > 0) n = std::min(n, static_cast<size_t>(options_.penalty_window));
  window_.assign(context.end() - static_cast<ptrdiff_t>(n), context.end());
  std::sort(window_.begin(), window_.end());
  for (size_t i = 0; i < window_.size();) {
    size_t end = i;
    while (end < window_.size() && window_[end] == window_[i]) ++end;
    float& logit = logits[static_cast<size_t>(window_[i])];
    if (logit > 0) {
      logit /= options_.repetition_penalty;
    } else {
      logit *= options_.repetition_penalty;
    }
    logit -= static_cast<float>(end - i) * options_.frequency_penalty + options_.presence_penalty;
    i = end;
  }
}

void Sampler::CollectCandidates(std::span<const float> logits) {
  candidates_.clear();
  const size_t k = options_.top_k > 0 ? static_cast<size_t>(options_.top_k) : logits.size();
  if (k >= logits.size()) {
    const float max = Greatest(logits);
    // Infinite logits are possible through logit_bias alone.
    const float floor = std::isfinite(max) ? max - kNegligibleNats * options_.temperature : kNever;
    for (size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] > kNever && logits[i] >= floor) {
        candidates_.push_back({static_cast<TokenId>(i), logits[i]});
      }
    }
    std::sort(candidates_.begin(), candidates_.end(), Better);
    return;
  }
  // A heap whose front is the worst kept; most tokens fail the one comparison.
  float worst = kNever;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > worst)) continue;
    const Candidate candidate{static_cast<TokenId>(i), logits[i]};
    if (candidates_.size() == k) {
      std::pop_heap(candidates_.begin(), candidates_.end(), Better);
      candidates_.back() = candidate;
    } else {
      candidates_.push_back(candidate);
    }
    std::push_heap(candidates_.begin(), candidates_.end(), Better);
    if (candidates_.size() == k) worst = candidates_.front().logit;
  }
  std::sort_heap(candidates_.begin(), candidates_.end(), Better);
}

// Keeps the smallest set of best candidates whose probability reaches top_p.
void Sampler::CutTopP() {
  if (options_.top_p >= 1 || candidates_.size() < 2) return;
  const float max = candidates_[0].logit;
  double total = 0;
  for (const Candidate& c : candidates_) total += std::exp(static_cast<double>(c.logit - max));
  double sum = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    sum += std::exp(static_cast<double>(candidates_[i].logit - max));
    if (sum >= static_cast<double>(options_.top_p) * total) {
      candidates_.resize(i + 1);
      return;
    }
  }
}

// Keeps the candidates at least min_p times as probable as the best.
void Sampler::CutMinP() {
  if (options_.min_p <= 0) return;
  const float floor = candidates_[0].logit + std::log(options_.min_p);
  size_t n = 1;
  while (n < candidates_.size() && candidates_[n].logit >= floor) ++n;
  candidates_.resize(n);
}

double Sampler::Weight(const Candidate& candidate) const {
  const double max = static_cast<double>(candidates_[0].logit);
  // The greedy choice, and one that an infinite bias forces: nothing else can be drawn.
  if (options_.temperature == 0 || !std::isfinite(max)) {
    return candidate.id == candidates_[0].id ? 1 : 0;
  }
  return std::exp((static_cast<double>(candidate.logit) - max) /
                  static_cast<double>(options_.temperature));
}

TokenId Sampler::Draw(int64_t position) const {
  double total = 0;
  for (const Candidate& c : candidates_) total += Weight(c);
  double remaining = RandomUniform(seed_, static_cast<uint64_t>(position)) * total;
  for (const Candidate& c : candidates_) {
    remaining -= Weight(c);
    if (remaining < 0) return c.id;
  }
  return candidates_.back().id;
}

Sampler::Draws Sampler::DrawsOf(TokenId token, int n) const {
  double total = 0;
  for (const Candidate& c : candidates_) total += Weight(c);
  Draws draws;
  for (const Candidate& c : candidates_) {
    const double weight = Weight(c);
    const auto logprob = static_cast<float>(std::log(weight / total));
    if (c.id == token) draws.logprob = logprob;
    const bool is_among_best = static_cast<int>(draws.best.size()) < n;
    if (weight > 0 && is_among_best) draws.best.push_back({c.id, logprob});
  }
  return draws;
}

}  // namespace weft
