#include "jinja/parser.h"

#include <utility>

#include "jinja/expression_parser.h"

namespace weft::jinja {
namespace {

class Parser : private ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Status ParseAll(Program* program) {
    program->loop = Intern("loop");
    program->caller = Intern("caller");
    program->varargs = Intern("varargs");
    program->kwargs = Intern("kwargs");
    WEFT_RETURN_IF_ERROR(ParseBlock({}, &program->body));
    program->symbols.resize(symbols_.size());
    for (const auto& [name, symbol] : symbols_) program->symbols[symbol] = name;
    return OkStatus();
  }

 private:
  using Words = std::initializer_list<std::string_view>;

  // Parses statements up to a tag that begins with one of `ends`, whose word stays current; with no
  // `ends`, to the end of the template.
  Status ParseBlock(Words ends, Statements* block) {
    const Nested nested(&depth_);
    if (depth_ > kMaxNesting) return Error("the template is nested too deep here");
    while (true) {
      switch (Current().kind) {
        case TokenKind::kEnd:
          if (ends.size() == 0) return OkStatus();
          return Expected(StrCat("{% ", StrJoin(ends, " or "), " %}"));
        case TokenKind::kText: {
          auto text = NewStmt(StmtKind::kText);
          text->text = Advance().text;
          block->push_back(std::move(text));
          break;
        }
        case TokenKind::kPrintBegin: {
          Advance();
          WEFT_RETURN_IF_ERROR(ParsePrint(block));
          if (Current().kind != TokenKind::kPrintEnd) return Expected("}}");
          Advance();
          break;
        }
        default: {
          Advance();
          for (const std::string_view end : ends) {
            if (AtName(end)) return OkStatus();
          }
          WEFT_RETURN_IF_ERROR(ParseStatement(block));
          break;
        }
      }
    }
  }

  // Parses a block and the tag that ends it: "... {% end %}".
  Status ParseBody(std::string_view end, Statements* block) {
    WEFT_RETURN_IF_ERROR(ExpectBlockEnd());
    WEFT_RETURN_IF_ERROR(ParseBlock({end}, block));
    Advance();
    return ExpectBlockEnd();
  }

  std::unique_ptr<Stmt> NewStmt(StmtKind kind) const {
    auto s = std::make_unique<Stmt>();
    s->kind = kind;
    s->at = Current().at;
    return s;
  }

  Status ParsePrint(Statements* block) {
    auto print = NewStmt(StmtKind::kPrint);
    WEFT_ASSIGN_OR_RETURN(print->value, ParseTuple({}));
    block->push_back(std::move(print));
    return OkStatus();
  }

  Status ParseStatement(Statements* block) {
    using Parse = Status (Parser::*)(Statements*);
    static constexpr std::pair<std::string_view, Parse> kStatements[] = {
        {"if", &Parser::ParseIf},
        {"for", &Parser::ParseFor},
        {"set", &Parser::ParseSet},
        {"macro", &Parser::ParseMacro},
        {"call", &Parser::ParseCallBlock},
        {"filter", &Parser::ParseFilterBlock},
        {"with", &Parser::ParseWith},
        {"generation", &Parser::ParseGeneration},
        {"block", &Parser::ParseNamedBlock},
        {"print", &Parser::ParsePrintStatement},
        {"break", &Parser::ParseBreak},
        {"continue", &Parser::ParseContinue},
    };
    for (const auto& [word, parse] : kStatements) {
      if (AtName(word)) return (this->*parse)(block);
    }
    for (const std::string_view word : {"include", "import", "from", "extends"}) {
      if (AtName(word)) return Error(StrCat("a chat template cannot ", word, " other files"));
    }
    if (Current().kind != TokenKind::kName) return Expected("a statement");
    return Error(StrCat("unknown statement '", Printable(Current().text), "'"));
  }

  Status ParseIf(Statements* block) {
    auto s = NewStmt(StmtKind::kIf);
    do {  // at "if" or "elif"
      Advance();
      Branch branch;
      WEFT_ASSIGN_OR_RETURN(branch.condition, ParseTuple({.conditions = false}));
      WEFT_RETURN_IF_ERROR(ExpectBlockEnd());
      WEFT_RETURN_IF_ERROR(ParseBlock({"elif", "else", "endif"}, &branch.body));
      s->branches.push_back(std::move(branch));
    } while (AtName("elif"));
    if (SkipName("else")) {
      WEFT_RETURN_IF_ERROR(ExpectBlockEnd());
      WEFT_RETURN_IF_ERROR(ParseBlock({"endif"}, &s->orelse));
    }
    Advance();
    block->push_back(std::move(s));
    return ExpectBlockEnd();
  }

