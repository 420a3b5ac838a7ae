// How often each kind of guess was right lately, in one answer. Learns from all guesses, including
// those that no step had rows for, so a kind that is no longer computed can come back.
#ifndef WEFT_ENGINE_SPECULATION_ACCEPTANCE_H_
#define WEFT_ENGINE_SPECULATION_ACCEPTANCE_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft {

// Where a guess comes from.
enum class GuessSource : uint8_t {
  kNone,
  kCaller,      // TurnOptions::guess
  kPrediction,  // TurnOptions::prediction
  kGrammar,     // the only text that the constraint allows
  kOwnText,     // the conversation
  kSharedText,  // its domain
  kDraft,       // a draft model
};

class Acceptance {
 public:
  Acceptance();

  // How likely the first token of a guess is right; and a later one, given that those before it
  // are. `length`: how many tokens before the guess match its source; for drafts, LengthOf.
  float First(GuessSource source, int64_t length) const { return Of(source, length).first.share; }
  float Next(GuessSource source, int64_t length) const { return Of(source, length).next.share; }
  void Note(GuessSource source, int64_t length, bool is_first, bool right);
  // Drafts are grouped by how sure the draft model is of them.
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
