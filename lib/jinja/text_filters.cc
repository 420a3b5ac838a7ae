// Filters over single values: text, numbers, JSON.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "jinja/builtins.h"
#include "jinja/interpreter.h"
#include "jinja/text.h"

namespace weft::jinja {
namespace {

// Bytes held for each byte of a text: while it is mapped (a text that becomes longer is moved to
// twice its room), escaped, or read as a number.
constexpr size_t kMappedHeld = 3, kEscapedHeld = 6, kParsedHeld = 4;
constexpr size_t kMaxStyleBytes = 1000;

// A filter without arguments that maps str(x). While it does, this many times its bytes are held.
template <std::string (*kMap)(std::string_view), size_t kHeld = kMappedHeld>
StatusOr<Value> MapText(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_RETURN_IF_ERROR(args->Finish());
  const Value text = ToStr(self, in->meter());
  if (!in->meter()->Fits(kHeld * text.text().size())) return Value();
  in->meter()->SpendChars(text.text().size());
  return in->NewString(kMap(text.text()));
}

// Unlike str.title, only white space, hyphens and opening brackets start a new word.
std::string TitleWords(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto begins = [](std::string_view c) {
      return c.size() == 1 ? std::string_view("-({[<").find(c[0]) != std::string_view::npos ||
                                 IsSpace(FirstChar(c))
                           : IsSpace(FirstChar(c));
    };
    size_t end = 0;
    while (end < text.size() && begins(text.substr(end, CharBytes(text.substr(end))))) {
      end += CharBytes(text.substr(end));
    }
    out += text.substr(0, end);
    text.remove_prefix(end);
    end = 0;
    while (end < text.size() && !begins(text.substr(end, CharBytes(text.substr(end))))) {
      end += CharBytes(text.substr(end));
    }
    const size_t first = text.empty() ? 0 : CharBytes(text);
    out += ToUpper(text.substr(0, first)) + ToLower(text.substr(first, end - first));
    text.remove_prefix(end);
  }
  return out;
}

StatusOr<Value> FilterString(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_RETURN_IF_ERROR(args->Finish());
  return ToStr(self, in->meter());
}

StatusOr<Value> FilterTrim(Interpreter* in, const Value& self, Arguments* args) {
  const Value* const chars = args->Take("chars");
  WEFT_RETURN_IF_ERROR(args->Finish());
  const Value text = ToStr(self, in->meter());
  if (chars != nullptr && !chars->is_none() && !chars->is_string()) {
    return InvalidArgument("'chars' must be a string");
  }
  return StripText(in, text, chars, /*left=*/true, /*right=*/true);
}

StatusOr<Value> FilterReplace(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const Value* const old, args->Require("old"));
  WEFT_ASSIGN_OR_RETURN(const Value* const replacement, args->Require("new"));
  WEFT_ASSIGN_OR_RETURN(const int64_t count, args->TakeInt("count", -1, true));
  WEFT_RETURN_IF_ERROR(args->Finish());
  const Value text = ToStr(self, in->meter());
  return ReplaceText(in, text.text(), ToStr(*old, in->meter()).text(),
                     ToStr(*replacement, in->meter()).text(), count);
}

StatusOr<Value> FilterIndent(Interpreter* in, const Value& self, Arguments* args) {
  const Value* const width = args->Take("width");
  WEFT_ASSIGN_OR_RETURN(const bool first, args->TakeBool("first", false));
  WEFT_ASSIGN_OR_RETURN(const bool blank, args->TakeBool("blank", false));
  WEFT_RETURN_IF_ERROR(args->Finish());
  if (!self.is_string()) return InvalidArgument("indent needs a string, not a ", TypeName(self));
  TextBuilder indent(in->meter());
  if (width != nullptr && width->is_string()) {
    indent.Append(width->text());
  } else if (width == nullptr || width->is_integral()) {
    indent.AppendRepeated(" ", width == nullptr ? 4 : width->integer());
  } else {
    return InvalidArgument("'width' must be an integer or a string");
  }
  Held held(in->meter());
  if (!held.Add(self.text().size() + 1 + SplitLinesBytes(self.text()))) return Value();
  in->meter()->SpendChars(self.text().size());
  std::string text;
  text.reserve(self.text().size() + 1);
  text.append(self.text()).push_back('\n');
  TextBuilder out(in->meter());
  bool at_first = true;
  for (const std::string_view line : SplitLines(text, false)) {
    if (!at_first) out.Append('\n');
    if (at_first ? first : (blank || !line.empty())) out.Append(indent.view());
    at_first = false;
    out.Append(line);
    if (!in->meter()->ok()) break;
  }
  return out.Finish();
}

