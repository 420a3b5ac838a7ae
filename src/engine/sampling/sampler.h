// Chooses a token from a row of logits.
//
// The chain, in order: logit bias, penalties over the last tokens of the context, token mask; then,
// unless greedy (temperature 0): top-k, top-p, min-p, temperature, and one draw that is a function
// of (seed, position). Ties go to the lower token id everywhere, so equal logits give equal tokens.
//
// A Sampler holds options, scratch and counts of the context, but no randomness and no history: it
// can be dropped and recreated at any position without changing the output. Engine thread only.
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

  // Chooses the token for `position`, which follows `context` (all tokens before it). `logits` is
  // the model's row; it is modified in place. Unless `allowed` is empty, bit `id % 32` of its word
  // `id / 32` says whether token `id` may be chosen. Returns kNoToken if nothing may, which only a
  // mask or bans can cause. REQUIRES: each context extends the one of the previous call.
  TokenId Sample(std::span<float> logits, std::span<const TokenId> context, int64_t position,
                 std::span<const uint32_t> allowed);

  // How many of a row's best tokens are enough to choose from; 0: the whole row is needed, because
  // of penalties, biases or the lack of a top-k.
  int64_t BestNeeded(int64_t n_vocab) const;
  // Chooses what Sample would from the whole row, from its best tokens, best first: BestNeeded()
  // and as many more as `is_banned` may exclude.
  TokenId SampleBest(std::span<const TokenLogit> best, int64_t position,
                     FunctionRef<bool(TokenId)> is_banned);

  // Where a backend changes rows before it looks for the best tokens, those are nearly always
  // enough, whatever the options.
  //
  // How many of them to ask for, and unless `temperature` is 0 for the row's weight at that.
  struct Needed {
    int64_t n_best = 0;
    float temperature = 0;
  };
  Needed NeededOfChanged(int64_t n_vocab) const;
  // What to change in the row of the token that follows `context` and `guesses`, so that none of
  // `banned` can be chosen: each token once, in no order. REQUIRES: as for Sample, of `context`.
  void ChangesFor(std::span<const TokenId> context, std::span<const TokenId> guesses,
                  std::span<const TokenId> banned, std::vector<LogitChange>* changes);
  // What Sample would choose. From what was asked for: nothing where the draw goes beyond the
  // tokens that `best` names.
  std::optional<TokenId> SampleChanged(std::span<const TokenLogit> best, double weight,
                                       int64_t n_vocab, int64_t position);
  // Or from the changed row, which must stay while DrawsOf is called.
  TokenId SampleChanged(std::span<const float> logits, int64_t position);

  // The probability with which the last Sample chose `token` (its result), and the `n` most
  // probable candidates, best first. REQUIRES: the row of that call is still there.
  struct Draws {
    float logprob = 0;
    std::vector<TokenLogprob> best;
  };
  Draws DrawsOf(TokenId token, int n);
  // Whether the bias rules the token out.
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
  // Over the end of the first `n` tokens of a text, `at` says which. It may go back.
  void MoveWindow(size_t n, FunctionRef<TokenId(size_t)> at);
  TokenId SampleGreedily(std::span<const float> logits);
  void CollectTopK(size_t k);
  void BeginRanking();
  bool RankMore();
  void TakeRanked(float floor);
  // What was chosen does not depend on further candidates.
  void EndRanking();
  TokenId ChooseFromCandidates(int64_t position);
  double WeightOfAll(float temperature) const;
  void CutTopP();
  void CutMinP();
  // Proportional to the probability of being drawn; 1 for the best candidate.
  double Weight(const TokenLogit& candidate) const;
  TokenId Draw(int64_t position);

  const SamplingOptions options_;
  const uint64_t seed_;
  // State for the current row. Candidates are ordered best first; those below `ranked_to_` are
  // added on demand, which with a large vocabulary is rarely needed.
  std::span<const float> row_;
  // In its place, if it is empty: the row's weight, and its best tokens, without those that are
  // candidates.
  double weight_ = 0;
  std::span<const TokenLogit> best_;
  bool best_are_all_ = false;  // there are no others
  // Some candidates may be missing behind the last one; if the draw needed to know, it has failed.
  bool lacks_ = false, failed_ = false;
  std::vector<TokenLogit> candidates_;
  float ranked_to_ = 0;   // every logit at or above this is a candidate
  float rank_until_ = 0;  // no logit below this becomes one
  float rank_step_ = 0;
  double total_weight_ = 0;  // of all tokens that can be drawn
  // The context window that penalties count; empty if there are none.
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
