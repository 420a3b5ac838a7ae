// Regular languages over bytes, closed under union, intersection and complement.
//
// A RegexPool owns expressions; equal ones have one id. The derivative of an expression by a
// byte is the expression of what may follow that byte, so an id is also the state of a
// deterministic automaton that is built as far as it is walked, and no further. A state from
// which nothing can be accepted any more is always kNothing, complements and intersections
// included: whoever holds another id knows that there is a way to the end.
//
// A pool can be copied; ids mean the same in the copy. One thread at a time. Work and memory are
// counted; past the limits every operation gives kNothing and `exhausted()` is true: check it
// before believing a result.
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

// The decimal numbers, without a sign, that are multiples of modulus / 10^decimals.
struct Multiple {
  int64_t modulus = 1;
  int32_t decimals = 0;
  bool operator==(const Multiple&) const = default;
};

// Counts the steps that something takes, as if nothing of it were known already: what a text or
// mask takes must not depend on who asked before. Steps that cost little are not counted here;
// those who take them count them themselves.
class StepMeter {
 public:
  static constexpr int64_t kTooMuch = int64_t{1} << 40;
  // A search that takes less is not metered.
  static constexpr int64_t kDearSearch = 128;

  // What a step takes by itself, and the search for a way to the end behind it.
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
  // What is spent between these two is no part of spent(), and each costly step of it counts.
  void BeginAside() {
    is_aside_ = true;
    aside_ = {};
  }
  const Cost& aside() const { return aside_; }
  void EndAside() { is_aside_ = false; }
  // Of one more costly step of a state, by bytes of a range; it is taken now. `known` are those
  // that were learned of the state before, or -1; now they are what is returned.
  int32_t Learn(int32_t known, int first, int last, const Cost& cost);
  // The same, where the search behind the step is one that other steps lead to: it counts once for
  // all of them.
  int32_t LearnTo(int32_t search, int32_t known, int first, int last, const Cost& cost);
  int32_t AddSearch(int64_t steps);
  // That step is taken. Since the last Reset, it counts once.
  void Pass(int32_t known, uint8_t byte);

