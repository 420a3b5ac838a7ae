// From one row of logits to one token.
//
// The chain, in order: logit bias, penalties over the last tokens of the context,
// token mask; then, unless greedy (temperature 0): top-k, top-p, min-p, temperature,
// and one draw that is a function of (seed, position). Ties go to the lower token
// id everywhere, so that equal logits give equal tokens.
//
// A Sampler holds options, scratch and counts of the context, no randomness and no history of
// its own: it can be dropped and made anew at any position without changing what follows.
// Engine thread only.
#ifndef WEFT_ENGINE_SAMPLER_H_
#define WEFT_ENGINE_SAMPLER_H_

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "base/tokens.h"
#include "weft/events.h"
#include "weft/options.h"

namespace weft {

// What is wrong with the options, as a sentence that names the field.
Status ValidateSampling(const SamplingOptions& options, int64_t n_vocab);

class Sampler {
 public:
  // REQUIRES: ValidateSampling(options) is OK. `seed` is the choice's own.
  Sampler(SamplingOptions options, uint64_t seed);

  // Chooses the token for `position`, which follows `context` (all tokens before
  // it). `logits` is the row as the model computed it; it is changed in place.
  // REQUIRES: every context begins with that of the call before.
  // Bit `id % 32` of word `id / 32` of `allowed`, when that is not empty, says whether token
  // `id` may come. kNoToken when nothing may, which only a mask or bans can cause.
  TokenId Sample(std::span<float> logits, std::span<const TokenId> context, int64_t position,
                 std::span<const uint32_t> allowed);

  // With which probability the last Sample chose `token`, which it gave, and the `n` most
  // probable of those that it chose among, best first. The row of that call is still there.
  struct Draws {
    float logprob = 0;
    std::vector<TokenLogprob> best;
  };
  Draws DrawsOf(TokenId token, int n);
  // By its bias: it can never be drawn.
  bool Bans(TokenId token) const;

 private:
  struct Candidate {
    TokenId id;
    float logit;
  };
  // Orders by logit, best first; equal ones by id.
  static bool Better(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  }

  // How often a token stands in the window of the penalties.
  struct Count {
    TokenId token = kNoToken;
    int64_t times = 0;
  };

  void Penalize(std::span<float> logits, std::span<const TokenId> context);
  void MoveWindow(std::span<const TokenId> context);
  void CollectTopK(size_t k);
  void BeginRanking();
  bool RankMore();
  void CutTopP();
  void CutMinP();
  // In proportion to the probability of being drawn; 1 for the best candidate.
  double Weight(const Candidate& candidate) const;
  TokenId Draw(int64_t position);

  const SamplingOptions options_;
  const uint64_t seed_;
  // Of the last row. Candidates stand best first; those below `ranked_to_` join when they
  // are asked for, which in a large vocabulary is seldom.
  std::span<const float> row_;
  std::vector<Candidate> candidates_;
  float ranked_to_ = 0;   // every logit from here up is a candidate
  float rank_until_ = 0;  // none below will be one
  float rank_step_ = 0;
  double total_weight_ = 0;  // of all that can be drawn
  // The last tokens of the context that penalties look at; empty while there are none.
  size_t window_begin_ = 0, window_end_ = 0;
  std::vector<Count> window_;                   // in no order
  std::unordered_map<TokenId, size_t> places_;  // there, by token
};

// The token of the greatest logit, the lowest id among equals. kNoToken when none
// is greater than minus infinity.
TokenId ArgMax(std::span<const float> logits);

// Whether tokens can be chosen from a row: every logit is a number or minus infinity,
// and not all are the latter.
bool IsSound(std::span<const float> logits);

// log(sum(exp(logits))), summed in index order in double precision.
double LogSumExp(std::span<const float> logits);

// The `n` best tokens of a row with their log-probabilities, best first.
std::vector<TokenLogprob> TopLogprobs(std::span<const float> logits, double log_sum_exp, int n);

}  // namespace weft

#endif  // WEFT_ENGINE_SAMPLER_H_
