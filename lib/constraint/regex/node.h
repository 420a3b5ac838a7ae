// An expression of a RegexPool as it is stored, and what walks over expressions keep.
//
// For RegexPool, RegexWalk and RegexAnalysis, which share a pool's nodes; others use these classes.
#ifndef WEFT_CONSTRAINT_REGEX_NODE_H_
#define WEFT_CONSTRAINT_REGEX_NODE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "constraint/regex/byte_rows.h"
#include "constraint/regex/byte_set.h"

namespace weft::constraint {

using RegexId = int32_t;
inline constexpr RegexId kNothing = 0;  // accepts no text
inline constexpr RegexId kEmpty = 1;    // accepts the empty text only
inline constexpr int32_t kUnlimited = -1;

namespace regex {

// A length that is not known.
inline constexpr int32_t kManyBytes = 1 << 30;
// See RegexAnalysis.
inline constexpr std::array<int32_t, 2> kNear = {16, 32};
inline constexpr int kLooseBytes = 48;
inline constexpr std::array<int32_t, kNear.size() + 1> kRelaxBytes = {kNear[0], kNear[1],
                                                                      kLooseBytes};

enum class Kind : uint8_t {
  kNothing,
  kEmpty,
  kBytes,
  kLiteral,
  kConcat,
  kOr,
  kAnd,
  kOnlyOne,
  kNot,
  kRepeat,
  kMultiple,
  kRespelled,
  kSpelled,
  kTexts
};

enum class Life : uint8_t { kUnknown, kAlive, kDead };

// The definition of an expression. Equal definitions have one id.
struct Form {
  Kind kind = Kind::kNothing;
  bool nullable = false;  // for kEmpty and kRespelled; for others it follows from the parts
  // kBytes: a set. kLiteral: offset and length in texts_. kConcat: two parts. kOr, kAnd,
  // kOnlyOne: offset and count in lists_. kNot: a part. kRepeat: part, least, most. kMultiple:
  // index in multiples_, remainder (two halves), digits after the point or -1 before it.
  // kRespelled: the rest of a JSON string, the closing quote or 0, whether a backslash was read.
  // kSpelled: the rest of a text, its Escapes. kTexts: offset and count in listed_, length of the
  // common prefix already read.
  int32_t a = 0, b = 0, c = 0, d = 0;
};

// A text in texts_.
struct TextPlace {
  int32_t offset = 0, length = 0;
};

struct Node : Form {
  bool has_boolean = false;  // contains intersections or complements, so it may be dead
  // fact: follows from the form, or was found before the first answer; searches rely on it. life:
  // the result of its own search.
  Life fact = Life::kUnknown, life = Life::kUnknown;
  int32_t edges = -1;     // index in sets_
  int32_t first = -1;     // likewise: a superset of the first bytes, by its parts
  bool exact = true;      // `first` is exact: no byte in it leads to kNothing
  bool straight = false;  // its search followed only the likeliest bytes (see Ahead)
  // The one byte range derived so far, if there is only one, and its derivative. Most states of a
  // long text are passed once and need no row.
  uint8_t only_first = 1, only_last = 0;
  // The next byte of a way to the end that a search found; 0 for none.
  uint8_t onward = 0;
  RegexId only = kNothing;
  ByteRows::Row row;
  // least: a lower bound for the length of accepted texts. hint: a likely first byte, -1 if
  // unknown.
  int32_t least = 0, hint = -1;
  // After any prefix, at most this many bytes are needed to reach an end; kManyBytes if unknown.
  // If it is known, there are no intersections or complements inside, and `least` is exact.
  int32_t farthest = 0;
  // See RegexAnalysis::WayToEnd. way: from its form, or found before the first answer; way_found:
  // from its own search.
  int32_t way = kManyBytes, way_found = kManyBytes;
  int32_t search = 0;        // cost of its own search
  int32_t search_dear = -1;  // entry in the meter, if steps lead to that search
  int32_t ahead = -1;        // index in WalkState::ahead
  uint8_t height = 0;        // nesting depth, not counting its tail; 255 for more
  std::array<RegexId, kRelaxBytes.size()> relaxed = {-1, -1, -1};
  RegexId loosened = -1;
  int32_t options = -1;  // index in options_
  int32_t dear = -1;     // its costly derivatives, in the meter
  uint32_t mark = 0;
};

// For a sequence that starts with a row of optional parts, a?b?c?...
struct Options {
  int32_t length = 0;                       // number of optional parts in the row
  RegexId end = kNothing, jump = kNothing;  // the sequence after the row; a suffix far ahead
  // The sequence after the first parts of the row, as long as these are plain (see
  // IsPlainOption).
  RegexId plain_end = kNothing;
};

// The first bytes of ranges with one derivative, and the bytes that may come first.
struct Opening {
  ByteSet edges = ByteSet::Of(0), first;
};
// The same as indexes in sets_.
struct OpeningSets {
  int32_t edges = -1, first = -1;
};

// A derivative, alive or dead, and its cost: StepMeter::kTooMuch if it exceeds the limit.
struct Derivative {
  RegexId to = kNothing;
  int64_t steps = 0;
};
// The likeliest byte that does not lead to a known dead state, its derivative if there is one,
// and the cost of the choice. If such bytes alone lead to the end: the bytes until a known live
// state, the number of turns, the cost of following them, and the bytes to the very end.
struct Ahead {
  Derivative made;
  uint8_t byte = 0;
  int64_t choice = 0;
  int32_t bytes = -1, turns = 0;
  int64_t cost = 0;
  int32_t way = kManyBytes;
};

// Some of the latest derivatives with their costs: unions and intersections share parts. A copy
// starts empty.
struct Recent {
  struct Entry {
    RegexId id = -1, to = kNothing;
    int32_t steps = 0, work = 0;
    uint8_t byte = 0;
  };
  Recent() = default;
  Recent(const Recent& /*other*/) {}
  Recent& operator=(const Recent& /*other*/) { return *this; }
  std::vector<Entry> entries;
};

// The parts of a large union that is derived often, by their possible first bytes.
struct LargeUnion {
  using PartsByByte = std::array<std::vector<RegexId>, 256>;
  int asked = 0;
  std::shared_ptr<const PartsByByte> by_byte;
};

// What walks over the expressions of a pool have found. A node refers to it by index.
struct WalkState {
  std::vector<Ahead> ahead;
  Recent recent;
  ByteRows rows;
  std::unordered_map<RegexId, LargeUnion> large_unions;
  // Costly ways to the end, latest first, and whether the last search used one.
  std::vector<std::string> ways;
  bool trusts_ways = false;
  int64_t max_search = INT64_MAX, max_step = INT64_MAX, step_end = INT64_MAX;
  int64_t max_spent = INT64_MAX;
  bool is_learning = true;  // results of searches still become facts
};

}  // namespace regex
}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_REGEX_NODE_H_
