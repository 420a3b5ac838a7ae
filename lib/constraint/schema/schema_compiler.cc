#include "constraint/schema/schema_compiler.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <unordered_map>

#include "constraint/regex/characters.h"
#include "constraint/regex/numbers.h"
#include "constraint/regex/walk.h"
#include "constraint/schema/schema_compiler_impl.h"

namespace weft::constraint {
namespace {

constexpr int64_t kMaxCount = 1'000'000'000;
constexpr int32_t kMaxBlanks = 40;

// The part of the document at `path`, or null.
const JsonValue* PartAt(const SchemaDocument& document, const std::vector<std::string>& path) {
  const JsonValue* at = &document.root();
  for (const std::string& name : path) {
    at = at->Find(name);
    if (at == nullptr) return nullptr;
  }
  return at;
}

}  // namespace

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
      const RegexId blanks = pool->Repeat(pool->Bytes(blank), 0, kMaxBlanks);
      layout.separator = pool->Concat({blanks, comma, blanks});
      layout.colon = pool->Concat({blanks, colon, blanks});
      layout.before_first = layout.before_close = blanks;
      break;
    }
  }
  return layout;
}

SchemaCompiler::SchemaCompiler(const SchemaDocument& document, const ConstraintOptions& options,
                               Grammar* grammar, ValueStyle style)
    : document_(document), options_(options), style_(std::move(style)), grammar_(*grammar) {
  any_number_ = AnyNumber(&pool());
  any_string_ = QuotedJson(&pool(), 0, kUnlimited);
  // After the match of a pattern, the rest of the string is free even if another part matches too.
  pool().Swallow(pool().walk().Derive(any_string_, '"'));
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
  if (count > kMaxCount) return Refuse(schema, keyword, "nothing counts so far");
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
    if (const auto it = references_.find(reference); it != references_.end()) return it->second;
    WEFT_ASSIGN_OR_RETURN(const JsonValue* target, document_.Resolve(schema, reference->text));
    references_.emplace(reference, target);
    return target;
  }
  return nullptr;
}

namespace {

// The required form of a keyword's value.
enum class Form : uint8_t { kAnything, kList, kNames, kObject, kNamesOrSchemas, kSchema };

Form FormOf(std::string_view keyword) {
  static const std::unordered_map<std::string_view, Form> forms = {
      {"allOf", Form::kList},
      {"anyOf", Form::kList},
      {"oneOf", Form::kList},
      {"enum", Form::kList},
      {"prefixItems", Form::kList},
      {"required", Form::kNames},
      {"properties", Form::kObject},
      {"patternProperties", Form::kObject},
      {"dependentSchemas", Form::kObject},
      {"dependentRequired", Form::kNamesOrSchemas},
      {"dependencies", Form::kNamesOrSchemas},
      {"additionalProperties", Form::kSchema},
      {"additionalItems", Form::kSchema},
      {"contains", Form::kSchema},
      {"not", Form::kSchema},
      {"if", Form::kSchema},
      {"then", Form::kSchema},
      {"else", Form::kSchema},
      {"propertyNames", Form::kSchema}};
  const auto it = forms.find(keyword);
  return it == forms.end() ? Form::kAnything : it->second;
}

bool AllStrings(const JsonValue& list) {
  return std::ranges::all_of(list.items,
                             [](const JsonValue& item) { return item.Is(JsonKind::kString); });
}

// The error in the form of a keyword's value; empty if it is correct.
std::string_view WrongForm(std::string_view keyword, const JsonValue& value) {
  const bool list = value.Is(JsonKind::kArray), object = value.Is(JsonKind::kObject);
  switch (FormOf(keyword)) {
    case Form::kAnything:
      return "";
    case Form::kList:
      return list ? "" : "it must be a list";
    case Form::kNames:
      return !list ? "it must be a list" : AllStrings(value) ? "" : "it must be a list of names";
    case Form::kObject:
      return object ? "" : "it must be an object";
    case Form::kNamesOrSchemas: {
      const auto good = [](const JsonMember& member) { return AllStrings(member.value); };
      if (!object) return "it must be an object";
      return std::ranges::all_of(value.members, good) ? "" : "it must have lists of names";
    }
    case Form::kSchema:
      return object || value.IsBool() ? "" : "it must be a schema";
  }
  return "";
}

}  // namespace

