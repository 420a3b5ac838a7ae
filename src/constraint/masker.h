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
// - Otherwise as many slices of the vocabulary as it takes whole are, and the others are walked,
//   but for what is known by the state alone (see TextWays).
// Where one thread takes any text, the others need not be asked for texts.
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
#include "constraint/text_ways.h"
#include "constraint/token_table.h"

namespace weft::constraint {

class Masker {
 public:
  // What a mask may take, in steps (see Machine::spent): some milliseconds.
  static constexpr int64_t kMostSteps = 3'000'000;

  // Both outlive the masker.
  Masker(Machine* machine, const TokenTable* tokens, int64_t most_steps = kMostSteps)
      : machine_(*machine), tokens_(*tokens), most_steps_(most_steps) {}

  // Bit `id % 32` of word `id / 32` says whether token `id` may come next. Where the machine is
  // exhausted, or the mask takes too much, none may; false for the latter.
  // REQUIRES: out.size() == tokens.mask_words().
  bool Fill(StateId state, std::span<uint32_t> out);
  int64_t bytes() const { return bytes_; }

 private:
  // A state that a part of a mask comes to first counts as so many steps, and so many entries of
  // a trie as one. A leaf that leads elsewhere counts as several: whether to a fresh state is not
  // looked at.
  static constexpr int64_t kFreshState = 8, kEntriesOfStep = 4, kLeafEntries = 7;

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
  struct Terminal {
    RegexId regex = kNothing;
    bool is_last = false;        // nothing can follow it: it may accept anywhere, as free text does
    bool without_texts = false;  // tokens that are nothing but text are not asked for
    int32_t index() const { return 4 * regex + 2 * (without_texts ? 1 : 0) + (is_last ? 1 : 0); }
  };
  struct Wide {
    bool usable = false;
    bool takes_texts = false;  // all of them
    std::vector<uint32_t> mask;
    std::vector<Crossing> crossings;
    // Ends where this terminal ends too, but for the tokens of `own`, which are sorted, or those of
    // more than kNear[beyond] bytes.
    RegexId like = kNothing;
    std::vector<TokenId> own;
    int beyond = -1;
    int64_t steps = 0;  // without those of `like`
  };
  struct Walk {
    size_t trie = 0;
    // Tokens of so many characters are known already, and are allowed; or all are supposed to be.
    int room = 0;
    bool supposed = false;
    const TextWays::Rooms* rooms = nullptr;
  };
  // Where a walk stands.
  struct Place {
    RegexId id = kNothing;
    ByteRows::Row row;                 // see RegexPool::PlainRow
    TextWays::Loops* loops = nullptr;  // null where nobody asked
    int room = -1;                     // likewise, below 0
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
  bool IsTooMuch() const { return machine_.spent() > most_steps_; }
  // A walk comes to a state first, or again. False where that is too much.
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
  // False where it came to a state that is not sure.
  bool FillBySlices(RegexId regex, TextWays* ways, Wide* wide);
  // What is left of a terminal behind a character of text, if that is the same behind each;
  // kNothing otherwise.
  RegexId BehindText(RegexId regex, bool is_last);
  RegexId FindBehindText(RegexId regex, bool is_last);
  RegexId MostlyBehindText(RegexId regex);
  RegexId Derive(Place* place, uint8_t byte) {
    RegexPool& pool = machine_.pool();
    const RegexId known = place->row.exists() ? pool.InRow(place->row, byte) : -1;
    if (known >= 0) return known;
    const RegexId next = pool.Derive(place->id, byte);
    if (!place->row.exists()) place->row = pool.PlainRow(place->id);
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
  const int64_t most_steps_;
  std::unordered_map<StateId, Plan> plans_;
  std::unordered_map<int32_t, Wide> wides_;  // by the terminal's index
  std::unordered_map<int32_t, std::pair<RegexId, int64_t>> behind_text_;
  std::unordered_map<uint64_t, int32_t> behind_;
  std::vector<List> lists_;
  std::vector<StateId> states_;         // of a walk, by depth
  std::vector<Place> places_, others_;  // likewise
  uint32_t part_ = 0;                   // marks the states that it visited
  int64_t bytes_ = 0;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_MASKER_H_
