// Evaluates expressions.
#include <algorithm>
#include <limits>

#include "jinja/interpreter.h"
#include "jinja/text.h"

namespace weft::jinja {

StatusOr<Value> Interpreter::Eval(const Expr& e) {
  if (e.kind == ExprKind::kConstant) return e.constant;
  if (depth_ >= kMaxDepth) {
    return Locate(e.at, ResourceExhausted("the template recurses too deep"));
  }
  ++depth_;
  meter_->Spend();
  StatusOr<Value> result = EvalNode(e);
  --depth_;
  if (!result.ok()) return Locate(e.at, result.status());
  if (!meter_->ok()) return Locate(e.at, meter_->status());
  return result;
}

StatusOr<Value> Interpreter::EvalNode(const Expr& e) {
  switch (e.kind) {
    case ExprKind::kConstant:
      return e.constant;
    case ExprKind::kName:
      return Lookup(e);
    case ExprKind::kTuple:
      return EvalList(e, ListKind::kTuple);
    case ExprKind::kList:
      return EvalList(e, ListKind::kList);
    case ExprKind::kDict:
      return EvalDict(e);
    case ExprKind::kAttribute: {
      WEFT_ASSIGN_OR_RETURN(const Value owner, Eval(*e.children[0]));
      return Attribute(owner, Value::Borrowed(e.name));
    }
    case ExprKind::kItem:
      return EvalItem(e);
    case ExprKind::kSlice:
      return EvalSlice(e);
    case ExprKind::kCall:
      return EvalCall(e, nullptr);
    case ExprKind::kFilter:
      return EvalFilter(e);
    case ExprKind::kTest:
      return EvalTest(e);
    case ExprKind::kCondition:
      return EvalCondition(e);
    case ExprKind::kNot: {
      WEFT_ASSIGN_OR_RETURN(const Value operand, Eval(*e.children[0]));
      return Value::Bool(!Truth(operand));
    }
    case ExprKind::kNegate:
    case ExprKind::kPlus:
      return EvalSign(e);
    case ExprKind::kAnd:
    case ExprKind::kOr:
      return EvalLogic(e);
    case ExprKind::kConcat:
      return EvalConcat(e);
    case ExprKind::kArithmetic:
      return EvalArithmetic(e);
    case ExprKind::kCompare:
      return EvalCompare(e);
  }
  return Value();
}

namespace {

// The predefined functions, as values.
const Value* FindFunctionValue(std::string_view name) {
  const FunctionEntry* const entry = FindFunction(name);
  if (entry == nullptr) return nullptr;
  static const auto* const values = new std::unordered_map<std::string_view, Value>([] {
    std::unordered_map<std::string_view, Value> all;
    for (const FunctionEntry& f : Functions()) {
      all.emplace(f.name, Value::Callable(new FunctionObject(&f)));
    }
    return all;
  }());
  return &values->at(name);
}

}  // namespace

Value Interpreter::Lookup(const Expr& e) {
  if (const Value* value = FindVariable(e.symbol)) return *value;
  if (const Value* value = context_.Find(e.name, meter_)) return *value;
  if (const Value* value = FindFunctionValue(e.name)) return *value;
  return Value::Undefined(e.name);
}

StatusOr<Value> Interpreter::EvalList(const Expr& e, ListKind kind) {
  ListBuilder items(meter_);
  if (!items.Reserve(e.children.size())) return meter_->status();
  for (const ExprPtr& child : e.children) {
    WEFT_ASSIGN_OR_RETURN(Value item, Eval(*child));
    if (!items.Add(std::move(item))) return meter_->status();
  }
  return items.Finish(kind);
}

StatusOr<Value> Interpreter::EvalDict(const Expr& e) {
  auto dict = std::make_shared<DictObject>(meter_);
  for (size_t i = 0; i < e.children.size(); i += 2) {
    WEFT_ASSIGN_OR_RETURN(Value key, Eval(*e.children[i]));
    WEFT_ASSIGN_OR_RETURN(Value value, Eval(*e.children[i + 1]));
    dict->Set(std::move(key), std::move(value), meter_);
  }
  return Value::Dict(std::move(dict));
}

// --- attributes and items ---------------------------------------------------

StatusOr<Value> Interpreter::Attribute(const Value& owner, const Value& name) {
  Value found;
  switch (owner.kind()) {
    case Kind::kUndefined:
      return InvalidArgument(owner.UndefinedMessage());
    case Kind::kNamespace:
      if (const Value* value = owner.ns()->Find(name.text())) return *value;
      break;
    case Kind::kCallable:
      if (owner.callable()->Attribute(this, name.text(), &found)) return found;
      break;
    case Kind::kDict:
      if (FindMethod(owner, name, meter_, &found)) return found;
      if (const Value* value = owner.dict().Find(name, meter_)) return *value;
      break;
    case Kind::kString:
    case Kind::kList:
      if (FindMethod(owner, name, meter_, &found)) return found;
      break;
    default:
      break;
  }
  return Value::UndefinedAttribute(name, TypeName(owner));
}

namespace {

// The code point at `index` of a string; empty if out of range.
std::string_view CharAt(std::string_view text, int64_t index) {
  if (index < 0) index += CountChars(text);
  if (index < 0) return {};
  const size_t at = ByteOffset(text, index);
  return at == text.size() ? std::string_view() : text.substr(at, CharBytes(text.substr(at)));
}

bool IsIndexable(const Value& owner) {
  return owner.is_list() &&
         (owner.list().kind == ListKind::kList || owner.list().kind == ListKind::kTuple ||
          owner.list().kind == ListKind::kRange);
}

const Value* ItemAt(const ListObject& list, int64_t index) {
  const auto n = static_cast<int64_t>(list.items.size());
  if (index < 0) index += n;
  return index < 0 || index >= n ? nullptr : &list.items[index];
}

}  // namespace

StatusOr<Value> Interpreter::Item(const Value& owner, const Value& key) {
  if (owner.is_undefined()) return InvalidArgument(owner.UndefinedMessage());
  if (owner.is_dict()) {
    if (const Value* value = owner.dict().Find(key, meter_)) return *value;
  } else if (IsIndexable(owner) && key.is_integral()) {
    if (const Value* value = ItemAt(owner.list(), key.integer())) return *value;
  } else if (owner.is_string() && key.is_integral()) {
    meter_->SpendBytes(owner.text().size());
    const std::string_view c = CharAt(owner.text(), key.integer());
    if (!c.empty()) return owner.Substring(c);
  }
  if (key.is_string()) return Attribute(owner, key);
  return Value::UndefinedAttribute(ToStr(key, meter_), TypeName(owner));
}

StatusOr<Value> Interpreter::EvalItem(const Expr& e) {
  WEFT_ASSIGN_OR_RETURN(const Value owner, Eval(*e.children[0]));
  WEFT_ASSIGN_OR_RETURN(const Value key, Eval(*e.children[1]));
  return Item(owner, key);
}

namespace {

// A slice's start, stop and step, clamped to the length like Python.
struct SliceBounds {
  int64_t start;
  int64_t stop;
  int64_t step;
};

int64_t ClampBound(const Value& bound, int64_t absent, int64_t n, int64_t step) {
  if (bound.is_none()) return absent;
  int64_t at = bound.integer();
  if (at < 0) at = at < -n ? -1 : at + n;
  const int64_t least = step < 0 ? -1 : 0;
  return std::clamp(at, least, step < 0 ? n - 1 : n);
}

StatusOr<SliceBounds> BoundsOf(const Value& start, const Value& stop, const Value& step,
                               int64_t n) {
  for (const Value* bound : {&start, &stop, &step}) {
    if (!bound->is_none() && !bound->is_integral()) {
      return InvalidArgument("a slice needs integers, not a ", TypeName(*bound));
    }
  }
  SliceBounds bounds;
  bounds.step = step.is_none() ? 1 : step.integer();
  if (bounds.step == 0) return InvalidArgument("the step of a slice cannot be 0");
  bounds.step = std::max(bounds.step, -std::numeric_limits<int64_t>::max());
  const bool back = bounds.step < 0;
  bounds.start = ClampBound(start, back ? n - 1 : 0, n, bounds.step);
  bounds.stop = ClampBound(stop, back ? -1 : n, n, bounds.step);
  return bounds;
}

template <typename Take>
void ForSlice(const SliceBounds& bounds, Take take) {
  if (bounds.step > 0) {
    for (int64_t i = bounds.start; i < bounds.stop;) {
      take(i);
      if (bounds.step >= bounds.stop - i) break;
      i += bounds.step;
    }
  } else {
    for (int64_t i = bounds.start; i > bounds.stop;) {
      take(i);
      if (bounds.step <= bounds.stop - i) break;
      i += bounds.step;
    }
  }
}

StatusOr<Value> SliceString(Interpreter* in, const Value& text, const Value& start,
                            const Value& stop, const Value& step) {
  const std::string_view all = text.text();
  in->meter()->SpendScan(all.size());
  WEFT_ASSIGN_OR_RETURN(const SliceBounds bounds, BoundsOf(start, stop, step, CountChars(all)));
  if (bounds.step == 1) {
    if (bounds.start >= bounds.stop) return Value::Borrowed("");
    const size_t from = ByteOffset(all, bounds.start);
    const size_t bytes = ByteOffset(all.substr(from), bounds.stop - bounds.start);
    return text.Substring(all.substr(from, bytes));
  }
  if (!in->meter()->Fits(CharsBytes(all) + all.size())) return Value();
  in->meter()->SpendChars(all.size());
  const std::vector<std::string_view> chars = Chars(all);
  std::string out;
  out.reserve(all.size());
  ForSlice(bounds, [&](int64_t i) { out += chars[i]; });
  return in->NewString(std::move(out));
}

}  // namespace

StatusOr<Value> Interpreter::EvalSlice(const Expr& e) {
  WEFT_ASSIGN_OR_RETURN(const Value owner, Eval(*e.children[0]));
  Value bounds[3];
  for (int i = 0; i < 3; ++i) {
    if (e.children[i + 1] == nullptr) continue;
    WEFT_ASSIGN_OR_RETURN(bounds[i], Eval(*e.children[i + 1]));
  }
  if (owner.is_undefined()) return InvalidArgument(owner.UndefinedMessage());
  if (owner.is_string()) return SliceString(this, owner, bounds[0], bounds[1], bounds[2]);
  if (!IsIndexable(owner)) return Value::Undefined("slice", TypeName(owner));
  const std::vector<Value>& items = owner.list().items;
  WEFT_ASSIGN_OR_RETURN(const SliceBounds slice, BoundsOf(bounds[0], bounds[1], bounds[2],
                                                          static_cast<int64_t>(items.size())));
  ListBuilder taken(meter_);
  ForSlice(slice, [&](int64_t i) { taken.Add(items[i]); });
  if (!meter_->ok()) return meter_->status();
  return taken.Finish(owner.list().kind);
}

StatusOr<Value> Interpreter::Iterate(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return NewList({});
    case Kind::kString: {
      Held held(meter_);
      ListBuilder chars(meter_);
      const std::string_view text = value.text();
      if (!held.Add(CharsBytes(text)) || !chars.Reserve(CountChars(text))) return meter_->status();
      for (const std::string_view c : Chars(text)) chars.Add(value.Substring(c));
      return chars.Finish();
    }
    case Kind::kList: {
      const ListObject& list = value.list();
      if (list.kind != ListKind::kGenerator) return value;
      ListBuilder rest(meter_);
      if (!rest.Reserve(list.items.size() - list.next)) return meter_->status();
      while (list.next < list.items.size()) rest.Add(list.items[list.next++]);
      return rest.Finish();
    }
    case Kind::kDict: {
      ListBuilder keys(meter_);
      if (!keys.Reserve(value.dict().entries.size())) return meter_->status();
      for (const auto& [key, unused] : value.dict().entries) keys.Add(key);
      return keys.Finish();
    }
    default:
      return InvalidArgument("a ", TypeName(value), " cannot be iterated");
  }
}

