// Which tokens may come next in a state of the machine.
//
// A state's mask is the union of its threads'. A thread in the middle of free text has the mask
// of its terminal, which does not depend on what is around it, and the tokens that end the
// terminal and go on behind it, which do. All other threads allow few tokens; they are walked
// together. Each of the three is kept, so most masks are put together from known parts.
//
// A terminal's mask is found in the first of these ways that will do:
// - It only counts characters (any string, or one of some length): then all texts of a length
//   are alike, and only what stands behind them in tokens is walked.
// - It soon comes to such a terminal (a name that is none of those listed): then only the tokens
//   by which they differ are walked.
// - It counts something and is far from the limit (see RegexPool::Relaxed): then only long tokens
//   are walked.
// - Otherwise as many slices of the vocabulary as it takes whole are, and the others are walked.
//
// What a mask takes is counted, part by part, each as if it were made first: so the same masks have
// a limit, whoever asked for others before.
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

  // What a mask may take, in steps (see Machine::spent): some milliseconds.
  static constexpr int64_t kMostSteps = 1'000'000;

  // Bit `id % 32` of word `id / 32` says whether token `id` may come next. Where the machine is
  // exhausted, or the mask takes too much, none may.
  // REQUIRES: out.size() == tokens.mask_words().
  void Fill(StateId state, std::span<uint32_t> out);
  int64_t bytes() const { return bytes_; }

 private:
  // A state that a part of a mask comes to first counts as so many steps, and so many entries of
  // a trie as one.
  static constexpr int64_t kFreshState = 8, kEntriesOfStep = 4;

  // Counts a part of a mask by itself. Whether it was known or not, what comes behind it is
  // counted alike.
  class Part {
   public:
    explicit Part(Masker* masker) : masker_(*masker), before_(masker->machine_.spent()) {
      masker_.BeginPart(0);
    }
    int64_t Close(bool count = true) {
      const int64_t steps = masker_.machine_.spent();
      masker_.BeginPart(before_ + (count ? steps : 0));
      return steps;
    }

   private:
    Masker& masker_;
    const int64_t before_;
  };
  // Where a terminal ends inside of a token that goes on.
  struct Crossing {
    size_t trie = 0;
    int32_t node = 0;
  };
  struct Wide {
    bool usable = false;
    std::vector<uint32_t> mask;
    std::vector<Crossing> crossings;
    // Ends where this terminal ends too, but for the tokens of `own`, which are sorted, or those of
    // more than kNear[beyond] bytes.
    RegexId like = kNothing;
    std::vector<TokenId> own;
    int beyond = -1;
    int64_t steps = 0;  // without those of `like`
  };
  struct List {
    std::vector<TokenId> tokens;
    int64_t steps = 0;
  };
  struct Plan {
    // What is at an index in wides_, and one in lists_.
    std::vector<std::pair<int32_t, int32_t>> wide;
    int32_t narrow = -1;  // in lists_
    int64_t steps = 0;
  };

  void BeginPart(int64_t steps) {
    machine_.ResetCount(steps);
    ++part_;
  }
  void RecallPart(int64_t steps) { BeginPart(machine_.spent() + steps); }
  bool IsTooMuch() const { return machine_.spent() > kMostSteps; }
  // A walk comes to a state first, or again. False where that is too much.
  bool Visit(bool fresh) {
    if (!fresh) return true;
    machine_.Count(kFreshState);
    return !IsTooMuch();
  }
  const Plan& PlanOf(StateId state);
  // `is_last`: nothing can follow the terminal, which may then accept anywhere, as free text does.
  const Wide& WideOf(RegexId regex, bool is_last);
  bool FillByCounting(RegexId regex, bool is_last, Wide* wide);
  bool FillByLikeness(RegexId regex, bool is_last, Wide* wide);
  bool FillByRelaxing(RegexId regex, bool is_last, Wide* wide);
  // A state of a walk below which there are so many bytes, or one that is as good.
  RegexId Near(RegexId regex, int bytes);
  bool IsOwn(const Wide& wide, TokenId id) const;
  void FillBySlices(RegexId regex, bool is_last, Wide* wide);
  // What is left of a terminal behind a character of text, if that is the same behind each;
  // kNothing otherwise.
  RegexId BehindText(RegexId regex, bool is_last);
  RegexId FindBehindText(RegexId regex, bool is_last);
  RegexId MostlyBehindText(RegexId regex);
  int SliceRoom(RegexId regex, bool is_last, const TokenTable::Slice& slice);
  void WalkTerminal(RegexId regex, size_t trie, int room, Wide* wide);
  bool WalkUnlike(RegexId regex, bool is_last, size_t trie, Wide* wide);
  int32_t Keep(std::vector<TokenId> list, int64_t steps);
  int32_t ListBehind(RegexId regex, bool is_last, StateId after);
  int32_t ListOf(StateId state);
  template <typename Found>
  void WalkState(StateId state, const TokenTrie& trie, int32_t first, int32_t end, int base,
                 const Found& found);

  Machine& machine_;
  const TokenTable& tokens_;
  std::unordered_map<StateId, Plan> plans_;
  // By the terminal's number, twice, and one more where nothing can follow it.
  std::unordered_map<int32_t, Wide> wides_;
  std::unordered_map<int32_t, std::pair<RegexId, int64_t>> behind_text_;
  std::unordered_map<uint64_t, int32_t> behind_;
  std::vector<List> lists_;
  std::vector<StateId> states_;                   // of a walk, by depth
  std::vector<RegexId> regexes_, other_regexes_;  // likewise
  uint32_t part_ = 0;                             // marks the states that it visited
  int64_t bytes_ = 0;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_MASKER_H_
