// The built-in filters, tests, methods and functions.
//
// Each is a plain function with the same signature, in a table by name.
#ifndef WEFT_JINJA_BUILTINS_H_
#define WEFT_JINJA_BUILTINS_H_

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "jinja/value.h"

namespace weft::jinja {

class Interpreter;

// The arguments of a call. A builtin takes its parameters in order, then calls Finish.
class Arguments {
 public:
  explicit Arguments(Meter* meter) : held(meter), held_keywords(meter) {}
  // Copies `others`, with `rest` of their positional ones. False if there is no room.
  bool Copy(const Arguments& others, std::span<const Value> rest, Meter* meter);

  // What the lists below take, where they may be long.
  Held held, held_keywords;
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> keyword;
  Value kept;  // owns what the names of keyword arguments may refer to

  // The next parameter: the next positional argument, else the one of this name. Null if neither
  // was given. Valid as long as this object.
  const Value* Take(std::string_view name);
  // By name only.
  const Value* TakeKeyword(std::string_view name);
  // Takes the remaining positional arguments.
  std::span<const Value> TakeRest();

  // Typed parameters: the default if not given, an error for another type. None counts as not given
  // if `none_is_absent`.
  StatusOr<int64_t> TakeInt(std::string_view name, int64_t absent, bool none_is_absent = false);
  StatusOr<bool> TakeBool(std::string_view name, bool absent);
  StatusOr<std::string_view> TakeString(std::string_view name, std::string_view absent,
                                        bool none_is_absent = false);
  // An error if it was not given.
  StatusOr<const Value*> Require(std::string_view name);
  StatusOr<std::string_view> RequireString(std::string_view name);
  // An error if any argument was not taken.
  Status Finish() const;

 private:
  size_t next_ = 0;
  uint64_t taken_keywords_ = 0;  // bits; the 64th and later count as not taken
};

// Builds a list as large as the meter allows.
class ListBuilder {
 public:
  explicit ListBuilder(Meter* meter) : meter_(meter), held_(meter) {}
  // False if there is no room; the value is dropped.
  bool Add(Value value) {
    if (!meter_->Spend() || !held_.Grow(&items_, 1)) return false;
    items_.push_back(std::move(value));
    return true;
  }
  size_t size() const { return items_.size(); }
  std::vector<Value>& items() { return items_; }
  // For this many more.
  bool Reserve(size_t n) { return held_.Grow(&items_, n); }
  Value Finish(ListKind kind = ListKind::kList) {
    held_.Release();
    return Value::List(std::exchange(items_, {}), meter_, kind);
  }

 private:
  Meter* const meter_;
  Held held_;
  std::vector<Value> items_;
};

// The subject of a filter or method is `self`; for functions it is None.
using Builtin = StatusOr<Value> (*)(Interpreter* in, const Value& self, Arguments* args);

struct FilterEntry {
  const char* name;
  Builtin apply;
};
struct TestEntry {
  const char* name;
  Builtin holds;  // holds if the result is true
};
struct MethodEntry {
  const char* name;
  Builtin call;
};
struct FunctionEntry {
  const char* name;
  Builtin call;
};

// Null if there is none of this name. Entries live forever.
const FilterEntry* FindFilter(std::string_view name);
const TestEntry* FindTest(std::string_view name);
const FunctionEntry* FindFunction(std::string_view name);
std::span<const FunctionEntry> Functions();

// The error for a name without an entry: "Weft's templates have no filter `xmlattr`".
Status NoBuiltin(std::string_view kind, std::string_view name);

// The tables, one file each.
std::span<const FilterEntry> TextFilters();
std::span<const FilterEntry> ListFilters();
std::span<const MethodEntry> StringMethods();
std::span<const MethodEntry> StringSearchMethods();
std::span<const MethodEntry> ListMethods();
std::span<const MethodEntry> DictMethods();

// self.name if Python has a method of this name: a callable value, or for methods that would change
// `self` an undefined value that says so. False if there is none.
bool FindMethod(const Value& self, const Value& name, Meter* meter, Value* method);
// Methods that change a list; they can only be called directly, never stored. Null for others.
const MethodEntry* FindListChange(std::string_view name);

// format % values, and format.format(...).
StatusOr<Value> FormatPercent(Interpreter* in, std::string_view format, const Value& values);
StatusOr<Value> FormatBraces(Interpreter* in, std::string_view format, const Arguments& args);

// text.replace(old, replacement, count); a negative count means all.
Value ReplaceText(Interpreter* in, std::string_view text, std::string_view old,
                  std::string_view replacement, int64_t count);
// text.splitlines(): views of `text`; and what that takes, at most.
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);
size_t SplitLinesBytes(std::string_view text);
// Without white space, or without characters that are in `chars`, at the ends.
StatusOr<Value> StripText(Interpreter* in, const Value& self, const Value* chars, bool left,
                          bool right);

// a op b for arithmetic operators, including those on strings and lists.
enum class Op : uint8_t;
StatusOr<Value> Arithmetic(Interpreter* in, Op op, const Value& a, const Value& b);
StatusOr<bool> CompareOp(Interpreter* in, Op op, const Value& a, const Value& b);
StatusOr<bool> Contains(Interpreter* in, const Value& container, const Value& item);

}  // namespace weft::jinja

#endif  // WEFT_JINJA_BUILTINS_H_
