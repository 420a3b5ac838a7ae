#include "engine/speculation/guesses.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace weft {
namespace {

// How many positions one step adds to an index: a long text must not delay it.
constexpr int64_t kMaxIndexed = 2048;
// After a match of this length, the domain's text is not searched.
constexpr int64_t kLongMatch = 16;
constexpr double kPaceSmoothing = 0.2;
constexpr float kDraftSmoothing = 0.03f;
// A guess that promises this many accepted tokens needs no draft model.
constexpr float kEnough = 2;

}  // namespace

Guesses::Guesses(const SpeculationOptions& options, std::span<const TokenId> prediction,
                 std::shared_ptr<SharedText> shared, bool looks_in_texts)
    : options_(options),
      prediction_(prediction),
      shared_(std::move(shared)),
      looks_in_texts_(looks_in_texts) {
  prediction_index_.Extend(prediction_, std::ssize(prediction_));
  if (!prediction_.empty()) prediction_follower_.StartAtBeginning();
  if (shared_ != nullptr) shared_cuts_ = shared_->cuts;
}

void Guesses::Offer(std::span<const TokenId> text, int64_t most,
                    const std::function<Given()>& given) {
  if (options_.most >= 0) most = std::min<int64_t>(most, options_.most);
  if (offered_after_ == std::ssize(text) && offered_max_ == most) return;
  offered_after_ = std::ssize(text);
  offered_max_ = most;
  right_ = 0;
  tokens_.clear();
  source_ = GuessSource::kNone;
  length_ = -1;
  if (most > 0) {
    Given first = given();
    if (!first.tokens.empty()) {
      source_ = first.source;
      length_ = kLongMatch;
      tokens_ = std::move(first.tokens);
    } else {
      LookInTexts(text, most);
    }
  }
  Judge(most);
}

void Guesses::LookInTexts(std::span<const TokenId> text, int64_t most) {
  if (!prediction_.empty()) {
    Take(GuessSource::kPrediction, prediction_follower_.Next(prediction_, prediction_index_, text),
         prediction_, most);
  }
  if (!looks_in_texts_) return;
  own_index_.Extend(text, kMaxIndexed);
  Take(GuessSource::kOwnText, own_follower_.Next(text, own_index_, text), text, most);
  if (shared_ == nullptr || length_ >= kLongMatch) return;
  NoteCuts();
  shared_->index.Extend(shared_->tokens, kMaxIndexed);
  Take(GuessSource::kSharedText, shared_follower_.Next(shared_->tokens, shared_->index, text),
       shared_->tokens, most);
}

// In the conversation, the lookup continues into the guess itself, so that a repeated pattern is
// predicted beyond its end.
void Guesses::Take(GuessSource source, const NgramIndex::Match& match,
                   std::span<const TokenId> from, int64_t most) {
  if (match.next < 0 || match.length <= length_) return;
  source_ = source;
  length_ = match.length;
  std::vector<TokenId> tokens;
  for (int64_t at = match.next; std::ssize(tokens) < most; ++at) {
    TokenId token = kNoToken;
    if (at < std::ssize(from)) {
      token = from[static_cast<size_t>(at)];
    } else if (source == GuessSource::kOwnText) {
      token = tokens[static_cast<size_t>(at - std::ssize(from))];
    }
    if (token < 0) break;
    tokens.push_back(token);
  }
  tokens_ = std::move(tokens);
}

void Guesses::Judge(int64_t most) {
  gains_.clear();
  float gain = 1;
  for (int64_t i = 0; i < std::min<int64_t>(most, std::ssize(tokens_)); ++i) {
    const bool is_first = i == 0 && source_ != GuessSource::kDraft;
    const float share =
        is_first ? acceptance_.First(source_, LengthAt(i)) : acceptance_.Next(source_, LengthAt(i));
    if (source_ != GuessSource::kCaller && share < options_.min_probability) break;
    gain *= share;
    gains_.push_back(source_ == GuessSource::kCaller ? kSure : gain);
  }
  if (std::ssize(gains_) < options_.least) gains_.clear();
}

int64_t Guesses::LengthAt(int64_t i) const {
  return source_ == GuessSource::kDraft ? draft_lengths_[static_cast<size_t>(i)] : length_;
}

bool Guesses::WantsDraft() const {
  if (offered_max_ <= 0 || drafted_after_ == offered_after_) return false;
  if (source_ == GuessSource::kCaller || source_ == GuessSource::kGrammar) return false;
  return std::accumulate(gains_.begin(), gains_.end(), 0.0f) < kEnough;
}

void Guesses::TakeDraft(std::span<const TokenId> tokens, std::span<const float> chances,
                        bool at_any_cost) {
  drafted_after_ = offered_after_;
  if (tokens.empty()) return;
  std::vector<int64_t> lengths;
  float gain = 1, promised = 0;
  for (const float chance : chances) {
    lengths.push_back(Acceptance::LengthOf(chance));
    gain *= acceptance_.Next(GuessSource::kDraft, lengths.back());
    promised += gain;
  }
  const float before = std::accumulate(gains_.begin(), gains_.end(), 0.0f);
  if (!at_any_cost && promised < before) return;
  source_ = GuessSource::kDraft;
  draft_lengths_ = std::move(lengths);
  tokens_.assign(tokens.begin(), tokens.end());
  Judge(offered_max_);
  if (at_any_cost) std::fill(gains_.begin(), gains_.end(), kSure);
}

void Guesses::NoteCuts() {
  if (shared_ == nullptr || shared_->cuts == shared_cuts_) return;
  shared_cuts_ = shared_->cuts;
  shared_follower_.Forget();
}

void Guesses::Push(std::span<const TokenId> text) {
  const TokenId token = text.back();
  if (right_ >= 0 && right_ < std::ssize(tokens_)) {
    const bool right = tokens_[static_cast<size_t>(right_)] == token;
    const bool is_draft = source_ == GuessSource::kDraft;
    acceptance_.Note(source_, LengthAt(right_), /*is_first=*/right_ == 0 && !is_draft, right);
    if (is_draft) draft_share_ += kDraftSmoothing * ((right ? 1.0f : 0.0f) - draft_share_);
    right_ = right ? right_ + 1 : -1;
  }
  if (!prediction_.empty()) {
    prediction_follower_.Follow(prediction_, token);
    // Called at once, so that the count depends on the text alone.
    prediction_follower_.Next(prediction_, prediction_index_, text);
  }
  own_follower_.Follow(text, token);
  NoteCuts();
  if (shared_ != nullptr) shared_follower_.Follow(shared_->tokens, token);
}

void Guesses::CountStep(int64_t computed) {
  pace_ += kPaceSmoothing * (std::exchange(brought_, 1) - pace_);
  computed_ += computed;
}

void Guesses::CountAccepted(int64_t n) {
  brought_ += static_cast<double>(n);
  accepted_ += n;
}

}  // namespace weft
