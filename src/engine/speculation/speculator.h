// An engine's speculation: whether and how far its answers speculate, and the texts for n-gram
// lookup. Engine thread only.
#ifndef WEFT_ENGINE_SPECULATION_SPECULATOR_H_
#define WEFT_ENGINE_SPECULATION_SPECULATOR_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/tokens.h"
#include "engine/speculation/guesses.h"
#include "engine/speculation/shared_texts.h"
#include "weft/options.h"

namespace weft {

class Speculator {
 public:
  struct Options {
    int64_t most = 0;  // draft tokens per step and answer; 0: no speculation
    bool looks_in_texts = true;
    bool share_texts = true;
    bool share_across_domains = false;
  };
  explicit Speculator(const Options& options) : options_(options) {}

  int64_t most() const { return options_.most; }

  // Call when an answer begins. `text` is its prompt, whose first `known` tokens were known before,
  // followed by the `said` tokens that it has already generated. From then on, other answers of the
  // domain may look it up.
  std::unique_ptr<Guesses> Begin(std::string_view domain, std::span<const TokenId> text,
                                 int64_t known, int64_t said, const TurnOptions& turn);
  // Call when an answer ends. `said` is all of it, and `guesses` came from Begin.
  void End(std::string_view domain, std::span<const TokenId> said, const Guesses& guesses);
  // The expected number of tokens after the `said` ones, with at most `limit` in total (-1: no
  // limit).
  int64_t ExpectMore(int64_t said, int64_t limit) const;
  // Drops the texts. Call when prefixes are dropped.
  void ForgetTexts() { texts_.Clear(); }
  int64_t memory_bytes() const { return texts_.memory_bytes(); }

 private:
  std::string_view TextName(std::string_view domain) const {
    return options_.share_across_domains ? std::string_view() : domain;
  }

  const Options options_;
  SharedTexts texts_;
  // Average over recent answers: a draft model that is often wrong will be so in the next answer
  // too.
  float draft_share_ = Guesses::kUnknownDraftShare;
  double usual_length_ = 0;  // recent length of answers in tokens; 0: unknown
};

}  // namespace weft

#endif  // WEFT_ENGINE_SPECULATION_SPECULATOR_H_
