// Arguments, tables by name, tests and functions.
#include "jinja/builtins.h"

#include <algorithm>
#include <ctime>
#include <unordered_map>

#include "jinja/ast.h"
#include "jinja/interpreter.h"
#include "jinja/text.h"

namespace weft::jinja {

// --- arguments --------------------------------------------------------------

bool Arguments::Copy(const Arguments& others, std::span<const Value> rest, Meter* meter) {
  if (!meter->Spend(rest.size() + others.keyword.size()) || !held.Grow(&positional, rest.size()) ||
      !held_keywords.Grow(&keyword, others.keyword.size())) {
    return false;
  }
  positional.assign(rest.begin(), rest.end());
  keyword = others.keyword;
  kept = others.kept;
  return true;
}

const Value* Arguments::Take(std::string_view name) {
  if (next_ < positional.size()) return &positional[next_++];
  return TakeKeyword(name);
}

const Value* Arguments::TakeKeyword(std::string_view name) {
  for (size_t i = 0; i < keyword.size() && i < 64; ++i) {
    if (keyword[i].first != name) continue;
    taken_keywords_ |= uint64_t{1} << i;
    return &keyword[i].second;
  }
  return nullptr;
}

std::span<const Value> Arguments::TakeRest() {
  const std::span<const Value> rest(positional.data() + next_, positional.size() - next_);
  next_ = positional.size();
  return rest;
}

StatusOr<int64_t> Arguments::TakeInt(std::string_view name, int64_t absent, bool none_is_absent) {
  const Value* const value = Take(name);
  if (value == nullptr || (none_is_absent && value->is_none())) return absent;
  if (value->is_integral()) return value->integer();
  return InvalidArgument("'", name, "' must be an integer, not a ", TypeName(*value));
}

StatusOr<bool> Arguments::TakeBool(std::string_view name, bool absent) {
  const Value* const value = Take(name);
  return value == nullptr ? absent : Truth(*value);
}

StatusOr<std::string_view> Arguments::TakeString(std::string_view name, std::string_view absent,
                                                 bool none_is_absent) {
  const Value* const value = Take(name);
  if (value == nullptr || (none_is_absent && value->is_none())) return absent;
  if (value->is_string()) return value->text();
  return InvalidArgument("'", name, "' must be a string, not a ", TypeName(*value));
}

StatusOr<const Value*> Arguments::Require(std::string_view name) {
  const Value* const value = Take(name);
  if (value == nullptr) return InvalidArgument("the argument '", name, "' is missing");
  return value;
}

StatusOr<std::string_view> Arguments::RequireString(std::string_view name) {
  WEFT_ASSIGN_OR_RETURN(const Value* const value, Require(name));
  if (value->is_string()) return value->text();
  return InvalidArgument("'", name, "' must be a string, not a ", TypeName(*value));
}

Status Arguments::Finish() const {
  if (next_ < positional.size()) {
    return InvalidArgument("too many arguments: ", positional.size());
  }
  for (size_t i = 0; i < keyword.size(); ++i) {
    if (i < 64 && (taken_keywords_ >> i & 1)) continue;
    return InvalidArgument("there is no argument '", Printable(keyword[i].first), "' here");
  }
  return OkStatus();
}

// --- callables --------------------------------------------------------------

StatusOr<Value> MethodObject::Call(Interpreter* in, Arguments* args) {
  return entry->call(in, self, args);
}

StatusOr<Value> FunctionObject::Call(Interpreter* in, Arguments* args) {
  return entry->call(in, Value(), args);
}

StatusOr<Value> MacroObject::Call(Interpreter* in, Arguments* args) {
  return in->CallMacro(*macro, frame, args);
}

bool MacroObject::Attribute(Interpreter* in, std::string_view name, Value* value) {
  if (name == "name") {
    *value = Value::Borrowed(macro->name);
  } else if (name == "arguments") {
    std::vector<Value> names;
    for (const Parameter& p : macro->parameters) names.push_back(Value::Borrowed(p.name));
    *value = in->NewList(std::move(names), ListKind::kTuple);
  } else if (name == "caller" || name == "catch_kwargs" || name == "catch_varargs") {
    *value = Value::Bool(name == "caller"         ? macro->uses_caller
                         : name == "catch_kwargs" ? macro->uses_kwargs
                                                  : macro->uses_varargs);
  } else {
    return false;
  }
  return true;
}

namespace {

// loop.cycle
struct LoopCycle : CallableObject {
  LoopCycle(std::shared_ptr<LoopObject> loop, Meter* meter)
      : CallableObject(meter), loop(std::move(loop)) {}
  const char* type_name() const override { return "method object"; }

  StatusOr<Value> Call(Interpreter*, Arguments* args) override {
    const std::span<const Value> given = args->TakeRest();
    WEFT_RETURN_IF_ERROR(args->Finish());
    if (given.empty()) return InvalidArgument("loop.cycle needs something to cycle through");
    return given[static_cast<size_t>(loop->index) % given.size()];
  }

