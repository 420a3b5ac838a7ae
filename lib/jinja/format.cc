// "%s" % x and "{}".format(x).
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "jinja/ast.h"
#include "jinja/builtins.h"
#include "jinja/interpreter.h"
#include "jinja/text.h"

namespace weft::jinja {
namespace {

constexpr int64_t kMaxWidth = 1 << 20;
constexpr int kMaxPrecision = 300;

// The format of one value; common to both notations.
struct Spec {
  char fill = ' ';
  char align = 0;  // < > ^ or = (after the sign)
  char sign = 0;   // + or a space: the prefix of positive numbers
  bool alternate = false;
  bool commas = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

// Consumes the digits at the start of `text`; false if the number is too large.
bool TakeNumber(std::string_view* text, int64_t most, int64_t* number) {
  *number = 0;
  while (!text->empty() && text->front() >= '0' && text->front() <= '9') {
    *number = *number * 10 + (text->front() - '0');
    if (*number > most) return false;
    text->remove_prefix(1);
  }
  return true;
}

std::string WithCommas(std::string digits) {
  size_t end = digits.find_first_not_of("0123456789");
  if (end == std::string::npos) end = digits.size();
  for (size_t at = end; at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

// The digits of a magnitude, with their prefix ("0x").
std::string Magnitude(uint64_t value, const Spec& spec) {
  char buffer[72];
  const int base = spec.type == 'x' || spec.type == 'X' ? 16
                   : spec.type == 'o'                   ? 8
                   : spec.type == 'b'                   ? 2
                                                        : 10;
  std::string digits(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value, base).ptr);
  if (spec.type == 'X') digits = ToUpper(digits);
  if (base == 10) return spec.commas ? WithCommas(digits) : digits;
  if (!spec.alternate) return digits;
  return StrCat("0", spec.type, digits);
}

std::string FloatDigits(double magnitude, const Spec& spec) {
  const char type = spec.type == 0 || spec.type == '%' ? (spec.type == '%' ? 'f' : 'g') : spec.type;
  if (spec.type == 0 && spec.precision < 0) return FloatRepr(magnitude);
  if (spec.type == '%') magnitude *= 100;
  if (std::isnan(magnitude)) return "nan";
  if (std::isinf(magnitude)) return "inf";
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  const char format[] = {'%', '.', '*', type, '\0'};
  char buffer[700];
  std::snprintf(buffer, sizeof(buffer), format, precision, magnitude);
  std::string digits = buffer;
  if (spec.commas) digits = WithCommas(digits);
  if (spec.type == '%') digits += '%';
  return digits;
}

void AppendPadded(std::string_view sign, std::string_view body, const Spec& spec, char align,
                  TextBuilder* out) {
  const int64_t n = CountChars(body) + static_cast<int64_t>(sign.size());
  const int64_t missing = spec.width > n ? spec.width - n : 0;
  const std::string_view fill(&spec.fill, 1);
  if (align == '=') out->Append(sign);
  const int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  out->AppendRepeated(fill, left);
  if (align != '=') out->Append(sign);
  out->Append(body);
  out->AppendRepeated(fill, missing - left);
}

Status AppendNumber(const Value& value, const Spec& spec, char align, TextBuilder* out) {
  std::string body;
  bool negative = false;
  const bool floats =
      spec.type != 0 && std::string_view("eEfFgG%").find(spec.type) != std::string::npos;
  if (value.is_integral() && !floats) {
    negative = value.integer() < 0;
    const auto bits = static_cast<uint64_t>(value.integer());
    body = Magnitude(negative ? 0 - bits : bits, spec);
  } else {
    negative = std::signbit(value.number());
    body = FloatDigits(std::abs(value.number()), spec);
  }
  const char sign = negative ? '-' : spec.sign;
  AppendPadded(std::string_view(&sign, sign != 0 ? 1 : 0), body, spec, align, out);
  return OkStatus();
}

void AppendText(std::string_view text, const Spec& spec, char align, TextBuilder* out) {
  if (spec.precision >= 0) text = text.substr(0, ByteOffset(text, spec.precision));
  AppendPadded("", text, spec, align, out);
}

// --- % ----------------------------------------------------------------------

class PercentFormatter {
 public:
  PercentFormatter(Interpreter* in, std::string_view format, const Value& values)
      : in_(in), rest_(format), values_(values), out_(in->meter()) {}

  StatusOr<Value> Run() {
    while (!rest_.empty()) {
      const size_t percent = rest_.find('%');
      out_.Append(rest_.substr(0, percent));
      if (percent == std::string_view::npos) break;
      rest_.remove_prefix(percent + 1);
      WEFT_RETURN_IF_ERROR(One());
      if (!in_->meter()->Spend()) return in_->meter()->status();
    }
    const bool tuple = values_.is_list_of(ListKind::kTuple);
    const size_t given = tuple ? values_.list().items.size() : values_.is_dict() ? next_ : 1;
    if (next_ < given && !(values_.is_list() && !tuple)) {
      return InvalidArgument("not all values were used by the format");
    }
    return out_.Finish();
  }

 private:
  StatusOr<Value> Next() {
    if (values_.is_list_of(ListKind::kTuple)) {
      if (next_ >= values_.list().items.size()) return InvalidArgument("too few values to format");
      return values_.list().items[next_++];
    }
    if (next_++ > 0) return InvalidArgument("too few values to format");
    return values_;
  }

  Status ReadSpec(Spec* spec, Value* named, bool* is_named) {
    if (rest_.starts_with('(')) {
      const size_t close = rest_.find(')');
      if (close == std::string_view::npos)
        return InvalidArgument("a name in the format is not closed");
      if (!values_.is_dict()) return InvalidArgument("the format needs a dict");
      const Value* const value = values_.dict().Find(rest_.substr(1, close - 1), in_->meter());
      if (value == nullptr) return InvalidArgument("the format names a missing value");
      *named = *value;
      *is_named = true;
      rest_.remove_prefix(close + 1);
    }
    for (; !rest_.empty(); rest_.remove_prefix(1)) {
      const char c = rest_.front();
      if (c == '-') {
        spec->align = '<';
      } else if (c == '0') {
        if (spec->align == 0) spec->fill = '0';
      } else if (c == '+' || c == ' ') {
        if (spec->sign != '+') spec->sign = c;
      } else if (c == '#') {
        spec->alternate = true;
      } else {
        break;
      }
    }
    if (!TakeNumber(&rest_, kMaxWidth, &spec->width))
      return InvalidArgument("the width is too large");
    if (rest_.starts_with('.')) {
      rest_.remove_prefix(1);
      if (!TakeNumber(&rest_, kMaxPrecision, &spec->precision)) {
        return InvalidArgument("the precision is too large");
      }
    }
    return OkStatus();
  }

  Status One() {
    Spec spec;
    Value value;
    bool named = false;
    WEFT_RETURN_IF_ERROR(ReadSpec(&spec, &value, &named));
    if (rest_.empty()) return InvalidArgument("the format ends after a %");
    const char type = rest_.front();
    rest_.remove_prefix(1);
    if (type == '%') {
      out_.Append('%');
      return OkStatus();
    }
    if (!named) {
      WEFT_ASSIGN_OR_RETURN(value, Next());
    }
    return Write(type, spec, value);
  }

  Status Write(char type, Spec spec, const Value& value) {
    const char align = spec.align != 0 ? spec.align : '>';
    TextBuilder text(in_->meter());
    if (type == 's' || type == 'r' || type == 'a' || type == 'c') {
      spec.fill = ' ';
      if (type == 'c' && value.is_integral()) {
        return InvalidArgument("%c takes one character here");
      }
      type == 's' || type == 'c' ? AppendStr(value, &text, in_->meter())
                                 : AppendRepr(value, &text, in_->meter());
      AppendText(text.view(), spec, align, &out_);
      return OkStatus();
    }
    if (std::string_view("diuxXoeEfFgG").find(type) == std::string_view::npos) {
      return InvalidArgument("the format has an unknown conversion");
    }
    if (value.is_undefined()) return InvalidArgument(value.UndefinedMessage());
    if (!value.is_number()) {
      return InvalidArgument("the format needs a number, not a ", TypeName(value));
    }
    spec.type = type == 'i' || type == 'u' ? 'd' : type;
    Value number = value;
    if (value.kind() == Kind::kFloat &&
        std::string_view("dxXo").find(spec.type) != std::string::npos) {
      if (!(std::abs(value.number()) < 9e18)) return InvalidArgument("the number does not fit");
      number = Value::Int(static_cast<int64_t>(value.number()));
    }
    if (number.is_integral() && spec.precision > 0 && spec.type == 'd') {
      spec.fill = '0';
      spec.width = std::max(spec.width, spec.precision);
    }
    return AppendNumber(number, spec, spec.fill == '0' && spec.align == 0 ? '=' : align, &out_);
  }

  Interpreter* const in_;
  std::string_view rest_;
  const Value& values_;
  TextBuilder out_;
  size_t next_ = 0;
};

// --- {} ---------------------------------------------------------------------

class BraceFormatter {
 public:
  BraceFormatter(Interpreter* in, std::string_view format, const Arguments& args)
      : in_(in), rest_(format), args_(args), out_(in->meter()) {}

  StatusOr<Value> Run() {
    while (!rest_.empty()) {
      const size_t brace = rest_.find_first_of("{}");
      out_.Append(rest_.substr(0, brace));
      if (brace == std::string_view::npos) break;
      const char c = rest_[brace];
      rest_.remove_prefix(brace + 1);
      if (rest_.starts_with(c)) {
        out_.Append(c);
        rest_.remove_prefix(1);
      } else if (c == '}') {
        return InvalidArgument("a single } in a format; write }}");
      } else {
        WEFT_RETURN_IF_ERROR(Field());
      }
      if (!in_->meter()->Spend()) return in_->meter()->status();
    }
    return out_.Finish();
  }

 private:
  Status Field() {
    const size_t close = rest_.find('}');
    if (close == std::string_view::npos) return InvalidArgument("a { in the format is not closed");
    std::string_view field = rest_.substr(0, close);
    rest_.remove_prefix(close + 1);
    std::string_view spec;
    if (const size_t colon = field.find(':'); colon != std::string_view::npos) {
      spec = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    if (spec.find('{') != std::string_view::npos) {
      return InvalidArgument("a format within a format is not supported");
    }
    if (field.find_first_of(".[!") != std::string_view::npos) {
      return InvalidArgument("Weft's templates format {}, {0} and {name}, not {", Printable(field),
                             "}");
    }
    WEFT_ASSIGN_OR_RETURN(const Value value, Argument(field));
    return Write(value, spec);
  }

  StatusOr<Value> Argument(std::string_view name) {
    int64_t index = next_;
    if (name.empty()) {
      ++next_;
    } else if (!ParseInt(name, 10, &index)) {
      for (const auto& [keyword, value] : args_.keyword) {
        if (keyword == name) return value;
      }
      return InvalidArgument("the format names a missing value");
    }
    if (index < 0 || index >= static_cast<int64_t>(args_.positional.size())) {
      return InvalidArgument("too few values to format");
    }
    return args_.positional[index];
  }

  static bool IsAlign(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

  static StatusOr<Spec> ReadSpec(std::string_view text) {
    Spec spec;
    if (text.size() >= 2 && IsAlign(text[1])) {
      spec.fill = text[0];
      spec.align = text[1];
      text.remove_prefix(2);
    } else if (!text.empty() && IsAlign(text[0])) {
      spec.align = text[0];
      text.remove_prefix(1);
    }
    const auto skip = [&text](char c) {
      return text.starts_with(c) && (text.remove_prefix(1), true);
    };
    for (const char c : {'+', '-', ' '}) {
      if (skip(c)) spec.sign = c == '-' ? 0 : c;
    }
    spec.alternate = skip('#');
    if (skip('0') && spec.align == 0) {
      spec.fill = '0';
      spec.align = '=';
    }
    if (!TakeNumber(&text, kMaxWidth, &spec.width))
      return InvalidArgument("the width is too large");
    spec.commas = skip(',');
    if (skip('.') && !TakeNumber(&text, kMaxPrecision, &spec.precision)) {
      return InvalidArgument("the precision is too large");
    }
    if (!text.empty()) spec.type = text[0];
    if (text.size() > 1 || (spec.type != 0 && std::string_view("sdxXobeEfFgG%").find(spec.type) ==
                                                  std::string_view::npos)) {
      return InvalidArgument("the format has an unknown conversion");
    }
    return spec;
  }

  Status Write(const Value& value, std::string_view spec_text) {
    WEFT_ASSIGN_OR_RETURN(const Spec spec, ReadSpec(spec_text));
    const bool number = value.is_number() && !(value.kind() == Kind::kBool && spec.type == 0);
    if (number && spec.type != 's') {
      const bool whole =
          spec.type != 0 && std::string_view("dxXob").find(spec.type) != std::string::npos;
      if (value.kind() == Kind::kFloat && whole) {
        return InvalidArgument("a float cannot be formatted as an integer");
      }
      return AppendNumber(value, spec, spec.align != 0 ? spec.align : '>', &out_);
    }
    if (spec.type != 0 && spec.type != 's') {
      return InvalidArgument("a ", TypeName(value), " cannot be formatted as a number");
    }
    TextBuilder text(in_->meter());
    AppendStr(value, &text, in_->meter());
    AppendText(text.view(), spec, spec.align != 0 && spec.align != '=' ? spec.align : '<', &out_);
    return OkStatus();
  }

  Interpreter* const in_;
  std::string_view rest_;
  const Arguments& args_;
  TextBuilder out_;
  int64_t next_ = 0;
};

}  // namespace

StatusOr<Value> FormatPercent(Interpreter* in, std::string_view format, const Value& values) {
  return PercentFormatter(in, format, values).Run();
}

StatusOr<Value> FormatBraces(Interpreter* in, std::string_view format, const Arguments& args) {
  return BraceFormatter(in, format, args).Run();
}

}  // namespace weft::jinja
