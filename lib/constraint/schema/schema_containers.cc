// Turns the facts about an array or an object into a rule.
#include <algorithm>
#include <utility>

#include "constraint/regex/characters.h"
#include "constraint/regex/numbers.h"
#include "constraint/regex/walk.h"
#include "constraint/schema/schema_compiler_impl.h"

namespace weft::constraint {
namespace {

constexpr size_t kMaxKeyClasses = 64;
constexpr size_t kManyProperties = 16;
constexpr int32_t kMaxPrefix = 1000;
constexpr int64_t kMaxElements = 1'000'000;
constexpr int64_t kMaxWanted = 1000;
constexpr size_t kMaxDistinct = 500;
constexpr int kMaxGatherDepth = 8;

}  // namespace

std::string SchemaCompiler::Quoted(std::string_view name) {
  return StrCat("\"", Spell(name, Spelling::kJson), "\"");
}

const JsonValue* SchemaCompiler::AdditionalOf(const JsonValue& schema) {
  const JsonValue* rest = schema.Find("additionalProperties");
  return rest != nullptr ? rest : schema.Find("unevaluatedProperties");
}

std::vector<const JsonValue*> SchemaCompiler::PrefixItemsOf(const JsonValue& schema) {
  const JsonValue* list = schema.Find("prefixItems");
  if (list == nullptr) list = schema.Find("items");
  std::vector<const JsonValue*> prefix;
  if (list != nullptr) {
    for (const JsonValue& item : list->items) prefix.push_back(&item);
  }
  return prefix;
}

const JsonValue* SchemaCompiler::RestItemsOf(const JsonValue& schema) {
  const JsonValue* items = schema.Find("items");
  if (items != nullptr && items->Is(JsonKind::kArray)) {
    const JsonValue* rest = schema.Find("additionalItems");
    return rest != nullptr ? rest : schema.Find("unevaluatedItems");
  }
  return items != nullptr ? items : schema.Find("unevaluatedItems");
}

bool SchemaCompiler::SaysNothing(const JsonValue& schema) {
  return schema.Is(JsonKind::kTrue) || (schema.Is(JsonKind::kObject) && schema.members.empty());
}

std::vector<std::string_view> SchemaCompiler::NamesOf(const Facts& facts) const {
  std::vector<std::string_view> names;
  std::set<std::string_view> known;
  const auto add = [&](std::string_view name) {
    if (known.insert(name).second) names.push_back(name);
  };
  for (const JsonValue* layer : facts.layers) {
    if (const JsonValue* properties = layer->Find("properties")) {
      for (const auto& [name, value] : properties->members) add(name);
    }
  }
  for (const std::string_view name : facts.required) add(name);
  for (const auto& [name, value] : facts.extra) add(name);
  for (const std::string_view name : facts.forbidden) add(name);
  return names;
}

StatusOr<bool> SchemaCompiler::NameMatches(const JsonValue& schema, std::string_view pattern,
                                           std::string_view name) {
  WEFT_ASSIGN_OR_RETURN(const RegexId keys, PatternOf(schema, "patternProperties", pattern));
  return pool().walk().Accepts(keys, Quoted(name));
}

StatusOr<bool> SchemaCompiler::NameFits(const Facts& facts, std::string_view name) {
  if (facts.names.empty()) return true;
  WEFT_ASSIGN_OR_RETURN(const Scalars names, ScalarsOf(facts.names));
  return pool().walk().Accepts(names.string, Quoted(name));
}

const JsonValue* SchemaCompiler::PropertyOf(const JsonValue& schema, std::string_view name) {
  const JsonValue* properties = schema.Find("properties");
  if (properties == nullptr) return nullptr;
  if (properties->members.size() < kManyProperties) return properties->Find(name);
  auto& known = properties_[properties];
  if (known.empty()) {
    for (const JsonMember& member : properties->members) known[member.name] = &member.value;
  }
  const auto it = known.find(name);
  return it == known.end() ? nullptr : it->second;
}

StatusOr<std::optional<Conjunction>> SchemaCompiler::ValueOf(const Facts& facts,
                                                             std::string_view name) {
  const std::optional<Conjunction> nothing;
  if (facts.forbidden.contains(name)) return nothing;
  WEFT_ASSIGN_OR_RETURN(const bool fits, NameFits(facts, name));
  if (!fits) return nothing;
  if (pool().budget().exhausted()) return TooMuchToCompile();
  Conjunction value;
  pool().budget().Spend(10 + 4 * static_cast<int64_t>(facts.layers.size()));
  for (const JsonValue* layer : facts.layers) {
    bool known = false;
    if (const JsonValue* own = PropertyOf(*layer, name)) {
      value.push_back({own, false});
      known = true;
    }
    if (const JsonValue* patterns = layer->Find("patternProperties")) {
      for (const auto& [pattern, own] : patterns->members) {
        WEFT_ASSIGN_OR_RETURN(const bool matches, NameMatches(*layer, pattern, name));
        if (matches) value.push_back({&own, false});
        known |= matches;
      }
    }
    if (const JsonValue* rest = AdditionalOf(*layer); rest != nullptr && !known)
      value.push_back({rest, false});
  }
  if (const auto it = facts.extra.find(name); it != facts.extra.end()) {
    value.insert(value.end(), it->second.begin(), it->second.end());
  }
  WEFT_ASSIGN_OR_RETURN(const bool possible, Tidy(&value));
  return possible ? std::optional(std::move(value)) : nothing;
}

void SchemaCompiler::FindKeys(NameClass* names) {
  std::vector<RegexId> parts = names->is;
  if (parts.empty()) parts.push_back(any_string_);
  for (const RegexId other : names->is_not) parts.push_back(pool().Not(other));
  names->keys = pool().And(std::move(parts));
}

StatusOr<std::vector<SchemaCompiler::NameClass>> SchemaCompiler::SplitByPatterns(const Facts& facts,
                                                                                 NameClass all) {
  FindKeys(&all);
  std::vector<NameClass> classes{std::move(all)};
  std::set<std::string_view> patterns;
  for (const JsonValue* layer : facts.layers) {
    for (const auto& [pattern, value] : MembersOf(*layer, "patternProperties")) {
      if (!patterns.insert(pattern).second) continue;
      WEFT_ASSIGN_OR_RETURN(const RegexId keys, PatternOf(*layer, "patternProperties", pattern));
      std::vector<NameClass> split;
      for (const NameClass& part : classes) {
        NameClass with = part, without = part;
        with.is.push_back(keys);
        with.matching.insert(pattern);
        without.is_not.push_back(keys);
        for (NameClass* const one : {&with, &without}) {
          FindKeys(one);
          if (pool().walk().IsLive(one->keys)) split.push_back(std::move(*one));
        }
      }
      if (split.size() > kMaxKeyClasses)
        return Refuse(*layer, "patternProperties", "there are too many that overlap");
      classes = std::move(split);
    }
  }
  return classes;
}

Conjunction SchemaCompiler::ValueWhereMatching(const Facts& facts,
                                               const std::set<std::string_view>& matching) {
  Conjunction value;
  for (const JsonValue* layer : facts.layers) {
    bool known = false;
    for (const auto& [pattern, own] : MembersOf(*layer, "patternProperties")) {
      if (!matching.contains(pattern)) continue;
      value.push_back({&own, false});
      known = true;
    }
    if (const JsonValue* rest = AdditionalOf(*layer); rest != nullptr && !known)
      value.push_back({rest, false});
  }
  return value;
}

StatusOr<std::vector<KeyClass>> SchemaCompiler::FreeKeys(const Facts& facts) {
  std::vector<std::string> listed;
  for (const std::string_view name : NamesOf(facts)) listed.push_back(Quoted(name));
  NameClass all;
  if (!listed.empty()) all.is_not.push_back(pool().AnyOf(listed));
  if (!facts.names.empty()) {
    WEFT_ASSIGN_OR_RETURN(const Scalars names, ScalarsOf(facts.names));
    if (names.string != any_string_) all.is.push_back(names.string);
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<NameClass> classes,
                        SplitByPatterns(facts, std::move(all)));
  std::vector<KeyClass> result;
  for (const NameClass& part : classes) {
    KeyClass made{part.keys, ValueWhereMatching(facts, part.matching)};
    WEFT_ASSIGN_OR_RETURN(const bool possible, Tidy(&made.value));
    if (possible && pool().walk().IsLive(made.keys)) result.push_back(std::move(made));
  }
  return result;
}

Status SchemaCompiler::AddObject(RuleId rule, const Facts& facts) {
  std::vector<PropertySpec> properties;
  ObjectSpec object{.least = static_cast<int32_t>(facts.least),
                    .most = static_cast<int32_t>(facts.most)};
  const std::set<std::string_view> all_required(facts.required.begin(), facts.required.end());
  for (const std::string_view name : NamesOf(facts)) {
    const bool required = all_required.contains(name);
    WEFT_ASSIGN_OR_RETURN(auto value, ValueOf(facts, name));
    if (!value && required) return OkStatus();  // no such object is possible
    if (!value) continue;
    properties.push_back({.key = Written(pool().Literal(Quoted(name)), true),
                          .value = RuleOf(*value),
                          .required = required});
  }
  // Unlisted names need no work if no more properties may come.
  const bool full =
      (facts.most != kUnlimited && facts.most <= static_cast<int64_t>(facts.required.size())) ||
      std::ranges::any_of(facts.layers, [&](const JsonValue* layer) { return IsClosed(*layer); });
  if (!full) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<KeyClass> free, FreeKeys(facts));
    for (const KeyClass& keys : free) {
      properties.push_back(
          {.key = Written(keys.keys, true), .value = RuleOf(keys.value), .many = true});
    }
    // A free name can occur twice, but counts only once.
    const auto required = static_cast<int64_t>(facts.required.size());
    if (!free.empty() && facts.least > required + 1) {
      return Refuse(facts.layers.empty() ? document_.root() : *facts.layers[0], "minProperties",
                    "more names than one that are not listed as required cannot be counted");
    }
  }
  object.in_order = !style_.any_order && options_.property_order == PropertyOrder::kSchema;
  grammar_.AddAlternative(rule, {grammar_.Object(std::move(object), properties)});
  return OkStatus();
}