// Checks the form of all keywords, and refuses combinations that would be enforced only partly.
Status SchemaCompiler::CheckKeywords(const JsonValue& schema) {
  if (!checked_.insert(&schema).second) return OkStatus();
  const auto has = [&](std::string_view keyword) { return schema.Find(keyword) != nullptr; };
  if (has("$ref") + has("$dynamicRef") + has("$recursiveRef") > 1) {
    return Refuse(schema, "$dynamicRef", "next to another reference it is not supported");
  }
  if (document_.ref_stands_alone() && has("$ref")) return OkStatus();
  for (const std::string_view keyword : {"unevaluatedProperties", "unevaluatedItems"}) {
    const JsonValue* value = schema.Find(keyword);
    if (value == nullptr || SaysNothing(*value)) continue;
    for (const std::string_view other :
         {"allOf", "anyOf", "oneOf", "not", "if", "$ref", "$dynamicRef", "$recursiveRef",
          "dependentSchemas", "dependencies", "contains"}) {
      if (has(other))
        return Refuse(schema, keyword, StrCat("next to ", other, " it is not supported"));
    }
  }
  for (const auto& [name, value] : schema.members) {
    const std::string_view wrong = WrongForm(name, value);
    if (!wrong.empty()) return Refuse(schema, name, wrong);
  }
  return OkStatus();
}

const JsonValue& SchemaCompiler::SchemaOf(const JsonValue& value) {
  if (const auto it = schemas_of_values_.find(&value); it != schemas_of_values_.end())
    return *it->second;
  using Kind = JsonKind;
  const auto text = [](std::string_view t) { return JsonValue{.kind = Kind::kString, .text = t}; };
  const auto array = [&](std::span<const JsonValue> items) {
    return JsonValue{.kind = Kind::kArray, .items = {items, &made_arena_}};
  };
  const auto object = [&](std::span<const JsonMember> members) {
    return JsonValue{.kind = Kind::kObject, .members = {members, &made_arena_}};
  };
  const auto only = [&](const JsonValue& v) {
    const JsonMember member{"enum", array({&v, 1})};
    return object({&member, 1});
  };
  if (value.Is(Kind::kObject)) {
    std::vector<JsonMember> properties;
    std::vector<JsonValue> required;
    for (const auto& [name, member] : value.members) {
      properties.push_back({name, only(member)});
      required.push_back(text(name));
    }
    const JsonMember members[] = {{"type", text("object")},
                                  {"properties", object(properties)},
                                  {"required", array(required)},
                                  {"additionalProperties", false_schema_}};
    made_.push_back(object(members));
  } else {
    std::vector<JsonValue> prefix;
    for (const JsonValue& item : value.items) prefix.push_back(only(item));
    const JsonValue size{.kind = Kind::kNumber,
                         .text = made_arena_.Keep(StrCat(value.items.size()))};
    const JsonMember members[] = {{"type", text("array")},
                                  {"prefixItems", array(prefix)},
                                  {"minItems", size},
                                  {"maxItems", size}};
    made_.push_back(object(members));
  }
  schemas_of_values_[&value] = &made_.back();
  return made_.back();
}

