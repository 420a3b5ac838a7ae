// The schema compiler. Private to schema_*.cc.
//
// A JSON value has one of six types. For null, booleans, numbers and strings, a schema restricts
// values to a regular language, and so does every combination of schemas, including `not`. For
// arrays and objects, a search finds all ways to satisfy a conjunction of schemas, some of them
// negated. Each way is a set of facts that hold together, and becomes an alternative of a rule. The
// elements and properties are again conjunctions, which become rules of their own, once each.
#ifndef WEFT_CONSTRAINT_SCHEMA_SCHEMA_COMPILER_IMPL_H_
#define WEFT_CONSTRAINT_SCHEMA_SCHEMA_COMPILER_IMPL_H_

#include <algorithm>
#include <array>
#include <compare>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "constraint/grammar/grammar.h"
#include "constraint/schema/options.h"
#include "constraint/schema/schema_document.h"
#include "constraint/schema/schema_part.h"

namespace weft::constraint {

using JsonKind = JsonValue::Kind;

// A schema that must hold, or, if negated, must not.
struct Literal {
  const JsonValue* schema = nullptr;
  bool negated = false;
  auto operator<=>(const Literal&) const = default;  // NOLINT(modernize-use-nullptr)
};
using Conjunction = std::vector<Literal>;

// The allowed values of the types other than arrays and objects.
struct Scalars {
  bool null = false, yes = false, no = false;
  RegexId number = kNothing;
  RegexId string = kNothing;
};

struct ContainsFact {
  Conjunction wanted;
  int32_t from = 0, need = 1, allow = kUnlimited;
};

// The requirements of one way to be an array or an object.
struct Facts {
  std::vector<const JsonValue*> layers;  // schemas with properties or items; all must hold
  int64_t least = 0, most = kUnlimited;
  // Objects.
  // Names point into the document or into values made from it.
  std::vector<std::string_view> required;
  std::set<std::string_view> forbidden;
  std::map<std::string_view, Conjunction> extra;  // more schemas for the values of these names
  Conjunction names;                              // for every name
  // Arrays.
  std::map<int32_t, Conjunction> extra_at;
  std::vector<std::pair<int32_t, Literal>> extra_from;  // for all elements from an index on
  std::vector<ContainsFact> contains;
  const JsonValue* distinct = nullptr;  // the schema that demands distinct elements

  // Adds many names without a linear search for each.
  void Require(const JsonParts<JsonValue>& names);
  void Require(std::string_view name);
  void AtLeast(int64_t count) { least = std::max(least, count); }
  void AtMost(int64_t count);
};

struct KeyClass {
  RegexId keys = kNothing;
  Conjunction value;
};

class SchemaCompiler {
 public:
  SchemaCompiler(const SchemaDocument& document, const ConstraintOptions& options, Grammar* grammar,
                 ValueStyle style = {});
  Status Compile();
  // Adds a rule for the values that satisfy `schema`, a part of the document. Does not finish the
  // grammar.
  StatusOr<RuleId> Add(const JsonValue& schema, ValueKinds kinds);
  StatusOr<RegexId> StringsOf(const JsonValue& schema);

 private:
  enum class Container : uint8_t { kArray, kObject };
  struct Search;
  using Branch = std::function<void(Search*)>;
  // Branches of which one must be taken. Copies of a search share them.
  using Choice = std::shared_ptr<const std::vector<Branch>>;
  struct Search {
    std::vector<Literal> todo;  // the last one is next
    std::vector<Choice> choices;
    std::vector<Literal> later;  // negated ones, taken when everything else is known
    Facts facts;
    bool impossible = false;

    void Choose(std::vector<Branch> branches) {
      choices.push_back(std::make_shared<const std::vector<Branch>>(std::move(branches)));
    }
  };
  // A class of names that match the same patterns of patternProperties.
  struct NameClass {
    // The language: the intersection of `is` minus all of `is_not`. A name that matches a pattern
    // is a string; only if `is` is empty must that be stated.
    std::vector<RegexId> is, is_not;
    RegexId keys = kNothing;  // this language as one expression
    std::set<std::string_view> matching;
  };

