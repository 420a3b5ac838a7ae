// An engine's speculation: whether and how far its answers guess ahead, and the texts that guesses
// come from. Engine thread only.
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
    int64_t most = 0;  // guesses per step and answer; 0: no speculation
    bool looks_in_texts = true;
    bool share_texts = true;
    bool share_across_domains = false;
  };
  explicit Speculator(const Options& options) : options_(options) {}

  int64_t most() const { return options_.most; }

  // An answer begins. `text` is its prompt, whose first `known` tokens were known before, followed
  // by the `said` tokens it has already generated. Other answers of the domain may guess from it.
  std::unique_ptr<Guesses> Begin(std::string_view domain, std::span<const TokenId> text,
                                 int64_t known, int64_t said, const TurnOptions& turn);
  // An answer ended, which guessed by `guesses`; `said` is all of it.
  void End(std::string_view domain, std::span<const TokenId> said, const Guesses& guesses);
  // How many tokens an answer will probably have beyond the `said` ones, at most `limit` in all
  // (-1: any number).
  int64_t ExpectMore(int64_t said, int64_t limit) const;
  // Drops the texts. To be called when prefixes are dropped.
  void ForgetTexts() { texts_.Clear(); }
  int64_t memory_bytes() const { return texts_.memory_bytes(); }

 private:
  std::string_view TextName(std::string_view domain) const {
    return options_.share_across_domains ? std::string_view() : domain;
  }

  const Options options_;
  SharedTexts texts_;
  // Of the answers that ended lately. A draft model that is often wrong is so in the next answer
  // too.
  float draft_share_ = Guesses::kUnknownDraftShare;
  double usual_length_ = 0;  // of answers lately, in tokens; 0: not known
};

}  // namespace weft

#endif  // WEFT_ENGINE_SPECULATION_SPECULATOR_H_