// --- calls ------------------------------------------------------------------

Status Interpreter::EvalArguments(const CallArguments& from, Arguments* to) {
  if (!to->held.Grow(&to->positional, from.positional.size()) ||
      !to->held_keywords.Grow(&to->keyword, from.keyword.size())) {
    return meter_->status();
  }
  for (const ExprPtr& e : from.positional) {
    WEFT_ASSIGN_OR_RETURN(Value value, Eval(*e));
    to->positional.push_back(std::move(value));
  }
  if (from.star != nullptr) {
    WEFT_ASSIGN_OR_RETURN(const Value star, Eval(*from.star));
    WEFT_ASSIGN_OR_RETURN(const Value items, Iterate(star));
    const std::vector<Value>& more = items.list().items;
    if (!meter_->SpendBytes(more.size() * sizeof(Value)) ||
        !to->held.Grow(&to->positional, more.size())) {
      return meter_->status();
    }
    to->positional.insert(to->positional.end(), more.begin(), more.end());
  }
  for (const auto& [name, e] : from.keyword) {
    WEFT_ASSIGN_OR_RETURN(Value value, Eval(*e));
    to->keyword.emplace_back(name, std::move(value));
  }
  if (from.double_star == nullptr) return OkStatus();
  WEFT_ASSIGN_OR_RETURN(const Value dict, Eval(*from.double_star));
  if (!dict.is_dict()) return InvalidArgument("** needs a dict, not a ", TypeName(dict));
  to->kept = dict;
  if (!to->held_keywords.Grow(&to->keyword, dict.dict().entries.size())) return meter_->status();
  for (const auto& [key, value] : dict.dict().entries) {
    if (!key.is_string()) return InvalidArgument("argument names must be strings");
    meter_->Spend();
    to->keyword.emplace_back(key.text(), value);
  }
  return OkStatus();
}

