// The ways for an array or an object to violate a schema.
#include <algorithm>
#include <utility>

#include "constraint/regex/walk.h"
#include "constraint/schema/schema_compiler_impl.h"

namespace weft::constraint {
namespace {

constexpr size_t kMaxPairedBranches = 8;

}  // namespace

SchemaCompiler::Branch SchemaCompiler::Demand(std::vector<Literal> literals) {
  return [literals = std::move(literals)](Search* s) {
    s->todo.insert(s->todo.end(), literals.begin(), literals.end());
  };
}

Status SchemaCompiler::TakeNegative(const JsonValue& schema, Container type, const Facts& facts,
                                    std::vector<Branch>* branches, bool* always) {
  if (schema.IsBool()) {
    *always = schema.Is(JsonKind::kFalse);
    return OkStatus();
  }
  WEFT_RETURN_IF_ERROR(CheckKeywords(schema));
  WEFT_ASSIGN_OR_RETURN(const JsonValue* target, ReferenceOf(schema));
  if (target != nullptr) {
    branches->push_back(Demand({{target, true}}));
    if (document_.ref_stands_alone()) return OkStatus();
  }
  if (!AllowsType(schema, type)) {
    *always = true;
    return OkStatus();
  }
  for (const std::string_view keyword : {"enum", "const"}) {
    const auto given = ValuesGiven(schema, keyword, type);
    if (!given) continue;
    if (given->empty()) {
      *always = true;
      return OkStatus();
    }
    std::vector<Literal> none;
    none.reserve(given->size());
    for (const JsonValue* value : *given) none.push_back({value, true});
    branches->push_back(Demand(std::move(none)));
  }
  WEFT_RETURN_IF_ERROR(NegateCombinators(schema, branches));
  return type == Container::kObject ? NegateObject(schema, facts, branches)
                                    : NegateArray(schema, branches);
}

Status SchemaCompiler::NegateCombinators(const JsonValue& schema, std::vector<Branch>* branches) {
  const auto push = [&](std::vector<Literal> literals) {
    branches->push_back(Demand(std::move(literals)));
  };
  const auto all_negated = [](const JsonParts<JsonValue>& parts) {
    std::vector<Literal> literals;
    literals.reserve(parts.size());
    for (const JsonValue& part : parts) literals.push_back({&part, true});
    return literals;
  };
  for (const JsonValue& part : ListOf(schema, "allOf")) push({{&part, true}});
  if (schema.Find("anyOf") != nullptr) push(all_negated(ListOf(schema, "anyOf")));
  if (schema.Find("oneOf") != nullptr) {
    const auto& parts = ListOf(schema, "oneOf");
    if (parts.size() > kMaxPairedBranches)
      return Refuse(schema, "oneOf", "it is too large to be negated");
    push(all_negated(parts));
    for (size_t i = 0; i < parts.size(); ++i) {
      for (size_t j = 0; j < i; ++j) push({{&parts[i], false}, {&parts[j], false}});
    }
  }
  if (const JsonValue* part = schema.Find("not")) push({{part, false}});
  if (const JsonValue* condition = FindKnown(schema, "if")) {
    if (const JsonValue* then = schema.Find("then")) push({{condition, false}, {then, true}});
    if (const JsonValue* otherwise = schema.Find("else"))
      push({{condition, true}, {otherwise, true}});
  }
  return OkStatus();
}

Status SchemaCompiler::NegateObject(const JsonValue& schema, const Facts& facts,
                                    std::vector<Branch>* branches) {
  for (const JsonMember& property : MembersOf(schema, "properties")) {
    if (SaysNothing(property.value)) continue;
    branches->push_back([&property](Search* s) {
      s->facts.Require(property.name);
      s->facts.extra[property.name].push_back({&property.value, true});
    });
  }
  for (const JsonValue& name : ListOf(schema, "required")) {
    branches->push_back([&name](Search* s) { s->facts.forbidden.insert(name.text); });
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t least, Count(schema, "minProperties", 0));
  WEFT_ASSIGN_OR_RETURN(const int64_t most, Count(schema, "maxProperties", kUnlimited));
  if (least > 0) branches->push_back([least](Search* s) { s->facts.AtMost(least - 1); });
  if (most != kUnlimited) branches->push_back([most](Search* s) { s->facts.AtLeast(most + 1); });
  NegateDependents(schema, branches);
  WEFT_RETURN_IF_ERROR(NegatePatterns(schema, facts, branches));
  WEFT_RETURN_IF_ERROR(NegateAdditional(schema, facts, branches));
  return NegatePropertyNames(schema, facts, branches);
}

void SchemaCompiler::NegateDependents(const JsonValue& schema, std::vector<Branch>* branches) {
  for (const std::string_view keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    for (const JsonMember& dependent : MembersOf(schema, keyword)) {
      if (!dependent.value.Is(JsonKind::kArray)) {
        branches->push_back([&dependent](Search* s) {
          s->facts.Require(dependent.name);
          s->todo.push_back({&dependent.value, true});
        });
      }
      for (const JsonValue& item : dependent.value.items) {
        branches->push_back([&dependent, &item](Search* s) {
          s->facts.Require(dependent.name);
          s->facts.forbidden.insert(item.text);
        });
      }
    }
  }
}

Status SchemaCompiler::NegatePatterns(const JsonValue& schema, const Facts& facts,
                                      std::vector<Branch>* branches) {
  for (const JsonMember& own : MembersOf(schema, "patternProperties")) {
    if (SaysNothing(own.value)) continue;
    WEFT_ASSIGN_OR_RETURN(const RegexId keys, PatternOf(schema, "patternProperties", own.name));
    WEFT_RETURN_IF_ERROR(
        NegateNames(schema, "patternProperties", facts, keys, {&own.value, true}, branches));
  }
  return OkStatus();
}

Status SchemaCompiler::NegateAdditional(const JsonValue& schema, const Facts& facts,
                                        std::vector<Branch>* branches) {
  const JsonValue* rest = AdditionalOf(schema);
  if (rest == nullptr || SaysNothing(*rest)) return OkStatus();
  std::vector<RegexId> keys{any_string_};
  for (const auto& [name, value] : MembersOf(schema, "properties"))
    keys.push_back(pool().Not(pool().Literal(Quoted(name))));
  for (const auto& [pattern, value] : MembersOf(schema, "patternProperties")) {
    WEFT_ASSIGN_OR_RETURN(const RegexId matching, PatternOf(schema, "patternProperties", pattern));
    keys.push_back(pool().Not(matching));
  }
  return NegateNames(schema, "additionalProperties", facts, pool().And(std::move(keys)),
                     {rest, true}, branches);
}

Status SchemaCompiler::NegatePropertyNames(const JsonValue& schema, const Facts& facts,
                                           std::vector<Branch>* branches) {
  const JsonValue* names = FindKnown(schema, "propertyNames");
  if (names == nullptr) return OkStatus();
  WEFT_ASSIGN_OR_RETURN(const Scalars wrong, ScalarsOf(Conjunction{{names, true}}));
  return NegateNames(schema, "propertyNames", facts, wrong.string, {&true_schema_, false},
                     branches);
}

Status SchemaCompiler::NegateNames(const JsonValue& at, std::string_view keyword,
                                   const Facts& facts, RegexId keys, Literal value,
                                   std::vector<Branch>* branches) {
  for (const std::string_view name : NamesOf(facts)) {
    if (!pool().walk().Accepts(keys, Quoted(name))) continue;
    branches->push_back([name, value](Search* s) {
      s->facts.Require(name);
      s->facts.extra[name].push_back(value);
    });
  }
  // An unlisted name would have to be remembered until the end of the object.
  WEFT_ASSIGN_OR_RETURN(const std::vector<KeyClass> free, FreeKeys(facts));
  for (const KeyClass& known : free) {
    if (!pool().walk().IsLive(pool().And({known.keys, keys}))) continue;
    Conjunction both = known.value;
    both.push_back(value);
    WEFT_ASSIGN_OR_RETURN(const bool empty, IsEmpty(both));
    if (!empty)
      return Refuse(at, keyword,
                    "its opposite (under not or oneOf) cannot be enforced for names that are free");
  }
  return OkStatus();
}

Status SchemaCompiler::NegateArray(const JsonValue& schema, std::vector<Branch>* branches) {
  const auto prefix = PrefixItemsOf(schema);
  const auto count = static_cast<int32_t>(prefix.size());
  for (int32_t i = 0; i < count; ++i) {
    const JsonValue* item = prefix[static_cast<size_t>(i)];
    if (SaysNothing(*item)) continue;
    branches->push_back([i, item](Search* s) {
      s->facts.AtLeast(i + 1);
      s->facts.extra_at[i].push_back({item, true});
    });
  }
  if (const JsonValue* rest = RestItemsOf(schema); rest != nullptr && !SaysNothing(*rest)) {
    branches->push_back([count, rest](Search* s) {
      if (rest->Is(JsonKind::kFalse)) {
        s->facts.AtLeast(count + 1);
      } else {
        s->facts.contains.push_back({{{rest, true}}, count, 1, kUnlimited});
      }
    });
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t least, Count(schema, "minItems", 0));
  WEFT_ASSIGN_OR_RETURN(const int64_t most, Count(schema, "maxItems", kUnlimited));
  if (least > 0) branches->push_back([least](Search* s) { s->facts.AtMost(least - 1); });
  if (most != kUnlimited) branches->push_back([most](Search* s) { s->facts.AtLeast(most + 1); });
  if (const JsonValue* wanted = FindKnown(schema, "contains")) {
    WEFT_ASSIGN_OR_RETURN(const int64_t need, Count(schema, "minContains", 1));
    WEFT_ASSIGN_OR_RETURN(const int64_t allow, Count(schema, "maxContains", kUnlimited));
    if (need == 1) {
      branches->push_back([wanted](Search* s) {
        s->facts.extra_from.push_back({0, {wanted, true}});
      });
    } else if (need > 1) {
      branches->push_back([wanted, need](Search* s) {
        s->facts.contains.push_back({{{wanted, false}}, 0, 0, static_cast<int32_t>(need) - 1});
      });
    }
    if (allow != kUnlimited) {
      branches->push_back([wanted, allow](Search* s) {
        s->facts.contains.push_back(
            {{{wanted, false}}, 0, static_cast<int32_t>(allow) + 1, kUnlimited});
      });
    }
  }
  const JsonValue* unique = schema.Find("uniqueItems");
  if (unique != nullptr && unique->Is(JsonKind::kTrue)) {
    return Refuse(schema, "uniqueItems", "its opposite (under not or oneOf) cannot be enforced");
  }
  return OkStatus();
}

}  // namespace weft::constraint