  const std::shared_ptr<LoopObject> loop;
};

}  // namespace

StatusOr<Value> LoopObject::Call(Interpreter* in, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const Value* const more, args->Require("iterable"));
  WEFT_RETURN_IF_ERROR(args->Finish());
  return in->CallLoop(*this, *more);
}

bool LoopObject::Attribute(Interpreter* in, std::string_view name, Value* value) {
  const std::vector<Value>& all = items.list().items;
  const auto n = static_cast<int64_t>(all.size());
  if (name == "index") {
    *value = Value::Int(index + 1);
  } else if (name == "index0") {
    *value = Value::Int(index);
  } else if (name == "revindex") {
    *value = Value::Int(n - index);
  } else if (name == "revindex0") {
    *value = Value::Int(n - index - 1);
  } else if (name == "first") {
    *value = Value::Bool(index == 0);
  } else if (name == "last") {
    *value = Value::Bool(index == n - 1);
  } else if (name == "length") {
    *value = Value::Int(n);
  } else if (name == "depth") {
    *value = Value::Int(depth + 1);
  } else if (name == "depth0") {
    *value = Value::Int(depth);
  } else if (name == "previtem") {
    *value = index > 0 ? all[index - 1] : Value::Undefined("there is no previous item");
  } else if (name == "nextitem") {
    *value = index + 1 < n ? all[index + 1] : Value::Undefined("there is no next item");
  } else if (name == "cycle") {
    auto method = std::make_shared<LoopCycle>(shared_from_this(), in->meter());
    method->Hold(SharedBytes<LoopCycle>());
    *value = Value::Callable(std::shared_ptr<CallableObject>(std::move(method)));
  } else {
    return false;
  }
  return true;
}

// --- functions --------------------------------------------------------------

namespace {

// The most numbers that Jinja's sandbox allows in a range.
constexpr int64_t kMaxRange = 100000;
constexpr size_t kMaxRaisedBytes = 64 << 10;

StatusOr<Value> Range(Interpreter* in, const Value&, Arguments* args) {
  const size_t n = args->positional.size();
  if (n < 1 || n > 3) return InvalidArgument("range takes one to three integers");
  int64_t bounds[3] = {0, 0, 1};
  for (size_t i = 0; i < n; ++i) {
    WEFT_ASSIGN_OR_RETURN(bounds[n == 1 ? 1 : i], args->TakeInt("bound", 0));
  }
  WEFT_RETURN_IF_ERROR(args->Finish());
  const auto [start, stop, step] = bounds;
  if (step == 0) return InvalidArgument("the step of a range cannot be 0");
  const __int128 span = step > 0 ? __int128{stop} - start : __int128{start} - stop;
  const __int128 width = step > 0 ? __int128{step} : -__int128{step};
  const __int128 count = span <= 0 ? 0 : (span + width - 1) / width;
  if (count > kMaxRange) {
    return ResourceExhausted("a range can have at most ", kMaxRange, " numbers");
  }
  ListBuilder numbers(in->meter());
  if (!numbers.Reserve(static_cast<size_t>(count))) return in->meter()->status();
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) {
    numbers.Add(Value::Int(start + i * step));
  }
  return numbers.Finish(ListKind::kRange);
}

// The entries from the arguments of dict() and namespace().
StatusOr<Value> DictFrom(Interpreter* in, Arguments* args) {
  auto dict = std::make_shared<DictObject>(in->meter());
  if (const Value* const first = args->Take("")) {
    if (first->is_dict()) {
      for (const auto& [key, value] : first->dict().entries) dict->Set(key, value, in->meter());
    } else {
      WEFT_ASSIGN_OR_RETURN(const Value pairs, in->Iterate(*first));
      for (const Value& pair : pairs.list().items) {
        WEFT_ASSIGN_OR_RETURN(const Value both, in->Iterate(pair));
        const std::vector<Value>& parts = both.list().items;
        if (parts.size() != 2) return InvalidArgument("a dict is made of pairs");
        dict->Set(parts[0], parts[1], in->meter());
        if (!in->meter()->ok()) return in->meter()->status();
      }
    }
  }
  if (!args->TakeRest().empty()) return InvalidArgument("dict takes at most one argument");
  for (const auto& [name, value] : args->keyword) {
    dict->Set(in->CopyText(name), value, in->meter());
  }
  return Value::Dict(std::move(dict));
}

StatusOr<Value> MakeDict(Interpreter* in, const Value&, Arguments* args) {
  return DictFrom(in, args);
}

