// Python's operators on template values.
#include <algorithm>
#include <cmath>
#include <limits>

#include "jinja/ast.h"
#include "jinja/builtins.h"
#include "jinja/interpreter.h"
#include "jinja/text.h"

namespace weft::jinja {
namespace {

const char* OpText(Op op) {
  constexpr const char* kTexts[] = {
      "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kTexts[static_cast<size_t>(op)];
}

Status OverflowError() { return InvalidArgument("this number does not fit 64 bits"); }
Status ZeroError() { return InvalidArgument("division by zero"); }

StatusOr<Value> IntPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return ZeroError();
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) return OverflowError();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return OverflowError();
  }
  return Value::Int(result);
}

StatusOr<Value> IntArithmetic(Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Op::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return OverflowError();
      return Value::Int(result);
    case Op::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) return OverflowError();
      return Value::Int(result);
    case Op::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) return OverflowError();
      return Value::Int(result);
    case Op::kDivide:
      if (b == 0) return ZeroError();
      return Value::Float(static_cast<double>(a) / static_cast<double>(b));
    case Op::kPower:
      return IntPower(a, b);
    default:
      break;
  }
  if (b == 0) return ZeroError();
  const bool overflows = a == std::numeric_limits<int64_t>::min() && b == -1;
  if (op == Op::kModulo) {
    result = overflows ? 0 : a % b;
    return Value::Int(result != 0 && (result < 0) != (b < 0) ? result + b : result);
  }
  if (overflows) return OverflowError();
  result = a / b;
  return Value::Int(a % b != 0 && (a < 0) != (b < 0) ? result - 1 : result);
}

StatusOr<Value> FloatArithmetic(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd:
      return Value::Float(a + b);
    case Op::kSubtract:
      return Value::Float(a - b);
    case Op::kMultiply:
      return Value::Float(a * b);
    case Op::kPower: {
      if (a == 0 && b < 0) return ZeroError();
      const double result = std::pow(a, b);
      if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) {
        return InvalidArgument("a negative number has no such power");
      }
      if (std::isinf(result) && !std::isinf(a) && !std::isinf(b)) return OverflowError();
      return Value::Float(result);
    }
    default:
      break;
  }
  if (b == 0) return ZeroError();
  if (op == Op::kDivide) return Value::Float(a / b);
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
  if (op == Op::kModulo) return Value::Float(remainder == 0 ? std::copysign(0.0, b) : remainder);
  return Value::Float(std::floor((a - remainder) / b + 0.5));
}

bool IsRow(const Value& v) {
  return v.is_list_of(ListKind::kList) || v.is_list_of(ListKind::kTuple);
}

// "ab" * 3 and [1] * 3.
StatusOr<Value> Repeat(Interpreter* in, const Value& what, int64_t times) {
  Meter* const meter = in->meter();
  if (what.is_string()) {
    TextBuilder text(meter);
    text.AppendRepeated(what.text(), times);
    return text.Finish();
  }
  const std::vector<Value>& items = what.list().items;
  std::vector<Value> out;
  if (times > 0 && !items.empty()) {
    const size_t most = std::numeric_limits<size_t>::max() / sizeof(Value) / items.size();
    if (static_cast<uint64_t>(times) > most ||
        !meter->Fits(static_cast<size_t>(times) * items.size() * sizeof(Value))) {
      return ResourceExhausted("the repeated list does not fit into the template's memory");
    }
    out.reserve(static_cast<size_t>(times) * items.size());
    for (int64_t i = 0; i < times; ++i) out.insert(out.end(), items.begin(), items.end());
  }
  return in->NewList(std::move(out), what.list().kind);
}

