// All ways for an array or an object to satisfy a conjunction of schemas.
#include <algorithm>

#include "constraint/schema/schema_compiler_impl.h"

namespace weft::constraint {
namespace {

constexpr int64_t kMostSteps = 20000;
constexpr size_t kMostWays = 256;
constexpr int kMostSearchDepth = 4;
constexpr size_t kMostPairedBranches = 8;
constexpr int32_t kMostElementFacts = 1000;

const std::vector<JsonValue>& ListOf(const JsonValue& schema, std::string_view keyword) {
  static const std::vector<JsonValue> none;
  const JsonValue* value = schema.Find(keyword);
  return value == nullptr ? none : value->items;
}

const std::vector<JsonMember>& MembersOf(const JsonValue& schema, std::string_view keyword) {
  static const std::vector<JsonMember> none;
  const JsonValue* value = schema.Find(keyword);
  return value == nullptr ? none : value->members;
}

// Many at once, which are looked up once each.
void Require(Facts* facts, const std::vector<JsonValue>& names) {
  std::set<std::string_view> known(facts->required.begin(), facts->required.end());
  std::vector<std::string> more;
  for (const JsonValue& name : names) {
    if (known.insert(name.text).second) more.push_back(name.text);
  }
  facts->required.insert(facts->required.end(), more.begin(), more.end());
}

void Require(Facts* facts, const std::string& name) {
  if (std::ranges::find(facts->required, name) == facts->required.end())
    facts->required.push_back(name);
}

void AtLeastThis(Facts* facts, int64_t least) { facts->least = std::max(facts->least, least); }
void AtMostThis(Facts* facts, int64_t most) {
  facts->most = facts->most == kUnlimited ? most : std::min(facts->most, most);
}

}  // namespace

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
  Search search;
  search.todo.assign(conjunction.rbegin(), conjunction.rend());
  WEFT_RETURN_IF_ERROR(Run(std::move(search), type, &ways));
  return ways;
}

Status SchemaCompiler::Run(Search search, Container type, std::vector<Facts>* out) {
  if (++steps_ > kMostSteps || pool().exhausted()) {
    return ResourceExhausted("the schema has too many combinations; make it simpler");
  }
  int taken = 0;
  // What is copied for every branch.
  size_t parts = search.todo.size() + search.later.size() + search.facts.layers.size() +
                 search.facts.required.size();
  for (const std::vector<Branch>& choice : search.choices) parts += 2 + choice.size();
  pool().Charge(20 + static_cast<int64_t>(parts));
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
  std::vector<Branch> branches;
  if (!search.choices.empty()) {
    branches = std::move(search.choices.back());
    search.choices.pop_back();
  } else {
    WEFT_ASSIGN_OR_RETURN(const bool impossible, Impossible(search.facts, type));
    if (impossible) return OkStatus();
    if (search.later.empty()) {
      if (out->size() >= kMostWays) {
        return ResourceExhausted("the schema has too many combinations; make it simpler");
      }
      out->push_back(std::move(search.facts));
      return OkStatus();
    }
    const Literal literal = search.later.back();
    search.later.pop_back();
    WEFT_ASSIGN_OR_RETURN(bool always, IsRedundant(search, literal, type));
    if (!always) {
      WEFT_RETURN_IF_ERROR(TakeNegative(*literal.schema, type, search.facts, &branches, &always));
    }
    if (always) return Run(std::move(search), type, out);
  }
  for (const Branch& branch : branches) {
    Search next = search;
    branch(&next);
    if (!next.impossible) WEFT_RETURN_IF_ERROR(Run(std::move(next), type, out));
  }
  return OkStatus();
}

