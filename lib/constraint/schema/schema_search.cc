// The ways for an array or an object to satisfy a conjunction of schemas.
#include <algorithm>
#include <span>
#include <utility>

#include "constraint/schema/schema_compiler_impl.h"

namespace weft::constraint {
namespace {

constexpr int64_t kMaxSteps = 20000;
constexpr size_t kMaxWays = 256;
constexpr int kMaxSearchDepth = 4;
constexpr int32_t kMaxElementFacts = 1000;
constexpr size_t kManyNames = 8;  // a linear search is faster for fewer

}  // namespace

void Facts::Require(const JsonParts<JsonValue>& names) {
  if (names.size() < kManyNames) {
    for (const JsonValue& name : names) Require(name.text);
    return;
  }
  std::set<std::string_view> known(required.begin(), required.end());
  std::vector<std::string_view> more;
  for (const JsonValue& name : names) {
    if (known.insert(name.text).second) more.push_back(name.text);
  }
  required.insert(required.end(), more.begin(), more.end());
}

void Facts::Require(std::string_view name) {
  if (std::ranges::find(required, name) == required.end()) required.push_back(name);
}

void Facts::AtMost(int64_t count) { most = most == kUnlimited ? count : std::min(most, count); }

const JsonParts<JsonValue>& SchemaCompiler::ListOf(const JsonValue& schema,
                                                   std::string_view keyword) {
  static const JsonParts<JsonValue> none;
  const JsonValue* value = schema.Find(keyword);
  return value == nullptr ? none : value->items;
}

const JsonParts<JsonMember>& SchemaCompiler::MembersOf(const JsonValue& schema,
                                                       std::string_view keyword) {
  static const JsonParts<JsonMember> none;
  const JsonValue* value = schema.Find(keyword);
  return value == nullptr ? none : value->members;
}

bool SchemaCompiler::AllowsType(const JsonValue& schema, Container type) const {
  const JsonValue* named = schema.Find("type");
  if (named == nullptr) return true;
  const std::string_view wanted = type == Container::kArray ? "array" : "object";
  if (named->Is(JsonKind::kString)) return named->text == wanted;
  return std::ranges::any_of(named->items,
                             [&](const JsonValue& item) { return item.text == wanted; });
}

StatusOr<std::vector<Facts>> SchemaCompiler::Expand(const Conjunction& conjunction,
                                                    Container type) {
  std::vector<Facts> ways;
  WEFT_RETURN_IF_ERROR(Run(SearchFor(conjunction), type, /*only_one=*/false, &ways));
  return ways;
}

StatusOr<bool> SchemaCompiler::HasWay(Search search, Container type) {
  std::vector<Facts> ways;
  WEFT_RETURN_IF_ERROR(Run(std::move(search), type, /*only_one=*/true, &ways));
  return !ways.empty();
}

SchemaCompiler::Search SchemaCompiler::SearchFor(const Conjunction& conjunction) {
  Search search;
  search.todo.assign(conjunction.rbegin(), conjunction.rend());
  return search;
}

Status SchemaCompiler::Run(Search search, Container type, bool only_one, std::vector<Facts>* out) {
  if (++steps_ > kMaxSteps || pool().budget().exhausted()) {
    return ResourceExhausted("the schema has too many combinations; make it simpler");
  }
  int taken = 0;
  // The parts that are copied for every branch.
  size_t parts = search.todo.size() + search.later.size() + search.facts.layers.size() +
                 search.facts.required.size();
  for (const Choice& choice : search.choices) parts += 2 + choice->size();
  pool().budget().Spend(20 + static_cast<int64_t>(parts));
  while (!search.todo.empty()) {
    const Literal literal = search.todo.back();
    search.todo.pop_back();
    if (++taken > 1000) return Refuse(*literal.schema, "$ref", "it leads back to itself");
    if (literal.negated) {
      search.later.push_back(literal);
      continue;
    }
    WEFT_RETURN_IF_ERROR(TakePositive(*literal.schema, type, &search));
    if (search.impossible) return OkStatus();
  }
  Choice choice;
  if (!search.choices.empty()) {
    choice = std::move(search.choices.back());
    search.choices.pop_back();
  } else {
    WEFT_ASSIGN_OR_RETURN(const bool impossible, Impossible(search.facts, type));
    if (impossible) return OkStatus();
    if (search.later.empty()) {
      if (out->size() >= kMaxWays) {
        return ResourceExhausted("the schema has too many combinations; make it simpler");
      }
      out->push_back(std::move(search.facts));
      return OkStatus();
    }
    const Literal literal = search.later.back();
    search.later.pop_back();
    WEFT_ASSIGN_OR_RETURN(bool always, IsRedundant(search, literal, type));
    std::vector<Branch> branches;
    if (!always) {
      WEFT_RETURN_IF_ERROR(TakeNegative(*literal.schema, type, search.facts, &branches, &always));
    }
    if (always) return Run(std::move(search), type, only_one, out);
    choice = std::make_shared<const std::vector<Branch>>(std::move(branches));
  }
  const auto take = [&](const Branch& branch, Search next) {
    branch(&next);
    return next.impossible ? OkStatus() : Run(std::move(next), type, only_one, out);
  };
  if (choice->empty()) return OkStatus();
  for (const Branch& branch : std::span(*choice).first(choice->size() - 1)) {
    WEFT_RETURN_IF_ERROR(take(branch, search));
    if (only_one && !out->empty()) return OkStatus();
  }
  return take(choice->back(), std::move(search));
}

// Whether the known facts already rule out the schema.
StatusOr<bool> SchemaCompiler::IsRedundant(const Search& search, const Literal& literal,
                                           Container type) {
  if (search_depth_ >= kMaxSearchDepth) return false;
  ++search_depth_;
  Search probe;
  probe.facts = search.facts;
  probe.todo.push_back({literal.schema, false});
  const StatusOr<bool> has_way = HasWay(std::move(probe), type);
  --search_depth_;
  // If the search is not supported, the schema does not count as ruled out. (Building the error
  // message is expensive.)
  if (!has_way.ok()) pool().budget().Spend(200);
  if (has_way.status().code() == StatusCode::kUnimplemented) return false;
  WEFT_RETURN_IF_ERROR(has_way.status());
  return !*has_way;
}

Status SchemaCompiler::TakePositive(const JsonValue& schema, Container type, Search* search) {
  if (schema.IsBool()) {
    search->impossible = schema.Is(JsonKind::kFalse);
    return OkStatus();
  }
  if (!schema.Is(JsonKind::kObject)) {
    return InvalidArgument("at ", document_.PathOf(schema),
                           " is no schema: it must be an object or a boolean");
  }
  WEFT_RETURN_IF_ERROR(CheckKeywords(schema));
  WEFT_ASSIGN_OR_RETURN(const JsonValue* target, ReferenceOf(schema));
  if (target != nullptr) {
    search->todo.push_back({target, false});
    if (document_.ref_stands_alone()) return OkStatus();
  }
  if (!AllowsType(schema, type)) {
    search->impossible = true;
    return OkStatus();
  }
  for (const std::string_view keyword : {"enum", "const"}) {
    const auto given = ValuesGiven(schema, keyword, type);
    if (!given) continue;
    std::vector<Branch> branches;
    branches.reserve(given->size());
    for (const JsonValue* only : *given) {
      branches.push_back([only](Search* s) { s->todo.push_back({only, false}); });
    }
    search->Choose(std::move(branches));
  }
  TakeCombinators(schema, search);
  TakeCondition(schema, search);
  return type == Container::kObject ? TakeObjectKeywords(schema, search)
                                    : TakeArrayKeywords(schema, search);
}

std::optional<std::vector<const JsonValue*>> SchemaCompiler::ValuesGiven(const JsonValue& schema,
                                                                         std::string_view keyword,
                                                                         Container type) {
  const JsonValue* given = FindKnown(schema, keyword);
  if (given == nullptr) return std::nullopt;
  const JsonKind kind = type == Container::kArray ? JsonKind::kArray : JsonKind::kObject;
  std::vector<const JsonValue*> schemas;
  const auto add = [&](const JsonValue& value) {
    if (value.Is(kind)) schemas.push_back(&SchemaOf(value));
  };
  if (keyword == "const") {
    add(*given);
  } else {
    std::ranges::for_each(given->items, add);
  }
  return schemas;
}

void SchemaCompiler::TakeCombinators(const JsonValue& schema, Search* search) {
  const auto& all = ListOf(schema, "allOf");
  for (size_t i = all.size(); i-- > 0;) search->todo.push_back({&all[i], false});
  if (schema.Find("anyOf") != nullptr) {
    std::vector<Branch> branches;
    for (const JsonValue& part : ListOf(schema, "anyOf")) {
      branches.push_back([&part](Search* s) { s->todo.push_back({&part, false}); });
    }
    search->Choose(std::move(branches));
  }
  if (schema.Find("oneOf") != nullptr) {
    std::vector<Branch> branches;
    const auto& parts = ListOf(schema, "oneOf");
    branches.reserve(parts.size());
    for (const JsonValue& part : parts) {
      branches.push_back([&part, &parts](Search* s) {
        for (const JsonValue& other : parts) {
          if (&other != &part) s->later.push_back({&other, true});
        }
        s->todo.push_back({&part, false});
      });
    }
    search->Choose(std::move(branches));
  }
  if (const JsonValue* part = schema.Find("not")) search->todo.push_back({part, true});
}

void SchemaCompiler::TakeCondition(const JsonValue& schema, Search* search) {
  const JsonValue* condition = FindKnown(schema, "if");
  const JsonValue* then = schema.Find("then");
  const JsonValue* otherwise = schema.Find("else");
  if (condition == nullptr || (then == nullptr && otherwise == nullptr)) return;
  std::vector<Branch> branches(2);
  branches[0] = [=](Search* s) {
    if (then != nullptr) s->todo.push_back({then, false});
    s->todo.push_back({condition, false});
  };
  branches[1] = [=](Search* s) {
    s->todo.push_back({condition, true});
    if (otherwise != nullptr) s->todo.push_back({otherwise, false});
  };
  search->Choose(std::move(branches));
}

Status SchemaCompiler::TakeObjectKeywords(const JsonValue& schema, Search* search) {
  Facts& facts = search->facts;
  if (schema.Find("properties") != nullptr || schema.Find("patternProperties") != nullptr ||
      AdditionalOf(schema) != nullptr) {
    facts.layers.push_back(&schema);
  }
  facts.Require(ListOf(schema, "required"));
  WEFT_ASSIGN_OR_RETURN(const int64_t least, Count(schema, "minProperties", 0));
  WEFT_ASSIGN_OR_RETURN(const int64_t most, Count(schema, "maxProperties", kUnlimited));
  facts.AtLeast(least);
  if (most != kUnlimited) facts.AtMost(most);
  if (const JsonValue* names = FindKnown(schema, "propertyNames"))
    facts.names.push_back({names, false});
  const auto depend = [&](std::string_view name, Branch also) {
    std::vector<Branch> branches(2);
    branches[0] = [name, also = std::move(also)](Search* s) {
      s->facts.Require(name);
      also(s);
    };
    branches[1] = [name](Search* s) { s->facts.forbidden.insert(name); };
    search->Choose(std::move(branches));
  };
  for (const std::string_view keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    for (const auto& [name, then] : MembersOf(schema, keyword)) {
      const JsonValue* needs = &then;
      if (then.Is(JsonKind::kArray)) {
        if (then.items.empty()) continue;
        depend(name, [needs](Search* s) { s->facts.Require(needs->items); });
      } else {
        depend(name, [needs](Search* s) { s->todo.push_back({needs, false}); });
      }
    }
  }
  return OkStatus();
}

Status SchemaCompiler::TakeArrayKeywords(const JsonValue& schema, Search* search) {
  Facts& facts = search->facts;
  if (!PrefixItemsOf(schema).empty() || RestItemsOf(schema) != nullptr)
    facts.layers.push_back(&schema);
  WEFT_ASSIGN_OR_RETURN(const int64_t least, Count(schema, "minItems", 0));
  WEFT_ASSIGN_OR_RETURN(const int64_t most, Count(schema, "maxItems", kUnlimited));
  facts.AtLeast(least);
  if (most != kUnlimited) facts.AtMost(most);
  if (const JsonValue* wanted = FindKnown(schema, "contains")) {
    WEFT_ASSIGN_OR_RETURN(const int64_t need, Count(schema, "minContains", 1));
    WEFT_ASSIGN_OR_RETURN(const int64_t allow, Count(schema, "maxContains", kUnlimited));
    if (need > 0 || allow != kUnlimited) {
      facts.contains.push_back(
          {{{wanted, false}}, 0, static_cast<int32_t>(need), static_cast<int32_t>(allow)});
    }
  }
  const JsonValue* unique = schema.Find("uniqueItems");
  if (unique != nullptr && unique->Is(JsonKind::kTrue)) facts.distinct = &schema;
  return OkStatus();
}

StatusOr<bool> SchemaCompiler::Impossible(const Facts& facts, Container type) {
  if (facts.most != kUnlimited && facts.least > facts.most) return true;
  if (type == Container::kArray) {
    for (int32_t i = 0;
         i < std::min<int64_t>(facts.least, std::min(PrefixOf(facts) + 1, kMaxElementFacts)); ++i) {
      const Conjunction element = ElementOf(facts, i);
      if (element.size() < 2 && (element.empty() || !element[0].schema->Is(JsonKind::kFalse)))
        continue;
      WEFT_ASSIGN_OR_RETURN(const bool empty, IsEmpty(element));
      if (empty) return true;
    }
    return false;
  }
  if (facts.most != kUnlimited && static_cast<int64_t>(facts.required.size()) > facts.most)
    return true;
  for (const std::string_view name : facts.required) {
    WEFT_ASSIGN_OR_RETURN(auto value, ValueOf(facts, name));
    if (!value) return true;
    if (value->size() < 2) continue;
    WEFT_ASSIGN_OR_RETURN(const bool empty, IsEmpty(*value));
    if (empty) return true;
  }
  return false;
}

// Whether no value satisfies the conjunction. May be false if that is not known.
StatusOr<bool> SchemaCompiler::IsEmpty(const Conjunction& given) {
  Conjunction conjunction = given;
  WEFT_ASSIGN_OR_RETURN(const bool possible, Tidy(&conjunction));
  if (!possible) return true;
  if (conjunction.empty()) return false;
  Conjunction key = conjunction;
  std::ranges::sort(key);
  if (const auto it = empty_.find(key); it != empty_.end()) return it->second;
  WEFT_ASSIGN_OR_RETURN(const Scalars scalars, ScalarsOf(conjunction));
  if (scalars.null || scalars.yes || scalars.no || scalars.number != kNothing ||
      scalars.string != kNothing) {
    return empty_[key] = false;
  }
  if (search_depth_ >= kMaxSearchDepth) return false;
  ++search_depth_;
  bool empty = true;
  for (const Container type : {Container::kArray, Container::kObject}) {
    if (!empty) break;
    const StatusOr<bool> has_way = HasWay(SearchFor(conjunction), type);
    if (!has_way.ok() && has_way.status().code() != StatusCode::kUnimplemented) {
      --search_depth_;
      return has_way.status();
    }
    empty = has_way.ok() && !*has_way;
  }
  --search_depth_;
  empty_[key] = empty;
  return empty;
}

}  // namespace weft::constraint
