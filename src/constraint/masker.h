// Which tokens may come next in a state of the machine.
//
// A state's mask is the union of its threads'. A thread in the middle of free text has the mask
// of its terminal, which does not depend on what is around it, and the tokens that end the
// terminal and go on behind it, which do. All other threads allow few tokens; they are walked
// together. Each of the three is kept, so most masks are put together from known parts.
//
// One thread at a time.
#ifndef WEFT_CONSTRAINT_MASKER_H_
#define WEFT_CONSTRAINT_MASKER_H_

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "constraint/machine.h"
#include "constraint/token_table.h"

namespace weft::constraint {

class Masker {
 public:
  // Both outlive the masker.
  Masker(Machine* machine, const TokenTable* tokens) : machine_(*machine), tokens_(*tokens) {}

  // Bit `id % 32` of word `id / 32` says whether token `id` may come next.
  // REQUIRES: out.size() == tokens.mask_words().
  void Fill(StateId state, std::span<uint32_t> out);
  int64_t bytes() const { return bytes_; }

 private:
  // Where a terminal ends inside of a token that goes on.
  struct Crossing {
    uint32_t trie = 0;
    int32_t node = 0;
  };
  struct Wide {
    bool usable = false;
    std::vector<uint32_t> mask;
    std::vector<Crossing> crossings;
  };
  struct Plan {
    std::vector<std::pair<RegexId, int32_t>> wide;  // a terminal, and an index in lists_
    int32_t narrow = -1;                            // in lists_
  };

  const Plan& PlanOf(StateId state);
  const Wide& WideOf(RegexId regex);
  int32_t ListBehind(RegexId regex, StateId after);
  int32_t ListOf(StateId state);
  int SliceRoom(RegexId regex, const TokenTable::Slice& slice);
  void WalkTerminal(RegexId regex, uint32_t trie, Wide* wide);
  template <typename Found>
  void WalkState(StateId state, const TokenTrie& trie, int32_t first, int32_t end, int base,
                 const Found& found);

  Machine& machine_;
  const TokenTable& tokens_;
  std::unordered_map<StateId, Plan> plans_;
  std::unordered_map<RegexId, Wide> wides_;
  std::unordered_map<uint64_t, int32_t> behind_;
  std::vector<std::vector<TokenId>> lists_;
  std::vector<StateId> states_;   // of a walk, by depth
  std::vector<RegexId> regexes_;  // likewise
  int64_t bytes_ = 0;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_MASKER_H_
