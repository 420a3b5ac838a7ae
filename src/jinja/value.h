// The values a template computes with: Python's, as far as Jinja shows them.
//
// A Value is small and cheap to copy. Strings, dicts and lists are immutable once made and
// shared by reference, but for lists that a template itself appends to or pops from, which
// can never come to hold themselves; strings may also be views of text that outlives the
// rendering (the template's, the conversation's). Namespaces and macros can refer to
// themselves, so the Heap of the rendering owns them and values only point. Nothing
// here is safe for two threads, but values made before a rendering and without a
// meter (constants of a template) may be read by many.
#ifndef WEFT_JINJA_VALUE_H_
#define WEFT_JINJA_VALUE_H_

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

// Lists may hold lists this deep, so that walks over them may recurse.
inline constexpr int kMaxValueDepth = 200;
// What a callable counts as in that. It may hold any list, so what is that deep or deeper is
// not appended to one.
inline constexpr int kCallableDepth = 100;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,  // and everything else that is a row of values, see ListKind
  kDict,
  kNamespace,
  kCallable,  // macros, methods, functions, `loop`
};

enum class ListKind : uint8_t { kList, kTuple, kRange, kKeys, kValues, kItems, kGenerator };

// What a value refers to, charged to its rendering as long as it lives.
class Object {
 public:
  explicit Object(Meter* meter) : meter_(meter) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() {
    if (meter_ != nullptr) meter_->Release(held_);
  }
  // Charges `bytes` more; what does not fit is not charged and fails the meter.
  bool Hold(size_t bytes) {
    if (meter_ == nullptr) return true;
    if (!meter_->Hold(bytes)) return false;
    held_ += bytes;
    return true;
  }

 private:
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
  // An integer beyond 64 bits: is written out with these digits, and computed with as a float.
  static Value BigInt(std::string digits, Meter* meter);
  // A view of text that outlives the rendering.
  static Value Borrowed(std::string_view text);
  // Takes the string; empty when the meter is spent.
  static Value String(std::string text, Meter* meter);
  // An undefined variable of this name; or, with a type, a missing attribute of one.
  // Both must outlive the rendering.
  static Value Undefined(std::string_view name, const char* type_name = nullptr);
  // The same with the name a string value, kept.
  static Value UndefinedAttribute(const Value& name, const char* type_name);
  // An attribute that exists but is not for templates.
  static Value UnsafeAttribute(const Value& name, const char* type_name);
  static Value List(std::vector<Value> items, Meter* meter, ListKind kind = ListKind::kList);
  // A tuple whose items are also named: grouper, list.
  static Value Group(Value grouper, Value list, Meter* meter);
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
  // Python's bool is an int.
  bool is_integral() const { return kind_ == Kind::kBool || kind_ == Kind::kInt; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }
  bool is_list_of(ListKind kind) const;

  // REQUIRES for each: the kind.
  int64_t integer() const { return bits_.integer; }  // kBool too
  double number() const {
    return kind_ == Kind::kFloat ? bits_.real : static_cast<double>(bits_.integer);
  }
  // Of a BigInt; empty for all others.
  std::string_view digits() const;
  std::string_view text() const { return {static_cast<const char*>(raw_), bits_.size}; }
  const ListObject& list() const { return *static_cast<const ListObject*>(raw_); }
  // As list.append(item) and list.pop(index). REQUIRES: is_list_of(kList)
  Status Append(Value item, Meter* meter) const;
  StatusOr<Value> Pop(int64_t index) const;
  const DictObject& dict() const { return *static_cast<const DictObject*>(raw_); }
  NamespaceObject* ns() const;
  CallableObject* callable() const;
  // The address, for values compared by it.
  const void* identity() const { return raw_; }
  // "'x' is undefined". REQUIRES: is_undefined().
  std::string UndefinedMessage() const;

  // A part of this string, sharing its bytes. REQUIRES: is_string(), `part` within text().
  Value Substring(std::string_view part) const;

  // Levels of values within values; 0 for what holds none.
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
  const void* raw_ = nullptr;        // the object, or a string's (an undefined's name's) first byte
  const char* type_name_ = nullptr;  // of an undefined: what lacks the attribute
  std::shared_ptr<const Object> owner_;
};

using ValuePair = std::pair<Value, Value>;

struct ListObject : Object {
  using Object::Object;
  ListKind kind = ListKind::kList;
  bool is_group = false;
  // A list or a dict has it as a member, and has taken its depth for what it was then.
  mutable bool is_member = false;
  int depth = 1;
  std::vector<Value> items;
  // Generators only: items before it are consumed.
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
  std::unordered_multimap<uint64_t, uint32_t> by_hash_;  // only when there are many
};

struct NamespaceObject : Object {
  using Object::Object;
  const Value* Find(std::string_view name) const;
  void Set(std::string_view name, Value value);
  std::vector<std::pair<std::string, Value>> attributes;
};

class Interpreter;
class Arguments;

// Something a template can call.
struct CallableObject : Object {
  using Object::Object;
  virtual StatusOr<Value> Call(Interpreter* in, Arguments* args) = 0;
  // False when there is no attribute of this name.
  virtual bool Attribute(Interpreter* in, std::string_view name, Value* value);
  virtual const char* type_name() const = 0;
};

// "str object", "None": as Jinja's messages name the type of a value.
const char* TypeName(const Value& value);

// Python's bool(x), x == y, and hash(x) (an error for lists and dicts).
bool Truth(const Value& value);
bool Equal(const Value& a, const Value& b, Meter* meter);
StatusOr<uint64_t> Hash(const Value& value, Meter* meter);
// x < y as -1, 0, 1; an error where Python has no order.
StatusOr<int> Compare(const Value& a, const Value& b, Meter* meter);

// Builds a string no larger than the meter has room for; charged while it grows.
class TextBuilder {
 public:
  explicit TextBuilder(Meter* meter) : meter_(meter) {}
  TextBuilder(const TextBuilder&) = delete;
  TextBuilder& operator=(const TextBuilder&) = delete;
  ~TextBuilder() { meter_->Release(text_.size()); }

  // False when the text grew beyond what may be held; the rest is dropped.
  bool Append(std::string_view text) {
    if (!meter_->Hold(text.size())) return false;
    text_.append(text);
    return true;
  }
  bool Append(char c) { return Append(std::string_view(&c, 1)); }
  bool AppendRepeated(std::string_view text, int64_t times);
  size_t size() const { return text_.size(); }
  std::string_view view() const { return text_; }
  Value Finish() { return Value::String(Take(), meter_); }
  std::string Take() {
    meter_->Release(text_.size());
    return std::exchange(text_, {});
  }

 private:
  Meter* const meter_;
  std::string text_;
};

// str(x) and repr(x).
void AppendStr(const Value& value, TextBuilder* out, Meter* meter);
void AppendRepr(const Value& value, TextBuilder* out, Meter* meter, int depth = 0);
// str(x) as a value: strings come back as they are.
Value ToStr(const Value& value, Meter* meter);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool multi_line = false;
  std::string indent;  // of one level, when multi_line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// json.dumps(x).
Status AppendJson(const Value& value, const JsonStyle& style, TextBuilder* out, Meter* meter);

}  // namespace weft::jinja

#endif  // WEFT_JINJA_VALUE_H_
