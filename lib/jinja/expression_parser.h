// Parses expressions from tokens; the statement parser builds on it.
#ifndef WEFT_JINJA_EXPRESSION_PARSER_H_
#define WEFT_JINJA_EXPRESSION_PARSER_H_

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "jinja/ast.h"
#include "jinja/builtins.h"
#include "jinja/lexer.h"

namespace weft::jinja {

// Nesting limit for expressions and statements; parsing, rendering and destroying a template
// recurse this deep.
inline constexpr int kMaxNesting = 150;

class Nested {
 public:
  explicit Nested(int* depth) : depth_(depth) { ++*depth_; }
  ~Nested() { --*depth_; }

 private:
  int* const depth_;
};

class ExpressionParser {
 protected:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // --- tokens ---------------------------------------------------------------

  const Token& Current() const { return tokens_[next_]; }
  const Token& Following() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  const Token& Advance() { return tokens_[next_ + 1 < tokens_.size() ? next_++ : next_]; }

  bool AtOperator(std::string_view op) const { return Current().Is(TokenKind::kOperator, op); }
  bool AtName(std::string_view name) const { return Current().Is(TokenKind::kName, name); }
  bool SkipOperator(std::string_view op) { return AtOperator(op) && (Advance(), true); }
  bool SkipName(std::string_view name) { return AtName(name) && (Advance(), true); }

  static std::string Describe(const Token& token) {
    switch (token.kind) {
      case TokenKind::kText:
        return "text";
      case TokenKind::kBlockBegin:
        return "{%";
      case TokenKind::kBlockEnd:
        return "%}";
      case TokenKind::kPrintBegin:
        return "{{";
      case TokenKind::kPrintEnd:
        return "}}";
      case TokenKind::kEnd:
        return "the end of the template";
      default:
        return StrCat("'", Printable(token.text), "'");
    }
  }

  Status Error(std::string_view what) const {
    return AtPosition(Current().at, InvalidArgument(what));
  }
  Status Expected(std::string_view what) const {
    return Error(StrCat("expected ", what, ", found ", Describe(Current())));
  }
  Status ExpectOperator(std::string_view op) {
    return SkipOperator(op) ? OkStatus() : Expected(StrCat("'", op, "'"));
  }
  Status ExpectBlockEnd() {
    if (Current().kind != TokenKind::kBlockEnd) return Expected("%}");
    Advance();
    return OkStatus();
  }
  StatusOr<std::string> ExpectName() {
    if (Current().kind != TokenKind::kName) return Expected("a name");
    return Advance().text;
  }

  Symbol Intern(const std::string& name) {
    return symbols_.emplace(name, static_cast<Symbol>(symbols_.size())).first->second;
  }

  // --- nodes ----------------------------------------------------------------

  std::unique_ptr<Expr> NewExpr(ExprKind kind) const { return NewExpr(kind, Current().at); }
  static std::unique_ptr<Expr> NewExpr(ExprKind kind, const Position& at) {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->at = at;
    return e;
  }

  Status Deepen(Expr* parent, const Expr* child) {
    if (child == nullptr) return OkStatus();
    parent->depth = std::max<uint16_t>(parent->depth, child->depth + 1);
    if (parent->depth > kMaxNesting) return Error("this expression is nested too deep");
    return OkStatus();
  }
  Status AddChild(Expr* parent, ExprPtr child) {
    WEFT_RETURN_IF_ERROR(Deepen(parent, child.get()));
    parent->children.push_back(std::move(child));
    return OkStatus();
  }

  static ExprPtr Constant(Value value, const Position& at) {
    auto e = NewExpr(ExprKind::kConstant, at);
    e->constant = std::move(value);
    return e;
  }
  // The node owns the text.
  static ExprPtr ConstantString(std::string text, const Position& at) {
    auto e = NewExpr(ExprKind::kConstant, at);
    e->name = std::move(text);
    e->constant = Value::Borrowed(e->name);
    return e;
  }

  // --- expressions ----------------------------------------------------------

  StatusOr<ExprPtr> ParseExpression();

  struct TupleOptions {
    bool parenthesized = false;
    bool conditions = true;          // whether `a if b` is allowed in it
    std::string_view end_name = {};  // a word that ends it
  };
  // One expression, or several separated by commas: a tuple.
  StatusOr<ExprPtr> ParseTuple(const TupleOptions& options);
  // Filters without their operand.
  StatusOr<ExprPtr> ParseFilterChain();

  int depth_ = 0;
  std::unordered_map<std::string, Symbol> symbols_;
  std::vector<MacroNode*> open_macros_;

 private:
  using Operand = StatusOr<ExprPtr> (ExpressionParser::*)();
  using OpName = std::pair<std::string_view, Op>;

  // `a word b word c` as one node.
  StatusOr<ExprPtr> ParseWordChain(ExprKind kind, std::string_view word, Operand operand);
  // `a op b op c` as one node, for operators of one precedence.
  StatusOr<ExprPtr> ParseOpChain(std::initializer_list<OpName> ops, Operand operand);

  // By precedence, from the weakest to the strongest.
  StatusOr<ExprPtr> ParseOr();
  StatusOr<ExprPtr> ParseAnd();
  StatusOr<ExprPtr> ParseNot();
  StatusOr<ExprPtr> ParseCompare();
  StatusOr<ExprPtr> ParseSum();
  StatusOr<ExprPtr> ParseConcat();
  StatusOr<ExprPtr> ParseProduct();
  StatusOr<ExprPtr> ParsePower();
  StatusOr<ExprPtr> ParseFiltered();
  // Signs bind tighter than filters.
  StatusOr<ExprPtr> ParseSigned();
  StatusOr<ExprPtr> ParsePrimary();

  // Consumes the comparison operator here, if any.
  bool SkipComparison(Op* op);
  StatusOr<ExprPtr> ParseName();
  StatusOr<ExprPtr> ParseListLiteral();
  StatusOr<ExprPtr> ParseDictLiteral();
  bool AtTupleEnd(const TupleOptions& options) const;

  StatusOr<ExprPtr> ParsePostfix(ExprPtr e);
  StatusOr<ExprPtr> ParseAttribute(ExprPtr owner);
  // One of the parts of [a:b:c], null if omitted.
  StatusOr<ExprPtr> ParseSlicePart();
  StatusOr<ExprPtr> ParseSubscript(ExprPtr owner);
  StatusOr<ExprPtr> ParseIndexTuple(ExprPtr first);
  StatusOr<ExprPtr> ParseCall(ExprPtr callee);
  // "(a, b=c, *d, **e)", starting at the parenthesis.
  Status ParseArguments(Expr* call);
  Status ParseArgument(Expr* call, CallArguments* arguments);

  // Filters, tests and calls after an expression.
  StatusOr<ExprPtr> ParseFilters(ExprPtr e);
  StatusOr<std::string> ParseDottedName();
  // The filter named here, applied to `subject`, which is null at the start of a filter block.
  StatusOr<ExprPtr> ParseFilter(ExprPtr subject);
  // Whether an unparenthesised test argument begins here.
  bool AtBareArgument() const;
  StatusOr<ExprPtr> ParseTest(ExprPtr subject);

  std::vector<Token> tokens_;
  size_t next_ = 0;
};

}  // namespace weft::jinja

#endif  // WEFT_JINJA_EXPRESSION_PARSER_H_