int32_t SchemaCompiler::PrefixOf(const Facts& facts) const {
  size_t prefix = 0;
  for (const JsonValue* layer : facts.layers)
    prefix = std::max(prefix, PrefixItemsOf(*layer).size());
  for (const auto& [index, value] : facts.extra_at)
    prefix = std::max(prefix, static_cast<size_t>(index) + 1);
  for (const auto& [from, value] : facts.extra_from)
    prefix = std::max(prefix, static_cast<size_t>(from));
  for (const ContainsFact& fact : facts.contains)
    prefix = std::max(prefix, static_cast<size_t>(fact.from));
  return static_cast<int32_t>(prefix);
}

Conjunction SchemaCompiler::ElementOf(const Facts& facts, int32_t index) const {
  Conjunction element;
  for (const JsonValue* layer : facts.layers) {
    const auto prefix = PrefixItemsOf(*layer);
    if (static_cast<size_t>(index) < prefix.size()) {
      element.push_back({prefix[static_cast<size_t>(index)], false});
    } else if (const JsonValue* rest = RestItemsOf(*layer)) {
      element.push_back({rest, false});
    }
  }
  if (const auto it = facts.extra_at.find(index); it != facts.extra_at.end()) {
    element.insert(element.end(), it->second.begin(), it->second.end());
  }
  for (const auto& [from, literal] : facts.extra_from) {
    if (index >= from) element.push_back(literal);
  }
  return element;
}