StatusOr<Value> Interpreter::EvalCall(const Expr& e, const Value* caller) {
  const Expr& target = *e.children[0];
  const MethodEntry* change =
      target.kind == ExprKind::kAttribute ? FindListChange(target.name) : nullptr;
  WEFT_ASSIGN_OR_RETURN(Value callee, Eval(change != nullptr ? *target.children[0] : target));
  if (change != nullptr && !callee.is_list_of(ListKind::kList)) {
    change = nullptr;
    const Value owner = std::exchange(callee, Value());
    WEFT_ASSIGN_OR_RETURN(callee, Attribute(owner, Value::Borrowed(target.name)));
  }
  Arguments args(meter_);
  WEFT_RETURN_IF_ERROR(EvalArguments(*e.arguments, &args));
  const bool is_method = target.kind == ExprKind::kAttribute;
  if (callee.is_undefined() && (is_method || target.kind == ExprKind::kName)) {
    return InvalidArgument(callee.UndefinedMessage(), ": ",
                           Message(NoBuiltin(is_method ? "method" : "function", target.name)));
  }
  if (change != nullptr) return change->call(this, callee, &args);
  if (caller != nullptr) args.keyword.emplace_back("caller", *caller);
  return Call(callee, &args);
}

StatusOr<Value> Interpreter::EvalFilter(const Expr& e) {
  Value subject;
  if (e.children.empty() || e.children[0] == nullptr) {
    subject = block_text_;
  } else {
    WEFT_ASSIGN_OR_RETURN(subject, Eval(*e.children[0]));
  }
  if (e.filter == nullptr) return NoBuiltin("filter", e.name);
  Arguments args(meter_);
  if (e.arguments != nullptr) WEFT_RETURN_IF_ERROR(EvalArguments(*e.arguments, &args));
  return e.filter->apply(this, subject, &args);
}

