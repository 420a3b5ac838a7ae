// Computes the token mask of a state of the machine.
//
// A state's mask is the union of its threads' masks. A thread inside free text has the mask of its
// terminal, which does not depend on the context, plus the tokens that end the terminal and
// continue after it, which do. All other threads allow few tokens and are walked together. Each of
// the three is cached, so most masks are assembled from known parts.
//
// A terminal's mask is computed in the first of these ways that applies:
// - The terminal only counts characters (any string, or one of limited length). All texts of one
//   length are then alike, and only the tails of tokens are walked.
// - It soon turns into such a terminal (for example a name that is not one of a list). Only the
//   tokens for which the two differ are walked.
// - It counts something and is far from the limit (see RegexAnalysis::Relaxed). Only long tokens
//   are walked.
// - Otherwise, slices of the vocabulary that the terminal accepts completely are taken as a whole,
//   and the others are walked, except for subtrees whose result follows from the state alone (see
//   TextWays).
// If one thread accepts any text, the others are asked only about tokens that are not text.
//
// The cost of a mask is counted part by part, each as if it were computed for the first time. So a
// mask's limit does not depend on which masks were computed before.
//
// One thread at a time.
#ifndef WEFT_CONSTRAINT_MASKER_H_
#define WEFT_CONSTRAINT_MASKER_H_

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "constraint/machine.h"
#include "constraint/regex/analysis.h"
#include "constraint/regex/walk.h"
#include "constraint/text_ways.h"
#include "constraint/token_table.h"

namespace weft::constraint {

class Masker {
 public:
  // The limit for one mask, in steps (see Machine::spent): some milliseconds.
  static constexpr int64_t kMaxSteps = 3'000'000;

  // `machine` and `tokens` must outlive the masker.
  Masker(Machine* machine, const TokenTable* tokens, int64_t max_steps = kMaxSteps)
      : machine_(*machine), tokens_(*tokens), max_steps_(max_steps) {}

  // Sets bit `id % 32` of word `id / 32` if token `id` may come next. The mask is empty if the
  // machine is exhausted or the mask exceeds its limit; in the second case Fill returns false.
  // REQUIRES: out.size() == tokens.mask_words().
  bool Fill(StateId state, std::span<uint32_t> out);
  int64_t bytes() const { return bytes_; }

 private:
  // Costs in steps of a walk: a state that is new to this part of the mask; how many trie entries
  // make a step; a leaf that leads to another state, counted flat because nobody looks whether that
  // state is new.
  static constexpr int64_t kFreshState = 8, kEntriesOfStep = 4, kLeafEntries = 7;

  // Counts the steps of one part of a mask. Everything after the part is counted the same, whether
  // the part was cached or not.
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
  // A token in whose middle a terminal can end.
  struct Crossing {
    size_t trie = 0;
    int32_t node = 0;
  };
  struct Terminal {
    RegexId regex = kNothing;
    bool is_last = false;        // nothing can follow: it may accept anywhere, as free text does
    bool without_texts = false;  // leaves out tokens that consist of text only
    int32_t index() const { return 4 * regex + 2 * (without_texts ? 1 : 0) + (is_last ? 1 : 0); }
  };
  struct Wide {
    bool usable = false;
    bool takes_texts = false;  // all tokens that consist of text only
    std::vector<uint32_t> mask;
    std::vector<Crossing> crossings;
    // A terminal that ends at the same tokens as this one. The exceptions are the tokens in `own`
    // (sorted) or, if `beyond` >= 0, those longer than kNear[beyond] bytes.
    RegexId like = kNothing;
    std::vector<TokenId> own;
    int beyond = -1;
    int64_t steps = 0;  // without those of `like`
  };
  struct Walk {
    size_t trie = 0;
    // Tokens of at most `room` characters are allowed and set already. `supposed`: the mask starts
    // with all tokens of the trie set, and the walk clears the forbidden ones.
    int room = 0;
    bool supposed = false;
    const TextWays::Rooms* rooms = nullptr;
  };
  // The state at one depth of a walk.
  struct Place {
    RegexId id = kNothing;
    ByteRows::Row row;                 // see RegexWalk::PlainRow
    TextWays::Loops* loops = nullptr;  // null until needed
    int room = -1;                     // negative until needed
  };
  struct List {
    std::vector<TokenId> tokens;
    int64_t steps = 0;
  };
  struct Plan {
    // Pairs of an index in wides_ and one in lists_.
    std::vector<std::pair<int32_t, int32_t>> wide;
    int32_t narrow = -1;  // index in lists_, or -1
    int64_t steps = 0;
  };

