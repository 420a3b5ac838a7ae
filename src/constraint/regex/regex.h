// Regular languages over bytes, closed under union, intersection and complement.
//
// A RegexPool owns expressions; equal ones have one id. The derivative of an expression by a byte
// is the expression of everything that may follow that byte. So an id is also a state of a
// deterministic automaton, which is built lazily. A state from which nothing can be accepted is
// always kNothing, even with complements and intersections: any other id has a way to the end.
//
// A pool can be copied; ids mean the same in the copy. One thread at a time. Work and memory are
// counted. After a limit, every operation returns kNothing and `exhausted()` is true: check it
// before you use a result.
#ifndef WEFT_CONSTRAINT_REGEX_REGEX_H_
#define WEFT_CONSTRAINT_REGEX_REGEX_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "constraint/regex/byte_rows.h"
#include "constraint/regex/byte_set.h"
#include "constraint/regex/hash_index.h"

namespace weft::constraint {

using RegexId = int32_t;
inline constexpr RegexId kNothing = 0;  // accepts no text
inline constexpr RegexId kEmpty = 1;    // accepts the empty text only
inline constexpr int32_t kUnlimited = -1;

// The unsigned decimal numbers that are multiples of modulus / 10^decimals.
struct Multiple {
  int64_t modulus = 1;
  int32_t decimals = 0;
  bool operator==(const Multiple&) const = default;
};

// Counts the steps of an operation as if nothing of it had been cached: the cost of a text or mask
// must not depend on earlier questions. Cheap steps are not counted here; their callers count them.
class StepMeter {
 public:
  static constexpr int64_t kTooMuch = int64_t{1} << 40;
  // Cheaper searches are not metered.
  static constexpr int64_t kDearSearch = 128;

  // The cost of a step itself, and of the search for a way to the end after it.
  struct Cost {
    int64_t step = 0, search = 0;
    int64_t Sum() const { return std::min(step + search, kTooMuch); }
  };

  int64_t spent() const { return spent_; }
  void Spend(int64_t steps) { spent_ = std::min(spent_ + steps, kTooMuch); }
  void Reset(int64_t spent) {
    spent_ = spent;
    ++resets_;
  }
  // Costs between BeginAside and EndAside go to aside() instead of spent(), and each costly step
  // counts every time.
  void BeginAside() {
    is_aside_ = true;
    aside_ = {};
  }
  const Cost& aside() const { return aside_; }
  void EndAside() { is_aside_ = false; }
  // Adds a costly step by the bytes [first, last] to the list `known` (-1: empty), counts it as
  // taken, and returns the new list.
  int32_t Learn(int32_t known, int first, int last, const Cost& cost);
  // The same for a step whose search, an entry made by AddSearch, is shared with other steps: it
  // counts once for all of them.
  int32_t LearnTo(int32_t search, int32_t known, int first, int last, const Cost& cost);
  int32_t AddSearch(int64_t steps);
  // Takes the step in the list `known` that has this byte. It counts once between two calls of
  // Reset.
  void Pass(int32_t known, uint8_t byte);

 private:
  struct Dear {
    uint8_t first = 0, last = 0;
    Cost cost;
    uint64_t passed = 0;  // value of resets_ when it was last taken
    int32_t next = -1;    // next in the same list
    int32_t search = -1;  // a search shared with other steps
  };
  int64_t spent_ = 0;
  bool is_aside_ = false;
  Cost aside_;
  uint64_t resets_ = 1;
  std::vector<Dear> dear_;
};

class RegexPool {
 public:
  RegexPool();

