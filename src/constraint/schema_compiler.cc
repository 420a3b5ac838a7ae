#include "constraint/schema_compiler.h"

#include <algorithm>

#include "constraint/characters.h"
#include "constraint/numbers.h"
#include "constraint/schema_compiler_impl.h"

namespace weft::constraint {
namespace {

constexpr int64_t kMostCount = 1'000'000'000;
constexpr int32_t kMostBlanks = 40;

JsonLayout LayoutOf(RegexPool* pool, WhiteSpace white_space) {
  JsonLayout layout;
  const RegexId comma = pool->Byte(','), colon = pool->Byte(':'), space = pool->Byte(' ');
  switch (white_space) {
    case WhiteSpace::kCompact:
      layout.separator = comma;
      layout.colon = colon;
      break;
    case WhiteSpace::kSpaced:
      layout.separator = pool->Concat(comma, space);
      layout.colon = pool->Concat(colon, space);
      break;
    case WhiteSpace::kOptionalSpace:
      layout.separator = pool->Concat(comma, pool->Optional(space));
      layout.colon = pool->Concat(colon, pool->Optional(space));
      break;
    case WhiteSpace::kAny: {
      ByteSet blank;
      for (const char c : {' ', '\t', '\r', '\n'}) blank.Add(c);
      const RegexId blanks = pool->Repeat(pool->Bytes(blank), 0, kMostBlanks);
      layout.separator = pool->Concat({blanks, comma, blanks});
      layout.colon = pool->Concat({blanks, colon, blanks});
      layout.before_first = layout.before_close = blanks;
      break;
    }
  }
  return layout;
}

}  // namespace

SchemaCompiler::SchemaCompiler(const SchemaDocument& document, const ConstraintOptions& options,
                               Grammar* grammar)
    : document_(document), options_(options), grammar_(*grammar) {
  any_number_ = AnyNumber(&pool());
  any_string_ = QuotedJson(&pool(), 0, kUnlimited);
  true_schema_.kind = JsonKind::kTrue;
  false_schema_.kind = JsonKind::kFalse;
}

Status SchemaCompiler::Refuse(const JsonValue& at, std::string_view keyword,
                              std::string_view why) const {
  const std::string path = document_.PathOf(at);
  return Unimplemented(keyword, " at ",
                       path.empty() ? "a value of enum or const" : Printable(path, 200), ": ", why);
}

StatusOr<int64_t> SchemaCompiler::Count(const JsonValue& schema, std::string_view keyword,
                                        int64_t otherwise) {
  const JsonValue* value = schema.Find(keyword);
  if (value == nullptr) return otherwise;
  const auto decimal = value->Is(JsonKind::kNumber) ? ReadDecimal(value->text) : std::nullopt;
  int64_t count = 0;
  if (!decimal || decimal->negative || !decimal->fraction.empty() ||
      (!decimal->whole.empty() && !ParseInt64(decimal->whole, &count))) {
    return Refuse(schema, keyword, "it must be a count");
  }
  if (count > kMostCount) return Refuse(schema, keyword, "nothing counts so far");
  return count;
}

StatusOr<const JsonValue*> SchemaCompiler::ReferenceOf(const JsonValue& schema) {
  for (const std::string_view keyword : {"$ref", "$dynamicRef", "$recursiveRef"}) {
    const JsonValue* reference = schema.Find(keyword);
    if (reference == nullptr) continue;
    if (!reference->Is(JsonKind::kString)) return Refuse(schema, keyword, "it must be a string");
    if (keyword != "$ref" && document_.has_dynamic_choice()) {
      return Refuse(schema, keyword, "which schema it means cannot be told in advance");
    }
    const std::string& name = reference->text;
    return document_.Resolve(schema, name);
  }
  return nullptr;
}

// What nothing else looks at, and what would be enforced in part only.
Status SchemaCompiler::CheckKeywords(const JsonValue& schema) {
  if (!checked_.insert(&schema).second) return OkStatus();
  const auto has = [&](std::string_view keyword) { return schema.Find(keyword) != nullptr; };
  if (has("$ref") + has("$dynamicRef") + has("$recursiveRef") > 1) {
    return Refuse(schema, "$dynamicRef", "beside another reference it is not supported");
  }
  if (document_.ref_stands_alone() && has("$ref")) return OkStatus();
  for (const std::string_view keyword : {"unevaluatedProperties", "unevaluatedItems"}) {
    const JsonValue* value = schema.Find(keyword);
    if (value == nullptr || SaysNothing(*value)) continue;
    for (const std::string_view other :
         {"allOf", "anyOf", "oneOf", "not", "if", "$ref", "$dynamicRef", "$recursiveRef",
          "dependentSchemas", "dependencies", "contains"}) {
      if (has(other))
        return Refuse(schema, keyword, StrCat("beside ", other, " it is not supported"));
    }
  }
  const auto must_be = [&](std::string_view keyword, JsonKind kind, std::string_view what) {
    const JsonValue* value = schema.Find(keyword);
    return value == nullptr || value->Is(kind)
               ? OkStatus()
               : Refuse(schema, keyword, StrCat("it must be ", what));
  };
  for (const std::string_view keyword :
       {"allOf", "anyOf", "oneOf", "enum", "required", "prefixItems"}) {
    WEFT_RETURN_IF_ERROR(must_be(keyword, JsonKind::kArray, "a list"));
  }
  for (const std::string_view keyword : {"properties", "patternProperties", "dependentRequired",
                                         "dependentSchemas", "dependencies"}) {
    WEFT_RETURN_IF_ERROR(must_be(keyword, JsonKind::kObject, "an object"));
  }
  const auto all_strings = [](const JsonValue& list) {
    return std::ranges::all_of(list.items,
                               [](const JsonValue& item) { return item.Is(JsonKind::kString); });
  };
  if (has("required") && !all_strings(*schema.Find("required"))) {
    return Refuse(schema, "required", "it must be a list of names");
  }
  for (const std::string_view keyword : {"dependentRequired", "dependencies"}) {
    if (!has(keyword)) continue;
    for (const auto& [name, needs] : schema.Find(keyword)->members) {
      if (!all_strings(needs)) return Refuse(schema, keyword, "it must have lists of names");
    }
  }
  for (const std::string_view keyword : {"additionalProperties", "additionalItems", "contains",
                                         "not", "if", "then", "else", "propertyNames"}) {
    const JsonValue* value = schema.Find(keyword);
    if (value != nullptr && !value->IsBool() && !value->Is(JsonKind::kObject)) {
      return Refuse(schema, keyword, "it must be a schema");
    }
  }
  return OkStatus();
}

const JsonValue& SchemaCompiler::SchemaOf(const JsonValue& value) {
  if (const auto it = schemas_of_values_.find(&value); it != schemas_of_values_.end())
    return *it->second;
  using Kind = JsonKind;
  const auto text = [](std::string t) {
    return JsonValue{.kind = Kind::kString, .text = std::move(t)};
  };
  JsonValue schema{.kind = Kind::kObject};
  const auto only = [](const JsonValue& v) {
    JsonValue inner{.kind = Kind::kObject};
    inner.members.push_back({"enum", JsonValue{.kind = Kind::kArray, .items = {v}}});
    return inner;
  };
  if (value.Is(Kind::kObject)) {
    JsonValue properties{.kind = Kind::kObject}, required{.kind = Kind::kArray};
    for (const auto& [name, member] : value.members) {
      properties.members.push_back({name, only(member)});
      required.items.push_back(text(name));
    }
    schema.members = {{"type", text("object")},
                      {"properties", properties},
                      {"required", required},
                      {"additionalProperties", false_schema_}};
  } else {
    JsonValue prefix{.kind = Kind::kArray};
    for (const JsonValue& item : value.items) prefix.items.push_back(only(item));
    const JsonValue size{.kind = Kind::kNumber, .text = StrCat(value.items.size())};
    schema.members = {
        {"type", text("array")}, {"prefixItems", prefix}, {"minItems", size}, {"maxItems", size}};
  }
  made_.push_back(std::move(schema));
  schemas_of_values_[&value] = &made_.back();
  return made_.back();
}

StatusOr<bool> SchemaCompiler::Tidy(Conjunction* conjunction) {
  Conjunction tidy;
  for (Literal literal : *conjunction) {
    // A schema that is nothing but a reference is what it refers to.
    for (int i = 0; i < 100 && literal.schema->Is(JsonKind::kObject); ++i) {
      if (literal.schema->Find("$ref") == nullptr ||
          !(document_.ref_stands_alone() || literal.schema->members.size() == 1)) {
        break;
      }
      WEFT_ASSIGN_OR_RETURN(literal.schema, ReferenceOf(*literal.schema));
    }
    const bool says_true = SaysNothing(*literal.schema),
               says_false = literal.schema->Is(JsonKind::kFalse);
    if (literal.negated ? says_false : says_true) continue;
    if (literal.negated ? says_true : says_false) return false;
    if (std::ranges::find(tidy, literal) != tidy.end()) continue;
    if (std::ranges::find(tidy, Literal{literal.schema, !literal.negated}) != tidy.end())
      return false;
    tidy.push_back(literal);
  }
  *conjunction = std::move(tidy);
  return true;
}

RuleId SchemaCompiler::RuleOf(Conjunction conjunction) {
  Conjunction key = conjunction;
  std::ranges::sort(key);
  const auto [it, added] = rules_.try_emplace(std::move(key), kNoRule);
  if (added) {
    it->second = grammar_.AddRule();
    queue_.emplace_back(it->second, std::move(conjunction));
  }
  return it->second;
}

Status SchemaCompiler::FillRule(RuleId rule, const Conjunction& conjunction) {
  WEFT_ASSIGN_OR_RETURN(const Scalars scalars, ScalarsOf(conjunction));
  std::vector<RegexId> parts;
  if (scalars.null) parts.push_back(pool().Literal("null"));
  if (scalars.yes) parts.push_back(pool().Literal("true"));
  if (scalars.no) parts.push_back(pool().Literal("false"));
  parts.push_back(scalars.number);
  // Where every string will do it may be spelled in every way.
  parts.push_back(scalars.string == any_string_ ? AnySpellingJson(&pool()) : scalars.string);
  const RegexId all = pool().Or(std::move(parts));
  if (all != kNothing) grammar_.AddAlternative(rule, {grammar_.Terminal(all)});
  WEFT_ASSIGN_OR_RETURN(const std::vector<Facts> objects, Expand(conjunction, Container::kObject));
  for (const Facts& facts : objects) WEFT_RETURN_IF_ERROR(AddObject(rule, facts));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Facts> arrays, Expand(conjunction, Container::kArray));
  for (const Facts& facts : arrays) WEFT_RETURN_IF_ERROR(AddArray(rule, facts));
  return OkStatus();
}

Status SchemaCompiler::Compile() {
  Conjunction root{{&document_.root(), false}};
  WEFT_ASSIGN_OR_RETURN(const bool possible, Tidy(&root));
  if (!possible) return InvalidArgument("nothing can ever satisfy it");
  const RuleId start = RuleOf(std::move(root));
  while (!queue_.empty()) {
    const auto [rule, conjunction] = std::move(queue_.front());
    queue_.pop_front();
    WEFT_RETURN_IF_ERROR(FillRule(rule, conjunction));
    if (pool().exhausted() || grammar_.bytes() > options_.most_bytes) {
      return ResourceExhausted(
          "it takes more work or memory to compile than is allowed; make it simpler");
    }
  }
  return grammar_.Finish(start, LayoutOf(&pool(), options_.white_space),
                         options_.property_order == PropertyOrder::kSchema, {});
}

Status CompileSchema(std::string_view schema, const ConstraintOptions& options, Grammar* grammar) {
  WEFT_ASSIGN_OR_RETURN(const SchemaDocument document, SchemaDocument::Read(schema));
  return SchemaCompiler(document, options, grammar).Compile();
}

}  // namespace weft::constraint
