// The one form to which schemas, regular expressions and grammars are brought.
//
// A Grammar has rules; a rule has alternatives; an alternative is a sequence of symbols. A
// terminal is a regular language over bytes. Besides the calls of other rules and repetitions,
// whose counts live in the parser and not in the rules, there are JSON's two containers:
// an object is a set of properties of which each may come once, an array has a length and
// elements that must occur. Kept as such they need no rule per order or per length.
//
// Symbols lie one after the other in `code`, so that a place in the grammar is one number.
#ifndef WEFT_CONSTRAINT_GRAMMAR_GRAMMAR_H_
#define WEFT_CONSTRAINT_GRAMMAR_GRAMMAR_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "constraint/regex/regex.h"

namespace weft::constraint {

using RuleId = int32_t;
inline constexpr RuleId kNoRule = -1;

struct Symbol {
  enum class Kind : uint8_t {
    kEnd,       // of an alternative
    kTerminal,  // index: a RegexId
    kRule,      // index: a RuleId
    kRepeat,    // index: in repeats
    kObject,    // index: in objects
    kProperty,  // the value behind a key; index: in properties
    kArray,     // index: in arrays
    kElement,   // behind an array's separator; index: in arrays
    kDistinct,  // an array of values that all differ; index: in distincts
    kTaken,     // behind one of its values; index: in distincts
  };
  Kind kind = Kind::kEnd;
  int32_t index = 0;
};

struct RepeatSpec {
  RuleId rule = kNoRule;
  int32_t least = 0;
  int32_t most = kUnlimited;
};

struct PropertySpec {
  RegexId key = kNothing;  // with its quotation marks
  RuleId value = kNoRule;
  bool required = false;
  bool many = false;               // a class of keys: any number of them
  int32_t object = -1, slot = -1;  // filled by Object: whose it is, and the how manieth
  // Filled by Finish: with what stands around the key, at the beginning and behind others.
  RegexId first = kNothing, next = kNothing;
};

struct ObjectSpec {
  std::vector<int32_t> properties;  // in `properties`; named ones first, in their order
  int32_t named = 0;                // how many of them are not `many`
  bool in_order = false;            // they come as they are listed, those that are `many` last
  int32_t least = 0;
  int32_t most = kUnlimited;
  int32_t place = -1;  // of kObject in code; then kEnd, then a kProperty for each
};

struct ArraySpec {
  std::vector<RuleId> prefix;
  RuleId rest = kNoRule;  // of elements behind the prefix; kNoRule: there are none
  int32_t least = 0;
  int32_t most = kUnlimited;
  // At least `need` and at most `allow` elements at index `from` or later are of `wanted`; those
  // that are of no such kind are of `others` (of the prefix's rules or `rest` when kNoRule).
  RuleId wanted = kNoRule;
  std::vector<RuleId> wanted_prefix, others_prefix;  // for elements of the prefix
  RuleId others = kNoRule;
  int32_t need = 0;
  int32_t allow = kUnlimited;
  int32_t place = -1;  // of kArray in code; then kEnd, then kElement
};

// An array of values of which each comes once at most. No text is of two of them.
struct DistinctSpec {
  std::vector<RegexId> values;
  int32_t least = 0;
  int32_t most = kUnlimited;
  int32_t place = -1;  // of kDistinct in code; then kEnd, then a kTaken for each
  // Filled by Finish: with what stands before the value, at the beginning and behind others.
  std::vector<RegexId> first, next;
};

// What stands between the parts of a JSON text.
struct JsonLayout {
  RegexId before_first = kEmpty;  // behind "{" and "["
  RegexId separator = kNothing;   // with its comma
  RegexId colon = kNothing;       // with the colon
  RegexId before_close = kEmpty;  // before "}" and "]", in a container that is not empty
};

// What is said where the limits of compiling are reached.
Status TooMuchToCompile();

class Grammar {
 public:
  Grammar();

  RegexPool& pool() { return pool_; }
  const RegexPool& pool() const { return pool_; }

