#include "jinja/interpreter.h"

#include <algorithm>

#include "jinja/lexer.h"

namespace weft::jinja {
namespace {

// With its places in two lists, which grow by doubling.
constexpr size_t kFrameBytes = sizeof(Frame) + kAllocationBytes + 4 * sizeof(void*);
// The largest of those that are kept, and its place in a list.
constexpr size_t kKeptBytes = 128 + kAllocationBytes + 2 * sizeof(void*);

// Sets a variable for a scope and restores the old value afterwards.
template <typename T>
class Restore {
 public:
  Restore(T* variable, T value) : variable_(variable), old_(*variable) { *variable = value; }
  ~Restore() { *variable_ = old_; }

 private:
  T* const variable_;
  const T old_;
};

}  // namespace

Interpreter::Interpreter(const Program* program, const DictObject* context, int64_t now,
                         Meter* meter)
    : program_(*program), context_(*context), now_(now), meter_(meter) {}

Interpreter::~Interpreter() {
  // Values refer to objects; only these two refer back.
  for (const auto& frame : frames_) {
    meter_->Release(frame->held_bytes);
    frame->variables.clear();
  }
}

StatusOr<std::string> Interpreter::Render() {
  TextBuilder out(meter_);
  out_ = &out;
  frame_ = NewFrame(nullptr);
  WEFT_RETURN_IF_ERROR(ExecBlock(program_.body));
  if (!meter_->ok()) return meter_->status();
  return out.Take();
}

// --- variables --------------------------------------------------------------

Frame* Interpreter::NewFrame(Frame* parent) {
  if (free_frames_.empty()) {
    meter_->Hold(kFrameBytes);
    frames_.push_back(std::make_unique<Frame>());
    free_frames_.push_back(frames_.back().get());
  }
  Frame* const frame = free_frames_.back();
  free_frames_.pop_back();
  frame->parent = parent;
  return frame;
}

void Interpreter::FreeFrame(Frame* frame) {
  if (frame->captured) return;
  frame->variables.clear();
  free_frames_.push_back(frame);
}

void Interpreter::Define(Frame* frame, Symbol symbol, Value value) {
  for (auto& [name, old] : frame->variables) {
    if (name != symbol) continue;
    old = std::move(value);
    return;
  }
  auto& variables = frame->variables;
  if (variables.size() == variables.capacity()) {
    const size_t wanted = std::max<size_t>(2, 2 * variables.capacity());
    const size_t bytes = wanted * sizeof(variables[0]) + kAllocationBytes;
    if (!meter_->Hold(bytes)) return;
    variables.reserve(wanted);
    meter_->Release(std::exchange(frame->held_bytes, bytes));
  }
  if (meter_->SpendBytes(sizeof(variables[0]))) variables.emplace_back(symbol, std::move(value));
}

const Value* Interpreter::FindVariable(Symbol symbol) const {
  for (const Frame* frame = frame_; frame != nullptr; frame = frame->parent) {
    meter_->Spend(frame->variables.size() / 8);
    for (const auto& [name, value] : frame->variables) {
      if (name == symbol) return &value;
    }
  }
  return nullptr;
}

Value Interpreter::NewMacro(const MacroNode& macro) {
  for (Frame* frame = frame_; frame != nullptr && !frame->captured; frame = frame->parent) {
    frame->captured = true;
  }
  return Keep(std::make_unique<MacroObject>(&macro, frame_, meter_));
}

Value Interpreter::Keep(std::unique_ptr<CallableObject> callable) {
  callable->Hold(kKeptBytes);
  const Value value = Value::Callable(callable.get());
  objects_.push_back(std::move(callable));
  return value;
}

Value Interpreter::NewNamespace(NamespaceObject** ns) {
  auto object = std::make_unique<NamespaceObject>(meter_);
  object->Hold(kKeptBytes);
  *ns = object.get();
  objects_.push_back(std::move(object));
  return Value::Namespace(*ns);
}

Status Interpreter::Assign(const Target& target, const Value& value) {
  if (target.symbol < 0) {
    WEFT_ASSIGN_OR_RETURN(const Value items, Iterate(value));
    const size_t n = items.list().items.size();
    if (n != target.parts.size()) {
      return InvalidArgument("cannot unpack ", n, " values into ", target.parts.size(), " names");
    }
    for (size_t i = 0; i < n; ++i) {
      WEFT_RETURN_IF_ERROR(Assign(target.parts[i], items.list().items[i]));
    }
    return OkStatus();
  }
  if (target.attribute.empty()) {
    Define(frame_, target.symbol, value);
    return OkStatus();
  }
  const Value* const ns = FindVariable(target.symbol);
  if (ns == nullptr || ns->kind() != Kind::kNamespace) {
    return InvalidArgument("'", Printable(target.name),
                           "' is not a namespace, its attributes cannot be set");
  }
  ns->ns()->Set(target.attribute, value);
  return OkStatus();
}

// --- statements -------------------------------------------------------------

Status Interpreter::Locate(const Position& at, const Status& status) {
  if (status.ok() || located_) return status;
  located_ = true;
  return AtPosition(at, status);
}

Status Interpreter::Raise(std::string_view text) {
  located_ = true;
  return InvalidArgument(text);
}

Status Interpreter::ExecBlock(const Statements& block) {
  for (const StmtPtr& s : block) {
    WEFT_RETURN_IF_ERROR(Exec(*s));
    if (flow_ != Flow::kNext) break;
  }
  return OkStatus();
}

Status Interpreter::Exec(const Stmt& s) {
  if (s.kind == StmtKind::kText) {
    out_->Append(s.text);
    return meter_->ok() ? OkStatus() : Locate(s.at, meter_->status());
  }
  if (depth_ >= kMaxDepth) {
    return Locate(s.at, ResourceExhausted("the template recurses too deep"));
  }
  const Restore<int> deeper(&depth_, depth_ + 1);
  meter_->Spend();
  const Status status = ExecStatement(s);
  if (!status.ok()) return Locate(s.at, status);
  return meter_->ok() ? OkStatus() : Locate(s.at, meter_->status());
}

Status Interpreter::ExecStatement(const Stmt& s) {
  switch (s.kind) {
    case StmtKind::kText:
      break;
    case StmtKind::kPrint: {
      WEFT_ASSIGN_OR_RETURN(const Value value, Eval(*s.value));
      AppendStr(value, out_, meter_);
      break;
    }
    case StmtKind::kIf:
      return ExecIf(s);
    case StmtKind::kFor:
      return ExecFor(s);
    case StmtKind::kSet: {
      WEFT_ASSIGN_OR_RETURN(const Value value, Eval(*s.value));
      return Assign(s.target, value);
    }
    case StmtKind::kSetBlock:
      return ExecSetBlock(s);
    case StmtKind::kMacro:
      Define(frame_, s.macro->symbol, NewMacro(*s.macro));
      break;
    case StmtKind::kCallBlock:
      return ExecCallBlock(s);
    case StmtKind::kFilterBlock:
      return ExecFilterBlock(s);
    case StmtKind::kWith:
      return ExecWith(s);
    case StmtKind::kScope:
      return ExecScope(s.body);
    case StmtKind::kBreak:
      flow_ = Flow::kBreak;
      break;
    case StmtKind::kContinue:
      flow_ = Flow::kContinue;
      break;
  }
  return OkStatus();
}

Status Interpreter::ExecIf(const Stmt& s) {
  for (const Branch& branch : s.branches) {
    WEFT_ASSIGN_OR_RETURN(const Value condition, Eval(*branch.condition));
    if (Truth(condition)) return ExecBlock(branch.body);
  }
  return ExecBlock(s.orelse);
}

Status Interpreter::ExecFor(const Stmt& s) {
  WEFT_ASSIGN_OR_RETURN(const Value iterable, Eval(*s.value));
  return RunLoop(s, iterable, 0);
}

// The items that pass the loop's own condition.
StatusOr<Value> Interpreter::LoopItems(const Stmt& s, const Value& iterable) {
  WEFT_ASSIGN_OR_RETURN(Value items, Iterate(iterable));
  if (s.condition == nullptr) return items;
  ListBuilder passed(meter_);
  Frame* const outer = frame_;
  Status status;
  const std::vector<Value>& all = items.list().items;
  for (size_t i = 0; i < all.size(); ++i) {
    const Value item = all[i];  // the condition may change the list
    frame_ = NewFrame(outer);
    status = Assign(s.target, item);
    if (status.ok()) {
      StatusOr<Value> condition = Eval(*s.condition);
      status = condition.status();
      if (condition.ok() && Truth(*condition)) passed.Add(item);
    }
    FreeFrame(frame_);
    if (!status.ok() || !meter_->ok()) break;
  }
  frame_ = outer;
  WEFT_RETURN_IF_ERROR(status);
  return passed.Finish();
}

Status Interpreter::RunLoop(const Stmt& s, const Value& iterable, int depth) {
  WEFT_ASSIGN_OR_RETURN(const Value items, LoopItems(s, iterable));
  if (items.list().items.empty()) return ExecScope(s.orelse);
  auto loop = std::make_shared<LoopObject>(meter_);
  loop->Hold(SharedBytes<LoopObject>());
  loop->statement = &s;
  loop->frame = frame_;
  loop->items = items;
  loop->depth = depth;
  if (s.recursive) {  // loop(...) needs the enclosing scope
    for (Frame* f = frame_; f != nullptr && !f->captured; f = f->parent) f->captured = true;
  }
  return RunIterations(s, loop, items);
}

Status Interpreter::RunIterations(const Stmt& s, const std::shared_ptr<LoopObject>& loop,
                                  const Value& items) {
  const std::vector<Value>& all = items.list().items;
  Frame* const outer = frame_;
  Status status;
  bool broken = false;
  for (size_t i = 0; i < all.size() && status.ok() && !broken; ++i) {
    loop->index = static_cast<int64_t>(i);
    Frame* const inner = NewFrame(outer);
    frame_ = inner;
    Define(frame_, program_.loop, Value::Callable(std::shared_ptr<CallableObject>(loop)));
    status = Assign(s.target, all[i]);
    if (status.ok()) status = ExecBlock(s.body);
    if (status.ok() && !meter_->Spend()) status = meter_->status();
    broken = flow_ == Flow::kBreak;
    flow_ = Flow::kNext;
    FreeFrame(inner);
  }
  frame_ = outer;
  return status;
}

Status Interpreter::ExecScope(const Statements& block) {
  if (block.empty()) return OkStatus();
  Frame* const outer = frame_;
  Frame* const inner = NewFrame(outer);
  frame_ = inner;
  const Status status = ExecBlock(block);
  frame_ = outer;
  FreeFrame(inner);
  return status;
}

StatusOr<Value> Interpreter::Capture(const Statements& block) {
  TextBuilder text(meter_);
  const Restore<TextBuilder*> into(&out_, &text);
  WEFT_RETURN_IF_ERROR(ExecScope(block));
  return text.Finish();
}

Status Interpreter::ExecSetBlock(const Stmt& s) {
  WEFT_ASSIGN_OR_RETURN(Value text, Capture(s.body));
  if (s.value != nullptr) {
    WEFT_ASSIGN_OR_RETURN(text, ApplyBlockFilters(*s.value, std::move(text)));
  }
  return Assign(s.target, text);
}

Status Interpreter::ExecFilterBlock(const Stmt& s) {
  WEFT_ASSIGN_OR_RETURN(Value text, Capture(s.body));
  WEFT_ASSIGN_OR_RETURN(const Value filtered, ApplyBlockFilters(*s.value, std::move(text)));
  AppendStr(filtered, out_, meter_);
  return OkStatus();
}

Status Interpreter::ExecCallBlock(const Stmt& s) {
  const Value caller = NewMacro(*s.macro);
  WEFT_ASSIGN_OR_RETURN(const Value result, EvalCall(*s.value, &caller));
  AppendStr(result, out_, meter_);
  return OkStatus();
}

Status Interpreter::ExecWith(const Stmt& s) {
  ListBuilder evaluated(meter_);
  for (const auto& [target, value] : s.assignments) {
    WEFT_ASSIGN_OR_RETURN(Value one, Eval(*value));
    if (!evaluated.Add(std::move(one))) return meter_->status();
  }
  const std::vector<Value>& values = evaluated.items();
  Frame* const outer = frame_;
  Frame* const inner = NewFrame(outer);
  frame_ = inner;
  Status status;
  for (size_t i = 0; i < values.size() && status.ok(); ++i) {
    status = Assign(s.assignments[i].first, values[i]);
  }
  if (status.ok()) status = ExecBlock(s.body);
  frame_ = outer;
  FreeFrame(inner);
  return status;
}

// --- calls ------------------------------------------------------------------

namespace {

// The keyword arguments not taken by a parameter, as a dict.
Value RestOfKeywords(Interpreter* in, Arguments* args, const std::vector<bool>& used) {
  auto dict = std::make_shared<DictObject>(in->meter());
  for (size_t i = 0; i < args->keyword.size(); ++i) {
    const auto& [name, value] = args->keyword[i];
    if (!used[i]) dict->Set(in->CopyText(name), value, in->meter());
  }
  return Value::Dict(std::move(dict));
}

int64_t FindKeyword(const Arguments& args, std::string_view name) {
  const auto it = std::ranges::find(args.keyword, name, &std::pair<std::string_view, Value>::first);
  return it == args.keyword.end() ? -1 : it - args.keyword.begin();
}

}  // namespace

StatusOr<Value> Interpreter::CallMacro(const MacroNode& macro, Frame* frame, Arguments* args) {
  Frame* const inner = NewFrame(frame);
  const Restore<Frame*> scope(&frame_, inner);
  const size_t n_parameters = macro.parameters.size();
  const std::string name = Printable(macro.name);
  std::vector<bool> used(args->keyword.size());
  for (size_t i = 0; i < n_parameters; ++i) {
    const Parameter& parameter = macro.parameters[i];
    const int64_t at = FindKeyword(*args, parameter.name);
    Value value = Value::Undefined(parameter.name);
    if (i < args->positional.size()) {
      if (at >= 0) return InvalidArgument("macro '", name, "' got '", parameter.name, "' twice");
      value = args->positional[i];
    } else if (at >= 0) {
      used[at] = true;
      value = args->keyword[at].second;
    } else if (parameter.absent != nullptr) {
      WEFT_ASSIGN_OR_RETURN(value, Eval(*parameter.absent));
    }
    Define(inner, parameter.symbol, std::move(value));
  }
  if (macro.uses_caller) {
    const int64_t at = FindKeyword(*args, "caller");
    if (at >= 0) used[at] = true;
    Define(inner, program_.caller, at >= 0 ? args->keyword[at].second : Value::Undefined("caller"));
  }
  if (macro.uses_varargs) {
    const size_t taken = std::min(n_parameters, args->positional.size());
    Define(inner, program_.varargs,
           CopyList(std::span<const Value>(args->positional).subspan(taken), ListKind::kTuple));
  } else if (args->positional.size() > n_parameters) {
    return InvalidArgument("macro '", name, "' takes ", n_parameters, " arguments, not ",
                           args->positional.size());
  }
  if (macro.uses_kwargs) {
    Define(inner, program_.kwargs, RestOfKeywords(this, args, used));
  } else if (const auto it = std::ranges::find(used, false); it != used.end()) {
    return InvalidArgument("macro '", name, "' takes no argument '",
                           Printable(args->keyword[it - used.begin()].first), "'");
  }
  TextBuilder text(meter_);
  const Restore<TextBuilder*> into(&out_, &text);
  WEFT_RETURN_IF_ERROR(ExecBlock(macro.body));
  FreeFrame(inner);
  return text.Finish();
}

StatusOr<Value> Interpreter::CallLoop(const LoopObject& loop, const Value& items) {
  if (!loop.statement->recursive) {
    return InvalidArgument("only a loop marked 'recursive' can be called");
  }
  TextBuilder text(meter_);
  const Restore<TextBuilder*> into(&out_, &text);
  const Restore<Frame*> scope(&frame_, loop.frame);
  WEFT_RETURN_IF_ERROR(RunLoop(*loop.statement, items, loop.depth + 1));
  return text.Finish();
}

StatusOr<Value> Interpreter::Call(const Value& callee, Arguments* args) {
  if (callee.is_undefined()) return InvalidArgument(callee.UndefinedMessage());
  if (callee.kind() != Kind::kCallable) {
    return InvalidArgument("a ", TypeName(callee), " cannot be called");
  }
  // The call may overwrite the variable that holds it.
  const Value keep = callee;  // NOLINT(performance-unnecessary-copy-initialization)
  return keep.callable()->Call(this, args);
}

}  // namespace weft::jinja
