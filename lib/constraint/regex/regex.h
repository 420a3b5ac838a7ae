// Regular languages over bytes, closed under union, intersection and complement.
//
// A RegexPool owns expressions; equal ones have one id. An id is also a state of a deterministic
// automaton, which RegexWalk builds as far as it is asked. RegexAnalysis tells what an expression
// says by its form.
//
// A pool can be copied; ids mean the same in the copy. One thread at a time. Work and memory are
// counted. After a limit, every operation returns kNothing and `budget().exhausted()` is true:
// check it before you use a result.
#ifndef WEFT_CONSTRAINT_REGEX_REGEX_H_
#define WEFT_CONSTRAINT_REGEX_REGEX_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "constraint/regex/budget.h"
#include "constraint/regex/byte_set.h"
#include "constraint/regex/hash_index.h"
#include "constraint/regex/node.h"

namespace weft::constraint {

class RegexAnalysis;
class RegexWalk;

// The unsigned decimal numbers that are multiples of modulus / 10^decimals.
struct Multiple {
  int64_t modulus = 1;
  int32_t decimals = 0;
  bool operator==(const Multiple&) const = default;
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
  // For a language of texts: their spelling between quotation marks, one for each text, with the
  // escapes of JSON or Python.
  enum class Escapes : uint8_t { kJson, kPython };
  RegexId Spelled(RegexId texts, Escapes escapes);

  // From now on, a union that contains `all` drops its other parts, except complements and
  // intersections, and an intersection with the complement of `all` is empty.
  // REQUIRES: all other parts of a union with `all`, or of an intersection with its complement, are
  // subsets of `all`.
  void Swallow(RegexId all) { swallowing_ = all; }
  bool AcceptsEmpty(RegexId id) const { return node(id).nullable; }
  // A cache for callers that build the same expressions repeatedly, with keys of their own.
  std::map<std::vector<uint32_t>, RegexId>& made() { return made_.by_key; }
  // A hash that is equal for equal expressions, in whichever order they were made.
  uint64_t Print(RegexId id) const { return prints_[static_cast<size_t>(id)]; }

  // Views of this pool, valid as long as it stays where it is; see their headers.
  RegexWalk walk();
  RegexAnalysis analysis();
  RegexBudget& budget() { return budget_; }
  const RegexBudget& budget() const { return budget_; }

 private:
  friend class RegexView;
  friend class RegexWalk;
  friend class RegexAnalysis;
  using Kind = regex::Kind;
  using Form = regex::Form;
  using Node = regex::Node;
  using Options = regex::Options;
  using TextPlace = regex::TextPlace;
  // Finds what follows from the form of a new node.
  class NewNode;

  static constexpr RegexId kAnything = 2;
  // Larger sets of texts stay a list, and become expressions only as far as they are read.
  static constexpr size_t kFewTexts = 16;

  // --- stored expressions (regex.cc) ----------------------------------------
  const Node& node(RegexId id) const { return nodes_[static_cast<size_t>(id)]; }
  std::span<const int32_t> Parts(const Form& n) const {
    return {lists_.data() + n.a, static_cast<size_t>(n.b)};
  }
  std::span<const TextPlace> Listed(int32_t first, int32_t count) const {
    return {listed_.data() + first, static_cast<size_t>(count)};
  }
  std::string_view TextAt(const TextPlace& place) const {
    return std::string_view(texts_).substr(static_cast<size_t>(place.offset),
                                           static_cast<size_t>(place.length));
  }
  const ByteSet& Set(int32_t index) const { return sets_[static_cast<size_t>(index)]; }
  static bool IsList(Kind kind) {
    return kind == Kind::kOr || kind == Kind::kAnd || kind == Kind::kOnlyOne;
  }
  bool IsBefore(RegexId a, RegexId b) const {
    return Print(a) != Print(b) ? Print(a) < Print(b) : a < b;
  }
  void Sort(std::vector<RegexId>* parts) const {
    std::ranges::sort(*parts, [&](RegexId a, RegexId b) { return IsBefore(a, b); });
  }
  RegexId Intern(const Form& form, std::span<const int32_t> list = {});
  uint64_t PrintOf(const Form& form, std::span<const int32_t> list) const;
  bool SameForm(const Form& known, const Form& other, std::span<const int32_t> list) const;
  int32_t InternSet(const ByteSet& set);
  RegexId InternConcat(RegexId head, RegexId tail);
  RegexId InternParts(Kind kind, std::vector<RegexId> parts);
  bool IsBesideAll(const std::vector<RegexId>& parts) const;

  // --- lists of texts (regex.cc) --------------------------------------------
  RegexId AnyOfSorted(std::span<const std::string_view> texts, size_t from);
  int32_t ListTexts(std::span<const std::string_view> texts);
  RegexId AnyOfListed(int32_t first, int32_t count, int32_t from);
  size_t EndOfAlike(std::span<const TextPlace> listed, size_t at, int32_t from) const;
  RegexId DeriveTexts(const Form& n, uint8_t byte);

  // --- rows of optional parts (regex_rows.cc) -------------------------------
  void LinkOptions(Node* node);
  int32_t OptionsOf(RegexId id) const {
    const int32_t options = node(id).options;
    return options < 0 ? 0 : options_[static_cast<size_t>(options)].length;
  }
  bool IsPlainOption(RegexId id) const;
  bool IsTailOf(RegexId row, RegexId tail) const;
  void DropTails(std::vector<RegexId>* parts) const;
  void DropFewer(std::vector<RegexId>* parts) const;

  // --- multiples (regex_multiples.cc), spellings (regex_spelled.cc) ---------
  bool IsMultiple(const Form& form) const;
  int64_t EstimateMultiple(Node* node) const;
  RegexId MultipleState(int32_t multiple, int64_t remainder, int32_t digits);
  RegexId DeriveMultiple(const Form& form, uint8_t byte);
  // The bytes that need an escape, and the first bytes of ranges of those that may follow a
  // backslash.
  static const ByteSet& EscapedBytes(Escapes escapes);
  static ByteSet EdgesOfEscapes();

  struct Made {
    Made() = default;
    Made(const Made& /*other*/) {}
    Made& operator=(const Made& /*other*/) { return *this; }
    std::map<std::vector<uint32_t>, RegexId> by_key;
  };

  std::vector<Node> nodes_;
  std::vector<uint64_t> prints_;  // sort keys of parts
  Made made_;                     // a copy starts empty
  std::vector<int32_t> lists_;
  std::string texts_;
  std::vector<TextPlace> listed_;
  std::vector<ByteSet> sets_;
  std::array<regex::OpeningSets, 256> openings_;  // for literals, by first byte
  std::vector<Options> options_;
  std::vector<Multiple> multiples_;
  HashIndex node_index_, set_index_, list_index_;
  RegexId swallowing_ = kNothing;
  RegexBudget budget_;
  regex::WalkState walked_;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_REGEX_REGEX_H_
