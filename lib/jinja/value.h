// The values of a template: Python's, as far as Jinja exposes them.
//
// A Value is small and cheap to copy. Strings, dicts and lists are immutable once made and shared
// by reference, except lists that a template itself appends to or pops from, which can never
// contain themselves. Strings may also be views of text that outlives the rendering (the template's
// or the conversation's). Namespaces and macros can refer to themselves, so the rendering's Heap
// owns them and values only point to them. Nothing here is thread-safe, but values made before a
// rendering and without a meter (a template's constants) may be read by many threads.
#ifndef WEFT_JINJA_VALUE_H_
#define WEFT_JINJA_VALUE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "jinja/meter.h"

namespace weft::jinja {

// Maximum nesting of lists, so that walks over them may recurse.
inline constexpr int kMaxValueDepth = 200;
// The depth assumed for a callable, which may hold any list: values this deep or deeper cannot be
// appended to a list that a callable holds.
inline constexpr int kCallableDepth = 100;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,  // and every other sequence, see ListKind
  kDict,
  kNamespace,
  kCallable,  // macros, methods, functions, `loop`
};

enum class ListKind : uint8_t { kList, kTuple, kRange, kKeys, kValues, kItems, kGenerator };

// What a value refers to; charged to its rendering while it lives.
class Object {
 public:
  explicit Object(Meter* meter) : meter_(meter) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() {
    if (meter_ != nullptr) meter_->Release(held_);
  }
  // Charges `bytes` more; if they do not fit, charges nothing and fails the meter.
  bool Hold(size_t bytes) {
    if (meter_ == nullptr) return true;
    if (!meter_->Hold(bytes)) return false;
    held_ += bytes;
    return true;
  }
  // Makes room for one more element of a member, charged to this object.
  template <typename T>
  bool Grow(std::vector<T>* all) {
    if (all->size() < all->capacity()) return true;
    const size_t old = all->capacity(), wanted = std::max<size_t>(4, 2 * old);
    if (!Hold(wanted * sizeof(T) + kAllocationBytes)) return false;
    all->reserve(wanted);
    if (old > 0) Return(old * sizeof(T) + kAllocationBytes);
    return true;
  }

 private:
  void Return(size_t bytes) {
    if (meter_ == nullptr) return;
    meter_->Release(bytes);
    held_ -= bytes;
  }

  Meter* const meter_;
  size_t held_ = 0;
};

class Value;
struct ListObject;
struct DictObject;
struct NamespaceObject;
struct CallableObject;

class Value {
 public:
  Value() : kind_(Kind::kNone) { bits_.integer = 0; }
  static Value None() { return Value(); }
  static Value Bool(bool b);
  static Value Int(int64_t i);
  static Value Float(double d);
  // An integer beyond 64 bits: printed with these digits, computed with as a float.
  static Value BigInt(std::string digits, Meter* meter);
  // A view of text that outlives the rendering.
  static Value Borrowed(std::string_view text);
  // Takes the string; empty if the meter is spent.
  static Value String(std::string text, Meter* meter);
  // An undefined variable of this name; or, with a type, a missing attribute of that type. Both
  // arguments must outlive the rendering.
  static Value Undefined(std::string_view name, const char* type_name = nullptr);
  // The same, keeping `name`, a string value.
  static Value UndefinedAttribute(const Value& name, const char* type_name);
  // An attribute that exists but is off limits to templates.
  static Value UnsafeAttribute(const Value& name, const char* type_name);
  static Value List(std::vector<Value> items, Meter* meter, ListKind kind = ListKind::kList);
  static Value Dict(std::shared_ptr<DictObject> dict);
  static Value Namespace(NamespaceObject* ns);
  // Owned by the Heap, or by the value.
  static Value Callable(CallableObject* callable);
  static Value Callable(std::shared_ptr<CallableObject> callable);