 private:
  struct Dear {
    uint8_t first = 0, last = 0;
    Cost cost;
    uint64_t passed = 0;  // behind so many Resets
    int32_t next = -1;    // of the same state
    int32_t search = -1;  // the search that others lead to, too
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
  // One of these texts. What they begin with in common is read once, however many they are.
  RegexId AnyOf(const std::vector<std::string>& texts);
  RegexId Concat(RegexId first, RegexId second);
  RegexId Concat(std::initializer_list<RegexId> parts);
  RegexId Or(std::vector<RegexId> parts);
  RegexId And(std::vector<RegexId> parts);
  // Texts of which exactly one of the parts is; equal parts count each.
  RegexId OnlyOne(std::vector<RegexId> parts);
  RegexId Not(RegexId part);
  RegexId AndNot(RegexId part, RegexId without) { return And({part, Not(without)}); }
  // REQUIRES: 0 <= least, and least <= most or most == kUnlimited.
  RegexId Repeat(RegexId part, int32_t least, int32_t most);
  RegexId Optional(RegexId part) { return Or({part, kEmpty}); }
  RegexId Multiples(const Multiple& multiple);
  // What all those it is made of have in common, at least: the smallest number, in the smallest of
  // their decimal units, that is a multiple of each. 1 where there are fewer than two.
  int64_t CommonMultiple(RegexId id) const;
  // From now on unions leave out what is beside `all`, but for complements and intersections; and
  // nothing is left of an intersection with its complement.
  // REQUIRES: whatever else is in a union with `all`, or an intersection with its complement, is a
  // part of it.
  void Swallow(RegexId all) { swallowing_ = all; }
  // Whether any of what is repeated at the beginning of `all` may come, whatever came before.
  // False where it is not known.
  bool TakesAllText(RegexId id);
  // An expression that cannot be told from `id` by texts of few bytes, no more than kNear[near]: up
  // to there both accept the same, and may go on behind the same. In it, what may be repeated so
  // often that such a text does not come to the limit has none, and what must be repeated more
  // often need not be: so states that differ by what they have counted so far become one.
  static constexpr std::array<int32_t, 2> kNear = {16, 32};
  RegexId Relaxed(RegexId id, size_t near) {
    const RegexId known = nodes_[static_cast<size_t>(id)].relaxed[near];
    return known >= 0 ? known : Relax(id, near);
  }
  // An expression that accepts all that `id` does and, of texts of no more than kLooseBytes bytes,
  // nothing else, with counts left out as in Relaxed; but of complements, and of others that
  // cannot be told, all is left as it is. Whether something may go on it knows only where WayToEnd
  // of what is left is short enough.
  static constexpr int kLooseBytes = 48;
  RegexId Loosened(RegexId id) {
    const RegexId known = nodes_[static_cast<size_t>(id)].loosened;
    return known >= 0 ? known : Loosen(id);
  }
  // So many bytes come to an end, in one way; kManyBytes where none is known. What IsLive has found
  // of an expression is known.
  static constexpr int32_t kManyBytes = 1 << 30;
  int32_t WayToEnd(RegexId id) const {
    const Node& n = nodes_[static_cast<size_t>(id)];
    return std::min(n.way, n.way_found);
  }
  // Whether there are intersections or complements inside.
  bool HasBoolean(RegexId id) const { return nodes_[static_cast<size_t>(id)].has_boolean; }
  // Of a language of JSON strings that spells every text in one way (see characters.h): the
  // texts themselves, as they read.
  RegexId Unquoted(RegexId json);
  // The same between quotes, with the escapes that JSON and Python have in common, and \'.
  RegexId Requoted(RegexId json, char quote);
  // Of a language of texts: how they are written between quotation marks, each in one way, with
  // the escapes of JSON or of Python.
  enum class Escapes : uint8_t { kJson, kPython };
  RegexId Spelled(RegexId texts, Escapes escapes);

  // What may follow `byte`; kNothing where nothing can be accepted after it.
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
  // The row of its derivatives; none where there is none yet, or some of them are metered.
  ByteRows::Row PlainRow(RegexId id) const {
    const Node& n = nodes_[static_cast<size_t>(id)];
    return n.dear >= 0 ? ByteRows::Row() : n.row;
  }
  // What such a row says; below 0 where it is not known.
  RegexId InRow(const ByteRows::Row& row, uint8_t byte) const { return rows_.Get(row, byte); }
  bool AcceptsEmpty(RegexId id) const { return nodes_[static_cast<size_t>(id)].nullable; }
  // Whether any text is accepted. A search that takes long is metered, known or not.
  bool IsLive(RegexId id);
  // Makes the whole automaton, so that it is known of each state whether there is a way to the end.
  // False where that takes more states or steps of work than this.
  bool Settle(RegexId id, size_t most_states, int64_t most_work);
  bool Accepts(RegexId id, std::string_view text);
  // The bytes that may come first; the lowest `enough` of them will do.
  ByteSet FirstBytes(RegexId id, int enough = 256);
  // Whether there are at least so many.
  bool HasFirstBytes(RegexId id, int least);
  // The bytes that its texts may contain, and those they may end with; perhaps some more.
  struct ByteUse {
    ByteSet any, last;
  };
  ByteUse BytesUsed(RegexId id, int depth = 0) const;
  // These and perhaps some that may not: known without any work.
  const ByteSet& MayBegin(RegexId id) const { return MayBeginOf(nodes_[static_cast<size_t>(id)]); }
  // The bytes at which a range begins whose members all have one derivative.
  ByteSet Edges(RegexId id) const;

  // For those who make the same of many bytes again and again: what they made, by keys of theirs.
  std::map<std::vector<uint32_t>, RegexId>& made() { return made_.by_key; }