  Status ParseFor(Statements* block) {
    auto s = NewStmt(StmtKind::kFor);
    Advance();
    WEFT_ASSIGN_OR_RETURN(s->target, ParseTarget({.end_name = "in"}));
    if (!SkipName("in")) return Expected("'in'");
    WEFT_ASSIGN_OR_RETURN(s->value, ParseTuple({.conditions = false, .end_name = "recursive"}));
    if (SkipName("if")) {
      WEFT_ASSIGN_OR_RETURN(s->condition, ParseExpression());
    }
    s->recursive = SkipName("recursive");
    WEFT_RETURN_IF_ERROR(ExpectBlockEnd());
    ++loops_;
    WEFT_RETURN_IF_ERROR(ParseBlock({"else", "endfor"}, &s->body));
    --loops_;
    if (SkipName("else")) {
      WEFT_RETURN_IF_ERROR(ExpectBlockEnd());
      WEFT_RETURN_IF_ERROR(ParseBlock({"endfor"}, &s->orelse));
    }
    Advance();
    block->push_back(std::move(s));
    return ExpectBlockEnd();
  }

  struct TargetOptions {
    bool attributes = false;         // whether ns.x is allowed in it
    std::string_view end_name = {};  // a word that ends it
  };

  StatusOr<Target> ParseOneTarget(const TargetOptions& options) {
    Target target;
    target.at = Current().at;
    if (SkipOperator("(")) {
      const Nested nested(&depth_);
      if (depth_ > kMaxNesting) return Error("the template is nested too deep here");
      WEFT_ASSIGN_OR_RETURN(target, ParseTarget(options));
      WEFT_RETURN_IF_ERROR(ExpectOperator(")"));
      return target;
    }
    WEFT_ASSIGN_OR_RETURN(target.name, ExpectName());
    for (const std::string_view word : {"true", "false", "none", "True", "False", "None"}) {
      if (target.name == word) return Error(StrCat("cannot assign to '", word, "'"));
    }
    target.symbol = Intern(target.name);
    if (options.attributes && SkipOperator(".")) {
      WEFT_ASSIGN_OR_RETURN(target.attribute, ExpectName());
    }
    return target;
  }

  // A target, or several separated by commas.
  StatusOr<Target> ParseTarget(const TargetOptions& options) {
    Target tuple;
    tuple.at = Current().at;
    bool comma = false;
    while (!AtOperator(")") && !AtOperator("=") && Current().kind != TokenKind::kBlockEnd &&
           (options.end_name.empty() || !AtName(options.end_name))) {
      WEFT_ASSIGN_OR_RETURN(Target part, ParseOneTarget(options));
      tuple.parts.push_back(std::move(part));
      if (!SkipOperator(",")) break;
      comma = true;
    }
    if (tuple.parts.empty()) return Expected("a name to assign to");
    if (!comma) return std::move(tuple.parts[0]);
    return tuple;
  }

  Status ParseSet(Statements* block) {
    auto s = NewStmt(StmtKind::kSet);
    Advance();
    WEFT_ASSIGN_OR_RETURN(s->target, ParseTarget({.attributes = true}));
    if (SkipOperator("=")) {
      WEFT_ASSIGN_OR_RETURN(s->value, ParseTuple({}));
      block->push_back(std::move(s));
      return ExpectBlockEnd();
    }
    s->kind = StmtKind::kSetBlock;
    if (SkipOperator("|")) {
      WEFT_ASSIGN_OR_RETURN(s->value, ParseFilterChain());
    }
    WEFT_RETURN_IF_ERROR(ParseBody("endset", &s->body));
    block->push_back(std::move(s));
    return OkStatus();
  }

  // "(a, b=1)", starting at the parenthesis.
  Status ParseSignature(MacroNode* macro) {
    WEFT_RETURN_IF_ERROR(ExpectOperator("("));
    while (!AtOperator(")")) {
      Parameter parameter;
      WEFT_ASSIGN_OR_RETURN(parameter.name, ExpectName());
      parameter.symbol = Intern(parameter.name);
      if (SkipOperator("=")) {
        WEFT_ASSIGN_OR_RETURN(parameter.absent, ParseExpression());
      } else if (!macro->parameters.empty() && macro->parameters.back().absent != nullptr) {
        return Error("a parameter without a default cannot follow one with a default");
      }
      macro->parameters.push_back(std::move(parameter));
      if (!SkipOperator(",")) break;
    }
    return ExpectOperator(")");
  }

  Status ParseMacroBody(std::string_view end, MacroNode* macro) {
    open_macros_.push_back(macro);
    const int loops = std::exchange(loops_, 0);
    const Status status = ParseBody(end, &macro->body);
    loops_ = loops;
    open_macros_.pop_back();
    return status;
  }