  static RegexId Anything() { return kAnything; }  // every text
  RegexId Bytes(const ByteSet& set);
  RegexId Byte(uint8_t byte) { return Bytes(ByteSet::Of(byte)); }
  RegexId Literal(std::string_view text);
  // One of these texts. Common prefixes are shared, so each byte takes one step however many texts
  // there are.
  RegexId AnyOf(const std::vector<std::string>& texts);
  RegexId Concat(RegexId first, RegexId second);
  RegexId Concat(std::initializer_list<RegexId> parts);
  RegexId Or(std::vector<RegexId> parts);
  RegexId And(std::vector<RegexId> parts);
  // Texts that are in exactly one of the parts; equal parts count separately.
  RegexId OnlyOne(std::vector<RegexId> parts);
  RegexId Not(RegexId part);
  RegexId AndNot(RegexId part, RegexId without) { return And({part, Not(without)}); }
  // REQUIRES: 0 <= least, and least <= most or most == kUnlimited.
  RegexId Repeat(RegexId part, int32_t least, int32_t most);
  RegexId Optional(RegexId part) { return Or({part, kEmpty}); }
  RegexId Multiples(const Multiple& multiple);
  // The least common multiple of all Multiples in the expression, in the smallest of their decimal
  // units and capped at 10^12. 1 if there are fewer than two.
  int64_t CommonMultiple(RegexId id) const;
  // From now on, a union that contains `all` drops its other parts, except complements and
  // intersections, and an intersection with the complement of `all` is empty.
  // REQUIRES: all other parts of a union with `all`, or of an intersection with its complement, are
  // subsets of `all`.
  void Swallow(RegexId all) { swallowing_ = all; }
  // Whether any text of the characters that `all` repeats may come. May be false if it is not
  // known.
  bool TakesAllText(RegexId id);
  // An expression that no text of at most kNear[near] bytes can tell from `id`: both accept the
  // same such texts, and can continue after the same ones. Maximum counts that such a text cannot
  // reach are removed, and minimum counts are lowered to what it can reach. So states that differ
  // only in how far they have counted become one.
  static constexpr std::array<int32_t, 2> kNear = {16, 32};
  RegexId Relaxed(RegexId id, size_t near) {
    const RegexId known = nodes_[static_cast<size_t>(id)].relaxed[near];
    return known >= 0 ? known : Relax(id, near);
  }
  // An expression that accepts everything `id` accepts and, among texts of at most kLooseBytes
  // bytes, nothing else. Counts are dropped as in Relaxed, but complements and parts that cannot be
  // analysed stay as they are. Whether a text can continue is reliable only if WayToEnd of the rest
  // is short enough.
  static constexpr int kLooseBytes = 48;
  RegexId Loosened(RegexId id) {
    const RegexId known = nodes_[static_cast<size_t>(id)].loosened;
    return known >= 0 ? known : Loosen(id);
  }
  // The length of some accepted text in bytes; kManyBytes if none is known. Known for expressions
  // that IsLive has found alive.
  static constexpr int32_t kManyBytes = 1 << 30;
  int32_t WayToEnd(RegexId id) const {
    const Node& n = nodes_[static_cast<size_t>(id)];
    return std::min(n.way, n.way_found);
  }
  // Whether it contains intersections or complements.
  bool HasBoolean(RegexId id) const { return nodes_[static_cast<size_t>(id)].has_boolean; }
  // For a language of JSON strings that spells each text in one way (see characters.h): the texts
  // without quotes and escapes.
  RegexId Unquoted(RegexId json);
  // The same between `quote`s, with the escapes that JSON and Python share, and \'.
  RegexId Requoted(RegexId json, char quote);
  // For a language of texts: their spelling between quotation marks, one for each text, with the
  // escapes of JSON or Python.
  enum class Escapes : uint8_t { kJson, kPython };
  RegexId Spelled(RegexId texts, Escapes escapes);