Status SchemaCompiler::GatherValues(const JsonValue& schema, int depth,
                                    std::vector<const JsonValue*>* values) {
  if (!schema.Is(JsonKind::kObject) || depth > kMaxGatherDepth || values->size() > kMaxDistinct)
    return OkStatus();
  if (const JsonValue* value = FindKnown(schema, "const")) values->push_back(value);
  if (const JsonValue* list = schema.Find("enum")) {
    for (const JsonValue& value : list->items) values->push_back(&value);
  }
  WEFT_ASSIGN_OR_RETURN(const JsonValue* target, ReferenceOf(schema));
  if (target != nullptr) WEFT_RETURN_IF_ERROR(GatherValues(*target, depth + 1, values));
  for (const std::string_view keyword : {"allOf", "anyOf", "oneOf"}) {
    const JsonValue* parts = schema.Find(keyword);
    if (parts == nullptr) continue;
    for (const JsonValue& part : parts->items) {
      WEFT_RETURN_IF_ERROR(GatherValues(part, depth + 1, values));
    }
  }
  return OkStatus();
}

StatusOr<std::optional<std::vector<RegexId>>> SchemaCompiler::ValuesOf(
    const Conjunction& conjunction) {
  const std::optional<std::vector<RegexId>> unknown;
  WEFT_ASSIGN_OR_RETURN(const Scalars scalars, ScalarsOf(conjunction));
  for (const Container type : {Container::kArray, Container::kObject}) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<Facts> ways, Expand(conjunction, type));
    if (!ways.empty()) return unknown;
  }
  std::vector<const JsonValue*> given;
  for (const Literal& literal : conjunction) {
    if (!literal.negated) WEFT_RETURN_IF_ERROR(GatherValues(*literal.schema, 0, &given));
  }
  std::vector<RegexId> numbers, strings;
  for (const JsonValue* value : given) {
    if (value->Is(JsonKind::kNumber)) {
      const auto decimal = ReadDecimal(value->text);
      if (!decimal) return unknown;
      const RegexId equal = pool().And({EqualTo(&pool(), *decimal, true), scalars.number});
      if (pool().walk().IsLive(equal)) numbers.push_back(equal);
    } else if (value->Is(JsonKind::kString)) {
      const std::string spelled = Quoted(value->text);
      if (pool().walk().Accepts(scalars.string, spelled))
        strings.push_back(pool().Literal(spelled));
    }
  }
  std::vector<RegexId> all;
  for (auto* list : {&numbers, &strings}) {
    std::ranges::sort(*list);
    list->erase(std::unique(list->begin(), list->end()), list->end());
    all.insert(all.end(), list->begin(), list->end());
    // The schemas may allow other values than those found.
    const RegexId allowed = list == &numbers ? scalars.number : scalars.string;
    if (pool().walk().IsLive(pool().AndNot(allowed, pool().Or(*list)))) return unknown;
  }
  if (scalars.null) all.push_back(pool().Literal("null"));
  if (scalars.yes) all.push_back(pool().Literal("true"));
  if (scalars.no) all.push_back(pool().Literal("false"));
  return all.size() > kMaxDistinct ? unknown : std::optional(std::move(all));
}