  // Without alternatives yet. `name` is for sentences that speak of it.
  RuleId AddRule(const std::string& name = "");
  void AddAlternative(RuleId rule, const std::vector<Symbol>& symbols);
  Symbol Terminal(RegexId regex) { return {Symbol::Kind::kTerminal, regex}; }
  Symbol Call(RuleId rule) { return {Symbol::Kind::kRule, rule}; }
  Symbol Repeat(const RepeatSpec& repeat);
  Symbol Object(ObjectSpec object, const std::vector<PropertySpec>& properties);
  Symbol Array(ArraySpec array);
  Symbol Distinct(DistinctSpec distinct);

  // Rules are numbered from 0.
  RuleId n_rules() const { return static_cast<RuleId>(rules_.size()); }
  // REQUIRES: there is a terminal at the place.
  void SetTerminal(int32_t place, RegexId regex) {
    code_[static_cast<size_t>(place)].index = regex;
  }

  // Removes what can never be completed, and checks what is left. No rule may call itself
  // before it has read something.
  Status Finish(RuleId start, const JsonLayout& layout = {});

  // For the parser.
  const Symbol& At(int32_t place) const { return code_[static_cast<size_t>(place)]; }
  const std::vector<int32_t>& AlternativesOf(RuleId rule) const {
    return rules_[static_cast<size_t>(rule)];
  }
  const RepeatSpec& repeat(int32_t i) const { return repeats_[static_cast<size_t>(i)]; }
  const ObjectSpec& object(int32_t i) const { return objects_[static_cast<size_t>(i)]; }
  const ArraySpec& array(int32_t i) const { return arrays_[static_cast<size_t>(i)]; }
  const PropertySpec& property(int32_t i) const { return properties_[static_cast<size_t>(i)]; }
  const DistinctSpec& distinct(int32_t i) const { return distincts_[static_cast<size_t>(i)]; }
  // An array's bracket with what may follow it, its separator, its end when it has elements.
  RegexId array_open() const { return array_open_; }
  RegexId array_close() const { return array_close_; }
  RegexId separator() const { return separator_; }
  RegexId object_open() const { return object_open_; }
  RegexId object_close() const { return object_close_; }
  RegexId object_close_empty() const { return object_close_empty_; }
  RegexId array_close_empty() const { return array_close_empty_; }
  RegexId before_first() const { return before_first_; }
  // The place that calls the start rule.
  int32_t start_place() const { return start_place_; }
  // The rules of an element that counts as wanted, and of one that does not.
  static RuleId PlainElement(const ArraySpec& array, int64_t index);
  static RuleId WantedElement(const ArraySpec& array, int64_t index);
  // Whether an array with `length` elements, `found` of them wanted, can come to its end.
  static bool ArrayCanEnd(const ArraySpec& array, int64_t length, int64_t found);
  int64_t bytes() const;

 private:
  std::vector<Symbol> WithoutLongRows(const std::vector<Symbol>& symbols);
  bool SymbolIsProductive(const Symbol& symbol) const;
  bool ObjectIsProductive(const ObjectSpec& object) const;
  bool ArrayIsProductive(const ArraySpec& array) const;
  bool IsProductive(RuleId rule) const {
    return rule != kNoRule && productive_[static_cast<size_t>(rule)];
  }
  template <typename Learns>
  void Sweep(const Learns& learns);
  void FindProductive();
  void Prune();
  // Whether it can be passed without reading anything.
  bool IsNullable(const Symbol& symbol) const;
  void FindNullable();
  // The rules that a rule may call before it has read anything.
  std::vector<RuleId> CalledFirst(RuleId rule) const;
  Status CheckRecursion() const;
  void LayOut(const JsonLayout& layout);

  RegexPool pool_;
  std::vector<Symbol> code_;
  std::vector<std::vector<int32_t>> rules_;
  std::map<RuleId, std::string> names_;
  std::vector<RepeatSpec> repeats_;
  std::vector<ObjectSpec> objects_;
  std::vector<PropertySpec> properties_;
  std::vector<ArraySpec> arrays_;
  std::vector<DistinctSpec> distincts_;
  std::vector<bool> productive_, nullable_;  // by rule
  RegexId array_open_ = kNothing, array_close_ = kNothing, separator_ = kNothing;
  RegexId object_open_ = kNothing, object_close_ = kNothing;
  RegexId array_close_empty_ = kNothing, object_close_empty_ = kNothing;
  RegexId before_first_ = kEmpty;
  RuleId start_ = kNoRule;
  int32_t start_place_ = -1;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_GRAMMAR_GRAMMAR_H_