  static void SetBit(std::span<uint32_t> mask, TokenId id) {
    mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
  }
  static void ClearBit(std::span<uint32_t> mask, TokenId id) {
    mask[static_cast<size_t>(id) / 32] &= ~(1u << (id % 32));
  }
  void BeginPart(int64_t steps) {
    machine_.ResetCount(steps);
    ++part_;
  }
  void RecallPart(int64_t steps) { BeginPart(machine_.spent() + steps); }
  bool IsTooMuch() const { return machine_.spent() > max_steps_; }
  // Counts a state if this part of the mask has not visited it yet. False if the limit is exceeded.
  bool Visit(bool fresh) {
    if (!fresh) return true;
    machine_.Count(kFreshState);
    return !IsTooMuch();
  }
  const Plan& PlanOf(StateId state);
  void Rank(std::vector<ParserThread>* wide);
  const Wide& WideOf(const Terminal& terminal);
  bool FillByCounting(RegexId regex, bool is_last, Wide* wide);
  bool FillByLikeness(RegexId regex, bool is_last, Wide* wide);
  bool FillByRelaxing(RegexId regex, bool is_last, Wide* wide);
  bool IsOwn(const Wide& wide, TokenId id) const;
  // False if the walk reached a state that is not sure (see TextWays::IsSure).
  bool FillBySlices(RegexId regex, TextWays* ways, Wide* wide);
  // The rest of a terminal after one character of text, if it is the same after every character;
  // kNothing otherwise.
  RegexId BehindText(RegexId regex, bool is_last);
  RegexId FindBehindText(RegexId regex, bool is_last);
  RegexId MostlyBehindText(RegexId regex);
  RegexId Derive(Place* place, uint8_t byte) {
    RegexPool& pool = machine_.pool();
    const RegexId known = place->row.exists() ? pool.walk().InRow(place->row, byte) : -1;
    if (known >= 0) return known;
    const RegexId next = pool.walk().Derive(place->id, byte);
    if (!place->row.exists()) place->row = pool.walk().PlainRow(place->id);
    return next;
  }
  static void Mark(const TokenTrie& trie, int32_t from, int32_t to, bool allowed, Wide* wide);
  static bool IsKnown(Place* place, const TrieNode& node, int32_t at, const TextBelow& below,
                      const Walk& walk, TextWays* ways);
  bool WalkTerminal(RegexId regex, const Walk& walk, TextWays* ways, Wide* wide);
  bool WalkUnlike(RegexId regex, bool is_last, size_t trie, int64_t* entries, Wide* wide);
  int32_t Keep(std::vector<TokenId> list, int64_t steps);
  int32_t ListBehind(const Terminal& terminal, StateId after);
  int32_t ListOf(StateId state);
  template <typename Found>
  void WalkState(StateId state, const TokenTrie& trie, int32_t first, int32_t end, int base,
                 const Found& found);

  Machine& machine_;
  const TokenTable& tokens_;
  const int64_t max_steps_;
  std::unordered_map<StateId, Plan> plans_;
  std::unordered_map<int32_t, Wide> wides_;  // by Terminal::index()
  std::unordered_map<int32_t, std::pair<RegexId, int64_t>> behind_text_;
  std::unordered_map<uint64_t, int32_t> behind_;
  std::vector<List> lists_;
  std::vector<StateId> states_;         // a walk's states by depth
  std::vector<Place> places_, others_;  // likewise
  uint32_t part_ = 0;  // number of the current part, the mark of the states it visited
  int64_t bytes_ = 0;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_MASKER_H_