  // Work that was done for the sake of these languages elsewhere, in steps.
  void Charge(int64_t work) { Spend(work, 0); }
  void SetLimits(int64_t most_work, int64_t most_bytes) {
    most_work_ = most_work;
    most_bytes_ = most_bytes;
  }
  // From now on, what is found out depends on the expressions that are there now and on the one
  // that is asked about, not on what was asked before. A derivative that takes more than
  // `most_step` steps is kNothing, and a search for a way to the end of more than `most_search`
  // finds none.
  void BeginAnswers(int64_t most_step, int64_t most_search) {
    is_learning_ = false;
    most_step_ = most_step;
    most_search_ = most_search;
  }
  // Where more than this is spent, derivatives that are not known are kNothing: what comes of them
  // is not to be believed.
  void SetMostSpent(int64_t most) { most_spent_ = most; }
  // Whether it was marked otherwise before.
  bool Mark(RegexId id, uint32_t mark) {
    uint32_t& known = nodes_[static_cast<size_t>(id)].mark;
    if (known == mark) return false;
    known = mark;
    return true;
  }
  StepMeter& meter() { return meter_; }
  const StepMeter& meter() const { return meter_; }
  // Of equal expressions the same, whenever they were made.
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
  // What an expression is. Equal ones have one id.
  struct Form {
    Kind kind = Kind::kNothing;
    bool nullable = false;  // of kEmpty and kRespelled; of others, their parts say it
    // kBytes: a set. kLiteral: offset and length in texts_. kConcat: two parts. kOr, kAnd,
    // kOnlyOne: offset and count in lists_. kNot: a part. kRepeat: part, least, most. kMultiple:
    // index in multiples_, remainder (two halves), digits after the point or -1 before it.
    // kRespelled: the rest of a JSON string, the quote at the end or 0, whether a backslash was
    // read. kSpelled: the rest of a text, its Escapes. kTexts: offset and count in listed_, bytes
    // that all of them begin with and that have been read.
    int32_t a = 0, b = 0, c = 0, d = 0;
  };
  // More texts than these are listed, and made an expression as far as they are read.
  static constexpr size_t kFewTexts = 16;
  // Of a text in texts_.
  struct TextPlace {
    int32_t offset = 0, length = 0;
  };
  struct Node : Form {
    bool has_boolean = false;  // intersections or complements inside: it may be dead unseen
    // What its form says, or was found out before the first answer; searches rely on that. And what
    // its own search came to.
    Life fact = Life::kUnknown, life = Life::kUnknown;
    int32_t edges = -1;     // in sets_
    int32_t first = -1;     // likewise: the bytes that may begin it, as far as its parts say
    bool exact = true;      // no byte of `first` leads to kNothing
    bool straight = false;  // its own search went by the likeliest bytes alone (see Ahead)
    // The one range of bytes that was derived by so far, if it is one, and where it leads: most
    // states of a long text are passed once, and need no row.
    uint8_t only_first = 1, only_last = 0;
    // Where a search found a way to the end: it goes on by this byte; 0 stands for none.
    uint8_t onward = 0;
    RegexId only = kNothing;
    ByteRows::Row row;
    // No text of fewer bytes is accepted; there may be none of so many. What one may begin with,
    // -1 where that is not known.
    int32_t least = 0, hint = -1;
    // Behind any beginning, no more bytes than these are needed to come to an end; kManyBytes where
    // that is not known. Known ones have no intersections or complements, and their `least` is
    // exact.
    int32_t farthest = 0;
    // See WayToEnd: what its form says, or was found out before the first answer; and what its own
    // search found.
    int32_t way = kManyBytes, way_found = kManyBytes;
    int32_t search = 0;        // what its own search takes
    int32_t search_dear = -1;  // in meter_, if steps lead to it
    int32_t ahead = -1;        // in ahead_
    uint8_t height = 0;        // how deep it is nested, its tail aside; 255 for more
    std::array<RegexId, kRelaxBytes.size()> relaxed = {-1, -1, -1};
    RegexId loosened = -1;
    int32_t options = -1;  // in options_
    int32_t dear = -1;     // its costly derivatives, in meter_
    uint32_t mark = 0;
  };
  // Of a sequence that begins with a row of parts that may be left out.
  struct Options {
    int32_t length = 0;                       // of the row
    RegexId end = kNothing, jump = kNothing;  // what is behind it; a tail of it that is far away
    // What is behind the first of them, as far as these leave, behind any byte, a part of
    // themselves that may be left out.
    RegexId plain_end = kNothing;
  };

