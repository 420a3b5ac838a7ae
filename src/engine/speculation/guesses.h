// The draft tokens of one answer, which its next step verifies.
//
// Speculation changes when tokens are computed, never which: a draft token is accepted only if the
// sampler chooses it from the model's own logits (TurnWriter). Engine thread only.
#ifndef WEFT_ENGINE_SPECULATION_GUESSES_H_
#define WEFT_ENGINE_SPECULATION_GUESSES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/tokens.h"
#include "engine/speculation/acceptance.h"
#include "engine/speculation/ngram_index.h"
#include "engine/speculation/shared_texts.h"
#include "engine/speculation/text_follower.h"
#include "weft/options.h"

namespace weft {

class Guesses {
 public:
  // Above any real gain: such tokens are verified whatever they cost.
  static constexpr float kSure = 2;

  // `shared`: the domain's text, or null. `prediction` must outlive the object. `looks_in_texts`:
  // enables n-gram lookup in the conversation and in the domain's text.
  Guesses(const SpeculationOptions& options, std::span<const TokenId> prediction,
          std::shared_ptr<SharedText> shared, bool looks_in_texts = true);

  // Asks the sources for the continuation of `text`, at most `most` tokens, unless they were asked
  // already. `given` comes before all others: the caller's guess, or the only text that a
  // constraint allows.
  struct Given {
    GuessSource source = GuessSource::kNone;
    std::vector<TokenId> tokens = {};
  };
  void Offer(std::span<const TokenId> text, int64_t most, const std::function<Given()>& given);

  // Whether to ask a draft model too: the guess at hand promises few accepted tokens, and the draft
  // model was not asked yet. Call after Offer.
  bool WantsDraft() const;
  // Takes the draft model's tokens with its probability of each. They replace the guess at hand
  // unless that promises more accepted tokens. `at_any_cost`: they are verified whatever they cost.
  void TakeDraft(std::span<const TokenId> tokens, std::span<const float> chances, bool at_any_cost);
  // The limit of the latest Offer.
  int64_t most() const { return offered_max_; }
  // The recent acceptance rate of a drafted token if those before it were accepted.
  float draft_share() const { return draft_share_; }
  // The same rate for earlier answers, as the initial value for this one.
  void ExpectOfDrafts(float share) { draft_share_ = share; }
  static constexpr float kUnknownDraftShare = 0.85f;

  std::span<const TokenId> tokens() const { return tokens_; }
  // For each token: the probability that it and all tokens before it are accepted. Never increases.
  std::span<const float> gains() const { return gains_; }

  // Call when the text has grown by one token.
  void Push(std::span<const TokenId> text);
  // Call when a step has computed this many draft tokens, and when this many of them were accepted.
  void CountStep(int64_t computed);
  void CountAccepted(int64_t n);

  // The recent average of tokens gained per step.
  double pace() const { return pace_; }
  int64_t computed() const { return computed_; }
  int64_t accepted() const { return accepted_; }
  // How many tokens of the prediction the answer contains.
  int64_t predicted() const { return prediction_follower_.kept(); }

 private:
  void LookInTexts(std::span<const TokenId> text, int64_t most);
  // Replaces the guess at hand by this match if it is longer.
  void Take(GuessSource source, const NgramIndex::Match& match, std::span<const TokenId> from,
            int64_t most);
  void Judge(int64_t most);
  int64_t LengthAt(int64_t i) const;
  void NoteCuts();

  const SpeculationOptions options_;
  const std::span<const TokenId> prediction_;
  NgramIndex prediction_index_;
  TextFollower prediction_follower_;
  NgramIndex own_index_;
  TextFollower own_follower_;
  const std::shared_ptr<SharedText> shared_;
  const bool looks_in_texts_;
  TextFollower shared_follower_;
  int64_t shared_cuts_ = 0;

  Acceptance acceptance_;
  std::vector<TokenId> tokens_;  // the guess
  std::vector<float> gains_;
  GuessSource source_ = GuessSource::kNone;
  int64_t length_ = 0;
  std::vector<int64_t> draft_lengths_;  // for each token of a draft: Acceptance::LengthOf
  int64_t drafted_after_ = -1;
  float draft_share_ = kUnknownDraftShare;
  int64_t offered_after_ = -1, offered_max_ = 0;
  int64_t right_ = 0;
  double pace_ = 1;
  double brought_ = 1;  // tokens gained by the latest step
  int64_t computed_ = 0, accepted_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_SPECULATION_GUESSES_H_