// Whether what is known already rules out the schema.
StatusOr<bool> SchemaCompiler::IsRedundant(const Search& search, const Literal& literal,
                                           Container type) {
  if (search_depth_ >= kMostSearchDepth) return false;
  ++search_depth_;
  Search probe;
  probe.facts = search.facts;
  probe.todo.push_back({literal.schema, false});
  std::vector<Facts> ways;
  const Status status = Run(std::move(probe), type, &ways);
  --search_depth_;
  // What cannot be searched is not known to be ruled out. (The sentence that says so is dear.)
  if (!status.ok()) pool().Charge(200);
  if (status.code() == StatusCode::kUnimplemented) return false;
  WEFT_RETURN_IF_ERROR(status);
  return ways.empty();
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
  const JsonKind kind = type == Container::kArray ? JsonKind::kArray : JsonKind::kObject;
  const auto choose = [&](const std::vector<const JsonValue*>& values) {
    std::vector<Branch> branches;
    for (const JsonValue* value : values) {
      if (!value->Is(kind)) continue;
      const JsonValue* only = &SchemaOf(*value);
      branches.push_back([only](Search* s) { s->todo.push_back({only, false}); });
    }
    search->choices.push_back(std::move(branches));
  };
  if (schema.Find("enum") != nullptr) {
    std::vector<const JsonValue*> values;
    for (const JsonValue& value : ListOf(schema, "enum")) values.push_back(&value);
    choose(values);
  }
  if (const JsonValue* value = FindKnown(schema, "const")) choose({value});
  const auto& all = ListOf(schema, "allOf");
  for (size_t i = all.size(); i-- > 0;) search->todo.push_back({&all[i], false});
  if (schema.Find("anyOf") != nullptr) {
    std::vector<Branch> branches;
    for (const JsonValue& part : ListOf(schema, "anyOf")) {
      branches.push_back([&part](Search* s) { s->todo.push_back({&part, false}); });
    }
    search->choices.push_back(std::move(branches));
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
    search->choices.push_back(std::move(branches));
  }
  if (const JsonValue* part = schema.Find("not")) search->todo.push_back({part, true});
  const JsonValue* condition = FindKnown(schema, "if");
  const JsonValue* then = schema.Find("then");
  const JsonValue* otherwise = schema.Find("else");
  if (condition != nullptr && (then != nullptr || otherwise != nullptr)) {
    std::vector<Branch> branches(2);
    branches[0] = [=](Search* s) {
      if (then != nullptr) s->todo.push_back({then, false});
      s->todo.push_back({condition, false});
    };
    branches[1] = [=](Search* s) {
      s->todo.push_back({condition, true});
      if (otherwise != nullptr) s->todo.push_back({otherwise, false});
    };
    search->choices.push_back(std::move(branches));
  }
  return type == Container::kObject ? TakeObjectKeywords(schema, search)
                                    : TakeArrayKeywords(schema, search);
}

