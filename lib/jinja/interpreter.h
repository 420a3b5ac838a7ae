// Renders one program once.
//
// Owns everything a rendering creates: variables, output, namespaces, macros. One object per
// rendering, one thread. Every error names its position in the template, except errors that the
// template itself raises.
#ifndef WEFT_JINJA_INTERPRETER_H_
#define WEFT_JINJA_INTERPRETER_H_

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "jinja/ast.h"
#include "jinja/builtins.h"
#include "jinja/value.h"

namespace weft::jinja {

// The variables of a scope. Scopes in which a macro was defined live as long as the rendering, the
// others are reused.
struct Frame {
  Frame* parent = nullptr;
  bool captured = false;
  std::vector<std::pair<Symbol, Value>> variables;
  size_t held_bytes = 0;  // of `variables`, also while they are empty
};

struct LoopObject;

class Interpreter {
 public:
  // Nested calls and expressions.
  static constexpr int kMaxDepth = 600;

  // All must outlive it. `now` is the local wall clock in seconds since 1970.
  Interpreter(const Program* program, const DictObject* context, int64_t now, Meter* meter);
  ~Interpreter();

  StatusOr<std::string> Render();

  // --- for builtins ---------------------------------------------------------
  Meter* meter() { return meter_; }
  int64_t now() const { return now_; }

  StatusOr<Value> Call(const Value& callee, Arguments* args);
  StatusOr<Value> CallMacro(const MacroNode& macro, Frame* frame, Arguments* args);
  // Runs a recursive loop's body over `items`, one level deeper.
  StatusOr<Value> CallLoop(const LoopObject& loop, const Value& items);
  // owner.name and owner[key]. A missing attribute is an undefined value; it is an error only if
  // the owner itself is undefined.
  StatusOr<Value> Attribute(const Value& owner, const Value& name);
  StatusOr<Value> Item(const Value& owner, const Value& key);
  // The items of any iterable, as a list. Consumes generators.
  StatusOr<Value> Iterate(const Value& value);
  // An error shown exactly as the template words it.
  Status Raise(std::string_view text);
  // Takes ownership for the duration of the rendering.
  Value Keep(std::unique_ptr<CallableObject> callable);
  Value NewNamespace(NamespaceObject** ns);
  Value NewString(std::string text) { return Value::String(std::move(text), meter_); }
  Value CopyText(std::string_view text) {
    return meter_->Fits(text.size()) ? NewString(std::string(text)) : Value::Borrowed("");
  }
  Value CopyList(std::span<const Value> items, ListKind kind) {
    if (!meter_->Fits(items.size_bytes())) return NewList({}, kind);
    return NewList({items.begin(), items.end()}, kind);
  }
  Value NewList(std::vector<Value> items, ListKind kind = ListKind::kList) {
    return Value::List(std::move(items), meter_, kind);
  }

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  // --- statements (interpreter.cc) ------------------------------------------
  Status ExecBlock(const Statements& block);
  Status Exec(const Stmt& s);
  Status ExecStatement(const Stmt& s);
  Status ExecIf(const Stmt& s);
  Status ExecFor(const Stmt& s);
  Status RunLoop(const Stmt& s, const Value& iterable, int depth);
  StatusOr<Value> LoopItems(const Stmt& s, const Value& iterable);
  Status RunIterations(const Stmt& s, const std::shared_ptr<LoopObject>& loop, const Value& items);
  Status ExecSetBlock(const Stmt& s);
  Status ExecMacro(const Stmt& s);
  Status ExecCallBlock(const Stmt& s);
  Status ExecFilterBlock(const Stmt& s);
  Status ExecWith(const Stmt& s);
  Status ExecScope(const Statements& block);
  // What the block prints, in its own scope.
  StatusOr<Value> Capture(const Statements& block);
  Status Assign(const Target& target, const Value& value);