  // schema_scalars.cc
  StatusOr<Scalars> ScalarsOf(const JsonValue& schema, bool exactly);
  StatusOr<Scalars> ScalarsOf(const Literal& literal);
  Status RestrictByKeywords(const JsonValue& schema, bool exactly, Scalars* scalars);
  Status RestrictNumber(const JsonValue& schema, bool exactly, Scalars* scalars);
  Status RestrictString(const JsonValue& schema, bool exactly, Scalars* scalars);
  Status RestrictContent(const JsonValue& schema, Scalars* scalars);
  Status CombineScalars(const JsonValue& schema, bool exactly, Scalars* scalars);
  StatusOr<Scalars> ScalarsOf(const Conjunction& conjunction);
  Scalars AllScalars() const;
  Scalars Both(const Scalars& a, const Scalars& b);
  Scalars Either(const Scalars& a, const Scalars& b);
  Scalars Opposite(const Scalars& a);
  Scalars OnlyOne(const std::vector<Scalars>& each, const std::vector<Scalars>& others);
  StatusOr<Scalars> ScalarsOfValues(const std::vector<const JsonValue*>& values, bool exactly);
  StatusOr<RegexId> PatternOf(const JsonValue& at, std::string_view keyword,
                              std::string_view pattern, int32_t least = 0,
                              int32_t most = kUnlimited);

  // schema_search.cc
  StatusOr<std::vector<Facts>> Expand(const Conjunction& conjunction, Container type);
  // Whether there is a way. An error of the search counts only if it found no way before.
  StatusOr<bool> HasWay(Search search, Container type);
  // With only_one, stops after the first way.
  Status Run(Search search, Container type, bool only_one, std::vector<Facts>* out);
  static Search SearchFor(const Conjunction& conjunction);
  StatusOr<bool> IsRedundant(const Search& search, const Literal& literal, Container type);
  Status TakePositive(const JsonValue& schema, Container type, Search* search);
  // Takes allOf, anyOf, oneOf and not.
  void TakeCombinators(const JsonValue& schema, Search* search);
  void TakeCondition(const JsonValue& schema, Search* search);
  Status TakeObjectKeywords(const JsonValue& schema, Search* search);
  Status TakeArrayKeywords(const JsonValue& schema, Search* search);
  StatusOr<bool> Impossible(const Facts& facts, Container type);
  StatusOr<bool> IsEmpty(const Conjunction& conjunction);
  bool AllowsType(const JsonValue& schema, Container type) const;
  // One schema for each value of `enum` or `const` that has the type; nothing if the keyword is
  // missing.
  std::optional<std::vector<const JsonValue*>> ValuesGiven(const JsonValue& schema,
                                                           std::string_view keyword,
                                                           Container type);

  // schema_negation.cc
  // Sets `always` if no value of the type satisfies the schema.
  Status TakeNegative(const JsonValue& schema, Container type, const Facts& facts,
                      std::vector<Branch>* branches, bool* always);
  static Branch Demand(std::vector<Literal> literals);
  Status NegateCombinators(const JsonValue& schema, std::vector<Branch>* branches);
  Status NegateObject(const JsonValue& schema, const Facts& facts, std::vector<Branch>* branches);
  Status NegateArray(const JsonValue& schema, std::vector<Branch>* branches);
  void NegateDependents(const JsonValue& schema, std::vector<Branch>* branches);
  Status NegatePatterns(const JsonValue& schema, const Facts& facts, std::vector<Branch>* branches);
  Status NegateAdditional(const JsonValue& schema, const Facts& facts,
                          std::vector<Branch>* branches);
  Status NegatePropertyNames(const JsonValue& schema, const Facts& facts,
                             std::vector<Branch>* branches);
  // Adds branches in which some name of the language `keys` has a value that satisfies `value`.
  Status NegateNames(const JsonValue& at, std::string_view keyword, const Facts& facts,
                     RegexId keys, Literal value, std::vector<Branch>* branches);