Status SchemaCompiler::AddDistinctArray(RuleId rule, const Facts& facts) {
  const auto refuse = [&](std::string_view why) {
    return Refuse(*facts.distinct, "uniqueItems", why);
  };
  if (!facts.contains.empty()) return refuse("next to contains it cannot be enforced");
  if (PrefixOf(facts) > 0)
    return refuse("next to elements that differ by place it cannot be enforced");
  DistinctSpec distinct{.least = static_cast<int32_t>(facts.least),
                        .most = static_cast<int32_t>(facts.most)};
  Conjunction element = ElementOf(facts, 0);
  WEFT_ASSIGN_OR_RETURN(const bool possible, Tidy(&element));
  if (possible) {
    WEFT_ASSIGN_OR_RETURN(auto values, ValuesOf(element));
    if (!values) {
      return refuse("that no two elements are equal can be enforced for listed values only");
    }
    distinct.values = *std::move(values);
  }
  grammar_.AddAlternative(rule, {grammar_.Distinct(std::move(distinct))});
  return OkStatus();
}

Status SchemaCompiler::AddArray(RuleId rule, const Facts& facts) {
  const bool several = facts.most == kUnlimited || facts.most > 1;
  if (facts.distinct != nullptr && several) return AddDistinctArray(rule, facts);
  const JsonValue& at = facts.layers.empty() ? document_.root() : *facts.layers[0];
  ArraySpec array{.least = static_cast<int32_t>(facts.least),
                  .most = static_cast<int32_t>(facts.most)};
  if (facts.least > kMaxElements || facts.most > kMaxElements) {
    return Refuse(at, "minItems", "more than a million elements cannot be counted");
  }
  if (facts.contains.size() > 1)
    return Refuse(at, "contains", "more than one at a time cannot be enforced");
  const int32_t prefix = PrefixOf(facts);
  if (prefix > kMaxPrefix) return Refuse(at, "prefixItems", "there are too many");
  const ContainsFact* contains = facts.contains.empty() ? nullptr : &facts.contains[0];
  const auto rule_of = [&](Conjunction element, const Conjunction& more,
                           bool negated) -> StatusOr<RuleId> {
    for (Literal literal : more) {
      literal.negated ^= negated;
      element.push_back(literal);
    }
    WEFT_ASSIGN_OR_RETURN(const bool possible, Tidy(&element));
    return possible ? RuleOf(std::move(element)) : kNoRule;
  };
  for (int32_t i = 0; i <= prefix; ++i) {
    const Conjunction element = ElementOf(facts, i);
    const bool rest = i == prefix;
    const bool concerned = contains != nullptr && i >= contains->from;
    WEFT_ASSIGN_OR_RETURN(const RuleId plain, rule_of(element, {}, false));
    RuleId wanted = kNoRule, others = plain;
    if (concerned) {
      WEFT_ASSIGN_OR_RETURN(wanted, rule_of(element, contains->wanted, false));
      if (contains->allow != kUnlimited) {
        WEFT_ASSIGN_OR_RETURN(others, rule_of(element, contains->wanted, true));
      }
    }
    if (rest) {
      array.rest = plain, array.wanted = wanted, array.others = others;
    } else {
      array.prefix.push_back(plain);
      array.wanted_prefix.push_back(wanted);
      array.others_prefix.push_back(others);
    }
  }
  if (contains != nullptr) {
    if (contains->need > kMaxWanted || contains->allow > kMaxWanted) {
      return Refuse(at, "minContains", "more than 1000 elements cannot be counted");
    }
    array.need = contains->need;
    array.allow = contains->allow;
  }
  grammar_.AddAlternative(rule, {grammar_.Array(std::move(array))});
  return OkStatus();
}

}  // namespace weft::constraint