StatusOr<Value> MakeNamespace(Interpreter* in, const Value&, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const Value dict, DictFrom(in, args));
  NamespaceObject* ns = nullptr;
  const Value made = in->NewNamespace(&ns);
  for (const auto& [key, value] : dict.dict().entries) {
    if (!key.is_string()) return InvalidArgument("names in a namespace must be strings");
    ns->Set(key.text(), value);
    in->meter()->Spend(ns->attributes.size() / 8);
  }
  return made;
}

StatusOr<Value> RaiseException(Interpreter* in, const Value&, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const Value* const message, args->Require("message"));
  WEFT_RETURN_IF_ERROR(args->Finish());
  const Value text = ToStr(*message, in->meter());
  if (!in->meter()->ok()) return in->meter()->status();
  // It is copied from error to error, by which nothing is held.
  return in->Raise(text.text().substr(0, kMaxRaisedBytes));
}

StatusOr<Value> StrftimeNow(Interpreter* in, const Value&, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const std::string_view format, args->RequireString("format"));
  WEFT_RETURN_IF_ERROR(args->Finish());
  if (format.size() > 1000) return InvalidArgument("the format of a date is too long");
  const time_t seconds = in->now();
  std::tm parts = {};
  if (gmtime_r(&seconds, &parts) == nullptr) return InvalidArgument("the clock is out of range");
  std::string out(format.size() * 32 + 64, '\0');
  // The space distinguishes an empty result from a buffer that is too small.
  out.resize(strftime(out.data(), out.size(), (std::string(format) + " ").c_str(), &parts));
  if (out.empty()) return InvalidArgument("the date does not fit");
  out.pop_back();
  return in->NewString(std::move(out));
}

struct JoinerObject : CallableObject {
  using CallableObject::CallableObject;
  const char* type_name() const override { return "Joiner object"; }
  StatusOr<Value> Call(Interpreter* in, Arguments* args) override {
    WEFT_RETURN_IF_ERROR(args->Finish());
    return std::exchange(used, true) ? separator : Value::Borrowed("");
  }
  Value separator;
  bool used = false;
};

StatusOr<Value> MakeJoiner(Interpreter* in, const Value&, Arguments* args) {
  const Value* const separator = args->Take("sep");
  WEFT_RETURN_IF_ERROR(args->Finish());
  auto joiner = std::make_unique<JoinerObject>(in->meter());
  joiner->separator = separator != nullptr ? *separator : Value::Borrowed(", ");
  return in->Keep(std::move(joiner));
}

constexpr FunctionEntry kFunctions[] = {
    {"range", Range},
    {"dict", MakeDict},
    {"namespace", MakeNamespace},
    {"raise_exception", RaiseException},
    {"strftime_now", StrftimeNow},
    {"joiner", MakeJoiner},
};

}  // namespace

std::span<const FunctionEntry> Functions() { return kFunctions; }

const FunctionEntry* FindFunction(std::string_view name) {
  const auto* const it = std::ranges::find(kFunctions, name, &FunctionEntry::name);
  return it == std::end(kFunctions) ? nullptr : it;
}

Status NoBuiltin(std::string_view kind, std::string_view name) {
  return InvalidArgument("Weft's templates have no ", kind, " `", Printable(name), "`");
}

const FilterEntry* FindFilter(std::string_view name) {
  for (const std::span<const FilterEntry> table : {TextFilters(), ListFilters()}) {
    const auto it = std::ranges::find(table, name, &FilterEntry::name);
    if (it != table.end()) return &*it;
  }
  return nullptr;
}

// --- methods ----------------------------------------------------------------

namespace {

bool IsOneOf(std::string_view name, std::span<const std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

constexpr std::string_view kListChangers[] = {"append", "clear",  "extend",  "insert",
                                              "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kDictChangers[] = {"clear", "pop", "popitem", "setdefault", "update"};

}  // namespace

bool FindMethod(const Value& self, const Value& name, Meter* meter, Value* method) {
  std::vector<std::span<const MethodEntry>> tables;
  std::span<const std::string_view> changers;
  if (self.is_string()) {
    tables = {StringMethods(), StringSearchMethods()};
  } else if (self.is_dict()) {
    tables = {DictMethods()};
    changers = kDictChangers;
  } else if (self.is_list_of(ListKind::kList) || self.is_list_of(ListKind::kTuple)) {
    tables = {ListMethods()};
    if (self.list().kind == ListKind::kList) changers = kListChangers;
  }
  for (const std::span<const MethodEntry> table : tables) {
    for (const MethodEntry& entry : table) {
      if (name.text() != entry.name) continue;
      auto object = std::make_shared<MethodObject>(self, &entry, meter);
      object->Hold(SharedBytes<MethodObject>());
      *method = Value::Callable(std::shared_ptr<CallableObject>(std::move(object)));
      return true;
    }
  }
  if (!IsOneOf(name.text(), changers)) return false;
  *method = Value::UnsafeAttribute(name, TypeName(self));
  return true;
}

}  // namespace weft::jinja