  Kind kind() const { return kind_; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_list() const { return kind_ == Kind::kList; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  // In Python, bool is an int.
  bool is_integral() const { return kind_ == Kind::kBool || kind_ == Kind::kInt; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }
  bool is_list_of(ListKind kind) const;

  // REQUIRES for each: the matching kind.
  int64_t integer() const { return bits_.integer; }  // kBool too
  double number() const {
    return kind_ == Kind::kFloat ? bits_.real : static_cast<double>(bits_.integer);
  }
  // A BigInt's digits; empty for all others.
  std::string_view digits() const;
  std::string_view text() const { return {static_cast<const char*>(raw_), bits_.size}; }
  const ListObject& list() const { return *static_cast<const ListObject*>(raw_); }
  // Like list.append(item) and list.pop(index). REQUIRES: is_list_of(kList).
  Status Append(Value item, Meter* meter) const;
  StatusOr<Value> Pop(int64_t index) const;
  const DictObject& dict() const { return *static_cast<const DictObject*>(raw_); }
  NamespaceObject* ns() const;
  CallableObject* callable() const;
  // The address, for values compared by identity.
  const void* identity() const { return raw_; }
  // "'x' is undefined". REQUIRES: is_undefined().
  std::string UndefinedMessage() const;

  // A part of this string, sharing its bytes. REQUIRES: is_string(), `part` within text().
  Value Substring(std::string_view part) const;

  // Levels of nested values; 0 for a value that holds none.
  int depth() const;

 private:
  friend struct ListObject;
  Kind kind_;
  bool unsafe_ = false;
  union {
    int64_t integer;
    double real;
    size_t size;
  } bits_;
  const void* raw_ =
      nullptr;  // the object, or the first byte of a string (or of an undefined's name)
  const char* type_name_ = nullptr;  // for an undefined: the type that lacks the attribute
  std::shared_ptr<const Object> owner_;
};

using ValuePair = std::pair<Value, Value>;

struct ListObject : Object {
  using Object::Object;
  ListKind kind = ListKind::kList;
  // A list or dict contains this one and has already recorded its depth.
  mutable bool is_member = false;
  int depth = 1;
  std::vector<Value> items;
  // Generators only: the items before it have been consumed.
  mutable size_t next = 0;
};

// Insertion order, unique keys.
struct DictObject : Object {
  using Object::Object;

  // Replaces the value of an equal key. REQUIRES: no Value refers to it yet.
  void Set(Value key, Value value, Meter* meter);
  // Null when absent.
  const Value* Find(const Value& key, Meter* meter) const;
  const Value* Find(std::string_view key, Meter* meter) const;

  std::vector<ValuePair> entries;
  int depth = 1;

 private:
  int64_t IndexOf(const Value& key, uint64_t hash, Meter* meter) const;
  std::unordered_multimap<uint64_t, uint32_t> by_hash_;  // only if there are many
};

struct NamespaceObject : Object {
  using Object::Object;
  const Value* Find(std::string_view name) const;
  void Set(std::string_view name, Value value);
  std::vector<std::pair<std::string, Value>> attributes;
};

class Interpreter;
class Arguments;

// Something that a template can call.
struct CallableObject : Object {
  using Object::Object;
  virtual StatusOr<Value> Call(Interpreter* in, Arguments* args) = 0;
  // False if there is no attribute of this name.
  virtual bool Attribute(Interpreter* in, std::string_view name, Value* value);
  virtual const char* type_name() const = 0;
};

// "str object", "None": the type of a value as named in Jinja's messages.
const char* TypeName(const Value& value);

// Python's bool(x), x == y, and hash(x) (an error for lists and dicts).
bool Truth(const Value& value);
bool Equal(const Value& a, const Value& b, Meter* meter);
StatusOr<uint64_t> Hash(const Value& value, Meter* meter);
// Compares x and y: -1, 0 or 1; an error if Python defines no order.
StatusOr<int> Compare(const Value& a, const Value& b, Meter* meter);

// Builds a string as large as the meter allows; charged as it grows.
class TextBuilder {
 public:
  explicit TextBuilder(Meter* meter) : meter_(meter), held_(meter) {}

  // False if the text exceeded the meter; the rest is dropped.
  bool Append(std::string_view text) {
    if (!held_.Grow(&text_, text.size())) return false;
    text_.append(text);
    return meter_->SpendBytes(text.size());
  }
  bool Append(char c) { return Append(std::string_view(&c, 1)); }
  bool AppendRepeated(std::string_view text, int64_t times);
  size_t size() const { return text_.size(); }
  std::string_view view() const { return text_; }
  Value Finish() { return Value::String(Take(), meter_); }
  std::string Take() {
    held_.Release();
    return std::exchange(text_, {});
  }

 private:
  Meter* const meter_;
  Held held_;
  std::string text_;
};

// str(x) and repr(x).
void AppendStr(const Value& value, TextBuilder* out, Meter* meter);
void AppendRepr(const Value& value, TextBuilder* out, Meter* meter, int depth = 0);
// str(x) as a value: strings are returned unchanged.
Value ToStr(const Value& value, Meter* meter);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool multi_line = false;
  std::string indent;  // per level, if multi_line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// json.dumps(x).
Status AppendJson(const Value& value, const JsonStyle& style, TextBuilder* out, Meter* meter);

}  // namespace weft::jinja

#endif  // WEFT_JINJA_VALUE_H_
