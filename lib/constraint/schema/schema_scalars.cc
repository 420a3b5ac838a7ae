// Restrictions on null, booleans, numbers and strings.
#include <algorithm>
#include <utility>

#include "constraint/regex/analysis.h"
#include "constraint/regex/characters.h"
#include "constraint/regex/formats.h"
#include "constraint/regex/numbers.h"
#include "constraint/regex/pattern.h"
#include "constraint/regex/walk.h"
#include "constraint/schema/schema_compiler_impl.h"

namespace weft::constraint {
namespace {

// If a number must or must not be a multiple of several numbers, with many remainders in total, its
// automaton is built completely at compile time: during an answer there would be no time to search
// for a way to the end.
constexpr int64_t kMaxRemainders = 100'000;
constexpr size_t kMaxNumberStates = 4'000;
constexpr int64_t kMaxNumberWork = 150'000;

constexpr char kBase64[] = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$";

}  // namespace

Scalars SchemaCompiler::AllScalars() const { return {true, true, true, any_number_, any_string_}; }

Scalars SchemaCompiler::Both(const Scalars& a, const Scalars& b) {
  // `all` is neutral and stays recognizable.
  const auto both = [&](RegexId x, RegexId y, RegexId all) {
    return x == all ? y : y == all || x == y ? x : pool().And({x, y});
  };
  return {a.null && b.null, a.yes && b.yes, a.no && b.no, both(a.number, b.number, any_number_),
          both(a.string, b.string, any_string_)};
}

Scalars SchemaCompiler::Either(const Scalars& a, const Scalars& b) {
  const auto either = [&](RegexId x, RegexId y, RegexId all) {
    return x == all || y == all ? all : pool().Or({x, y});
  };
  return {a.null || b.null, a.yes || b.yes, a.no || b.no, either(a.number, b.number, any_number_),
          either(a.string, b.string, any_string_)};
}

Scalars SchemaCompiler::Opposite(const Scalars& a) {
  const auto opposite = [&](RegexId x, RegexId all) {
    return x == all ? kNothing : x == kNothing ? all : pool().AndNot(all, x);
  };
  return {!a.null, !a.yes, !a.no, opposite(a.number, any_number_), opposite(a.string, any_string_)};
}

// The values that are in exactly one of `each`. A value of each[i] is excluded if it is in
// others[j] for another j, so doubtful values are left out.
Scalars SchemaCompiler::OnlyOne(const std::vector<Scalars>& each,
                                const std::vector<Scalars>& others) {
  const auto once = [&](bool Scalars::*word) { return std::ranges::count(each, true, word) == 1; };
  const auto regex = [&](RegexId Scalars::*kind) {
    std::vector<RegexId> ones;
    bool same = true;
    for (size_t i = 0; i < each.size(); ++i) {
      ones.push_back(each[i].*kind);
      same &= each[i].*kind == others[i].*kind;
    }
    if (same) return pool().OnlyOne(std::move(ones));
    for (size_t i = 0; i < ones.size(); ++i) {
      std::vector<RegexId> besides;
      for (size_t j = 0; j < ones.size(); ++j) {
        if (j != i) besides.push_back(others[j].*kind);
      }
      ones[i] = pool().AndNot(ones[i], pool().Or(std::move(besides)));
    }
    return pool().Or(std::move(ones));
  };
  return {once(&Scalars::null), once(&Scalars::yes), once(&Scalars::no), regex(&Scalars::number),
          regex(&Scalars::string)};
}

StatusOr<Scalars> SchemaCompiler::ScalarsOf(const Conjunction& conjunction) {
  Scalars all = AllScalars();
  std::vector<RegexId> numbers, strings;  // one for each literal, except unrestricted ones
  numbers.reserve(conjunction.size());
  strings.reserve(conjunction.size());
  for (const Literal& literal : conjunction) {
    WEFT_ASSIGN_OR_RETURN(const Scalars one, ScalarsOf(literal));
    all.null &= one.null, all.yes &= one.yes, all.no &= one.no;
    if (one.number != any_number_) numbers.push_back(one.number);
    if (one.string != any_string_) strings.push_back(one.string);
  }
  if (!numbers.empty()) all.number = pool().And(std::move(numbers));
  if (!strings.empty()) all.string = pool().And(std::move(strings));
  if (last_multiple_ != nullptr && pool().analysis().CommonMultiple(all.number) > kMaxRemainders &&
      !pool().walk().Settle(all.number, kMaxNumberStates, kMaxNumberWork) &&
      !pool().budget().exhausted()) {
    return Refuse(*last_multiple_, "multipleOf",
                  "together with the other multiples that a number must be, or must not be, it "
                  "leaves too many remainders to follow");
  }
  if (!pool().walk().IsLive(all.number)) all.number = kNothing;
  if (!pool().walk().IsLive(all.string)) all.string = kNothing;
  return all;
}

StatusOr<Scalars> SchemaCompiler::ScalarsOf(const Literal& literal) {
  if (!literal.negated) return ScalarsOf(*literal.schema, /*exactly=*/true);
  if (const auto it = opposites_.find(literal.schema); it != opposites_.end()) return it->second;
  WEFT_ASSIGN_OR_RETURN(const Scalars one, ScalarsOf(*literal.schema, /*exactly=*/false));
  return opposites_.emplace(literal.schema, Opposite(one)).first->second;
}

StatusOr<Scalars> SchemaCompiler::ScalarsOf(const JsonValue& schema, bool exactly) {
  if (schema.IsBool()) return schema.Is(JsonKind::kTrue) ? AllScalars() : Scalars{};
  auto& known = scalars_[exactly ? 1 : 0];
  if (const auto it = known.find(&schema); it != known.end()) return it->second;
  if (!schema.Is(JsonKind::kObject)) {
    return InvalidArgument("at ", document_.PathOf(schema),
                           " is no schema: it must be an object or a boolean");
  }
  if (std::ranges::find(open_, &schema) != open_.end())
    return Refuse(schema, "$ref", "it leads back to itself");
  open_.push_back(&schema);
  if (open_.size() > 300) return Refuse(schema, "$ref", "it is nested too deep");
  WEFT_RETURN_IF_ERROR(CheckKeywords(schema));
  Scalars scalars = AllScalars();
  WEFT_ASSIGN_OR_RETURN(const JsonValue* target, ReferenceOf(schema));
  if (target != nullptr) {
    WEFT_ASSIGN_OR_RETURN(scalars, ScalarsOf(*target, exactly));
  }
  if (target == nullptr || !document_.ref_stands_alone()) {
    WEFT_RETURN_IF_ERROR(RestrictByKeywords(schema, exactly, &scalars));
    WEFT_RETURN_IF_ERROR(CombineScalars(schema, exactly, &scalars));
  }
  open_.pop_back();
  known.emplace(&schema, scalars);
  return scalars;
}

Status SchemaCompiler::RestrictByKeywords(const JsonValue& schema, bool exactly, Scalars* scalars) {
  if (const JsonValue* type = schema.Find("type")) {
    Scalars allowed;
    std::vector<const JsonValue*> names{type};
    if (type->Is(JsonKind::kArray)) {
      names.clear();
      for (const JsonValue& item : type->items) names.push_back(&item);
    }
    for (const JsonValue* item : names) {
      const std::string_view name = item->text;
      if (!item->Is(JsonKind::kString))
        return Refuse(schema, "type", "it must be a name or a list of names");
      if (name == "null") {
        allowed.null = true;
      } else if (name == "boolean") {
        allowed.yes = allowed.no = true;
      } else if (name == "number") {
        allowed.number = any_number_;
      } else if (name == "integer") {
        if (allowed.number != any_number_) allowed.number = Integers(&pool(), exactly);
      } else if (name == "string") {
        allowed.string = any_string_;
      } else if (name != "array" && name != "object") {
        return Refuse(schema, "type", StrCat("there is no type ", Printable(name)));
      }
    }
    *scalars = Both(*scalars, allowed);
  }
  std::vector<const JsonValue*> values;
  if (const JsonValue* list = schema.Find("enum")) {
    if (!list->Is(JsonKind::kArray)) return Refuse(schema, "enum", "it must be a list");
    for (const JsonValue& value : list->items) values.push_back(&value);
    WEFT_ASSIGN_OR_RETURN(const Scalars allowed, ScalarsOfValues(values, exactly));
    *scalars = Both(*scalars, allowed);
  }
  if (const JsonValue* value = FindKnown(schema, "const")) {
    WEFT_ASSIGN_OR_RETURN(const Scalars allowed, ScalarsOfValues({value}, exactly));
    *scalars = Both(*scalars, allowed);
  }
  if (scalars->number != kNothing) WEFT_RETURN_IF_ERROR(RestrictNumber(schema, exactly, scalars));
  if (scalars->string != kNothing) WEFT_RETURN_IF_ERROR(RestrictString(schema, exactly, scalars));
  return OkStatus();
}

StatusOr<Scalars> SchemaCompiler::ScalarsOfValues(const std::vector<const JsonValue*>& values,
                                                  bool exactly) {
  Scalars allowed;
  std::vector<RegexId> numbers;
  std::vector<std::string> strings;
  for (const JsonValue* value : values) {
    switch (value->kind) {
      case JsonKind::kNull:
        allowed.null = true;
        break;
      case JsonKind::kTrue:
        allowed.yes = true;
        break;
      case JsonKind::kFalse:
        allowed.no = true;
        break;
      case JsonKind::kNumber: {
        const auto decimal = ReadDecimal(value->text);
        if (!decimal) return Refuse(*value, "enum", "a number is beyond all bounds");
        numbers.push_back(EqualTo(&pool(), *decimal, exactly));
        break;
      }
      case JsonKind::kString:
        strings.push_back(Quoted(value->text));
        break;
      default:
        break;
    }
  }
  allowed.number = pool().Or(std::move(numbers));
  allowed.string = pool().AnyOf(strings);
  return allowed;
}

Status SchemaCompiler::RestrictNumber(const JsonValue& schema, bool exactly, Scalars* scalars) {
  const auto restrict = [&](RegexId to) {
    scalars->number = scalars->number == any_number_ ? to : pool().And({scalars->number, to});
  };
  const auto read = [&](std::string_view keyword) -> StatusOr<std::optional<Decimal>> {
    const JsonValue* value = schema.Find(keyword);
    if (value == nullptr || value->IsBool()) return std::optional<Decimal>();
    auto decimal = value->Is(JsonKind::kNumber) ? ReadDecimal(value->text) : std::nullopt;
    if (!decimal) return Refuse(schema, keyword, "it must be a number within reason");
    return decimal;
  };
  const auto flag = [&](std::string_view keyword) {
    const JsonValue* value = schema.Find(keyword);
    return document_.is_draft4() && value != nullptr && value->Is(JsonKind::kTrue);
  };
  for (const auto& [keyword, flag_name] :
       {std::pair("minimum", "exclusiveMinimum"), std::pair("maximum", "exclusiveMaximum")}) {
    const JsonValue* exclusive = schema.Find(flag_name);
    if (exclusive != nullptr && exclusive->IsBool() && !document_.is_draft4()) {
      return Refuse(schema, flag_name, "in this draft it is a number; say which draft in $schema");
    }
    const bool low = std::string_view(keyword) == "minimum";
    const auto bound = low ? AtLeast : AtMost;
    WEFT_ASSIGN_OR_RETURN(const auto inclusive_bound, read(keyword));
    if (inclusive_bound) restrict(bound(&pool(), *inclusive_bound, flag(flag_name), exactly));
    WEFT_ASSIGN_OR_RETURN(const auto exclusive_bound, read(flag_name));
    if (exclusive_bound) restrict(bound(&pool(), *exclusive_bound, true, exactly));
  }
  WEFT_ASSIGN_OR_RETURN(const auto divisor, read("multipleOf"));
  if (divisor) {
    const RegexId multiples = MultiplesOf(&pool(), *divisor, exactly);
    if (multiples == kNothing)
      return Refuse(schema, "multipleOf", "it must be positive, of at most 17 digits");
    restrict(multiples);
    last_multiple_ = &schema;
  }
  return OkStatus();
}

StatusOr<RegexId> SchemaCompiler::PatternOf(const JsonValue& at, std::string_view keyword,
                                            std::string_view pattern, int32_t least, int32_t most) {
  const auto [it, added] = patterns_.try_emplace(StrCat(least, " ", most, " ", pattern), kNothing);
  if (!added && it->second >= 0) return it->second;
  auto regex = JsonStringsMatching(&pool(), pattern, least, most);
  if (!regex.ok()) {
    patterns_.erase(it);
    return Refuse(at, keyword, Message(regex.status()));
  }
  return it->second = *regex;
}

Status SchemaCompiler::RestrictString(const JsonValue& schema, bool exactly, Scalars* scalars) {
  const auto restrict = [&](RegexId to) {
    scalars->string = scalars->string == any_string_ ? to : pool().And({scalars->string, to});
  };
  WEFT_ASSIGN_OR_RETURN(const int64_t least, Count(schema, "minLength", 0));
  WEFT_ASSIGN_OR_RETURN(const int64_t most, Count(schema, "maxLength", kUnlimited));
  if (most != kUnlimited && least > most) {
    scalars->string = kNothing;
    return OkStatus();
  }
  const auto from = static_cast<int32_t>(least), to = static_cast<int32_t>(most);
  if (const JsonValue* pattern = schema.Find("pattern")) {
    if (!pattern->Is(JsonKind::kString)) return Refuse(schema, "pattern", "it must be a string");
    WEFT_ASSIGN_OR_RETURN(const RegexId matching,
                          PatternOf(schema, "pattern", pattern->text, from, to));
    restrict(matching);
  } else if (least > 0 || most != kUnlimited) {
    restrict(QuotedJson(&pool(), from, to));
  }
  WEFT_RETURN_IF_ERROR(RestrictContent(schema, scalars));
  const JsonValue* format = schema.Find("format");
  if (format != nullptr && options_.formats && format->Is(JsonKind::kString)) {
    if (IsUnenforceableFormat(format->text)) {
      return Refuse(schema, "format", StrCat(format->text, " cannot be enforced"));
    }
    if (const std::string& known = FormatPattern(format->text, exactly); !known.empty()) {
      WEFT_ASSIGN_OR_RETURN(const RegexId matching, PatternOf(schema, "format", known));
      restrict(matching);
    }
  }
  return OkStatus();
}

// Draft 7 restricts a string's content; in other drafts the keywords are annotations.
Status SchemaCompiler::RestrictContent(const JsonValue& schema, Scalars* scalars) {
  const JsonValue* type = FindKnown(schema, "contentMediaType");
  if (type != nullptr && type->text == "application/json") {
    return Refuse(schema, "contentMediaType", "that a string contains JSON cannot be enforced");
  }
  const JsonValue* encoding = FindKnown(schema, "contentEncoding");
  if (encoding == nullptr || AsciiLower(encoding->text) != "base64") return OkStatus();
  WEFT_ASSIGN_OR_RETURN(const RegexId matching, PatternOf(schema, "contentEncoding", kBase64));
  scalars->string = Both(*scalars, {.string = matching}).string;
  return OkStatus();
}

Status SchemaCompiler::CombineScalars(const JsonValue& schema, bool exactly, Scalars* scalars) {
  const auto list = [&](std::string_view keyword) {
    const JsonValue* value = schema.Find(keyword);
    return value == nullptr ? nullptr : &value->items;
  };
  if (const auto* parts = list("allOf")) {
    for (const JsonValue& part : *parts) {
      WEFT_ASSIGN_OR_RETURN(const Scalars one, ScalarsOf(part, exactly));
      *scalars = Both(*scalars, one);
    }
  }
  if (const auto* parts = list("anyOf")) {
    Scalars any;
    for (const JsonValue& part : *parts) {
      WEFT_ASSIGN_OR_RETURN(const Scalars one, ScalarsOf(part, exactly));
      any = Either(any, one);
    }
    *scalars = Both(*scalars, any);
  }
  if (const auto* parts = list("oneOf")) {
    std::vector<Scalars> each, others;
    for (const JsonValue& part : *parts) {
      WEFT_ASSIGN_OR_RETURN(each.emplace_back(), ScalarsOf(part, exactly));
      WEFT_ASSIGN_OR_RETURN(others.emplace_back(), ScalarsOf(part, !exactly));
    }
    *scalars = Both(*scalars, OnlyOne(each, others));
  }
  if (const JsonValue* part = schema.Find("not")) {
    WEFT_ASSIGN_OR_RETURN(const Scalars one, ScalarsOf(*part, !exactly));
    *scalars = Both(*scalars, Opposite(one));
  }
  const JsonValue* condition = FindKnown(schema, "if");
  if (condition != nullptr && (schema.Find("then") != nullptr || schema.Find("else") != nullptr)) {
    const auto part = [&](std::string_view keyword) -> const JsonValue& {
      const JsonValue* value = schema.Find(keyword);
      return value == nullptr ? true_schema_ : *value;
    };
    WEFT_ASSIGN_OR_RETURN(const Scalars holds, ScalarsOf(*condition, exactly));
    WEFT_ASSIGN_OR_RETURN(const Scalars may_hold, ScalarsOf(*condition, !exactly));
    WEFT_ASSIGN_OR_RETURN(const Scalars then, ScalarsOf(part("then"), exactly));
    WEFT_ASSIGN_OR_RETURN(const Scalars otherwise, ScalarsOf(part("else"), exactly));
    *scalars = Both(*scalars, Either(Both(holds, then), Both(Opposite(may_hold), otherwise)));
  }
  return OkStatus();
}

}  // namespace weft::constraint
