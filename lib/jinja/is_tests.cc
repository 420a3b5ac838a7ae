// The tests: `x is NAME`.
#include <algorithm>
#include <cmath>

#include "jinja/ast.h"
#include "jinja/builtins.h"
#include "jinja/interpreter.h"

namespace weft::jinja {
namespace {

// A test without arguments, from a predicate.
template <bool (*kPredicate)(const Value&)>
StatusOr<Value> Plain(Interpreter*, const Value& self, Arguments* args) {
  WEFT_RETURN_IF_ERROR(args->Finish());
  return Value::Bool(kPredicate(self));
}

bool Defined(const Value& v) { return !v.is_undefined(); }
bool Undefined(const Value& v) { return v.is_undefined(); }
bool IsNone(const Value& v) { return v.is_none(); }
bool IsBoolean(const Value& v) { return v.kind() == Kind::kBool; }
bool IsTrue(const Value& v) { return IsBoolean(v) && v.integer() != 0; }
bool IsFalse(const Value& v) { return IsBoolean(v) && v.integer() == 0; }
bool IsInteger(const Value& v) { return v.kind() == Kind::kInt || !v.digits().empty(); }
bool IsFloat(const Value& v) { return v.kind() == Kind::kFloat && v.digits().empty(); }
bool IsNumber(const Value& v) { return v.is_number(); }
bool IsString(const Value& v) { return v.is_string(); }
bool IsMapping(const Value& v) { return v.is_dict(); }
bool IsCallable(const Value& v) { return v.kind() == Kind::kCallable || v.is_undefined(); }
bool IsIterable(const Value& v) {
  return v.is_undefined() || v.is_string() || v.is_list() || v.is_dict();
}
bool IsSequence(const Value& v) {
  return v.is_undefined() || v.is_string() || v.is_dict() || v.is_list_of(ListKind::kList) ||
         v.is_list_of(ListKind::kTuple) || v.is_list_of(ListKind::kRange);
}

template <Op kOp>
StatusOr<Value> Comparison(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const Value* const other, args->Require("other"));
  WEFT_RETURN_IF_ERROR(args->Finish());
  WEFT_ASSIGN_OR_RETURN(const bool holds, CompareOp(in, kOp, self, *other));
  return Value::Bool(holds);
}

StatusOr<Value> Divides(Interpreter* in, const Value& self, const Value& divisor, int64_t rest) {
  WEFT_ASSIGN_OR_RETURN(const Value modulo, Arithmetic(in, Op::kModulo, self, divisor));
  return Value::Bool(Equal(modulo, Value::Int(rest), in->meter()));
}
StatusOr<Value> TestEven(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_RETURN_IF_ERROR(args->Finish());
  return Divides(in, self, Value::Int(2), 0);
}
StatusOr<Value> TestOdd(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_RETURN_IF_ERROR(args->Finish());
  return Divides(in, self, Value::Int(2), 1);
}
StatusOr<Value> TestDivisibleBy(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const Value* const divisor, args->Require("num"));
  WEFT_RETURN_IF_ERROR(args->Finish());
  return Divides(in, self, *divisor, 0);
}

StatusOr<Value> TestSameAs(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const Value* const other, args->Require("other"));
  WEFT_RETURN_IF_ERROR(args->Finish());
  if (self.kind() != other->kind()) return Value::Bool(false);
  switch (self.kind()) {
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kString:
      return Value::Bool(Equal(self, *other, in->meter()));
    case Kind::kFloat:
    case Kind::kUndefined:
      return Value::Bool(false);
    default:
      return Value::Bool(self.identity() == other->identity());
  }
}

constexpr TestEntry kTests[] = {
    {"defined", Plain<Defined>},
    {"undefined", Plain<Undefined>},
    {"none", Plain<IsNone>},
    {"boolean", Plain<IsBoolean>},
    {"true", Plain<IsTrue>},
    {"false", Plain<IsFalse>},
    {"integer", Plain<IsInteger>},
    {"float", Plain<IsFloat>},
    {"number", Plain<IsNumber>},
    {"string", Plain<IsString>},
    {"mapping", Plain<IsMapping>},
    {"sequence", Plain<IsSequence>},
    {"iterable", Plain<IsIterable>},
    {"callable", Plain<IsCallable>},
    {"even", TestEven},
    {"odd", TestOdd},
    {"divisibleby", TestDivisibleBy},
    {"sameas", TestSameAs},
    {"in", Comparison<Op::kIn>},
    {"==", Comparison<Op::kEqual>},
    {"eq", Comparison<Op::kEqual>},
    {"equalto", Comparison<Op::kEqual>},
    {"!=", Comparison<Op::kNotEqual>},
    {"ne", Comparison<Op::kNotEqual>},
    {">", Comparison<Op::kGreater>},
    {"gt", Comparison<Op::kGreater>},
    {"greaterthan", Comparison<Op::kGreater>},
    {">=", Comparison<Op::kGreaterEqual>},
    {"ge", Comparison<Op::kGreaterEqual>},
    {"<", Comparison<Op::kLess>},
    {"lt", Comparison<Op::kLess>},
    {"lessthan", Comparison<Op::kLess>},
    {"<=", Comparison<Op::kLessEqual>},
    {"le", Comparison<Op::kLessEqual>},
};

}  // namespace

const TestEntry* FindTest(std::string_view name) {
  const auto* const it = std::ranges::find(kTests, name, &TestEntry::name);
  return it == std::end(kTests) ? nullptr : it;
}

}  // namespace weft::jinja