// Sequences: concatenation, repetition and formatting. False if the operator has no such meaning.
bool SequenceArithmetic(Interpreter* in, Op op, const Value& a, const Value& b,
                        StatusOr<Value>* result) {
  const bool a_sequence = a.is_string() || IsRow(a);
  const bool b_sequence = b.is_string() || IsRow(b);
  if (op == Op::kAdd && a.is_string() && b.is_string()) {
    TextBuilder text(in->meter());
    text.Append(a.text());
    text.Append(b.text());
    *result = text.Finish();
  } else if (op == Op::kAdd && IsRow(a) && IsRow(b) && a.list().kind == b.list().kind) {
    const size_t n = a.list().items.size() + b.list().items.size();
    if (!in->meter()->Fits(n * sizeof(Value))) {
      *result = in->meter()->status();
      return true;
    }
    std::vector<Value> items;
    items.reserve(n);
    items.insert(items.end(), a.list().items.begin(), a.list().items.end());
    items.insert(items.end(), b.list().items.begin(), b.list().items.end());
    *result = in->NewList(std::move(items), a.list().kind);
  } else if (op == Op::kMultiply && a_sequence && b.is_integral()) {
    *result = Repeat(in, a, b.integer());
  } else if (op == Op::kMultiply && b_sequence && a.is_integral()) {
    *result = Repeat(in, b, a.integer());
  } else if (op == Op::kModulo && a.is_string()) {
    *result = FormatPercent(in, a.text(), b);
  } else {
    return false;
  }
  return true;
}

}  // namespace

StatusOr<Value> Arithmetic(Interpreter* in, Op op, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return IntArithmetic(op, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return FloatArithmetic(op, a.number(), b.number());
  if (a.is_undefined()) return InvalidArgument(a.UndefinedMessage());
  if (b.is_undefined() && !(op == Op::kModulo && a.is_string())) {
    return InvalidArgument(b.UndefinedMessage());
  }
  StatusOr<Value> result = Value();
  if (SequenceArithmetic(in, op, a, b, &result)) return result;
  return InvalidArgument("cannot compute ", TypeName(a), " ", OpText(op), " ", TypeName(b));
}

StatusOr<bool> Contains(Interpreter* in, const Value& container, const Value& item) {
  Meter* const meter = in->meter();
  switch (container.kind()) {
    case Kind::kString:
      if (!item.is_string()) {
        return InvalidArgument("'in' a string needs a string on its left, not a ", TypeName(item));
      }
      return FindText(meter, container.text(), item.text()) != std::string_view::npos;
    case Kind::kDict:
      if (item.is_dict() || item.is_list_of(ListKind::kList)) {
        return InvalidArgument("a ", TypeName(item), " cannot be a key of a dict");
      }
      return container.dict().Find(item, meter) != nullptr;
    case Kind::kUndefined:
      return false;
    case Kind::kList:
      break;
    default:
      return InvalidArgument("'in' needs something to look into, not a ", TypeName(container));
  }
  const ListObject& list = container.list();
  for (size_t i = list.next; i < list.items.size(); ++i) {
    if (list.kind == ListKind::kGenerator) list.next = i + 1;
    if (Equal(list.items[i], item, meter)) return true;
  }
  return false;
}

StatusOr<bool> CompareOp(Interpreter* in, Op op, const Value& a, const Value& b) {
  switch (op) {
    case Op::kEqual:
      return Equal(a, b, in->meter());
    case Op::kNotEqual:
      return !Equal(a, b, in->meter());
    case Op::kIn:
      return Contains(in, b, a);
    case Op::kNotIn: {
      WEFT_ASSIGN_OR_RETURN(const bool found, Contains(in, b, a));
      return !found;
    }
    default:
      break;
  }
  WEFT_ASSIGN_OR_RETURN(const int order, Compare(a, b, in->meter()));
  if (a.is_number() && b.is_number() && (std::isnan(a.number()) || std::isnan(b.number()))) {
    return false;
  }
  switch (op) {
    case Op::kLess:
      return order < 0;
    case Op::kLessEqual:
      return order <= 0;
    case Op::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

}  // namespace weft::jinja
