// The parts of the schema compiler. Private to schema_*.cc.
//
// A value of a schema is of one of six types. What a schema says of null, booleans, numbers and
// strings is a regular language each, and so is every combination of schemas, `not` included.
// What it says of arrays and objects is brought to alternatives of facts that hold together:
// a conjunction of schemas, some negated, is searched for all ways to satisfy it. The values
// inside are conjunctions again, and become rules of their own, once each.
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

// A schema that must hold, or must not.
struct Literal {
  const JsonValue* schema = nullptr;
  bool negated = false;
  auto operator<=>(const Literal&) const = default;  // NOLINT(modernize-use-nullptr)
};
using Conjunction = std::vector<Literal>;

// What is allowed of the types that are no containers.
struct Scalars {
  bool null = false, yes = false, no = false;
  RegexId number = kNothing;
  RegexId string = kNothing;
};

struct ContainsFact {
  Conjunction wanted;
  int32_t from = 0, need = 1, allow = kUnlimited;
};

// What one kind of array or object must be.
struct Facts {
  std::vector<const JsonValue*> layers;  // schemas with properties, or items, that all hold
  int64_t least = 0, most = kUnlimited;
  // Objects.
  // Names lie in the document, or in what was made of it.
  std::vector<std::string_view> required;
  std::set<std::string_view> forbidden;
  std::map<std::string_view, Conjunction> extra;  // of the values of these names
  Conjunction names;                              // of every name
  // Arrays.
  std::map<int32_t, Conjunction> extra_at;
  std::vector<std::pair<int32_t, Literal>> extra_from;  // of all elements from an index on
  std::vector<ContainsFact> contains;
  const JsonValue* distinct = nullptr;  // who says that elements differ

  // Many at once are looked up once each.
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
  // The rule of the values that satisfy `schema`, a part of the document; the grammar is not
  // finished.
  StatusOr<RuleId> Add(const JsonValue& schema, ValueKinds kinds);
  StatusOr<RegexId> StringsOf(const JsonValue& schema);

 private:
  enum class Container : uint8_t { kArray, kObject };
  struct Search;
  using Branch = std::function<void(Search*)>;
  // Branches of which one is to be taken. Copies of a search share them.
  using Choice = std::shared_ptr<const std::vector<Branch>>;
  struct Search {
    std::vector<Literal> todo;  // the last is next
    std::vector<Choice> choices;
    std::vector<Literal> later;  // negated ones, for when everything else is known
    Facts facts;
    bool impossible = false;

    void Choose(std::vector<Branch> branches) {
      choices.push_back(std::make_shared<const std::vector<Branch>>(std::move(branches)));
    }
  };
  // Names that match the same of the patterns in patternProperties.
  struct NameClass {
    // Their language: in all of `is`, in none of `is_not`. What matches a pattern is a string;
    // only where `is` is empty must that be said.
    std::vector<RegexId> is, is_not;
    RegexId keys = kNothing;  // the same as one
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
  // Whether there is a way. What the search fails at counts only if it has not found one before.
  StatusOr<bool> HasWay(Search search, Container type);
  // With only_one, stops at the first way.
  Status Run(Search search, Container type, bool only_one, std::vector<Facts>* out);
  static Search SearchFor(const Conjunction& conjunction);
  StatusOr<bool> IsRedundant(const Search& search, const Literal& literal, Container type);
  Status TakePositive(const JsonValue& schema, Container type, Search* search);
  // allOf, anyOf, oneOf, not.
  void TakeCombinators(const JsonValue& schema, Search* search);
  void TakeCondition(const JsonValue& schema, Search* search);
  Status TakeObjectKeywords(const JsonValue& schema, Search* search);
  Status TakeArrayKeywords(const JsonValue& schema, Search* search);
  StatusOr<bool> Impossible(const Facts& facts, Container type);
  StatusOr<bool> IsEmpty(const Conjunction& conjunction);
  bool AllowsType(const JsonValue& schema, Container type) const;
  // A schema for each of the values of `enum` or `const` that is of the type; nothing where the
  // keyword is not there.
  std::optional<std::vector<const JsonValue*>> ValuesGiven(const JsonValue& schema,
                                                           std::string_view keyword,
                                                           Container type);

  // schema_negation.cc
  // Sets `always` where nothing of the type satisfies the schema.
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
  // Some name of the language `keys` has a value as `value` says.
  Status NegateNames(const JsonValue& at, std::string_view keyword, const Facts& facts,
                     RegexId keys, Literal value, std::vector<Branch>* branches);