  // --- variables ------------------------------------------------------------
  Frame* NewFrame(Frame* parent);
  void FreeFrame(Frame* frame);
  void Define(Frame* frame, Symbol symbol, Value value);
  const Value* FindVariable(Symbol symbol) const;
  Value Lookup(const Expr& e);
  Value NewMacro(const MacroNode& macro);

  // --- expressions (eval.cc) ------------------------------------------------
  StatusOr<Value> Eval(const Expr& e);
  StatusOr<Value> EvalNode(const Expr& e);
  StatusOr<Value> EvalList(const Expr& e, ListKind kind);
  StatusOr<Value> EvalDict(const Expr& e);
  StatusOr<Value> EvalItem(const Expr& e);
  StatusOr<Value> EvalSlice(const Expr& e);
  StatusOr<Value> EvalCall(const Expr& e, const Value* caller);
  StatusOr<Value> EvalFilter(const Expr& e);
  StatusOr<Value> EvalTest(const Expr& e);
  StatusOr<Value> EvalCondition(const Expr& e);
  StatusOr<Value> EvalSign(const Expr& e);
  StatusOr<Value> EvalLogic(const Expr& e);
  StatusOr<Value> EvalConcat(const Expr& e);
  StatusOr<Value> EvalArithmetic(const Expr& e);
  StatusOr<Value> EvalCompare(const Expr& e);
  Status EvalArguments(const CallArguments& from, Arguments* to);
  // Applies a filter block's chain to what the block printed.
  StatusOr<Value> ApplyBlockFilters(const Expr& chain, Value text);
  // The same error with its position, added once.
  Status Locate(const Position& at, const Status& status);

  const Program& program_;
  const DictObject& context_;
  const int64_t now_;
  Meter* const meter_;

  std::vector<std::unique_ptr<Frame>> frames_;
  std::vector<Frame*> free_frames_;
  std::vector<std::unique_ptr<Object>> objects_;
  Frame* frame_ = nullptr;      // the current scope
  TextBuilder* out_ = nullptr;  // where output goes
  Value block_text_;            // subject of a filter block's innermost filter
  Flow flow_ = Flow::kNext;
  int depth_ = 0;
  bool located_ = false;
};

// A C++ function bound to its subject: "text".upper.
struct MethodObject : CallableObject {
  MethodObject(Value self, const MethodEntry* entry, Meter* meter)
      : CallableObject(meter), self(std::move(self)), entry(entry) {}
  StatusOr<Value> Call(Interpreter* in, Arguments* args) override;
  const char* type_name() const override { return "builtin_function_or_method object"; }

  const Value self;
  const MethodEntry* const entry;
};

struct FunctionObject : CallableObject {
  explicit FunctionObject(const FunctionEntry* entry) : CallableObject(nullptr), entry(entry) {}
  StatusOr<Value> Call(Interpreter* in, Arguments* args) override;
  const char* type_name() const override { return "function object"; }

  const FunctionEntry* const entry;
};

struct MacroObject : CallableObject {
  MacroObject(const MacroNode* macro, Frame* frame, Meter* meter)
      : CallableObject(meter), macro(macro), frame(frame) {}
  StatusOr<Value> Call(Interpreter* in, Arguments* args) override;
  bool Attribute(Interpreter* in, std::string_view name, Value* value) override;
  const char* type_name() const override { return "Macro object"; }

  const MacroNode* const macro;
  Frame* const frame;  // where it was defined
};

// The variable `loop`.
struct LoopObject : CallableObject, std::enable_shared_from_this<LoopObject> {
  using CallableObject::CallableObject;
  StatusOr<Value> Call(Interpreter* in, Arguments* args) override;
  bool Attribute(Interpreter* in, std::string_view name, Value* value) override;
  const char* type_name() const override { return "LoopContext object"; }

  const Stmt* statement = nullptr;
  Frame* frame = nullptr;  // enclosing the loop
  Value items;
  int64_t index = 0;  // from 0
  int depth = 0;
};

}  // namespace weft::jinja

#endif  // WEFT_JINJA_INTERPRETER_H_
