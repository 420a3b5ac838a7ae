#include "engine/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/sampling/random.h"

namespace weft {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

constexpr float kAlways = std::numeric_limits<float>::infinity();

// This many nats below the best, a token's share of the probability is under 1e-17 even with a
// million tokens: not worth sorting.
constexpr float kNegligibleNats = 54.0f;
// How far below the best logit tokens are sorted at first.
constexpr float kFirstRankedNats = 4.0f;
// Sampling from the whole vocabulary nearly always ends within this many top candidates.
constexpr int64_t kOftenEnough = 64;

// One bias for each token, in ascending order of tokens.
SamplingOptions WithMergedBias(SamplingOptions options) {
  auto& bias = options.logit_bias;
  std::stable_sort(bias.begin(), bias.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  size_t n = 0;
  for (const auto& entry : bias) {
    if (n > 0 && bias[n - 1].first == entry.first) {
      bias[n - 1].second += entry.second;
    } else {
      bias[n++] = entry;
    }
  }
  bias.resize(n);
  return options;
}

// Masks allow nearly all tokens or nearly none, so whole words are tested first.
void Mask(std::span<const uint32_t> allowed, std::span<float> logits) {
  constexpr size_t kBits = 32;
  for (size_t first = 0; first < logits.size(); first += kBits) {
    const uint32_t word = allowed[first / kBits];
    if (word == ~uint32_t{0}) continue;
    const std::span<float> part = logits.subspan(first, std::min(kBits, logits.size() - first));
    if (word == 0) {
      std::fill(part.begin(), part.end(), kNever);
      continue;
    }
    for (size_t i = 0; i < part.size(); ++i) part[i] = word >> i & 1 ? part[i] : kNever;
  }
}

}  // namespace

Status ValidateSampling(const SamplingOptions& options, int64_t n_vocab) {
  const auto finite = [](float value) { return std::isfinite(value); };
  if (!finite(options.temperature) || options.temperature < 0) {
    return InvalidArgument("temperature must be a finite number >= 0");
  }
  if (options.top_k < 0) return InvalidArgument("top_k must be >= 0 (0 disables it)");
  if (!finite(options.top_p) || options.top_p <= 0 || options.top_p > 1) {
    return InvalidArgument("top_p must be finite and in (0, 1]");
  }
  if (!finite(options.min_p) || options.min_p < 0 || options.min_p > 1) {
    return InvalidArgument("min_p must be in [0, 1]");
  }
  if (!finite(options.repetition_penalty) || options.repetition_penalty <= 0) {
    return InvalidArgument("repetition_penalty must be a finite number > 0 (1 disables it)");
  }
  if (!finite(options.frequency_penalty) || !finite(options.presence_penalty)) {
    return InvalidArgument("frequency_penalty and presence_penalty must be finite");
  }
  if (options.penalty_window < -1) {
    return InvalidArgument("penalty_window must be >= -1 (-1: the whole context)");
  }
  if (options.logit_bias.size() > kMaxLogitBiases) {
    return InvalidArgument("logit_bias has ", options.logit_bias.size(), " entries, at most ",
                           kMaxLogitBiases, " are taken");
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
  // A heap with the worst of the kept entries at the front.
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
    : options_(WithMergedBias(std::move(options))), seed_(seed) {}

int64_t Sampler::BestNeeded(int64_t n_vocab) const {
  if (!options_.logit_bias.empty() || Penalizes()) return 0;
  if (options_.temperature == 0) return 1;
  return options_.top_k < n_vocab ? options_.top_k : 0;
}

TokenId Sampler::SampleBest(std::span<const TokenLogit> best, int64_t position,
                            FunctionRef<bool(TokenId)> is_banned) {
  const size_t wanted = options_.temperature == 0 ? 1 : static_cast<size_t>(options_.top_k);
  candidates_.clear();
  for (const TokenLogit& candidate : best) {
    if (candidates_.size() == wanted || !(candidate.logit > kNever)) break;
    if (!is_banned(candidate.token)) candidates_.push_back(candidate);
  }
  if (candidates_.empty()) return kNoToken;
  if (options_.temperature == 0) return candidates_[0].token;
  lacks_ = false;
  ranked_to_ = rank_until_ = kNever;
  return ChooseFromCandidates(position);
}

Sampler::Needed Sampler::NeededOfChanged(int64_t n_vocab) const {
  if (options_.temperature == 0) return {.n_best = 1};
  if (options_.top_k > 0 && options_.top_k < n_vocab) return {.n_best = options_.top_k};
  Needed needed = {.n_best = std::min(kOftenEnough, n_vocab)};
  // top_p needs the total weight at temperature 1; sampling from all tokens needs it at its own.
  if (options_.top_p < 1) {
    needed.temperature = 1;
  } else if (options_.min_p <= 0) {
    needed.temperature = options_.temperature;
  }
  return needed;
}

void Sampler::ChangesFor(std::span<const TokenId> context, std::span<const TokenId> guesses,
                         std::span<const TokenId> banned, std::vector<LogitChange>* changes) {
  changes->clear();
  const auto& bias = options_.logit_bias;
  if (Penalizes()) {
    const auto at = [&](size_t i) {
      return i < context.size() ? context[i] : guesses[i - context.size()];
    };
    MoveWindow(context.size() + guesses.size(), at);
    for (const Count& count : window_) {
      const auto its = std::lower_bound(bias.begin(), bias.end(), std::pair(count.token, kNever));
      const bool has_bias = its != bias.end() && its->first == count.token;
      changes->push_back(
          {count.token, has_bias ? its->second : 0, options_.repetition_penalty, PenaltyOf(count)});
    }
  }
  for (const auto& [token, value] : bias) {
    if (!places_.contains(token)) changes->push_back({.token = token, .bias = value});
  }
  const auto behind_window = static_cast<ptrdiff_t>(window_.size());
  for (const TokenId token : banned) {
    const auto place = places_.find(token);
    auto change = place != places_.end()
                      ? changes->begin() + static_cast<ptrdiff_t>(place->second)
                      : std::find_if(changes->begin() + behind_window, changes->end(),
                                     [token](const LogitChange& c) { return c.token == token; });
    if (change == changes->end()) change = changes->insert(change, {.token = token});
    change->bias = kNever;
  }
  if (Penalizes() && !guesses.empty()) {
    MoveWindow(context.size(), [&](size_t i) {
      return i < context.size() ? context[i] : guesses[i - context.size()];
    });
  }
}

std::optional<TokenId> Sampler::SampleChanged(std::span<const TokenLogit> best, double weight,
                                              int64_t n_vocab, int64_t position) {
  size_t n = 0;
  while (n < best.size() && best[n].logit > kNever) ++n;
  if (n == 0) return kNoToken;
  if (options_.temperature == 0) return best[0].token;
  row_ = {};
  weight_ = weight;
  best_ = best.first(n);
  best_are_all_ = n < best.size() || std::ssize(best) == n_vocab;
  lacks_ = failed_ = false;
  if (options_.top_k > 0 && options_.top_k < n_vocab) {
    candidates_.assign(best_.begin(), best_.end());
    ranked_to_ = rank_until_ = kNever;
  } else {
    BeginRanking();
  }
  const TokenId token = ChooseFromCandidates(position);
  if (failed_) return std::nullopt;
  return token;
}

TokenId Sampler::SampleChanged(std::span<const float> logits, int64_t position) {
  row_ = logits;
  lacks_ = failed_ = false;
  if (options_.temperature == 0) return SampleGreedily(logits);
  if (options_.top_k > 0 && static_cast<size_t>(options_.top_k) < logits.size()) {
    CollectTopK(static_cast<size_t>(options_.top_k));
  } else {
    BeginRanking();
  }
  if (candidates_.empty()) return kNoToken;
  return ChooseFromCandidates(position);
}

TokenId Sampler::Sample(std::span<float> logits, std::span<const TokenId> context, int64_t position,
                        std::span<const uint32_t> allowed) {
  for (const auto& [token, bias] : options_.logit_bias) {
    logits[static_cast<size_t>(token)] += bias;
  }
  Penalize(logits, context);
  if (!allowed.empty()) Mask(allowed, logits);
  return SampleChanged(logits, position);
}

TokenId Sampler::SampleGreedily(std::span<const float> logits) {
  const TokenId best = ArgMax(logits);
  candidates_.clear();
  if (best != kNoToken) candidates_.push_back({best, logits[static_cast<size_t>(best)]});
  ranked_to_ = rank_until_ = kNever;
  total_weight_ = 1;
  return best;
}

TokenId Sampler::ChooseFromCandidates(int64_t position) {
  if (candidates_[0].logit == kAlways) {  // forced by a bias: excludes all others
    candidates_.resize(1);
    EndRanking();
    return Draw(position);
  }
  CutTopP();
  CutMinP();
  return Draw(position);
}

bool Sampler::Penalizes() const {
  const bool repetition = options_.repetition_penalty != 1.0f;
  const bool counts = options_.frequency_penalty != 0 || options_.presence_penalty != 0;
  return (repetition || counts) && options_.penalty_window != 0;
}

void Sampler::Penalize(std::span<float> logits, std::span<const TokenId> context) {
  if (!Penalizes()) return;
  MoveWindow(context.size(), [context](size_t i) { return context[i]; });
  for (const Count& count : window_) {
    float& logit = logits[static_cast<size_t>(count.token)];
    if (logit > 0) {
      logit /= options_.repetition_penalty;
    } else {
      logit *= options_.repetition_penalty;
    }
    logit -= PenaltyOf(count);
  }
}

float Sampler::PenaltyOf(const Count& count) const {
  return static_cast<float>(count.times) * options_.frequency_penalty + options_.presence_penalty;
}

// The window may be the whole context, so only the tokens that enter or leave it are processed.
// Input embeddings are not counted.
void Sampler::MoveWindow(size_t n, FunctionRef<TokenId(size_t)> at) {
  const auto most = static_cast<size_t>(options_.penalty_window);
  const size_t begin = options_.penalty_window > 0 && most < n ? n - most : 0;
  const auto enter = [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) {
      const TokenId token = at(i);
      if (IsRow(token)) continue;
      const auto [place, is_new] = places_.try_emplace(token, window_.size());
      if (is_new) window_.push_back({.token = token});
      ++window_[place->second].times;
    }
  };
  const auto leave = [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) {
      const TokenId token = at(i);
      if (IsRow(token)) continue;
      const auto place = places_.find(token);
      Count& count = window_[place->second];
      if (--count.times > 0) continue;
      count = window_.back();
      places_[count.token] = place->second;
      window_.pop_back();
      places_.erase(place);
    }
  };
  enter(begin, std::min(n, window_begin_));
  enter(std::max(begin, window_end_), n);
  leave(window_begin_, std::min(window_end_, begin));
  leave(std::max(window_begin_, n), window_end_);
  window_begin_ = begin;
  window_end_ = n;
}

// Collects the k best tokens, with k smaller than the row; no others are added later.
void Sampler::CollectTopK(size_t k) {
  candidates_.resize(k);
  candidates_.resize(FindBest(row_, candidates_));
  ranked_to_ = rank_until_ = kNever;
}

// Collects the best token and those close to it; others may be added later.
void Sampler::BeginRanking() {
  candidates_.clear();
  const float max = row_.empty() ? best_[0].logit : Greatest(row_);
  if (max == kNever) return;
  if (max == kAlways) {
    candidates_.push_back({row_.empty() ? best_[0].token : ArgMax(row_), max});
    ranked_to_ = rank_until_ = kNever;
    return;
  }
  const float unit = std::max(1.0f, options_.temperature);
  ranked_to_ = std::nextafter(max, kAlways);
  rank_until_ = std::max(max - kNegligibleNats * unit, std::numeric_limits<float>::lowest());
  rank_step_ = kFirstRankedNats * unit;
  RankMore();
}

// Adds the next best candidates; false if there are no more.
bool Sampler::RankMore() {
  if (lacks_ || ranked_to_ <= rank_until_) return false;
  const float floor = std::max(ranked_to_ - rank_step_, rank_until_);
  TakeRanked(floor);
  ranked_to_ = floor;
  rank_step_ *= 2;
  return true;
}

void Sampler::TakeRanked(float floor) {
  if (row_.empty()) {
    size_t n = 0;
    while (n < best_.size() && best_[n].logit >= floor) candidates_.push_back(best_[n++]);
    best_ = best_.subspan(n);
    lacks_ = best_.empty() && !best_are_all_;
    return;
  }
  const auto n = static_cast<ptrdiff_t>(candidates_.size());
  for (size_t i = 0; i < row_.size(); ++i) {
    if (row_[i] >= floor && row_[i] < ranked_to_) {
      candidates_.push_back({static_cast<TokenId>(i), row_[i]});
    }
  }
  std::sort(candidates_.begin() + n, candidates_.end(), IsBetter);
}

void Sampler::EndRanking() {
  ranked_to_ = rank_until_;
  lacks_ = false;
}

double Sampler::WeightOfAll(float temperature) const {
  return row_.empty() ? weight_ : TotalWeight(row_, candidates_[0].logit, temperature);
}

// Keeps the smallest set of best candidates whose probability reaches top_p.
void Sampler::CutTopP() {
  if (options_.top_p >= 1) return;
  const float max = candidates_[0].logit;
  const auto weight = [&](const TokenLogit& c) {
    return std::exp(static_cast<double>(c.logit) - static_cast<double>(max));
  };
  double total = 0;
  if (ranked_to_ > rank_until_) {
    total = WeightOfAll(1);
  } else {
    failed_ |= lacks_;
    for (const TokenLogit& c : candidates_) total += weight(c);
  }
  const double wanted = static_cast<double>(options_.top_p) * total;
  double sum = 0;
  size_t n = 0;
  do {
    while (n < candidates_.size() && sum < wanted) sum += weight(candidates_[n++]);
  } while (sum < wanted && RankMore());
  failed_ |= lacks_ && sum < wanted;
  candidates_.resize(n);
  EndRanking();
}

// Keeps the candidates at least min_p times as probable as the best.
void Sampler::CutMinP() {
  if (options_.min_p <= 0) return;
  const float floor = candidates_[0].logit + std::log(options_.min_p);
  while (ranked_to_ > floor && RankMore()) {
  }
  size_t n = 1;
  while (n < candidates_.size() && candidates_[n].logit >= floor) ++n;
  failed_ |= lacks_ && n == candidates_.size();
  candidates_.resize(n);
  EndRanking();
}

double Sampler::Weight(const TokenLogit& candidate) const {
  const double max = static_cast<double>(candidates_[0].logit);
  // The greedy choice, or one forced by an infinite bias, excludes all others.
  if (options_.temperature == 0 || !std::isfinite(max)) {
    return candidate.token == candidates_[0].token ? 1 : 0;
  }
  return std::exp((static_cast<double>(candidate.logit) - max) /
                  static_cast<double>(options_.temperature));
}

TokenId Sampler::Draw(int64_t position) {
  total_weight_ = 0;
  if (ranked_to_ > rank_until_) {
    total_weight_ = WeightOfAll(options_.temperature);
  } else {
    failed_ |= lacks_;
    for (const TokenLogit& c : candidates_) total_weight_ += Weight(c);
  }
  double remaining = RandomUniform(seed_, static_cast<uint64_t>(position)) * total_weight_;
  size_t i = 0;
  do {
    for (; i < candidates_.size(); ++i) {
      remaining -= Weight(candidates_[i]);
      if (remaining < 0) return candidates_[i].token;
    }
  } while (RankMore());
  failed_ |= lacks_;
  return candidates_.back().token;
}

bool Sampler::Bans(TokenId token) const {
  return std::any_of(options_.logit_bias.begin(), options_.logit_bias.end(), [&](const auto& bias) {
    return bias.first == token && std::isinf(bias.second) && bias.second < 0;
  });
}

Sampler::Draws Sampler::DrawsOf(TokenId token, int n) {
  while (candidates_.size() < static_cast<size_t>(n) && RankMore()) {
  }
  Draws draws;
  for (const TokenLogit& c : candidates_) {
    const double weight = Weight(c);
    const auto logprob = static_cast<float>(std::log(weight / total_weight_));
    if (c.token == token) draws.logprob = logprob;
    const bool is_among_best = static_cast<int>(draws.best.size()) < n;
    if (weight > 0 && is_among_best) draws.best.push_back({c.token, logprob});
  }
  return draws;
}

}  // namespace weft
