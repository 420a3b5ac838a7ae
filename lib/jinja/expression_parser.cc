#include "jinja/expression_parser.h"

#include <algorithm>
#include <utility>

namespace weft::jinja {

StatusOr<ExprPtr> ExpressionParser::ParseExpression() {
  const Nested nested(&depth_);
  if (depth_ > kMaxNesting) return Error("the template is nested too deep here");
  WEFT_ASSIGN_OR_RETURN(ExprPtr value, ParseOr());
  while (AtName("if")) {
    auto condition = NewExpr(ExprKind::kCondition);
    Advance();
    WEFT_ASSIGN_OR_RETURN(ExprPtr test, ParseOr());
    ExprPtr otherwise;
    if (SkipName("else")) {
      WEFT_ASSIGN_OR_RETURN(otherwise, ParseExpression());
    }
    WEFT_RETURN_IF_ERROR(AddChild(condition.get(), std::move(test)));
    WEFT_RETURN_IF_ERROR(AddChild(condition.get(), std::move(value)));
    WEFT_RETURN_IF_ERROR(AddChild(condition.get(), std::move(otherwise)));
    value = std::move(condition);
  }
  return value;
}

StatusOr<ExprPtr> ExpressionParser::ParseWordChain(ExprKind kind, std::string_view word,
                                                   Operand operand) {
  WEFT_ASSIGN_OR_RETURN(ExprPtr first, (this->*operand)());
  if (!AtName(word)) return first;
  auto chain = NewExpr(kind);
  WEFT_RETURN_IF_ERROR(AddChild(chain.get(), std::move(first)));
  while (SkipName(word)) {
    WEFT_ASSIGN_OR_RETURN(ExprPtr next, (this->*operand)());
    WEFT_RETURN_IF_ERROR(AddChild(chain.get(), std::move(next)));
  }
  return ExprPtr(std::move(chain));
}

StatusOr<ExprPtr> ExpressionParser::ParseOr() {
  return ParseWordChain(ExprKind::kOr, "or", &ExpressionParser::ParseAnd);
}

StatusOr<ExprPtr> ExpressionParser::ParseAnd() {
  return ParseWordChain(ExprKind::kAnd, "and", &ExpressionParser::ParseNot);
}

StatusOr<ExprPtr> ExpressionParser::ParseNot() {
  if (!AtName("not")) return ParseCompare();
  const Nested nested(&depth_);
  if (depth_ > kMaxNesting) return Error("the template is nested too deep here");
  auto e = NewExpr(ExprKind::kNot);
  Advance();
  WEFT_ASSIGN_OR_RETURN(ExprPtr operand, ParseNot());
  WEFT_RETURN_IF_ERROR(AddChild(e.get(), std::move(operand)));
  return ExprPtr(std::move(e));
}

StatusOr<ExprPtr> ExpressionParser::ParseOpChain(std::initializer_list<OpName> ops,
                                                 Operand operand) {
  WEFT_ASSIGN_OR_RETURN(ExprPtr first, (this->*operand)());
  std::unique_ptr<Expr> chain;
  while (true) {
    const auto* const op = std::ranges::find_if(
        ops, [this](const OpName& candidate) { return AtOperator(candidate.first); });
    if (op == ops.end()) break;
    if (chain == nullptr) {
      chain = NewExpr(ExprKind::kArithmetic);
      WEFT_RETURN_IF_ERROR(AddChild(chain.get(), std::move(first)));
    }
    Advance();
    WEFT_ASSIGN_OR_RETURN(ExprPtr next, (this->*operand)());
    WEFT_RETURN_IF_ERROR(AddChild(chain.get(), std::move(next)));
    chain->ops.push_back(op->second);
  }
  return chain != nullptr ? ExprPtr(std::move(chain)) : std::move(first);
}

bool ExpressionParser::SkipComparison(Op* op) {
  constexpr OpName kOps[] = {{"==", Op::kEqual},  {"!=", Op::kNotEqual},
                             {"<", Op::kLess},    {"<=", Op::kLessEqual},
                             {">", Op::kGreater}, {">=", Op::kGreaterEqual}};
  for (const auto& [text, meaning] : kOps) {
    *op = meaning;
    if (SkipOperator(text)) return true;
  }
  *op = Op::kIn;
  if (SkipName("in")) return true;
  *op = Op::kNotIn;
  if (!AtName("not") || !Following().Is(TokenKind::kName, "in")) return false;
  Advance();
  Advance();
  return true;
}

StatusOr<ExprPtr> ExpressionParser::ParseCompare() {
  WEFT_ASSIGN_OR_RETURN(ExprPtr first, ParseSum());
  std::unique_ptr<Expr> chain;
  const Position at = Current().at;
  for (Op op; SkipComparison(&op);) {
    if (chain == nullptr) {
      chain = NewExpr(ExprKind::kCompare, at);
      WEFT_RETURN_IF_ERROR(AddChild(chain.get(), std::move(first)));
    }
    WEFT_ASSIGN_OR_RETURN(ExprPtr next, ParseSum());
    WEFT_RETURN_IF_ERROR(AddChild(chain.get(), std::move(next)));
    chain->ops.push_back(op);
  }
  return chain != nullptr ? ExprPtr(std::move(chain)) : std::move(first);
}

StatusOr<ExprPtr> ExpressionParser::ParseSum() {
  return ParseOpChain({{"+", Op::kAdd}, {"-", Op::kSubtract}}, &ExpressionParser::ParseConcat);
}

StatusOr<ExprPtr> ExpressionParser::ParseConcat() {
  WEFT_ASSIGN_OR_RETURN(ExprPtr first, ParseProduct());
  if (!AtOperator("~")) return first;
  auto chain = NewExpr(ExprKind::kConcat);
  WEFT_RETURN_IF_ERROR(AddChild(chain.get(), std::move(first)));
  while (SkipOperator("~")) {
    WEFT_ASSIGN_OR_RETURN(ExprPtr next, ParseProduct());
    WEFT_RETURN_IF_ERROR(AddChild(chain.get(), std::move(next)));
  }
  return ExprPtr(std::move(chain));
}

StatusOr<ExprPtr> ExpressionParser::ParseProduct() {
  return ParseOpChain(
      {{"*", Op::kMultiply}, {"/", Op::kDivide}, {"//", Op::kFloorDivide}, {"%", Op::kModulo}},
      &ExpressionParser::ParsePower);
}

StatusOr<ExprPtr> ExpressionParser::ParsePower() {
  return ParseOpChain({{"**", Op::kPower}}, &ExpressionParser::ParseFiltered);
}

StatusOr<ExprPtr> ExpressionParser::ParseFiltered() {
  WEFT_ASSIGN_OR_RETURN(ExprPtr e, ParseSigned());
  return ParseFilters(std::move(e));
}

StatusOr<ExprPtr> ExpressionParser::ParseSigned() {
  if (!AtOperator("-") && !AtOperator("+")) {
    WEFT_ASSIGN_OR_RETURN(ExprPtr primary, ParsePrimary());
    return ParsePostfix(std::move(primary));
  }
  const Nested nested(&depth_);
  if (depth_ > kMaxNesting) return Error("the template is nested too deep here");
  auto e = NewExpr(AtOperator("-") ? ExprKind::kNegate : ExprKind::kPlus);
  Advance();
  WEFT_ASSIGN_OR_RETURN(ExprPtr operand, ParseSigned());
  WEFT_RETURN_IF_ERROR(AddChild(e.get(), std::move(operand)));
  return ParsePostfix(std::move(e));
}

StatusOr<ExprPtr> ExpressionParser::ParseName() {
  const Token& token = Advance();
  const std::string& name = token.text;
  if (name == "true" || name == "True") return Constant(Value::Bool(true), token.at);
  if (name == "false" || name == "False") return Constant(Value::Bool(false), token.at);
  if (name == "none" || name == "None") return Constant(Value::None(), token.at);
  auto e = NewExpr(ExprKind::kName, token.at);
  e->name = name;
  e->symbol = Intern(name);
  for (MacroNode* macro : open_macros_) {
    macro->uses_varargs |= name == "varargs";
    macro->uses_kwargs |= name == "kwargs";
    macro->uses_caller |= name == "caller";
  }
  return ExprPtr(std::move(e));
}

StatusOr<ExprPtr> ExpressionParser::ParsePrimary() {
  const Token& token = Current();
  switch (token.kind) {
    case TokenKind::kName:
      return ParseName();
    case TokenKind::kString: {
      const Position at = token.at;
      std::string text;
      while (Current().kind == TokenKind::kString) text += Advance().text;
      return ConstantString(std::move(text), at);
    }
    case TokenKind::kInteger:
      Advance();
      return Constant(Value::Int(token.integer), token.at);
    case TokenKind::kFloat:
      Advance();
      return Constant(Value::Float(token.real), token.at);
    default:
      break;
  }
  if (SkipOperator("(")) {
    WEFT_ASSIGN_OR_RETURN(ExprPtr inner, ParseTuple({.parenthesized = true}));
    WEFT_RETURN_IF_ERROR(ExpectOperator(")"));
    return inner;
  }
  if (AtOperator("[")) return ParseListLiteral();
  if (AtOperator("{")) return ParseDictLiteral();
  return Expected("an expression");
}

StatusOr<ExprPtr> ExpressionParser::ParseListLiteral() {
  auto list = NewExpr(ExprKind::kList);
  Advance();
  while (!AtOperator("]")) {
    WEFT_ASSIGN_OR_RETURN(ExprPtr item, ParseExpression());
    WEFT_RETURN_IF_ERROR(AddChild(list.get(), std::move(item)));
    if (!SkipOperator(",")) break;
  }
  WEFT_RETURN_IF_ERROR(ExpectOperator("]"));
  return ExprPtr(std::move(list));
}

StatusOr<ExprPtr> ExpressionParser::ParseDictLiteral() {
  auto dict = NewExpr(ExprKind::kDict);
  Advance();
  while (!AtOperator("}")) {
    WEFT_ASSIGN_OR_RETURN(ExprPtr key, ParseExpression());
    WEFT_RETURN_IF_ERROR(ExpectOperator(":"));
    WEFT_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
    WEFT_RETURN_IF_ERROR(AddChild(dict.get(), std::move(key)));
    WEFT_RETURN_IF_ERROR(AddChild(dict.get(), std::move(value)));
    if (!SkipOperator(",")) break;
  }
  WEFT_RETURN_IF_ERROR(ExpectOperator("}"));
  return ExprPtr(std::move(dict));
}

StatusOr<ExprPtr> ExpressionParser::ParseTuple(const TupleOptions& options) {
  auto tuple = NewExpr(ExprKind::kTuple);
  bool comma = false;
  while (!AtTupleEnd(options)) {
    WEFT_ASSIGN_OR_RETURN(ExprPtr item, options.conditions ? ParseExpression() : ParseOr());
    WEFT_RETURN_IF_ERROR(AddChild(tuple.get(), std::move(item)));
    if (!SkipOperator(",")) break;
    comma = true;
  }
  if (!comma && tuple->children.size() == 1) return std::move(tuple->children[0]);
  if (tuple->children.empty() && (comma || !options.parenthesized)) {
    return Expected("an expression");
  }
  return ExprPtr(std::move(tuple));
}

bool ExpressionParser::AtTupleEnd(const TupleOptions& options) const {
  return Current().kind == TokenKind::kBlockEnd || Current().kind == TokenKind::kPrintEnd ||
         AtOperator(")") || (!options.end_name.empty() && AtName(options.end_name));
}

StatusOr<ExprPtr> ExpressionParser::ParsePostfix(ExprPtr e) {
  while (true) {
    if (AtOperator(".")) {
      WEFT_ASSIGN_OR_RETURN(e, ParseAttribute(std::move(e)));
    } else if (AtOperator("[")) {
      WEFT_ASSIGN_OR_RETURN(e, ParseSubscript(std::move(e)));
    } else if (AtOperator("(")) {
      WEFT_ASSIGN_OR_RETURN(e, ParseCall(std::move(e)));
    } else {
      return e;
    }
  }
}

StatusOr<ExprPtr> ExpressionParser::ParseAttribute(ExprPtr owner) {
  Advance();
  const Token& token = Current();
  if (token.kind == TokenKind::kInteger) {
    auto item = NewExpr(ExprKind::kItem);
    Advance();
    WEFT_RETURN_IF_ERROR(AddChild(item.get(), std::move(owner)));
    WEFT_RETURN_IF_ERROR(AddChild(item.get(), Constant(Value::Int(token.integer), token.at)));
    return ExprPtr(std::move(item));
  }
  auto attribute = NewExpr(ExprKind::kAttribute);
  WEFT_ASSIGN_OR_RETURN(attribute->name, ExpectName());
  WEFT_RETURN_IF_ERROR(AddChild(attribute.get(), std::move(owner)));
  return ExprPtr(std::move(attribute));
}

StatusOr<ExprPtr> ExpressionParser::ParseSlicePart() {
  if (AtOperator(":") || AtOperator("]") || AtOperator(",")) return ExprPtr();
  return ParseExpression();
}

StatusOr<ExprPtr> ExpressionParser::ParseSubscript(ExprPtr owner) {
  const Position at = Current().at;
  Advance();
  WEFT_ASSIGN_OR_RETURN(ExprPtr first, ParseSlicePart());
  auto e = NewExpr(AtOperator(":") ? ExprKind::kSlice : ExprKind::kItem, at);
  WEFT_RETURN_IF_ERROR(AddChild(e.get(), std::move(owner)));
  if (e->kind == ExprKind::kItem) {
    if (first == nullptr) return Expected("an index");
    if (AtOperator(",")) {
      WEFT_ASSIGN_OR_RETURN(first, ParseIndexTuple(std::move(first)));
    }
    WEFT_RETURN_IF_ERROR(AddChild(e.get(), std::move(first)));
  } else {
    WEFT_RETURN_IF_ERROR(AddChild(e.get(), std::move(first)));
    for (int part = 0; part < 2; ++part) {
      ExprPtr bound;
      if (SkipOperator(":")) {
        WEFT_ASSIGN_OR_RETURN(bound, ParseSlicePart());
      }
      WEFT_RETURN_IF_ERROR(AddChild(e.get(), std::move(bound)));
    }
  }
  WEFT_RETURN_IF_ERROR(ExpectOperator("]"));
  return ExprPtr(std::move(e));
}

StatusOr<ExprPtr> ExpressionParser::ParseIndexTuple(ExprPtr first) {
  auto tuple = NewExpr(ExprKind::kTuple);
  WEFT_RETURN_IF_ERROR(AddChild(tuple.get(), std::move(first)));
  while (SkipOperator(",") && !AtOperator("]")) {
    WEFT_ASSIGN_OR_RETURN(ExprPtr item, ParseExpression());
    WEFT_RETURN_IF_ERROR(AddChild(tuple.get(), std::move(item)));
  }
  return ExprPtr(std::move(tuple));
}

StatusOr<ExprPtr> ExpressionParser::ParseCall(ExprPtr callee) {
  auto call = NewExpr(ExprKind::kCall);
  WEFT_RETURN_IF_ERROR(AddChild(call.get(), std::move(callee)));
  WEFT_RETURN_IF_ERROR(ParseArguments(call.get()));
  return ExprPtr(std::move(call));
}

Status ExpressionParser::ParseArguments(Expr* call) {
  call->arguments = std::make_unique<CallArguments>();
  CallArguments* const arguments = call->arguments.get();
  Advance();
  while (!AtOperator(")")) {
    WEFT_RETURN_IF_ERROR(ParseArgument(call, arguments));
    if (!SkipOperator(",")) break;
  }
  return ExpectOperator(")");
}

Status ExpressionParser::ParseArgument(Expr* call, CallArguments* arguments) {
  const bool star = SkipOperator("*");
  const bool double_star = !star && SkipOperator("**");
  const bool named = !star && !double_star && Current().kind == TokenKind::kName &&
                     Following().Is(TokenKind::kOperator, "=");
  std::string name;
  if (named) {
    name = Advance().text;
    Advance();
  }
  const bool late = !arguments->keyword.empty() || arguments->star || arguments->double_star;
  if ((star && arguments->star) || arguments->double_star ||
      (!star && !double_star && !named && late)) {
    return Error("this argument cannot stand after the ones before it");
  }
  WEFT_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
  WEFT_RETURN_IF_ERROR(Deepen(call, value.get()));
  if (star) {
    arguments->star = std::move(value);
  } else if (double_star) {
    arguments->double_star = std::move(value);
  } else if (named) {
    arguments->keyword.emplace_back(std::move(name), std::move(value));
  } else {
    arguments->positional.push_back(std::move(value));
  }
  return OkStatus();
}

StatusOr<ExprPtr> ExpressionParser::ParseFilters(ExprPtr e) {
  while (true) {
    if (SkipOperator("|")) {
      WEFT_ASSIGN_OR_RETURN(e, ParseFilter(std::move(e)));
    } else if (AtName("is")) {
      WEFT_ASSIGN_OR_RETURN(e, ParseTest(std::move(e)));
    } else if (AtOperator("(")) {
      WEFT_ASSIGN_OR_RETURN(e, ParseCall(std::move(e)));
    } else {
      return e;
    }
  }
}

StatusOr<std::string> ExpressionParser::ParseDottedName() {
  WEFT_ASSIGN_OR_RETURN(std::string name, ExpectName());
  while (SkipOperator(".")) {
    WEFT_ASSIGN_OR_RETURN(const std::string part, ExpectName());
    name += "." + part;
  }
  return name;
}

StatusOr<ExprPtr> ExpressionParser::ParseFilter(ExprPtr subject) {
  auto filter = NewExpr(ExprKind::kFilter);
  WEFT_ASSIGN_OR_RETURN(filter->name, ParseDottedName());
  filter->filter = FindFilter(filter->name);
  WEFT_RETURN_IF_ERROR(AddChild(filter.get(), std::move(subject)));
  if (AtOperator("(")) WEFT_RETURN_IF_ERROR(ParseArguments(filter.get()));
  return ExprPtr(std::move(filter));
}

StatusOr<ExprPtr> ExpressionParser::ParseFilterChain() {
  WEFT_ASSIGN_OR_RETURN(ExprPtr e, ParseFilter(nullptr));
  while (SkipOperator("|")) {
    WEFT_ASSIGN_OR_RETURN(e, ParseFilter(std::move(e)));
  }
  return e;
}

bool ExpressionParser::AtBareArgument() const {
  switch (Current().kind) {
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return true;
    case TokenKind::kName:
      return !AtName("else") && !AtName("or") && !AtName("and") && !AtName("if");
    default:
      return AtOperator("[") || AtOperator("{");
  }
}

StatusOr<ExprPtr> ExpressionParser::ParseTest(ExprPtr subject) {
  auto test = NewExpr(ExprKind::kTest);
  Advance();
  test->negated = SkipName("not");
  WEFT_ASSIGN_OR_RETURN(test->name, ParseDottedName());
  test->test = FindTest(test->name);
  WEFT_RETURN_IF_ERROR(AddChild(test.get(), std::move(subject)));
  if (AtOperator("(")) {
    WEFT_RETURN_IF_ERROR(ParseArguments(test.get()));
  } else if (AtBareArgument()) {
    if (AtName("is")) return Error("tests cannot be chained with 'is'");
    const Nested nested(&depth_);
    if (depth_ > kMaxNesting) return Error("the template is nested too deep here");
    WEFT_ASSIGN_OR_RETURN(ExprPtr argument, ParsePrimary());
    WEFT_ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    WEFT_RETURN_IF_ERROR(Deepen(test.get(), argument.get()));
    test->arguments = std::make_unique<CallArguments>();
    test->arguments->positional.push_back(std::move(argument));
  }
  return ExprPtr(std::move(test));
}

}  // namespace weft::jinja