  Status ParseMacro(Statements* block) {
    auto s = NewStmt(StmtKind::kMacro);
    Advance();
    s->macro = std::make_unique<MacroNode>();
    WEFT_ASSIGN_OR_RETURN(s->macro->name, ExpectName());
    s->macro->symbol = Intern(s->macro->name);
    WEFT_RETURN_IF_ERROR(ParseSignature(s->macro.get()));
    WEFT_RETURN_IF_ERROR(ParseMacroBody("endmacro", s->macro.get()));
    block->push_back(std::move(s));
    return OkStatus();
  }

  Status ParseCallBlock(Statements* block) {
    auto s = NewStmt(StmtKind::kCallBlock);
    Advance();
    s->macro = std::make_unique<MacroNode>();
    s->macro->name = "caller";
    s->macro->symbol = Intern("caller");
    if (AtOperator("(")) WEFT_RETURN_IF_ERROR(ParseSignature(s->macro.get()));
    WEFT_ASSIGN_OR_RETURN(s->value, ParseExpression());
    if (s->value->kind != ExprKind::kCall) return Expected("a call");
    WEFT_RETURN_IF_ERROR(ParseMacroBody("endcall", s->macro.get()));
    block->push_back(std::move(s));
    return OkStatus();
  }

  Status ParseFilterBlock(Statements* block) {
    auto s = NewStmt(StmtKind::kFilterBlock);
    Advance();
    WEFT_ASSIGN_OR_RETURN(s->value, ParseFilterChain());
    WEFT_RETURN_IF_ERROR(ParseBody("endfilter", &s->body));
    block->push_back(std::move(s));
    return OkStatus();
  }

  Status ParseWith(Statements* block) {
    auto s = NewStmt(StmtKind::kWith);
    Advance();
    while (Current().kind != TokenKind::kBlockEnd) {
      if (!s->assignments.empty()) WEFT_RETURN_IF_ERROR(ExpectOperator(","));
      WEFT_ASSIGN_OR_RETURN(Target target, ParseOneTarget({}));
      WEFT_RETURN_IF_ERROR(ExpectOperator("="));
      WEFT_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      s->assignments.emplace_back(std::move(target), std::move(value));
    }
    WEFT_RETURN_IF_ERROR(ParseBody("endwith", &s->body));
    block->push_back(std::move(s));
    return OkStatus();
  }

  // Marks the model's output for training; printed unchanged.
  Status ParseGeneration(Statements* block) {
    auto s = NewStmt(StmtKind::kScope);
    Advance();
    WEFT_RETURN_IF_ERROR(ParseBody("endgeneration", &s->body));
    block->push_back(std::move(s));
    return OkStatus();
  }

  Status ParseNamedBlock(Statements* block) {
    auto s = NewStmt(StmtKind::kScope);
    Advance();
    WEFT_ASSIGN_OR_RETURN(const std::string name, ExpectName());
    WEFT_RETURN_IF_ERROR(ExpectBlockEnd());
    WEFT_RETURN_IF_ERROR(ParseBlock({"endblock"}, &s->body));
    Advance();
    SkipName(name);
    block->push_back(std::move(s));
    return ExpectBlockEnd();
  }

  Status ParsePrintStatement(Statements* block) {
    do {  // unlike in {{ }}, commas do not make a tuple
      Advance();
      auto print = NewStmt(StmtKind::kPrint);
      WEFT_ASSIGN_OR_RETURN(print->value, ParseExpression());
      block->push_back(std::move(print));
    } while (AtOperator(","));
    return ExpectBlockEnd();
  }

  Status ParseJump(StmtKind kind, Statements* block) {
    if (loops_ == 0) return Error("there is no loop around this statement");
    block->push_back(NewStmt(kind));
    Advance();
    return ExpectBlockEnd();
  }
  Status ParseBreak(Statements* block) { return ParseJump(StmtKind::kBreak, block); }
  Status ParseContinue(Statements* block) { return ParseJump(StmtKind::kContinue, block); }

  int loops_ = 0;  // loops around the current statement, within its macro
};

}  // namespace

StatusOr<std::shared_ptr<const Program>> ParseProgram(std::string source) {
  if (source.size() > kMaxTemplateBytes) {
    return InvalidArgument("the chat template has ", HumanBytes(source.size()), ", more than the ",
                           HumanBytes(kMaxTemplateBytes), " allowed");
  }
  WEFT_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  auto program = std::make_shared<Program>();
  program->source = std::move(source);
  WEFT_RETURN_IF_ERROR(Parser(std::move(tokens)).ParseAll(program.get()));
  return std::shared_ptr<const Program>(std::move(program));
}

}  // namespace weft::jinja