  // The expression of everything that may follow `byte`; kNothing if nothing can be accepted after
  // it.
  RegexId Derive(RegexId id, uint8_t byte) {
    const Node& n = nodes_[static_cast<size_t>(id)];
    RegexId known = -1;
    if (n.row.exists()) {
      known = rows_.Get(n.row, byte);
    } else if (byte >= n.only_first && byte <= n.only_last) {
      known = n.only;
    }
    if (known < 0) return DeriveMissing(id, byte);
    if (n.dear >= 0) meter_.Pass(n.dear, byte);
    return known;
  }
  // The row of its derivatives; none if there is no row yet, or if some derivatives are metered.
  ByteRows::Row PlainRow(RegexId id) const {
    const Node& n = nodes_[static_cast<size_t>(id)];
    return n.dear >= 0 ? ByteRows::Row() : n.row;
  }
  // The derivative in such a row; negative if unknown.
  RegexId InRow(const ByteRows::Row& row, uint8_t byte) const { return rows_.Get(row, byte); }
  bool AcceptsEmpty(RegexId id) const { return nodes_[static_cast<size_t>(id)].nullable; }
  // Whether any text is accepted. Costly searches are metered even if the result is known.
  bool IsLive(RegexId id);
  // Builds the whole automaton, so that all its states are known to be alive or dead. False if that
  // exceeds a limit.
  bool Settle(RegexId id, size_t most_states, int64_t most_work);
  bool Accepts(RegexId id, std::string_view text);
  // The bytes that may come first; it may stop after the lowest `enough` of them.
  ByteSet FirstBytes(RegexId id, int enough = 256);
  // Whether at least `least` bytes may come first.
  bool HasFirstBytes(RegexId id, int least);
  // A superset of the bytes that its texts may contain, and of those that may end them.
  struct ByteUse {
    ByteSet any, last;
  };
  ByteUse BytesUsed(RegexId id, int depth = 0) const;
  // A superset of the first bytes, available without any work.
  const ByteSet& MayBegin(RegexId id) const { return MayBeginOf(nodes_[static_cast<size_t>(id)]); }
  // The first byte of each range of bytes that share a derivative.
  ByteSet Edges(RegexId id) const;

  // A cache for callers that build the same expressions repeatedly, with keys of their own.
  std::map<std::vector<uint32_t>, RegexId>& made() { return made_.by_key; }

  // Charges work that was done elsewhere for these languages, in steps.
  void Charge(int64_t work) { Spend(work, 0); }
  void SetLimits(int64_t most_work, int64_t most_bytes) {
    most_work_ = most_work;
    most_bytes_ = most_bytes;
  }
  // From now on, results depend only on the expressions that exist now and on the expression asked
  // about, not on earlier questions. A derivative that takes more than `most_step` steps is
  // kNothing, and a search for a way to the end that takes more than `most_search` steps finds
  // none.
  void BeginAnswers(int64_t most_step, int64_t most_search) {
    is_learning_ = false;
    most_step_ = most_step;
    most_search_ = most_search;
  }
  // After more than `most` metered steps, unknown derivatives are kNothing: results must then be
  // discarded.
  void SetMostSpent(int64_t most) { most_spent_ = most; }
  // Marks the expression. Returns true if its mark was a different one.
  bool Mark(RegexId id, uint32_t mark) {
    uint32_t& known = nodes_[static_cast<size_t>(id)].mark;
    if (known == mark) return false;
    known = mark;
    return true;
  }
  StepMeter& meter() { return meter_; }
  const StepMeter& meter() const { return meter_; }
  // A hash that is equal for equal expressions, in whichever order they were made.
  uint64_t Print(RegexId id) const { return prints_[static_cast<size_t>(id)]; }
  bool exhausted() const { return exhausted_; }
  int64_t work() const { return work_; }
  int64_t work_left() const { return std::max<int64_t>(most_work_ - work_, 0); }
  int64_t bytes() const { return bytes_; }