StatusOr<Value> FilterSafe(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_RETURN_IF_ERROR(args->Finish());
  return ToStr(self, in->meter());
}

StatusOr<Value> FilterFormat(Interpreter* in, const Value& self, Arguments* args) {
  const Value format = ToStr(self, in->meter());
  if (!args->keyword.empty()) {
    if (!args->positional.empty()) {
      return InvalidArgument("format takes positional or named arguments, not both");
    }
    auto dict = std::make_shared<DictObject>(in->meter());
    for (const auto& [name, value] : args->keyword) {
      dict->Set(in->CopyText(name), value, in->meter());
    }
    return FormatPercent(in, format.text(), Value::Dict(std::move(dict)));
  }
  const std::span<const Value> rest = args->TakeRest();
  return FormatPercent(in, format.text(), in->CopyList(rest, ListKind::kTuple));
}

// --- numbers ----------------------------------------------------------------

// int(x) of a float; false if it does not fit.
bool TruncateFloat(double value, int64_t* whole) {
  if (!(value > -9.3e18 && value < 9.3e18)) return false;
  const double truncated = std::trunc(value);
  if (truncated < -0x1p63 || truncated >= 0x1p63) return false;
  *whole = static_cast<int64_t>(truncated);
  return true;
}

StatusOr<Value> FilterInt(Interpreter* in, const Value& self, Arguments* args) {
  const Value* const given = args->Take("default");
  WEFT_ASSIGN_OR_RETURN(const int64_t base, args->TakeInt("base", 10));
  WEFT_RETURN_IF_ERROR(args->Finish());
  if (self.is_undefined()) return InvalidArgument(self.UndefinedMessage());
  const Value absent = given != nullptr ? *given : Value::Int(0);
  int64_t whole = 0;
  double real = 0;
  if (self.is_integral()) return Value::Int(self.integer());
  if (!self.digits().empty()) return self;
  if (self.kind() == Kind::kFloat) {
    return TruncateFloat(self.number(), &whole) ? Value::Int(whole) : absent;
  }
  if (!self.is_string()) return absent;
  in->meter()->SpendChars(self.text().size());
  if (!in->meter()->Fits(kParsedHeld * self.text().size())) return Value();
  if (ParseInt(self.text(), static_cast<int>(std::clamp<int64_t>(base, -1, 99)), &whole)) {
    return Value::Int(whole);
  }
  if (ParseFloat(self.text(), &real) && TruncateFloat(real, &whole)) return Value::Int(whole);
  return absent;
}

StatusOr<Value> FilterFloat(Interpreter* in, const Value& self, Arguments* args) {
  const Value* const given = args->Take("default");
  WEFT_RETURN_IF_ERROR(args->Finish());
  if (self.is_undefined()) return InvalidArgument(self.UndefinedMessage());
  double real = 0;
  if (self.is_number()) return Value::Float(self.number());
  if (self.is_string()) in->meter()->SpendChars(self.text().size());
  if (self.is_string() && !in->meter()->Fits(kParsedHeld * self.text().size())) return Value();
  if (self.is_string() && ParseFloat(self.text(), &real)) return Value::Float(real);
  return given != nullptr ? *given : Value::Float(0);
}

StatusOr<Value> FilterAbs(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_RETURN_IF_ERROR(args->Finish());
  if (self.kind() == Kind::kFloat) return Value::Float(std::abs(self.number()));
  if (!self.is_integral() || self.integer() == INT64_MIN) {
    return InvalidArgument("abs needs a number that fits 64 bits, not a ", TypeName(self));
  }
  return Value::Int(std::abs(self.integer()));
}

// round(x, digits) like Python: rounds the exact binary value, halves to even.
double RoundTo(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 320) return value;
  if (digits < 0) {
    const double scale = std::pow(10.0, static_cast<double>(std::min<int64_t>(-digits, 400)));
    return std::isinf(scale) ? 0.0 : std::nearbyint(value / scale) * scale;
  }
  char buffer[700];
  std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(digits), value);
  double rounded = value;
  ParseFloat(buffer, &rounded);
  return rounded;
}

StatusOr<Value> FilterRound(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const int64_t precision, args->TakeInt("precision", 0));
  WEFT_ASSIGN_OR_RETURN(const std::string_view method, args->TakeString("method", "common"));
  WEFT_RETURN_IF_ERROR(args->Finish());
  if (self.is_undefined()) return InvalidArgument(self.UndefinedMessage());
  if (!self.is_number()) return InvalidArgument("round needs a number, not a ", TypeName(self));
  if (method == "common") {
    if (self.is_integral() && precision >= 0) return Value::Int(self.integer());
    const double rounded = RoundTo(self.number(), precision);
    return self.is_integral() ? Value::Int(static_cast<int64_t>(std::clamp(rounded, -9e18, 9e18)))
                              : Value::Float(rounded);
  }
  if (method != "ceil" && method != "floor") {
    return InvalidArgument("round knows the methods common, ceil and floor");
  }
  const double scale =
      std::pow(10.0, static_cast<double>(std::clamp<int64_t>(precision, -300, 300)));
  const double scaled = self.number() * scale;
  return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

