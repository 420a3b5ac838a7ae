// Samples a token from a row of logits.
//
// The steps, in order: logit bias, penalties over the last tokens of the context, token mask; then,
// unless greedy (temperature 0): top-k, top-p, min-p, temperature, and one random number that is a
// function of (seed, position). Ties go to the lower token id everywhere, so equal logits give
// equal tokens.
//
// A Sampler holds options, scratch memory and counts of the context, but no random state and no
// history: it can be dropped and recreated at any position without changing the output. Engine
// thread only.
#ifndef WEFT_ENGINE_SAMPLING_SAMPLER_H_
#define WEFT_ENGINE_SAMPLING_SAMPLER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/best_tokens.h"
#include "base/function_ref.h"
#include "base/status.h"
#include "base/tokens.h"
#include "weft/events.h"
#include "weft/options.h"

namespace weft {

// INVALID_ARGUMENT names the field at fault.
Status ValidateSampling(const SamplingOptions& options, int64_t n_vocab);

class Sampler {
 public:
  // REQUIRES: ValidateSampling(options) is OK. `seed` is the choice's own.
  Sampler(SamplingOptions options, uint64_t seed);

  // Samples the token for `position`, which follows `context` (all tokens before it). `logits` is
  // the model's row, which is modified in place. Unless `allowed` is empty, bit `id % 32` of its
  // word `id / 32` says whether token `id` is allowed. Returns kNoToken if no token is allowed,
  // which only a mask or bans can cause. REQUIRES: each context extends the one of the previous
  // call.
  TokenId Sample(std::span<float> logits, std::span<const TokenId> context, int64_t position,
                 std::span<const uint32_t> allowed);

  // How many of a row's top candidates are enough for sampling; 0 if the whole row is needed,
  // because of penalties, biases or the lack of a top-k.
  int64_t BestNeeded(int64_t n_vocab) const;
  // Samples the token that Sample would, from the row's top candidates, best first: BestNeeded()
  // and as many more as `is_banned` may exclude.
  TokenId SampleBest(std::span<const TokenLogit> best, int64_t position,
                     FunctionRef<bool(TokenId)> is_banned);

  // For backends that change rows before they find the top candidates. A few candidates then nearly
  // always suffice, whatever the options.
  //
  // How many candidates to ask for, and, unless 0, the temperature at which the row's total weight
  // is needed.
  struct Needed {
    int64_t n_best = 0;
    float temperature = 0;
  };
  Needed NeededOfChanged(int64_t n_vocab) const;
  // The changes to the row of the token that follows `context` and `guesses`, which also exclude
  // all tokens in `banned`: one for each token, in no order. REQUIRES: as for Sample, for
  // `context`.
  void ChangesFor(std::span<const TokenId> context, std::span<const TokenId> guesses,
                  std::span<const TokenId> banned, std::vector<LogitChange>* changes);
  // Samples the token that Sample would, from the candidates and the weight that were asked for. No
  // value if that depends on tokens that are not in `best`.
  std::optional<TokenId> SampleChanged(std::span<const TokenLogit> best, double weight,
                                       int64_t n_vocab, int64_t position);
  // The same from the changed row, which must stay while DrawsOf is called.
  TokenId SampleChanged(std::span<const float> logits, int64_t position);

  // The log-probability with which the latest Sample chose `token` (its result), and the `n` most
  // probable candidates, best first. REQUIRES: the row of that call still exists.
  struct Draws {
    float logprob = 0;
    std::vector<TokenLogprob> best;
  };
  Draws DrawsOf(TokenId token, int n);
  // Whether the logit bias excludes the token.
  bool Bans(TokenId token) const;

 private:
  // How often a token occurs in the penalty window.
  struct Count {
    TokenId token = kNoToken;
    int64_t times = 0;
  };

  bool Penalizes() const;
  void Penalize(std::span<float> logits, std::span<const TokenId> context);
  float PenaltyOf(const Count& count) const;
  // Moves the window to the end of the first `n` tokens of a text; `at` gives a token by index. The
  // window may move back.
  void MoveWindow(size_t n, FunctionRef<TokenId(size_t)> at);
  TokenId SampleGreedily(std::span<const float> logits);
  void CollectTopK(size_t k);
  void BeginRanking();
  bool RankMore();
  void TakeRanked(float floor);
  // Call when the result does not depend on further candidates.
  void EndRanking();
  TokenId ChooseFromCandidates(int64_t position);
  double WeightOfAll(float temperature) const;
  void CutTopP();
  void CutMinP();
  // Proportional to the sampling probability; 1 for the best candidate.
  double Weight(const TokenLogit& candidate) const;
  TokenId Draw(int64_t position);

  const SamplingOptions options_;
  const uint64_t seed_;
  // State for the current row. Candidates are ordered best first; those below `ranked_to_` are
  // added on demand, which is rarely needed with a large vocabulary.
  std::span<const float> row_;
  // If there is no row: its total weight, and its top candidates without those in `candidates_`.
  double weight_ = 0;
  std::span<const TokenLogit> best_;
  bool best_are_all_ = false;  // the row has no other tokens
  // lacks_: candidates may be missing after the last one. failed_: the result depends on these.
  bool lacks_ = false, failed_ = false;
  std::vector<TokenLogit> candidates_;
  float ranked_to_ = 0;   // every logit at or above this is a candidate
  float rank_until_ = 0;  // no logit below this becomes one
  float rank_step_ = 0;
  double total_weight_ = 0;  // sum over all tokens that can be sampled
  // The part of the context that penalties count; empty if there are none.
  size_t window_begin_ = 0, window_end_ = 0;
  std::vector<Count> window_;                   // unordered
  std::unordered_map<TokenId, size_t> places_;  // index into window_, by token
};

// log(sum(exp(logits))), summed in index order in double precision.
double LogSumExp(std::span<const float> logits);

// The row's `n` best tokens with their log-probabilities, best first.
std::vector<TokenLogprob> TopLogprobs(std::span<const float> logits, double log_sum_exp, int n);

}  // namespace weft

#endif  // WEFT_ENGINE_SAMPLING_SAMPLER_H_