 private:
  class LifeSearch;
  static constexpr std::array<int32_t, kNear.size() + 1> kRelaxBytes = {kNear[0], kNear[1],
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
  static constexpr RegexId kAnything = 2;
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
  // Larger sets of texts stay a list, and become expressions only as far as they are read.
  static constexpr size_t kFewTexts = 16;
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
    // See WayToEnd. way: from its form, or found before the first answer; way_found: from its own
    // search.
    int32_t way = kManyBytes, way_found = kManyBytes;
    int32_t search = 0;        // cost of its own search
    int32_t search_dear = -1;  // entry in meter_, if steps lead to that search
    int32_t ahead = -1;        // index in ahead_
    uint8_t height = 0;        // nesting depth, not counting its tail; 255 for more
    std::array<RegexId, kRelaxBytes.size()> relaxed = {-1, -1, -1};
    RegexId loosened = -1;
    int32_t options = -1;  // index in options_
    int32_t dear = -1;     // its costly derivatives, in meter_
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
  // The first bytes of ranges with one derivative, and the bytes that may come first.
  struct Opening {
    ByteSet edges = ByteSet::Of(0), first;
  };
  // The same as indexes in sets_.
  struct OpeningSets {
    int32_t edges = -1, first = -1;
  };

  RegexId Intern(const Form& form, std::span<const int32_t> list = {});
  uint64_t PrintOf(const Form& form, std::span<const int32_t> list) const;
  bool IsBefore(RegexId a, RegexId b) const {
    return Print(a) != Print(b) ? Print(a) < Print(b) : a < b;
  }
  void Sort(std::vector<RegexId>* parts) const {
    std::ranges::sort(*parts, [&](RegexId a, RegexId b) { return IsBefore(a, b); });
  }
  int32_t InternSet(const ByteSet& set);
  RegexId InternConcat(RegexId head, RegexId tail);
  void LinkOptions(Node* node);
  int32_t OptionsOf(RegexId id) const {
    const int32_t options = node(id).options;
    return options < 0 ? 0 : options_[static_cast<size_t>(options)].length;
  }
  bool IsPlainOption(RegexId id) const;
  bool IsTailOf(RegexId row, RegexId tail) const;
  bool IsBesideAll(const std::vector<RegexId>& parts) const;
  void DropTails(std::vector<RegexId>* parts) const;
  void DropFewer(std::vector<RegexId>* parts) const;
  RegexId DeriveOptions(RegexId id, uint8_t byte);
  RegexId InternParts(Kind kind, std::vector<RegexId> parts);
  static bool IsList(Kind kind) {
    return kind == Kind::kOr || kind == Kind::kAnd || kind == Kind::kOnlyOne;
  }
  RegexId AnyOfSorted(std::span<const std::string_view> texts, size_t from);
  int32_t ListTexts(std::span<const std::string_view> texts);
  RegexId AnyOfListed(int32_t first, int32_t count, int32_t from);
  size_t EndOfAlike(std::span<const TextPlace> listed, size_t at, int32_t from) const;
  RegexId DeriveTexts(const Form& n, uint8_t byte);
  std::span<const TextPlace> Listed(int32_t first, int32_t count) const {
    return {listed_.data() + first, static_cast<size_t>(count)};
  }
  std::string_view TextAt(const TextPlace& place) const {
    return std::string_view(texts_).substr(static_cast<size_t>(place.offset),
                                           static_cast<size_t>(place.length));
  }
  bool SameForm(const Form& known, const Form& other, std::span<const int32_t> list) const;
  void Complete(Node* node, std::span<const int32_t> list);
  void SetOpening(Node* node, std::span<const int32_t> list);
  Opening Open(Node* node, std::span<const int32_t> list) const;
  void OpenPart(RegexId part, Node* node, Opening* opening) const;
  void OpenParts(Node* node, std::span<const int32_t> list, Opening* opening) const;
  void OpenWritten(Node* node, Opening* opening) const;
  bool IsAliveByForm(const Node& node, std::span<const int32_t> list) const;
  uint8_t HeightOf(const Node& node, std::span<const int32_t> list) const;
  bool IsMultiple(const Form& form) const;
  void EstimateLeast(Node* node, std::span<const int32_t> list, const ByteSet& first) const;
  int64_t EstimateParts(Node* node, std::span<const int32_t> list, const ByteSet& first) const;
  std::optional<int32_t> AwayFrom(std::span<const int32_t> parts, const ByteSet& first) const;
  int64_t EstimateMultiple(Node* node) const;
  int32_t FarthestOf(const Node& node, std::span<const int32_t> list) const;
  void OpenTexts(Node* n, Opening* opening) const;
  int32_t WayOf(const Node& node, std::span<const int32_t> list) const;
  RegexId TextCore(RegexId id, int depth);
  RegexId Loosen(RegexId id);
  RegexId Relax(RegexId id, size_t near);
  RegexId RelaxPlain(RegexId id, size_t near);
  RegexId RelaxBoth(RegexId id, size_t near);
  RegexId RepeatNear(const Form& repeat, RegexId part, int32_t bytes);
  int64_t CharactersLeft(RegexId id) const;
  RegexId DeriveMissing(RegexId id, uint8_t byte);
  RegexId RawDerive(RegexId id, uint8_t byte);
  RegexId RawDeriveAnew(RegexId id, uint8_t byte);
  Derivative TryDerive(RegexId id, uint8_t byte);
  Life FindLife(RegexId id);
  int64_t SearchBehind(RegexId id, RegexId next);
  RegexId DeriveMultiple(const Form& form, uint8_t byte);
  RegexId MultipleState(int32_t multiple, int64_t remainder, int32_t digits);
  // The bytes that need an escape, and the first bytes of ranges of those that may follow a
  // backslash.
  static const ByteSet& EscapedBytes(Escapes escapes);
  static ByteSet EdgesOfEscapes();
  RegexId DeriveRespelled(const Form& n, uint8_t byte);
  RegexId Respelled(RegexId json_rest, int32_t quote, bool escaped);
  RegexId DeriveSpelled(const Form& n, uint8_t byte);
  std::vector<RegexId> PartsWith(RegexId id, uint8_t byte);
  void Spend(int64_t work, int64_t bytes) {
    work_ += work;
    bytes_ += bytes;
    if (work_ > most_work_ || bytes_ > most_bytes_) exhausted_ = true;
  }
  // Work on a derivative that is the same whether parts of it are cached or not.
  void Step(int64_t steps) {
    steps_ += steps;
    Spend(steps, 0);
  }
  const ByteSet& MayBeginOf(const Node& n) const { return sets_[static_cast<size_t>(n.first)]; }
  const Node& node(RegexId id) const { return nodes_[static_cast<size_t>(id)]; }
  std::span<const int32_t> Parts(const Form& n) const {
    return {lists_.data() + n.a, static_cast<size_t>(n.b)};
  }

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

  struct Made {
    Made() = default;
    Made(const Made& /*other*/) {}
    Made& operator=(const Made& /*other*/) { return *this; }
    std::map<std::vector<uint32_t>, RegexId> by_key;
  };

  std::vector<Node> nodes_;
  std::vector<uint64_t> prints_;  // sort keys of parts
  std::vector<Ahead> ahead_;
  Recent recent_;
  Made made_;  // likewise, a copy starts empty
  std::vector<int32_t> lists_;
  std::string texts_;
  std::vector<TextPlace> listed_;
  std::vector<ByteSet> sets_;
  std::array<OpeningSets, 256> openings_;  // for literals, by first byte
  std::vector<Options> options_;
  ByteRows rows_;
  std::vector<Multiple> multiples_;
  // The parts of large unions that are derived often, by their possible first bytes.
  using PartsByByte = std::array<std::vector<RegexId>, 256>;
  struct LargeUnion {
    int asked = 0;
    std::shared_ptr<const PartsByByte> by_byte;
  };
  std::unordered_map<RegexId, LargeUnion> large_unions_;
  HashIndex node_index_, set_index_, list_index_;
  // Costly ways to the end, latest first, and whether the last search used one.
  std::vector<std::string> ways_;
  bool trusts_ways_ = false;
  RegexId swallowing_ = kNothing;
  int64_t work_ = 0, bytes_ = 0;
  int64_t most_work_ = INT64_MAX, most_bytes_ = INT64_MAX, most_search_ = INT64_MAX;
  StepMeter meter_;
  int64_t steps_ = 0;  // the part of work_ that does not depend on earlier questions
  int64_t most_step_ = INT64_MAX, step_end_ = INT64_MAX, most_spent_ = INT64_MAX;
  bool is_learning_ = true;  // results of searches still become facts
  bool exhausted_ = false;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_REGEX_REGEX_H_
