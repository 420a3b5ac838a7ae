#include "jinja/value.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>

#include "base/check.h"
#include "jinja/text.h"

namespace weft::jinja {
namespace {

// A node of a dict's index and its share of the buckets.
constexpr size_t kIndexBytes = 64;
// The work of making an object.
constexpr size_t kObjectSteps = 2;
// Larger dicts have an index.
constexpr size_t kLinearEntries = 12;

struct TextObject : Object {
  using Object::Object;
  std::string text;
};

// The depth of a container after `value` becomes its member.
int ItemDepth(const Value& value, int depth, Meter* meter) {
  if (value.is_list() && meter != nullptr) value.list().is_member = true;
  const int deeper = std::max(depth, value.depth() + 1);
  if (deeper > kMaxValueDepth && meter != nullptr) {
    meter->Fail(ResourceExhausted("values are nested more than ", kMaxValueDepth, " deep"));
  }
  return deeper;
}

}  // namespace

bool Meter::Fail(Status status) {
  if (!failed_) status_ = std::move(status);
  failed_ = true;
  return false;
}

bool Meter::FailSteps() {
  return Fail(ResourceExhausted("the chat template took more than ", max_steps_,
                                " steps; it may be stuck in a loop"));
}

bool Meter::FailBytes() {
  return Fail(ResourceExhausted("the chat template needs more than ", HumanBytes(max_bytes_)));
}

Value Value::Bool(bool b) {
  Value v;
  v.kind_ = Kind::kBool;
  v.bits_.integer = b ? 1 : 0;
  return v;
}

Value Value::Int(int64_t i) {
  Value v;
  v.kind_ = Kind::kInt;
  v.bits_.integer = i;
  return v;
}

Value Value::Float(double d) {
  Value v;
  v.kind_ = Kind::kFloat;
  v.bits_.real = d;
  return v;
}

Value Value::BigInt(std::string digits, Meter* meter) {
  Value v = Float(std::strtod(digits.c_str(), nullptr));
  auto object = std::make_shared<TextObject>(meter);
  if (!object->Hold(SharedBytes<TextObject>() + CapacityBytes(digits))) return v;
  object->text = std::move(digits);
  v.raw_ = object.get();
  v.owner_ = std::move(object);
  return v;
}

std::string_view Value::digits() const {
  if (kind_ != Kind::kFloat || raw_ == nullptr) return {};
  return static_cast<const TextObject*>(raw_)->text;
}

Value Value::Borrowed(std::string_view text) {
  Value v;
  v.kind_ = Kind::kString;
  v.raw_ = text.data();
  v.bits_.size = text.size();
  return v;
}

Value Value::String(std::string text, Meter* meter) {
  if (text.empty()) return Borrowed("");
  auto object = std::make_shared<TextObject>(meter);
  if (!object->Hold(SharedBytes<TextObject>() + CapacityBytes(text))) return Borrowed("");
  if (meter != nullptr && !meter->SpendBytes(text.size() + 32 * kObjectSteps)) return Borrowed("");
  object->text = std::move(text);
  Value v = Borrowed(object->text);
  v.owner_ = std::move(object);
  return v;
}

Value Value::Undefined(std::string_view name, const char* type_name) {
  Value v = Borrowed(name);
  v.kind_ = Kind::kUndefined;
  v.type_name_ = type_name;
  return v;
}

Value Value::UndefinedAttribute(const Value& name, const char* type_name) {
  Value v = name;
  v.kind_ = Kind::kUndefined;
  v.type_name_ = type_name;
  return v;
}

Value Value::UnsafeAttribute(const Value& name, const char* type_name) {
  Value v = UndefinedAttribute(name, type_name);
  v.unsafe_ = true;
  return v;
}

Value Value::List(std::vector<Value> items, Meter* meter, ListKind kind) {
  auto object = std::make_shared<ListObject>(meter);
  object->kind = kind;
  const bool fits =
      object->Hold(SharedBytes<ListObject>() + CapacityBytes(items)) &&
      (meter == nullptr || meter->SpendBytes(items.size() * sizeof(Value) + 32 * kObjectSteps));
  if (fits) {
    for (const Value& item : items) object->depth = ItemDepth(item, object->depth, meter);
    object->items = std::move(items);
  }
  Value v;
  v.kind_ = Kind::kList;
  v.raw_ = static_cast<const ListObject*>(object.get());
  v.owner_ = std::move(object);
  return v;
}

Value Value::Dict(std::shared_ptr<DictObject> dict) {
  dict->Hold(SharedBytes<DictObject>());
  Value v;
  v.kind_ = Kind::kDict;
  v.raw_ = static_cast<const DictObject*>(dict.get());
  v.owner_ = std::move(dict);
  return v;
}

Value Value::Namespace(NamespaceObject* ns) {
  Value v;
  v.kind_ = Kind::kNamespace;
  v.raw_ = ns;
  return v;
}

Value Value::Callable(CallableObject* callable) {
  Value v;
  v.kind_ = Kind::kCallable;
  v.raw_ = callable;
  return v;
}

Value Value::Callable(std::shared_ptr<CallableObject> callable) {
  Value v = Callable(callable.get());
  v.owner_ = std::move(callable);
  return v;
}

// A list must not become deeper than its containers have recorded: that bounds recursive walks, and
// no list can contain itself.
Status Value::Append(Value item, Meter* meter) const {
  auto& object = const_cast<ListObject&>(list());
  const int deeper = std::max(object.depth, item.depth() + 1);
  const bool fits = item.depth() < kCallableDepth && item.identity() != identity() &&
                    (!object.is_member || deeper == object.depth);
  if (!fits) return InvalidArgument("a ", TypeName(item), " cannot be appended to this list");
  if (!object.Grow(&object.items) || !meter->SpendBytes(sizeof(Value))) return meter->status();
  object.depth = ItemDepth(item, object.depth, meter);
  object.items.push_back(std::move(item));
  return OkStatus();
}

StatusOr<Value> Value::Pop(int64_t index) const {
  auto& items = const_cast<ListObject&>(list()).items;
  const auto n = static_cast<int64_t>(items.size());
  if (index < 0) index += n;
  if (index < 0 || index >= n) return InvalidArgument("pop finds no such item in the list");
  Value taken = std::move(items[static_cast<size_t>(index)]);
  items.erase(items.begin() + index);
  return taken;
}

bool Value::is_list_of(ListKind kind) const { return is_list() && list().kind == kind; }

NamespaceObject* Value::ns() const {
  return static_cast<NamespaceObject*>(const_cast<void*>(raw_));
}

CallableObject* Value::callable() const {
  return static_cast<CallableObject*>(const_cast<void*>(raw_));
}

std::string Value::UndefinedMessage() const {
  const std::string name = Printable(text());
  if (unsafe_) return StrCat("access to '", name, "' of a ", type_name_, " is not allowed");
  if (type_name_ != nullptr) return StrCat("'", type_name_, "' has no attribute '", name, "'");
  return StrCat("'", name, "' is undefined");
}

Value Value::Substring(std::string_view part) const {
  Value v = *this;
  v.raw_ = part.data();
  v.bits_.size = part.size();
  return v;
}

int Value::depth() const {
  if (kind_ == Kind::kList) return list().depth;
  if (kind_ == Kind::kDict) return dict().depth;
  if (kind_ == Kind::kCallable) return kCallableDepth;
  return 0;
}

// --- dicts and namespaces ---------------------------------------------------

int64_t DictObject::IndexOf(const Value& key, uint64_t hash, Meter* meter) const {
  if (by_hash_.empty()) {
    for (size_t i = 0; i < entries.size(); ++i) {
      if (Equal(entries[i].first, key, meter)) return static_cast<int64_t>(i);
    }
    return -1;
  }
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (Equal(entries[it->second].first, key, meter)) return it->second;
  }
  return -1;
}