StatusOr<bool> SchemaCompiler::Tidy(Conjunction* conjunction) {
  size_t kept = 0;
  for (Literal literal : *conjunction) {
    // Replace a schema that is only a reference by its target.
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
    const std::span tidy = std::span(*conjunction).first(kept);
    const auto same = std::ranges::find(tidy, literal.schema, &Literal::schema);
    if (same == tidy.end()) {
      (*conjunction)[kept++] = literal;
    } else if (same->negated != literal.negated) {
      return false;
    }
  }
  conjunction->resize(kept);
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

RegexId SchemaCompiler::AnySpelling() {
  if (any_spelling_ == kNothing) any_spelling_ = AnySpellingJson(&pool());
  return any_spelling_;
}

RegexId SchemaCompiler::Written(RegexId strings, bool is_key) {
  if (strings == kNothing) return kNothing;
  const auto without = [&](RegexId all, const std::string& text) {
    if (text.empty()) return all;
    const RegexId any = pool().Anything();
    return pool().AndNot(all, pool().Concat({any, pool().Literal(text), any}));
  };
  RegexId written = strings;
  switch (style_.strings) {
    case ValueStyle::Strings::kJson:
      // An unrestricted string may be spelled in any way.
      if (!is_key && strings == any_string_) written = AnySpelling();
      break;
    case ValueStyle::Strings::kPython:
      written =
          pool().Or({pool().walk().Requoted(strings, '"'), pool().walk().Requoted(strings, '\'')});
      break;
    case ValueStyle::Strings::kQuoted: {
      const RegexId raw = pool().walk().Unquoted(strings);
      const RegexId quote = pool().Literal(style_.quote);
      written = pool().Concat({quote, without(raw, style_.quote_text), quote});
      if (!is_key) break;
      ByteSet first = ByteSet::Range(0x21, 0x7E), more = ByteSet::Range(0x20, 0x7E);
      ByteSet special;
      for (const char c : std::string_view(":,{}[]<\"")) special.Add(c);
      first = first & ~special, more = more & ~special;
      const RegexId word =
          pool().Concat(pool().Bytes(first), pool().Repeat(pool().Bytes(more), 0, 200));
      written = pool().Or({written, pool().And({raw, word})});
      break;
    }
  }
  if (style_.without.empty() && written == strings) return strings;
  written = without(written, style_.without);
  return pool().walk().IsLive(written) ? written : kNothing;
}

RegexId SchemaCompiler::ShortNumbers() {
  constexpr int32_t kMaxDigits = 20;
  const auto byte = [&](char c) { return pool().Byte(static_cast<uint8_t>(c)); };
  const RegexId digit = pool().Bytes(ByteSet::Range('0', '9'));
  const RegexId digits = pool().Repeat(digit, 1, kMaxDigits);
  const RegexId sign = pool().Optional(pool().Or({byte('+'), byte('-')}));
  return pool().Concat(
      {pool().Optional(byte('-')), digits, pool().Optional(pool().Concat(byte('.'), digits)),
       pool().Optional(
           pool().Concat({pool().Or({byte('e'), byte('E')}), sign, pool().Repeat(digit, 1, 2)}))});
}

bool SchemaCompiler::IsClosed(const JsonValue& layer) const {
  return style_.closed_objects && layer.Find("properties") != nullptr &&
         layer.Find("patternProperties") == nullptr && AdditionalOf(layer) == nullptr;
}

Status SchemaCompiler::FillRule(RuleId rule, const Conjunction& conjunction, ValueKinds kinds,
                                bool outside) {
  if (kinds != ValueKinds::kObjects) {
    WEFT_ASSIGN_OR_RETURN(const Scalars scalars, ScalarsOf(conjunction));
    std::vector<RegexId> parts;
    const bool python = style_.words == ValueStyle::Words::kPythonToo ||
                        (outside && style_.words == ValueStyle::Words::kPythonTooOutside);
    const auto word = [&](std::string_view json, std::string_view in_python) {
      parts.push_back(pool().Literal(json));
      if (python) parts.push_back(pool().Literal(in_python));
    };
    if (scalars.null) word("null", "None");
    if (scalars.yes) word("true", "True");
    if (scalars.no) word("false", "False");
    if (scalars.number != kNothing && style_.short_numbers) {
      const RegexId number = pool().And({scalars.number, ShortNumbers()});
      if (pool().walk().IsLive(number)) parts.push_back(number);
    } else {
      parts.push_back(scalars.number);
    }
    if (kinds != ValueKinds::kNoStrings) parts.push_back(Written(scalars.string, false));
    const RegexId all = pool().Or(std::move(parts));
    if (all != kNothing) grammar_.AddAlternative(rule, {grammar_.Terminal(all)});
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<Facts> objects, Expand(conjunction, Container::kObject));
  for (const Facts& facts : objects) WEFT_RETURN_IF_ERROR(AddObject(rule, facts));
  if (kinds == ValueKinds::kObjects) return OkStatus();
  WEFT_ASSIGN_OR_RETURN(const std::vector<Facts> arrays, Expand(conjunction, Container::kArray));
  for (const Facts& facts : arrays) WEFT_RETURN_IF_ERROR(AddArray(rule, facts));
  return OkStatus();
}

Status SchemaCompiler::Compile() {
  Conjunction root{{&document_.root(), false}};
  WEFT_ASSIGN_OR_RETURN(const bool possible, Tidy(&root));
  if (!possible) return InvalidArgument("nothing can ever satisfy it");
  const RuleId start = RuleOf(std::move(root));
  WEFT_RETURN_IF_ERROR(FillQueued());
  return grammar_.Finish(start, LayoutOf(&pool(), options_.white_space));
}

StatusOr<RuleId> SchemaCompiler::Add(const JsonValue& schema, ValueKinds kinds) {
  const RuleId rule = grammar_.AddRule();
  Conjunction root{{&schema, false}};
  WEFT_ASSIGN_OR_RETURN(const bool possible, Tidy(&root));
  if (!possible) return rule;  // without alternatives
  WEFT_RETURN_IF_ERROR(FillRule(rule, root, kinds, /*outside=*/true));
  WEFT_RETURN_IF_ERROR(FillQueued());
  return rule;
}

StatusOr<RegexId> SchemaCompiler::StringsOf(const JsonValue& schema) {
  Conjunction root{{&schema, false}};
  WEFT_ASSIGN_OR_RETURN(const bool possible, Tidy(&root));
  if (!possible) return kNothing;
  WEFT_ASSIGN_OR_RETURN(const Scalars scalars, ScalarsOf(root));
  return scalars.string == kNothing ? kNothing : pool().walk().Unquoted(scalars.string);
}

Status SchemaCompiler::FillQueued() {
  while (!queue_.empty()) {
    const auto [rule, conjunction] = std::move(queue_.front());
    queue_.pop_front();
    WEFT_RETURN_IF_ERROR(FillRule(rule, conjunction, ValueKinds::kAll, /*outside=*/false));
    if (pool().budget().exhausted() || grammar_.bytes() > options_.max_bytes) {
      return TooMuchToCompile();
    }
  }
  return OkStatus();
}

namespace {

// Reading costs one step for this many bytes, plus one for each part.
constexpr size_t kBytesOfStep = 16;

StatusOr<SchemaDocument> ReadSchema(std::string_view text, RegexPool* pool) {
  pool->budget().Spend(1 + static_cast<int64_t>(text.size() / kBytesOfStep));
  const int64_t max_parts = pool->budget().work_left();
  int64_t parts_left = max_parts;
  auto document = SchemaDocument::Read(text, &parts_left);
  pool->budget().Spend(max_parts - parts_left);
  if (pool->budget().exhausted()) return TooMuchToCompile();
  return document;
}

}  // namespace

Status CompileSchema(std::string_view schema, const ConstraintOptions& options, Grammar* grammar) {
  WEFT_ASSIGN_OR_RETURN(const SchemaDocument document, ReadSchema(schema, &grammar->pool()));
  return SchemaCompiler(document, options, grammar).Compile();
}

StatusOr<const SchemaDocument*> SchemaDocuments::Get(const SchemaText& text, RegexPool* pool) {
  std::unique_ptr<const SchemaDocument>& known = read_[&*text];
  if (known == nullptr) {
    WEFT_ASSIGN_OR_RETURN(SchemaDocument document, ReadSchema(*text, pool));
    known = std::make_unique<const SchemaDocument>(std::move(document));
  }
  return known.get();
}

namespace {

// Calls `use` with a compiler and the part of the schema; errors name the part's owner.
template <typename Result, typename Use>
StatusOr<Result> WithPart(const SchemaPart& part, const ValueStyle& style,
                          const ConstraintOptions& options, SchemaDocuments* documents,
                          Grammar* grammar, const Use& use) {
  const auto apply = [&]() -> StatusOr<Result> {
    WEFT_ASSIGN_OR_RETURN(const SchemaDocument* const document,
                          documents->Get(part.schema, &grammar->pool()));
    const JsonValue* const at = PartAt(*document, part.path);
    if (at == nullptr) return InvalidArgument("the schema lacks ", StrJoin(part.path, "/"));
    SchemaCompiler compiler(*document, options, grammar, style);
    return use(&compiler, *at);
  };
  StatusOr<Result> result = apply();
  if (!result.ok() && !part.of.empty()) return Annotate(result.status(), part.of, ": ");
  return result;
}

}  // namespace

StatusOr<RuleId> AddSchema(const SchemaPart& part, const ValueStyle& style, ValueKinds kinds,
                           const ConstraintOptions& options, SchemaDocuments* documents,
                           Grammar* grammar) {
  return WithPart<RuleId>(
      part, style, options, documents, grammar,
      [&](SchemaCompiler* compiler, const JsonValue& at) { return compiler->Add(at, kinds); });
}

StatusOr<RegexId> StringsOfSchema(const SchemaPart& part, const ConstraintOptions& options,
                                  SchemaDocuments* documents, Grammar* grammar) {
  return WithPart<RegexId>(
      part, {}, options, documents, grammar,
      [](SchemaCompiler* compiler, const JsonValue& at) { return compiler->StringsOf(at); });
}

}  // namespace weft::constraint
