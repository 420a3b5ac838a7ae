// The recent acceptance rate of each kind of guess, in one answer. It learns from all guesses,
// including those that no step had rows for, so a kind that is no longer computed can come back.
#ifndef WEFT_ENGINE_SPECULATION_ACCEPTANCE_H_
#define WEFT_ENGINE_SPECULATION_ACCEPTANCE_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft {

// The source of a guess's draft tokens.
enum class GuessSource : uint8_t {
  kNone,
  kCaller,      // TurnOptions::guess
  kPrediction,  // TurnOptions::prediction
  kGrammar,     // the only text that the constraint allows
  kOwnText,     // n-gram lookup in the conversation
  kSharedText,  // n-gram lookup in its domain's text
  kDraft,       // a draft model
};

class Acceptance {
 public:
  Acceptance();

  // First: the probability that the first token of a guess is accepted. Next: that of a later one
  // if all before it are accepted. `length`: how many tokens before the guess match its source; for
  // drafts, LengthOf.
  float First(GuessSource source, int64_t length) const { return Of(source, length).first.share; }
  float Next(GuessSource source, int64_t length) const { return Of(source, length).next.share; }
  void Note(GuessSource source, int64_t length, bool is_first, bool right);
  // For drafts, which are grouped by the draft model's probability of the token.
  static int64_t LengthOf(float chance);

 private:
  static constexpr size_t kSources = 7;
  static constexpr size_t kLengths = 6;
  struct Share {
    float share = 0;
    int times = 0;
  };
  struct Kind {
    Share first, next;
  };

  static size_t LengthClass(int64_t length);
  const Kind& Of(GuessSource source, int64_t length) const {
    return kinds_[static_cast<size_t>(source)][LengthClass(length)];
  }

  std::array<std::array<Kind, kLengths>, kSources> kinds_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_SPECULATION_ACCEPTANCE_H_