void DictObject::Set(Value key, Value value, Meter* meter) {
  const StatusOr<uint64_t> hash = Hash(key, meter);
  if (!hash.ok()) {
    meter->Fail(hash.status());
    return;
  }
  depth = ItemDepth(value, ItemDepth(key, depth, meter), meter);
  if (const int64_t at = IndexOf(key, *hash, meter); at >= 0) {
    entries[at].second = std::move(value);
    return;
  }
  if (!Grow(&entries) || !meter->SpendBytes(sizeof(ValuePair))) return;
  const size_t n_indexed = entries.size() == kLinearEntries ? kLinearEntries + 1 : 1;
  if (entries.size() >= kLinearEntries && !Hold(n_indexed * kIndexBytes)) return;
  if (entries.size() == kLinearEntries) {
    for (uint32_t i = 0; i < entries.size(); ++i) {
      by_hash_.emplace(*Hash(entries[i].first, meter), i);
    }
  }
  if (entries.size() >= kLinearEntries) by_hash_.emplace(*hash, entries.size());
  entries.emplace_back(std::move(key), std::move(value));
}

const Value* DictObject::Find(const Value& key, Meter* meter) const {
  uint64_t hash = 0;
  if (!by_hash_.empty()) {
    const StatusOr<uint64_t> computed = Hash(key, meter);
    if (!computed.ok()) return nullptr;
    hash = *computed;
  }
  const int64_t at = IndexOf(key, hash, meter);
  return at < 0 ? nullptr : &entries[at].second;
}

const Value* DictObject::Find(std::string_view key, Meter* meter) const {
  return Find(Value::Borrowed(key), meter);
}