// --- any value --------------------------------------------------------------

StatusOr<Value> FilterDefault(Interpreter* in, const Value& self, Arguments* args) {
  const Value* const given = args->Take("default_value");
  WEFT_ASSIGN_OR_RETURN(const bool boolean, args->TakeBool("boolean", false));
  WEFT_RETURN_IF_ERROR(args->Finish());
  if (!self.is_undefined() && !(boolean && !Truth(self))) return self;
  return given != nullptr ? *given : Value::Borrowed("");
}

StatusOr<Value> FilterLength(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_RETURN_IF_ERROR(args->Finish());
  switch (self.kind()) {
    case Kind::kUndefined:
      return Value::Int(0);
    case Kind::kString:
      in->meter()->SpendBytes(self.text().size());
      return Value::Int(CountChars(self.text()));
    case Kind::kDict:
      return Value::Int(static_cast<int64_t>(self.dict().entries.size()));
    case Kind::kList:
      if (self.list().kind == ListKind::kGenerator) break;
      return Value::Int(static_cast<int64_t>(self.list().items.size()));
    default:
      break;
  }
  return InvalidArgument("a ", TypeName(self), " has no length");
}

// The separators argument: a pair of strings.
Status ReadSeparators(const Value& given, JsonStyle* style) {
  if (given.is_none()) return OkStatus();
  const bool pair = given.is_list() && given.list().items.size() == 2 &&
                    given.list().items[0].is_string() && given.list().items[1].is_string();
  if (!pair) return InvalidArgument("'separators' must be a pair of strings");
  for (const Value& text : given.list().items) {
    if (text.text().size() > kMaxStyleBytes) return InvalidArgument("a separator is too long");
  }
  style->item_separator = given.list().items[0].text();
  style->key_separator = given.list().items[1].text();
  return OkStatus();
}

StatusOr<Value> FilterToJson(Interpreter* in, const Value& self, Arguments* args) {
  JsonStyle style;
  // The parameter order used where chat templates are rendered in Python.
  WEFT_ASSIGN_OR_RETURN(style.ensure_ascii, args->TakeBool("ensure_ascii", false));
  const Value* const indent = args->Take("indent");
  const Value* const separators = args->Take("separators");
  WEFT_ASSIGN_OR_RETURN(style.sort_keys, args->TakeBool("sort_keys", false));
  WEFT_RETURN_IF_ERROR(args->Finish());
  if (indent != nullptr && !indent->is_none()) {
    style.multi_line = true;
    style.item_separator = ",";
    if (indent->is_string() && indent->text().size() > kMaxStyleBytes) {
      return InvalidArgument("'indent' is too long");
    }
    if (indent->is_string()) {
      style.indent = indent->text();
    } else if (indent->is_integral()) {
      const int64_t width = std::clamp<int64_t>(indent->integer(), 0, 1000);
      style.indent.assign(static_cast<size_t>(width), ' ');
    } else {
      return InvalidArgument("'indent' must be an integer or a string");
    }
  }
  if (separators != nullptr) WEFT_RETURN_IF_ERROR(ReadSeparators(*separators, &style));
  TextBuilder out(in->meter());
  WEFT_RETURN_IF_ERROR(AppendJson(self, style, &out, in->meter()));
  return out.Finish();
}

constexpr FilterEntry kFilters[] = {
    {"upper", MapText<ToUpper>},
    {"lower", MapText<ToLower>},
    {"capitalize", MapText<Capitalize>},
    {"title", MapText<TitleWords>},
    {"escape", MapText<EscapeHtml, kEscapedHeld>},
    {"e", MapText<EscapeHtml, kEscapedHeld>},
    {"safe", FilterSafe},
    {"string", FilterString},
    {"trim", FilterTrim},
    {"replace", FilterReplace},
    {"indent", FilterIndent},
    {"format", FilterFormat},
    {"int", FilterInt},
    {"float", FilterFloat},
    {"abs", FilterAbs},
    {"round", FilterRound},
    {"default", FilterDefault},
    {"d", FilterDefault},
    {"length", FilterLength},
    {"count", FilterLength},
    {"tojson", FilterToJson},
};

}  // namespace

std::span<const FilterEntry> TextFilters() { return kFilters; }

}  // namespace weft::jinja
