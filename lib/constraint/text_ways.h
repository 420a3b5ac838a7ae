// How the states of a terminal behave on text: how many characters may come whatever they are, and
// which characters keep the state. With this, the walk of a vocabulary can skip most of it.
//
// Used for one mask of one terminal. The machine counts the work.
#ifndef WEFT_CONSTRAINT_TEXT_WAYS_H_
#define WEFT_CONSTRAINT_TEXT_WAYS_H_

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "constraint/machine.h"
#include "constraint/regex/analysis.h"
#include "constraint/regex/walk.h"
#include "constraint/token_table.h"

namespace weft::constraint {

// Lead bytes of UTF-8 with the same continuation: the range of the second byte, and the number of
// bytes after it.
struct LeadRange {
  int first, last, low, high, more;
};
inline constexpr LeadRange kLeadRanges[] = {
    {0xC2, 0xDF, 0x80, 0xBF, 0}, {0xE0, 0xE0, 0xA0, 0xBF, 1}, {0xE1, 0xEC, 0x80, 0xBF, 1},
    {0xED, 0xED, 0x80, 0x9F, 1}, {0xEE, 0xEF, 0x80, 0xBF, 1}, {0xF0, 0xF0, 0x90, 0xBF, 2},
    {0xF1, 0xF3, 0x80, 0xBF, 2}, {0xF4, 0xF4, 0x80, 0x8F, 2}};

class TextWays {
 public:
  // How many characters of a slice's kind each state accepts, sorted by state.
  using Rooms = std::vector<std::pair<RegexId, int>>;

  // `is_last`: nothing can follow the terminal, so it may accept anywhere. `loosens`: also merge
  // states of intersections and complements (see RegexAnalysis::Loosened); a walk that reaches a
  // state that is not sure must start again without it.
  TextWays(Machine* machine, int64_t max_steps, bool is_last, bool loosens = false)
      : machine_(*machine), max_steps_(max_steps), is_last_(is_last), loosens_(loosens) {}

  // Whether loosening pays for this terminal.
  static bool Loosens(RegexPool* pool, RegexId regex) {
    return pool->analysis().HasBoolean(regex) && pool->walk().IsLive(regex) &&
           pool->analysis().WayToEnd(regex) <= kWayBytes &&
           pool->analysis().Loosened(regex) != regex;
  }

  // An equivalent state for a subtree whose longest text has `bytes` bytes.
  RegexId Near(RegexId regex, int bytes);
  // Whether loosening on the way to this state made no difference.
  bool IsSure(RegexId regex) const {
    return !loosens_ || machine_.pool().analysis().WayToEnd(regex) <= kWayBytes;
  }
  bool loosens() const { return loosens_; }
  // How many characters of the slice's kind the terminal accepts, whatever they are, without
  // reaching its end (which matters only if something can follow); at most kSliceLength. `rooms`
  // gets a lower bound of this for each state on the way.
  int Explore(RegexId start, const TokenTable::Slice& slice, Rooms* rooms);
  static int RoomOf(const Rooms& rooms, RegexId regex);
  // The characters that lead from a state back to itself, unless the terminal can end there.
  // Non-ASCII characters are computed only when needed.
  struct Loops {
    RegexId regex = kNothing;
    TextKinds kinds;
    bool has_others = false;
  };
  // The pointer stays valid.
  Loops* LoopsOf(RegexId regex);
  // Whether all characters of these kinds keep the state.
  bool Contains(Loops* loops, const TextKinds& kinds);
  // For the middle of a character, after `byte`: the rest of the terminal after the character, if
  // it is the same for every way to complete it with `missing` bytes, and if `height` more bytes
  // follow at most (see Near). kNothing otherwise, or if one of these bytes is not allowed.
  RegexId BehindCharacter(RegexId regex, uint8_t byte, int missing, int height);
  // Whether the terminal accepts most one-byte characters.
  bool TakesMost(RegexId regex);
  // Whether the terminal accepts a word's length of letters.
  bool TakesWord(RegexId regex);

 private:
  // A loosened state is sure if an end is at most kWayBytes away; it may be used for texts of at
  // most kNearBytes.
  static constexpr int kWayBytes = 16, kNearBytes = RegexAnalysis::kLooseBytes - kWayBytes;
  // Explore stops when one position, or all together, have more states than this, or when a state
  // accepts fewer than kMinRoom characters: walks would gain little.
  static constexpr size_t kMaxFrontier = 64, kMaxStates = 96;
  static constexpr int kMinRoom = 4;

  struct Reached {
    RegexId id = kNothing;
    int room = 0;
    std::vector<int32_t> next;
  };

  bool Expand(RegexId from, const TokenTable::Slice& slice, int ahead, std::vector<RegexId>* out);
  bool Take(RegexId from, int first, int last, const ByteSet* only, int near,
            std::vector<RegexId>* out);
  // Derives by the continuation bytes of a character that starts with a byte of the range;
  // arguments as in Expand.
  bool TakeMore(std::vector<RegexId> from, const LeadRange& lead, int near,
                std::vector<RegexId>* out);
  TextKinds FindLoops(RegexId regex);
  void AddOtherLoops(Loops* loops);
  RegexId FindBehindCharacter(RegexId regex, uint8_t byte, int missing, int height);

  Machine& machine_;
  const int64_t max_steps_;
  const bool is_last_, loosens_;
  std::unordered_map<RegexId, Loops> loops_;
  std::unordered_map<uint64_t, RegexId> behind_characters_;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_TEXT_WAYS_H_
