// The prompts in prefill, in lexicographic order; the prefix cache holds finished ones. Through it
// a turn finds those that compute the beginning of its own prompt, without comparing tokens again.
// Engine thread only.
//
// Between two prompts, the least that neighbours have in common is what the two have in common. So
// adding a prompt compares its tokens with as many as the logarithm of their number, and a look-up
// compares none.
#ifndef WEFT_ENGINE_TURNS_PROMPTS_UNDER_WAY_H_
#define WEFT_ENGINE_TURNS_PROMPTS_UNDER_WAY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/tokens.h"

namespace weft {

struct ActiveTurn;
struct Session;

class PromptsUnderWay {
 public:
  // Domains meet only if they may share prefixes.
  explicit PromptsUnderWay(bool share_across_domains)
      : share_across_domains_(share_across_domains) {}

  // The prompt on the turn's session, as far as others compute it alike. REQUIRES: the turn is not
  // there; until it is removed, the session's tokens stay, and others come only after them.
  void Add(ActiveTurn* turn, const Session& session);
  // The same for the first `n_tokens` of a list.
  void Add(ActiveTurn* turn, std::string_view domain, const std::vector<TokenId>& tokens,
           size_t n_tokens);
  // Does nothing if it is not there.
  void Remove(const ActiveTurn* turn);

  // Visits the turns added before this one whose prompts begin as its own does, with the number of
  // tokens in common: the most first, and of equals the first added. Ends when `visit` returns
  // true; returns whether it did. REQUIRES: the turn is there; `visit` changes nothing here.
  bool AnyEarlier(const ActiveTurn* turn,
                  FunctionRef<bool(ActiveTurn* earlier, int64_t common)> visit) const;

  size_t n_domains() const { return domains_.size(); }

 private:
  struct Prompt {
    std::span<const TokenId> tokens() const { return std::span(*text).first(n_tokens); }

    ActiveTurn* turn = nullptr;
    const std::vector<TokenId>* text = nullptr;  // begins with the prompt; the answer follows
    size_t n_tokens = 0;
    uint64_t number = 0;    // in the order of addition
    int64_t in_common = 0;  // with the next one
  };
  using Ordered = std::vector<Prompt>;  // never empty

  const bool share_across_domains_;
  std::map<std::string, Ordered, std::less<>> domains_;
  uint64_t n_added_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_PROMPTS_UNDER_WAY_H_
