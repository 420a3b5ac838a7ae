// Where text leads from the states of a terminal: how many characters may come whichever they are,
// and which change nothing. With these the walks of a vocabulary leave out most of it.
//
// For one mask of a terminal. What is looked at is counted by the machine.
#ifndef WEFT_CONSTRAINT_TEXT_WAYS_H_
#define WEFT_CONSTRAINT_TEXT_WAYS_H_

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "constraint/machine.h"
#include "constraint/token_table.h"

namespace weft::constraint {

// Leading bytes of UTF-8 that are followed alike, their first continuation, and how many more come.
struct LeadRange {
  int first, last, low, high, more;
};
inline constexpr LeadRange kLeadRanges[] = {
    {0xC2, 0xDF, 0x80, 0xBF, 0}, {0xE0, 0xE0, 0xA0, 0xBF, 1}, {0xE1, 0xEC, 0x80, 0xBF, 1},
    {0xED, 0xED, 0x80, 0x9F, 1}, {0xEE, 0xEF, 0x80, 0xBF, 1}, {0xF0, 0xF0, 0x90, 0xBF, 2},
    {0xF1, 0xF3, 0x80, 0xBF, 2}, {0xF4, 0xF4, 0x80, 0x8F, 2}};

class TextWays {
 public:
  // How many characters of a slice's kind may come from a state, by states in order.
  using Rooms = std::vector<std::pair<RegexId, int>>;

  // `is_last`: nothing can follow the terminal, which may then accept anywhere. `loosens`: states
  // of intersections and complements become fewer, too (see RegexPool::Loosened); who comes to one
  // that is not sure begins anew without.
  TextWays(Machine* machine, int64_t most_steps, bool is_last, bool loosens = false)
      : machine_(*machine), most_steps_(most_steps), is_last_(is_last), loosens_(loosens) {}

  // Whether it is worth it.
  static bool Loosens(RegexPool* pool, RegexId regex) {
    return pool->HasBoolean(regex) && pool->IsLive(regex) && pool->WayToEnd(regex) <= kWayBytes &&
           pool->Loosened(regex) != regex;
  }

  // A state of a walk below which there are so many bytes, or one that is as good.
  RegexId Near(RegexId regex, int bytes);
  // Whether what was loosened on the way here does not matter.
  bool IsSure(RegexId regex) const {
    return !loosens_ || machine_.pool().WayToEnd(regex) <= kWayBytes;
  }
  bool loosens() const { return loosens_; }
  // How many characters of the slice's kind the terminal takes, whichever they are, without
  // coming to its end (which matters only where something follows): at most kSliceLength. The same
  // of the states behind them, or less.
  int Explore(RegexId start, const TokenTable::Slice& slice, Rooms* rooms);
  static int RoomOf(const Rooms& rooms, RegexId regex);
  // The characters that lead back to a state, in which the terminal does not end; those that are
  // not ASCII only once somebody asks for them.
  struct Loops {
    RegexId regex = kNothing;
    TextKinds kinds;
    bool has_others = false;
  };
  // What it gives stays where it is.
  Loops* LoopsOf(RegexId regex);
  // Whether all characters of these kinds are among them.
  bool Contains(Loops* loops, const TextKinds& kinds);
  // In the middle of a character, behind `byte`: what is left of the terminal behind it, if it is
  // the same however the `missing` bytes go on, with `height` bytes below (see Near); kNothing
  // otherwise, and where one of them may not come.
  RegexId BehindCharacter(RegexId regex, uint8_t byte, int missing, int height);
  // Whether most characters of one byte may come.
  bool TakesMost(RegexId regex);
  // Whether so many letters may come as a word has.
  bool TakesWord(RegexId regex);

 private:
  // So many bytes may lead to an end, and texts of so many are walked with a loosened state.
  static constexpr int kWayBytes = 16, kNearBytes = RegexPool::kLooseBytes - kWayBytes;
  // Where more states than this are found for one position, or in all, no more are looked for. Nor
  // where there is room for fewer characters: walks would not gain much.
  static constexpr size_t kMostFrontier = 64, kMostStates = 96;
  static constexpr int kLeastRoom = 4;

  struct Reached {
    RegexId id = kNothing;
    int room = 0;
    std::vector<int32_t> next;
  };

  bool Expand(RegexId from, const TokenTable::Slice& slice, int ahead, std::vector<RegexId>* out);
  bool Take(RegexId from, int first, int last, const ByteSet* only, int near,
            std::vector<RegexId>* out);
  // The continuations of a character that begins with bytes of the range, as in Expand.
  bool TakeMore(std::vector<RegexId> from, const LeadRange& lead, int near,
                std::vector<RegexId>* out);
  TextKinds FindLoops(RegexId regex);
  void AddOtherLoops(Loops* loops);
  RegexId FindBehindCharacter(RegexId regex, uint8_t byte, int missing, int height);

  Machine& machine_;
  const int64_t most_steps_;
  const bool is_last_, loosens_;
  std::unordered_map<RegexId, Loops> loops_;
  std::unordered_map<uint64_t, RegexId> behind_characters_;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_TEXT_WAYS_H_