  // What may follow a byte, alive or not, and what it takes to find out: StepMeter::kTooMuch where
  // that is more than it may.
  struct Derivative {
    RegexId to = kNothing;
    int64_t steps = 0;
  };
  // The likeliest byte that does not lead nowhere at once, if there is one, and what it takes to
  // find it. Where a way to the end is found by such bytes alone: its bytes up to where searches
  // end, how often it turns, what following it takes, and its bytes in all.
  struct Ahead {
    Derivative made;
    uint8_t byte = 0;
    int64_t choice = 0;
    int32_t bytes = -1, turns = 0;
    int64_t cost = 0;
    int32_t way = kManyBytes;
  };
  // The bytes at which ranges begin, and those that may come first.
  struct Opening {
    ByteSet edges = ByteSet::Of(0), first;
  };
  // The same, in sets_.
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
  // The bytes that are not written as themselves; those at which a range begins of what may stand
  // behind a backslash.
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
  // Work on a derivative that is the same whatever is known.
  void Step(int64_t steps) {
    steps_ += steps;
    Spend(steps, 0);
  }
  const ByteSet& MayBeginOf(const Node& n) const { return sets_[static_cast<size_t>(n.first)]; }
  const Node& node(RegexId id) const { return nodes_[static_cast<size_t>(id)]; }
  std::span<const int32_t> Parts(const Form& n) const {
    return {lists_.data() + n.a, static_cast<size_t>(n.b)};
  }

  // Some of the derivatives that were taken last, with the steps that they count: unions and
  // intersections have their parts in common. A copy begins without any.
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
  std::vector<uint64_t> prints_;  // parts are in this order
  std::vector<Ahead> ahead_;
  Recent recent_;
  Made made_;  // likewise, a copy begins without any
  std::vector<int32_t> lists_;
  std::string texts_;
  std::vector<TextPlace> listed_;
  std::vector<ByteSet> sets_;
  std::array<OpeningSets, 256> openings_;  // of literals, by their first byte
  std::vector<Options> options_;
  ByteRows rows_;
  std::vector<Multiple> multiples_;
  // The parts of large unions that are often asked for, by the bytes with which they may begin.
  using PartsByByte = std::array<std::vector<RegexId>, 256>;
  struct LargeUnion {
    int asked = 0;
    std::shared_ptr<const PartsByByte> by_byte;
  };
  std::unordered_map<RegexId, LargeUnion> large_unions_;
  HashIndex node_index_, set_index_, list_index_;
  // Ways to an end that took long to find, the latest first; and whether the last search took one.
  std::vector<std::string> ways_;
  bool trusts_ways_ = false;
  RegexId swallowing_ = kNothing;
  int64_t work_ = 0, bytes_ = 0;
  int64_t most_work_ = INT64_MAX, most_bytes_ = INT64_MAX, most_search_ = INT64_MAX;
  StepMeter meter_;
  int64_t steps_ = 0;  // of the work, what does not depend on what was asked before
  int64_t most_step_ = INT64_MAX, step_end_ = INT64_MAX, most_spent_ = INT64_MAX;
  bool is_learning_ = true;  // what is found out is a fact from now on
  bool exhausted_ = false;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_REGEX_REGEX_H_
