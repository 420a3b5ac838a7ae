// The common form into which schemas, regular expressions and grammars are compiled.
//
// A Grammar has rules; a rule has alternatives; an alternative is a sequence of symbols. A terminal
// is a regular language over bytes. There are calls of other rules, and repetitions, whose counts
// live in the parser and not in the rules. Two more symbols are JSON's containers: an object is a
// set of properties that occur at most once each; an array has a length and may have elements that
// must occur. As symbols of their own, they do not need a rule for each order or length.
//
// All symbols are in one array, `code_`, so a position in the grammar is one number.
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
    kEnd,       // end of an alternative
    kTerminal,  // index: a RegexId
    kRule,      // index: a RuleId
    kRepeat,    // index: in repeats
    kObject,    // index: in objects
    kProperty,  // the value after a key; index: in properties
    kArray,     // index: in arrays
    kElement,   // after an array's separator; index: in arrays
    kDistinct,  // an array of distinct values; index: in distincts
    kTaken,     // after one of its values; index: in distincts
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
  RegexId key = kNothing;  // including quotation marks
  RuleId value = kNoRule;
  bool required = false;
  bool many = false;               // a class of keys: any number of such properties
  int32_t object = -1, slot = -1;  // set by Object: its object, and its index there
  // Set by Finish: the key with its surroundings, as the first property and after others.
  RegexId first = kNothing, next = kNothing;
};

struct ObjectSpec {
  std::vector<int32_t> properties;  // indexes in `properties`; named ones first, in order
  int32_t named = 0;                // the number of properties that are not `many`
  bool in_order = false;            // properties come in this order, those that are `many` last
  int32_t least = 0;
  int32_t most = kUnlimited;
  int32_t place = -1;  // position of kObject in code; then kEnd, then a kProperty for each
};

struct ArraySpec {
  std::vector<RuleId> prefix;
  RuleId rest = kNoRule;  // for elements after the prefix; kNoRule: none allowed
  int32_t least = 0;
  int32_t most = kUnlimited;
  // Between `need` and `allow` elements count as wanted: they follow `wanted`. The others follow
  // the prefix and then `rest`, or, if `allow` is limited, `others`.
  RuleId wanted = kNoRule;
  std::vector<RuleId> wanted_prefix, others_prefix;  // for elements of the prefix
  RuleId others = kNoRule;
  int32_t need = 0;
  int32_t allow = kUnlimited;
  int32_t place = -1;  // position of kArray in code; then kEnd, then kElement
};

// An array in which each value occurs at most once. REQUIRES: the values are disjoint languages.
struct DistinctSpec {
  std::vector<RegexId> values;
  int32_t least = 0;
  int32_t most = kUnlimited;
  int32_t place = -1;  // position of kDistinct in code; then kEnd, then a kTaken for each
  // Set by Finish: the value with the layout before it, as the first element and after others.
  std::vector<RegexId> first, next;
};

// White space and separators between the parts of a JSON text.
struct JsonLayout {
  RegexId before_first = kEmpty;  // after "{" and "["
  RegexId separator = kNothing;   // including the comma
  RegexId colon = kNothing;       // including the colon
  RegexId before_close = kEmpty;  // before "}" and "]" of a container that is not empty
};

// The error when a limit of compiling is reached.
Status TooMuchToCompile();

class Grammar {
 public:
  Grammar();

  RegexPool& pool() { return pool_; }
  const RegexPool& pool() const { return pool_; }

  // Adds a rule without alternatives. `name` is for error messages.
  RuleId AddRule(const std::string& name = "");
  void AddAlternative(RuleId rule, const std::vector<Symbol>& symbols);
  Symbol Terminal(RegexId regex) { return {Symbol::Kind::kTerminal, regex}; }
  Symbol Call(RuleId rule) { return {Symbol::Kind::kRule, rule}; }
  Symbol Repeat(const RepeatSpec& repeat);
  Symbol Object(ObjectSpec object, const std::vector<PropertySpec>& properties);
  Symbol Array(ArraySpec array);
  Symbol Distinct(DistinctSpec distinct);

  // Rules have the numbers from 0 on.
  RuleId n_rules() const { return static_cast<RuleId>(rules_.size()); }
  // REQUIRES: the symbol at `place` is a terminal.
  void SetTerminal(int32_t place, RegexId regex) {
    code_[static_cast<size_t>(place)].index = regex;
  }

  // Removes everything that can never be completed, and checks the rest: no rule may be
  // left-recursive.
  Status Finish(RuleId start, const JsonLayout& layout = {});

  // The functions below are for the parser.
  const Symbol& At(int32_t place) const { return code_[static_cast<size_t>(place)]; }
  const std::vector<int32_t>& AlternativesOf(RuleId rule) const {
    return rules_[static_cast<size_t>(rule)];
  }
  const RepeatSpec& repeat(int32_t i) const { return repeats_[static_cast<size_t>(i)]; }
  const ObjectSpec& object(int32_t i) const { return objects_[static_cast<size_t>(i)]; }
  const ArraySpec& array(int32_t i) const { return arrays_[static_cast<size_t>(i)]; }
  const PropertySpec& property(int32_t i) const { return properties_[static_cast<size_t>(i)]; }
  const DistinctSpec& distinct(int32_t i) const { return distincts_[static_cast<size_t>(i)]; }
  // The brackets and separators of containers, with the layout around them.
  RegexId array_open() const { return array_open_; }
  RegexId array_close() const { return array_close_; }
  RegexId separator() const { return separator_; }
  RegexId object_open() const { return object_open_; }
  RegexId object_close() const { return object_close_; }
  RegexId object_close_empty() const { return object_close_empty_; }
  RegexId array_close_empty() const { return array_close_empty_; }
  RegexId before_first() const { return before_first_; }
  // The position of the call of the start rule.
  int32_t start_place() const { return start_place_; }
  // The rule for the element at `index` if it does not count as wanted, and if it does.
  static RuleId PlainElement(const ArraySpec& array, int64_t index);
  static RuleId WantedElement(const ArraySpec& array, int64_t index);
  // Whether an array that has `length` elements, `found` of them wanted, can be completed.
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
  // Whether the symbol can match the empty text.
  bool IsNullable(const Symbol& symbol) const;
  void FindNullable();
  // The rules that this rule may call before it reads a byte.
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
