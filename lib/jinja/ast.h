// A parsed template: statements and expressions, immutable after parsing and safe to read from any
// thread.
#ifndef WEFT_JINJA_AST_H_
#define WEFT_JINJA_AST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "jinja/value.h"

namespace weft::jinja {

// A position in the template; both count from 1.
struct Position {
  uint32_t line = 1;
  uint32_t column = 1;
};

// The number of a name in its template; variables are compared by it.
using Symbol = int32_t;

struct FilterEntry;
struct TestEntry;

enum class ExprKind : uint8_t {
  kConstant,
  kName,
  kTuple,      // children
  kList,       // children
  kDict,       // children: key, value, key, value
  kAttribute,  // children[0].name
  kItem,       // children[0][children[1]]
  kSlice,      // children[0][children[1]:children[2]:children[3]], parts may be null
  kCall,       // children[0](arguments)
  kFilter,     // children[0] (null inside a filter block) | name(arguments)
  kTest,       // children[0] is name(arguments)
  kCondition,  // children[1] if children[0] else children[2] (may be null)
  kNot,
  kNegate,
  kPlus,
  kAnd,  // all children, left to right
  kOr,
  kConcat,      // ~
  kArithmetic,  // children[0] ops[0] children[1] ops[1] ..., left to right
  kCompare,     // the same, as a chain of comparisons
};

enum class Op : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keyword;
  ExprPtr star;         // *x
  ExprPtr double_star;  // **x
};

struct Expr {
  ExprKind kind;
  bool negated = false;  // kTest: is not
  uint16_t depth = 1;    // levels of nested expressions, including itself
  Position at;
  Symbol symbol = -1;  // kName
  std::string name;    // kName, kAttribute, kFilter, kTest
  Value constant;
  std::vector<ExprPtr> children;
  std::vector<Op> ops;
  std::unique_ptr<CallArguments> arguments;  // kCall, kFilter, kTest
  // Null if there is none of this name, which is an error only when it is used.
  const FilterEntry* filter = nullptr;
  const TestEntry* test = nullptr;
};

// The target of an assignment: a name, ns.attribute, or a tuple of targets.
struct Target {
  Position at;
  Symbol symbol = -1;
  std::string name;
  std::string attribute;      // of the namespace `symbol`
  std::vector<Target> parts;  // a tuple, if `symbol` is -1
};

enum class StmtKind : uint8_t {
  kText,
  kPrint,     // {{ value }}
  kIf,        // branches, orelse
  kFor,       // target in value, condition, body, orelse
  kSet,       // target = value
  kSetBlock,  // target = the text of body through filters (value, if not null)
  kMacro,
  kCallBlock,    // value is the call, macro its caller
  kFilterBlock,  // body through filters (value)
  kWith,         // targets, values, body
  kScope,        // body, with its own variables
  kBreak,
  kContinue,
};

struct Stmt;
using StmtPtr = std::unique_ptr<const Stmt>;
using Statements = std::vector<StmtPtr>;

struct Branch {
  ExprPtr condition;
  Statements body;
};

struct Parameter {
  std::string name;
  Symbol symbol;
  ExprPtr absent;  // the default; may be null
};

struct MacroNode {
  std::string name;
  Symbol symbol = -1;
  std::vector<Parameter> parameters;
  Statements body;
  // Whether the body mentions the names that make a macro accept extra arguments.
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
};

struct Stmt {
  StmtKind kind;
  bool recursive = false;  // kFor
  Position at;
  std::string text;  // kText
  ExprPtr value;
  ExprPtr condition;
  Target target;
  std::vector<std::pair<Target, ExprPtr>> assignments;  // kWith
  std::vector<Branch> branches;
  Statements body;
  Statements orelse;
  std::unique_ptr<MacroNode> macro;
};

struct Program {
  std::string source;  // not referenced by constants
  Statements body;
  std::vector<std::string> symbols;
  // Symbols that the interpreter defines; -1 if never mentioned.
  Symbol loop = -1;
  Symbol caller = -1;
  Symbol varargs = -1;
  Symbol kwargs = -1;
};

}  // namespace weft::jinja

#endif  // WEFT_JINJA_AST_H_