StatusOr<Value> Interpreter::ApplyBlockFilters(const Expr& chain, Value text) {
  const Value outer = std::exchange(block_text_, std::move(text));
  StatusOr<Value> result = Eval(chain);
  block_text_ = outer;
  return result;
}

StatusOr<Value> Interpreter::EvalTest(const Expr& e) {
  WEFT_ASSIGN_OR_RETURN(const Value subject, Eval(*e.children[0]));
  if (e.test == nullptr) return NoBuiltin("test", e.name);
  Arguments args(meter_);
  if (e.arguments != nullptr) WEFT_RETURN_IF_ERROR(EvalArguments(*e.arguments, &args));
  WEFT_ASSIGN_OR_RETURN(const Value answer, e.test->holds(this, subject, &args));
  return Value::Bool(Truth(answer) != e.negated);
}

// --- operators --------------------------------------------------------------

StatusOr<Value> Interpreter::EvalCondition(const Expr& e) {
  WEFT_ASSIGN_OR_RETURN(const Value condition, Eval(*e.children[0]));
  if (Truth(condition)) return Eval(*e.children[1]);
  if (e.children[2] != nullptr) return Eval(*e.children[2]);
  return Value::Undefined("the inline if-expression without else");
}

StatusOr<Value> Interpreter::EvalSign(const Expr& e) {
  WEFT_ASSIGN_OR_RETURN(const Value operand, Eval(*e.children[0]));
  if (operand.is_undefined()) return InvalidArgument(operand.UndefinedMessage());
  if (!operand.is_number()) return InvalidArgument("a ", TypeName(operand), " cannot have a sign");
  const bool negate = e.kind == ExprKind::kNegate;
  if (operand.kind() == Kind::kFloat) {
    return Value::Float(negate ? -operand.number() : operand.number());
  }
  if (negate && operand.integer() == std::numeric_limits<int64_t>::min()) {
    return InvalidArgument("this number does not fit 64 bits");
  }
  return Value::Int(negate ? -operand.integer() : operand.integer());
}