  // schema_containers.cc
  // Nothing where the name may not be there.
  StatusOr<std::optional<Conjunction>> ValueOf(const Facts& facts, std::string_view name);
  const JsonValue* PropertyOf(const JsonValue& schema, std::string_view name);
  StatusOr<bool> NameMatches(const JsonValue& schema, std::string_view pattern,
                             std::string_view name);
  // The names that no layer lists, by what their values must be.
  StatusOr<std::vector<KeyClass>> FreeKeys(const Facts& facts);
  void FindKeys(NameClass* names);
  StatusOr<std::vector<NameClass>> SplitByPatterns(const Facts& facts, NameClass all);
  // The value of a name that matches these patterns and is not listed.
  static Conjunction ValueWhereMatching(const Facts& facts,
                                        const std::set<std::string_view>& matching);
  std::vector<std::string_view> NamesOf(const Facts& facts) const;
  Conjunction ElementOf(const Facts& facts, int32_t index) const;
  int32_t PrefixOf(const Facts& facts) const;
  Status AddObject(RuleId rule, const Facts& facts);
  Status AddArray(RuleId rule, const Facts& facts);
  Status AddDistinctArray(RuleId rule, const Facts& facts);
  // All values that satisfy it, when they are few; no containers among them.
  StatusOr<std::optional<std::vector<RegexId>>> ValuesOf(const Conjunction& conjunction);
  // The values of enum and const in a schema, whether or not something else excludes them.
  Status GatherValues(const JsonValue& schema, int depth, std::vector<const JsonValue*>* values);
  StatusOr<bool> NameFits(const Facts& facts, std::string_view name);

  // schema_compiler.cc
  Status FillRule(RuleId rule, const Conjunction& conjunction, ValueKinds kinds, bool outside);
  Status FillQueued();
  // Strings of JSON in the style that is wanted.
  RegexId Written(RegexId strings, bool is_key);
  RegexId AnySpelling();
  RegexId ShortNumbers();
  // The objects of the layer have no other properties than it lists.
  bool IsClosed(const JsonValue& layer) const;
  RuleId RuleOf(Conjunction conjunction);
  // Takes out what is always true, and repetitions. False if the conjunction is never true, and is
  // then left half done.
  StatusOr<bool> Tidy(Conjunction* conjunction);
  // The schema that only `value` satisfies, for arrays and objects.
  const JsonValue& SchemaOf(const JsonValue& value);
  Status CheckKeywords(const JsonValue& schema);
  Status Refuse(const JsonValue& at, std::string_view keyword, std::string_view why) const;
  StatusOr<int64_t> Count(const JsonValue& schema, std::string_view keyword, int64_t otherwise);
  StatusOr<const JsonValue*> ReferenceOf(const JsonValue& schema);
  // A keyword that some dialects lack.
  const JsonValue* FindKnown(const JsonValue& schema, std::string_view keyword) const {
    return document_.Knows(keyword) ? schema.Find(keyword) : nullptr;
  }
  RegexPool& pool() { return grammar_.pool(); }
  static std::string Quoted(std::string_view name);
  static const JsonValue* AdditionalOf(const JsonValue& schema);
  static std::vector<const JsonValue*> PrefixItemsOf(const JsonValue& schema);
  static const JsonValue* RestItemsOf(const JsonValue& schema);
  // What is in the list, or the object, of a keyword; nothing where it is not there.
  static const JsonParts<JsonValue>& ListOf(const JsonValue& schema, std::string_view keyword);
  static const JsonParts<JsonMember>& MembersOf(const JsonValue& schema, std::string_view keyword);
  static bool SaysNothing(const JsonValue& schema);

  const SchemaDocument& document_;
  const ConstraintOptions options_;
  const ValueStyle style_;
  Grammar& grammar_;
  RegexId any_number_, any_string_;
  RegexId any_spelling_ = kNothing;  // of any string; kNothing before it is needed
  // [exactly]
  std::array<std::unordered_map<const JsonValue*, Scalars>, 2> scalars_;
  std::unordered_map<const JsonValue*, Scalars> opposites_;  // of negated schemas
  std::vector<const JsonValue*> open_;  // schemas whose scalars are being looked for
  std::unordered_map<const JsonValue*, const JsonValue*> references_;
  std::map<std::string, RegexId, std::less<>> patterns_;
  // Large lists of properties, by name.
  std::unordered_map<const JsonValue*, std::unordered_map<std::string_view, const JsonValue*>>
      properties_;
  std::map<Conjunction, RuleId> rules_;
  std::deque<std::pair<RuleId, Conjunction>> queue_;
  std::unordered_map<const JsonValue*, const JsonValue*> schemas_of_values_;
  JsonArena made_arena_;
  std::deque<JsonValue> made_;
  std::map<Conjunction, bool> empty_;
  std::unordered_set<const JsonValue*> checked_;
  const JsonValue* last_multiple_ = nullptr;  // the last schema that was read with a multipleOf
  int search_depth_ = 0;
  int64_t steps_ = 0;
  JsonValue true_schema_, false_schema_;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_SCHEMA_SCHEMA_COMPILER_IMPL_H_