const Value* NamespaceObject::Find(std::string_view name) const {
  for (const auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

void NamespaceObject::Set(std::string_view name, Value value) {
  for (auto& [key, old] : attributes) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  if (!Grow(&attributes) || !Hold(name.size() + kAllocationBytes)) return;
  attributes.emplace_back(name, std::move(value));
}

bool CallableObject::Attribute(Interpreter* in, std::string_view name, Value* value) {
  return false;
}

// --- comparing --------------------------------------------------------------

const char* TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "bool object";
    case Kind::kInt:
      return "int object";
    case Kind::kFloat:
      return value.digits().empty() ? "float object" : "int object";
    case Kind::kString:
      return "str object";
    case Kind::kDict:
      return "dict object";
    case Kind::kNamespace:
      return "Namespace object";
    case Kind::kCallable:
      return value.callable()->type_name();
    case Kind::kList:
      break;
  }
  switch (value.list().kind) {
    case ListKind::kList:
      return "list object";
    case ListKind::kTuple:
      return "tuple object";
    case ListKind::kRange:
      return "range object";
    case ListKind::kKeys:
      return "dict_keys object";
    case ListKind::kValues:
      return "dict_values object";
    case ListKind::kItems:
      return "dict_items object";
    case ListKind::kGenerator:
      return "generator object";
  }
  return "object";
}

bool Truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.number() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
      return value.list().kind == ListKind::kGenerator || !value.list().items.empty();
    case Kind::kDict:
      return !value.dict().entries.empty();
    case Kind::kNamespace:
    case Kind::kCallable:
      return true;
  }
  return true;
}

namespace {

bool EqualNumbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
  if (!a.digits().empty() && !b.digits().empty()) return a.digits() == b.digits();
  return a.number() == b.number();
}

bool EqualLists(const ListObject& a, const ListObject& b, Meter* meter) {
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  if (a.kind == ListKind::kGenerator || a.kind == ListKind::kValues) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!Equal(a.items[i], b.items[i], meter)) return false;
  }
  return true;
}

bool EqualDicts(const DictObject& a, const DictObject& b, Meter* meter) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.Find(key, meter);
    if (other == nullptr || !Equal(value, *other, meter)) return false;
  }
  return true;
}

uint64_t Mix(uint64_t a, uint64_t b) { return (a ^ b) * 0x9E3779B97F4A7C15ull + (a >> 29); }

}  // namespace

bool Equal(const Value& a, const Value& b, Meter* meter) {
  if (meter != nullptr && !meter->Spend()) return false;
  if (a.is_number() && b.is_number()) return EqualNumbers(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      if (a.text().size() != b.text().size()) return false;
      return (meter == nullptr || meter->SpendBytes(a.text().size())) && a.text() == b.text();
    case Kind::kList:
      return a.identity() == b.identity() || EqualLists(a.list(), b.list(), meter);
    case Kind::kDict:
      return a.identity() == b.identity() || EqualDicts(a.dict(), b.dict(), meter);
    default:
      return a.identity() == b.identity();
  }
}

StatusOr<uint64_t> Hash(const Value& value, Meter* meter) {
  if (meter != nullptr && !meter->Spend()) return uint64_t{0};
  switch (value.kind()) {
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return std::hash<double>()(value.number() == 0 ? 0.0 : value.number());
    case Kind::kString:
      if (meter != nullptr) meter->SpendBytes(value.text().size());
      return std::hash<std::string_view>()(value.text());
    case Kind::kUndefined:
    case Kind::kNone:
      return uint64_t{17};
    case Kind::kDict:
      return InvalidArgument("a dict cannot be a key of a dict");
    case Kind::kList: {
      if (value.list().kind == ListKind::kList) {
        return InvalidArgument("a list cannot be a key of a dict");
      }
      if (value.list().kind != ListKind::kTuple) break;
      uint64_t hash = 1;
      for (const Value& item : value.list().items) {
        WEFT_ASSIGN_OR_RETURN(const uint64_t one, Hash(item, meter));
        hash = Mix(hash, one);
      }
      return hash;
    }
    default:
      break;
  }
  return reinterpret_cast<uintptr_t>(value.identity());
}

StatusOr<int> Compare(const Value& a, const Value& b, Meter* meter) {
  if (!meter->Spend()) return 0;
  if (a.is_integral() && b.is_integral()) {
    return a.integer() < b.integer() ? -1 : a.integer() > b.integer();
  }
  if (a.is_number() && b.is_number()) {
    return a.number() < b.number() ? -1 : a.number() > b.number();
  }
  if (a.is_string() && b.is_string()) {
    meter->SpendBytes(std::min(a.text().size(), b.text().size()));
    // UTF-8 sorts in code point order.
    const int order = a.text().compare(b.text());
    return order < 0 ? -1 : order > 0;
  }
  const bool rows = a.is_list() && b.is_list() && a.list().kind == b.list().kind &&
                    (a.list().kind == ListKind::kList || a.list().kind == ListKind::kTuple);
  if (rows) {
    const std::vector<Value>& x = a.list().items;
    const std::vector<Value>& y = b.list().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!Equal(x[i], y[i], meter)) return Compare(x[i], y[i], meter);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size();
  }
  if (a.is_undefined()) return InvalidArgument(a.UndefinedMessage());
  if (b.is_undefined()) return InvalidArgument(b.UndefinedMessage());
  return InvalidArgument("a ", TypeName(a), " and a ", TypeName(b), " have no order");
}

}  // namespace weft::jinja