StatusOr<Value> Interpreter::EvalLogic(const Expr& e) {
  const bool stops_at = e.kind == ExprKind::kOr;
  Value value;
  for (const ExprPtr& child : e.children) {
    WEFT_ASSIGN_OR_RETURN(value, Eval(*child));
    if (Truth(value) == stops_at) break;
  }
  return value;
}

StatusOr<Value> Interpreter::EvalConcat(const Expr& e) {
  TextBuilder text(meter_);
  for (const ExprPtr& child : e.children) {
    WEFT_ASSIGN_OR_RETURN(const Value value, Eval(*child));
    AppendStr(value, &text, meter_);
  }
  return text.Finish();
}

StatusOr<Value> Interpreter::EvalArithmetic(const Expr& e) {
  WEFT_ASSIGN_OR_RETURN(Value left, Eval(*e.children[0]));
  for (size_t i = 0; i < e.ops.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const Value right, Eval(*e.children[i + 1]));
    WEFT_ASSIGN_OR_RETURN(left, Arithmetic(this, e.ops[i], left, right));
  }
  return left;
}

StatusOr<Value> Interpreter::EvalCompare(const Expr& e) {
  WEFT_ASSIGN_OR_RETURN(Value left, Eval(*e.children[0]));
  for (size_t i = 0; i < e.ops.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(Value right, Eval(*e.children[i + 1]));
    WEFT_ASSIGN_OR_RETURN(const bool holds, CompareOp(this, e.ops[i], left, right));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

}  // namespace weft::jinja