  // schema_containers.cc
  // Nothing if the name is not allowed.
  StatusOr<std::optional<Conjunction>> ValueOf(const Facts& facts, std::string_view name);
  const JsonValue* PropertyOf(const JsonValue& schema, std::string_view name);
  StatusOr<bool> NameMatches(const JsonValue& schema, std::string_view pattern,
                             std::string_view name);
  // The names that no layer lists, grouped by the schemas for their values.
  StatusOr<std::vector<KeyClass>> FreeKeys(const Facts& facts);
  void FindKeys(NameClass* names);
  StatusOr<std::vector<NameClass>> SplitByPatterns(const Facts& facts, NameClass all);
  // The schemas for the value of an unlisted name that matches exactly these patterns.
  static Conjunction ValueWhereMatching(const Facts& facts,
                                        const std::set<std::string_view>& matching);
  std::vector<std::string_view> NamesOf(const Facts& facts) const;
  Conjunction ElementOf(const Facts& facts, int32_t index) const;
  int32_t PrefixOf(const Facts& facts) const;
  Status AddObject(RuleId rule, const Facts& facts);
  Status AddArray(RuleId rule, const Facts& facts);
  Status AddDistinctArray(RuleId rule, const Facts& facts);
  // All values that satisfy it, if there are few and none of them is a container.
  StatusOr<std::optional<std::vector<RegexId>>> ValuesOf(const Conjunction& conjunction);
  // The values of enum and const in a schema, even those that other keywords exclude.
  Status GatherValues(const JsonValue& schema, int depth, std::vector<const JsonValue*>* values);
  StatusOr<bool> NameFits(const Facts& facts, std::string_view name);

  // schema_compiler.cc
  Status FillRule(RuleId rule, const Conjunction& conjunction, ValueKinds kinds, bool outside);
  Status FillQueued();
  // The notation of a language of JSON strings in the chosen style.
  RegexId Written(RegexId strings, bool is_key);
  RegexId AnySpelling();
  RegexId ShortNumbers();
  // Whether the layer allows only the properties that it lists.
  bool IsClosed(const JsonValue& layer) const;
  RuleId RuleOf(Conjunction conjunction);
  // Removes schemas that are always true, and duplicates. False if the conjunction is never true;
  // it is then partly processed.
  StatusOr<bool> Tidy(Conjunction* conjunction);
  // A schema that only `value` satisfies, for arrays and objects.
  const JsonValue& SchemaOf(const JsonValue& value);
  Status CheckKeywords(const JsonValue& schema);
  Status Refuse(const JsonValue& at, std::string_view keyword, std::string_view why) const;
  StatusOr<int64_t> Count(const JsonValue& schema, std::string_view keyword, int64_t otherwise);
  StatusOr<const JsonValue*> ReferenceOf(const JsonValue& schema);
  // Finds a keyword that some dialects do not define.
  const JsonValue* FindKnown(const JsonValue& schema, std::string_view keyword) const {
    return document_.Knows(keyword) ? schema.Find(keyword) : nullptr;
  }
  RegexPool& pool() { return grammar_.pool(); }
  static std::string Quoted(std::string_view name);
  static const JsonValue* AdditionalOf(const JsonValue& schema);
  static std::vector<const JsonValue*> PrefixItemsOf(const JsonValue& schema);
  static const JsonValue* RestItemsOf(const JsonValue& schema);
  // The elements or members of a keyword's value; empty if the keyword is missing.
  static const JsonParts<JsonValue>& ListOf(const JsonValue& schema, std::string_view keyword);
  static const JsonParts<JsonMember>& MembersOf(const JsonValue& schema, std::string_view keyword);
  static bool SaysNothing(const JsonValue& schema);

  const SchemaDocument& document_;
  const ConstraintOptions options_;
  const ValueStyle style_;
  Grammar& grammar_;
  RegexId any_number_, any_string_;
  RegexId any_spelling_ = kNothing;  // all spellings of strings; kNothing until needed
  // Indexed by `exactly`.
  std::array<std::unordered_map<const JsonValue*, Scalars>, 2> scalars_;
  std::unordered_map<const JsonValue*, Scalars> opposites_;  // for negated schemas
  std::vector<const JsonValue*> open_;  // schemas whose scalars are being computed
  std::unordered_map<const JsonValue*, const JsonValue*> references_;
  std::map<std::string, RegexId, std::less<>> patterns_;
  // Index by name for large lists of properties.
  std::unordered_map<const JsonValue*, std::unordered_map<std::string_view, const JsonValue*>>
      properties_;
  std::map<Conjunction, RuleId> rules_;
  std::deque<std::pair<RuleId, Conjunction>> queue_;
  std::unordered_map<const JsonValue*, const JsonValue*> schemas_of_values_;
  JsonArena made_arena_;
  std::deque<JsonValue> made_;
  std::map<Conjunction, bool> empty_;
  std::unordered_set<const JsonValue*> checked_;
  const JsonValue* last_multiple_ = nullptr;  // the last schema with a multipleOf that was read
  int search_depth_ = 0;
  int64_t steps_ = 0;
  JsonValue true_schema_, false_schema_;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_SCHEMA_SCHEMA_COMPILER_IMPL_H_