Status SchemaCompiler::TakeObjectKeywords(const JsonValue& schema, Search* search) {
  Facts& facts = search->facts;
  if (schema.Find("properties") != nullptr || schema.Find("patternProperties") != nullptr ||
      AdditionalOf(schema) != nullptr) {
    facts.layers.push_back(&schema);
  }
  Require(&facts, ListOf(schema, "required"));
  WEFT_ASSIGN_OR_RETURN(const int64_t least, Count(schema, "minProperties", 0));
  WEFT_ASSIGN_OR_RETURN(const int64_t most, Count(schema, "maxProperties", kUnlimited));
  AtLeastThis(&facts, least);
  if (most != kUnlimited) AtMostThis(&facts, most);
  if (const JsonValue* names = FindKnown(schema, "propertyNames"))
    facts.names.push_back({names, false});
  const auto depend = [&](const std::string& name, Branch also) {
    std::vector<Branch> branches(2);
    branches[0] = [&name, also = std::move(also)](Search* s) {
      Require(&s->facts, name);
      also(s);
    };
    branches[1] = [&name](Search* s) { s->facts.forbidden.insert(name); };
    search->choices.push_back(std::move(branches));
  };
  for (const std::string_view keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    for (const auto& [name, then] : MembersOf(schema, keyword)) {
      const JsonValue* needs = &then;
      if (then.Is(JsonKind::kArray)) {
        if (then.items.empty()) continue;
        depend(name, [needs](Search* s) { Require(&s->facts, needs->items); });
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
  AtLeastThis(&facts, least);
  if (most != kUnlimited) AtMostThis(&facts, most);
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

Status SchemaCompiler::TakeNegative(const JsonValue& schema, Container type, const Facts& facts,
                                    std::vector<Branch>* branches, bool* always) {
  const auto push = [&](std::vector<Literal> literals) {
    branches->push_back([literals = std::move(literals)](Search* s) {
      s->todo.insert(s->todo.end(), literals.begin(), literals.end());
    });
  };
  if (schema.IsBool()) {
    *always = schema.Is(JsonKind::kFalse);
    return OkStatus();
  }
  WEFT_RETURN_IF_ERROR(CheckKeywords(schema));
  WEFT_ASSIGN_OR_RETURN(const JsonValue* target, ReferenceOf(schema));
  if (target != nullptr) {
    push({{target, true}});
    if (document_.ref_stands_alone()) return OkStatus();
  }
  if (!AllowsType(schema, type)) {
    *always = true;
    return OkStatus();
  }
  const JsonKind kind = type == Container::kArray ? JsonKind::kArray : JsonKind::kObject;
  for (const std::string_view keyword : {"enum", "const"}) {
    const JsonValue* given = FindKnown(schema, keyword);
    if (given == nullptr) continue;
    std::vector<Literal> none;
    if (keyword == "const") {
      if (given->Is(kind)) none.push_back({&SchemaOf(*given), true});
    } else {
      for (const JsonValue& value : given->items) {
        if (value.Is(kind)) none.push_back({&SchemaOf(value), true});
      }
    }
    if (none.empty()) {
      *always = true;
      return OkStatus();
    }
    push(std::move(none));
  }
  for (const JsonValue& part : ListOf(schema, "allOf")) push({{&part, true}});
  const auto all_negated = [](const std::vector<JsonValue>& parts) {
    std::vector<Literal> literals;
    literals.reserve(parts.size());
    for (const JsonValue& part : parts) literals.push_back({&part, true});
    return literals;
  };
  if (schema.Find("anyOf") != nullptr) push(all_negated(ListOf(schema, "anyOf")));
  if (schema.Find("oneOf") != nullptr) {
    const auto& parts = ListOf(schema, "oneOf");
    if (parts.size() > kMostPairedBranches)
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
  return type == Container::kObject ? NegateObject(schema, facts, branches)
                                    : NegateArray(schema, branches);
}

Status SchemaCompiler::NegateObject(const JsonValue& schema, const Facts& facts,
                                    std::vector<Branch>* branches) {
  const auto& properties = MembersOf(schema, "properties");
  const auto& patterns = MembersOf(schema, "patternProperties");
  for (const JsonMember& property : properties) {
    if (SaysNothing(property.value)) continue;
    branches->push_back([&property](Search* s) {
      Require(&s->facts, property.name);
      s->facts.extra[property.name].push_back({&property.value, true});
    });
  }
  for (const JsonValue& name : ListOf(schema, "required")) {
    branches->push_back([&name](Search* s) { s->facts.forbidden.insert(name.text); });
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t least, Count(schema, "minProperties", 0));
  WEFT_ASSIGN_OR_RETURN(const int64_t most, Count(schema, "maxProperties", kUnlimited));
  if (least > 0) branches->push_back([least](Search* s) { AtMostThis(&s->facts, least - 1); });
  if (most != kUnlimited)
    branches->push_back([most](Search* s) { AtLeastThis(&s->facts, most + 1); });
  for (const std::string_view keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    for (const JsonMember& dependent : MembersOf(schema, keyword)) {
      if (!dependent.value.Is(JsonKind::kArray)) {
        branches->push_back([&dependent](Search* s) {
          Require(&s->facts, dependent.name);
          s->todo.push_back({&dependent.value, true});
        });
      }
      for (const JsonValue& item : dependent.value.items) {
        branches->push_back([&dependent, &item](Search* s) {
          Require(&s->facts, dependent.name);
          s->facts.forbidden.insert(item.text);
        });
      }
    }
  }
  const RegexId any_key = any_string_;
  for (const JsonMember& own : patterns) {
    if (SaysNothing(own.value)) continue;
    WEFT_ASSIGN_OR_RETURN(const RegexId keys, PatternOf(schema, "patternProperties", own.name));
    const auto concerns = [&](const std::string& name) {
      return NameMatches(schema, own.name, name);
    };
    WEFT_RETURN_IF_ERROR(NegateNames(schema, "patternProperties", facts, concerns, keys,
                                     {&own.value, true}, branches));
  }
  if (const JsonValue* rest = AdditionalOf(schema); rest != nullptr && !SaysNothing(*rest)) {
    std::vector<RegexId> keys{any_key};
    for (const auto& [name, value] : properties)
      keys.push_back(pool().Not(pool().Literal(Quoted(name))));
    for (const auto& [pattern, value] : patterns) {
      WEFT_ASSIGN_OR_RETURN(const RegexId matching,
                            PatternOf(schema, "patternProperties", pattern));
      keys.push_back(pool().Not(matching));
    }
    const RegexId free = pool().And(keys);
    const auto concerns = [&](const std::string& name) -> StatusOr<bool> {
      return pool().Accepts(free, Quoted(name));
    };
    WEFT_RETURN_IF_ERROR(
        NegateNames(schema, "additionalProperties", facts, concerns, free, {rest, true}, branches));
  }
  if (const JsonValue* names = FindKnown(schema, "propertyNames")) {
    WEFT_ASSIGN_OR_RETURN(const Scalars wrong, ScalarsOf(Conjunction{{names, true}}));
    const auto concerns = [&](const std::string& name) -> StatusOr<bool> {
      return pool().Accepts(wrong.string, Quoted(name));
    };
    WEFT_RETURN_IF_ERROR(NegateNames(schema, "propertyNames", facts, concerns, wrong.string,
                                     {&true_schema_, false}, branches));
  }
  return OkStatus();
}

Status SchemaCompiler::NegateNames(
    const JsonValue& at, std::string_view keyword, const Facts& facts,
    const std::function<StatusOr<bool>(const std::string&)>& concerns, RegexId keys, Literal value,
    std::vector<Branch>* branches) {
  for (const std::string& name : NamesOf(facts)) {
    WEFT_ASSIGN_OR_RETURN(const bool concerned, concerns(name));
    if (!concerned) continue;
    branches->push_back([name, value](Search* s) {
      Require(&s->facts, name);
      s->facts.extra[name].push_back(value);
    });
  }
  // A name that is known to nobody would have to be remembered until the end.
  WEFT_ASSIGN_OR_RETURN(const std::vector<KeyClass> free, FreeKeys(facts));
  for (const KeyClass& known : free) {
    if (!pool().IsLive(pool().And({known.keys, keys}))) continue;
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
      AtLeastThis(&s->facts, i + 1);
      s->facts.extra_at[i].push_back({item, true});
    });
  }
  if (const JsonValue* rest = RestItemsOf(schema); rest != nullptr && !SaysNothing(*rest)) {
    branches->push_back([count, rest](Search* s) {
      if (rest->Is(JsonKind::kFalse)) {
        AtLeastThis(&s->facts, count + 1);
      } else {
        s->facts.contains.push_back({{{rest, true}}, count, 1, kUnlimited});
      }
    });
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t least, Count(schema, "minItems", 0));
  WEFT_ASSIGN_OR_RETURN(const int64_t most, Count(schema, "maxItems", kUnlimited));
  if (least > 0) branches->push_back([least](Search* s) { AtMostThis(&s->facts, least - 1); });
  if (most != kUnlimited)
    branches->push_back([most](Search* s) { AtLeastThis(&s->facts, most + 1); });
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

StatusOr<bool> SchemaCompiler::Impossible(const Facts& facts, Container type) {
  if (facts.most != kUnlimited && facts.least > facts.most) return true;
  if (type == Container::kArray) {
    for (int32_t i = 0;
         i < std::min<int64_t>(facts.least, std::min(PrefixOf(facts) + 1, kMostElementFacts));
         ++i) {
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
  for (const std::string& name : facts.required) {
    WEFT_ASSIGN_OR_RETURN(auto value, ValueOf(facts, name));
    if (!value) return true;
    if (value->size() < 2) continue;
    WEFT_ASSIGN_OR_RETURN(const bool empty, IsEmpty(*value));
    if (empty) return true;
  }
  return false;
}

// False where it is not known.
StatusOr<bool> SchemaCompiler::IsEmpty(const Conjunction& given) {
  Conjunction conjunction = given;
  WEFT_ASSIGN_OR_RETURN(const bool possible, Tidy(&conjunction));
  if (!possible) return true;
  if (conjunction.empty()) return false;
  WEFT_ASSIGN_OR_RETURN(const Scalars scalars, ScalarsOf(conjunction));
  if (scalars.null || scalars.yes || scalars.no || scalars.number != kNothing ||
      scalars.string != kNothing) {
    return false;
  }
  Conjunction key = conjunction;
  std::ranges::sort(key);
  if (const auto it = empty_.find(key); it != empty_.end()) return it->second;
  if (search_depth_ >= kMostSearchDepth) return false;
  ++search_depth_;
  bool empty = true;
  for (const Container type : {Container::kArray, Container::kObject}) {
    if (!empty) break;
    const auto ways = Expand(conjunction, type);
    if (!ways.ok() && ways.status().code() != StatusCode::kUnimplemented) {
      --search_depth_;
      return ways.status();
    }
    empty = ways.ok() && ways->empty();
  }
  --search_depth_;
  empty_[key] = empty;
  return empty;
}

}  // namespace weft::constraint
