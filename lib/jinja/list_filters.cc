// Filters over sequences.
#include <algorithm>
#include <unordered_map>

#include "jinja/ast.h"
#include "jinja/builtins.h"
#include "jinja/interpreter.h"
#include "jinja/text.h"

namespace weft::jinja {
namespace {

// Longer names of attributes would take many times their memory.
constexpr size_t kMaxAttributeBytes = 1000;

// The keys along the path "a.b.0" of an attribute argument.
std::vector<Value> AttributePath(const Value& attribute, std::string_view text) {
  std::vector<Value> path;
  for (const std::string_view part : StrSplit(text, '.')) {
    int64_t index = 0;
    const bool digits =
        !part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    path.push_back(digits && ParseInt(part, 10, &index) ? Value::Int(index)
                                                        : attribute.Substring(part));
  }
  return path;
}

StatusOr<std::vector<Value>> AttributePath(const Value& attribute) {
  if (attribute.is_integral()) return std::vector<Value>{attribute};
  if (attribute.is_string() && attribute.text().size() > kMaxAttributeBytes) {
    return InvalidArgument("the name of an attribute is too long");
  }
  if (attribute.is_string()) return AttributePath(attribute, attribute.text());
  return InvalidArgument("an attribute is named by a string or an integer");
}

StatusOr<Value> Follow(Interpreter* in, Value item, const std::vector<Value>& path,
                       const Value* absent = nullptr) {
  for (const Value& key : path) {
    WEFT_ASSIGN_OR_RETURN(item, in->Item(item, key));
    if (absent != nullptr && item.is_undefined()) item = *absent;
  }
  return item;
}

// What sorting compares: attributes of the item, or the item itself; case-folded unless requested
// otherwise.
struct SortKey {
  std::vector<std::vector<Value>> paths;  // empty: the item itself
  bool case_sensitive = false;

  static StatusOr<SortKey> Take(Arguments* args) {
    SortKey key;
    WEFT_ASSIGN_OR_RETURN(key.case_sensitive, args->TakeBool("case_sensitive", false));
    const Value* const attribute = args->Take("attribute");
    if (attribute == nullptr || attribute->is_none()) return key;
    if (attribute->is_string() && attribute->text().size() <= kMaxAttributeBytes) {
      for (const std::string_view one : StrSplit(attribute->text(), ',')) {
        key.paths.push_back(AttributePath(*attribute, one));
      }
    } else {
      WEFT_ASSIGN_OR_RETURN(auto path, AttributePath(*attribute));
      key.paths.push_back(std::move(path));
    }
    return key;
  }

  Value Fold(Interpreter* in, Value value) const {
    if (case_sensitive || !value.is_string()) return value;
    if (!in->meter()->Fits(3 * value.text().size())) return value;
    in->meter()->SpendChars(value.text().size());
    return in->NewString(ToLower(value.text()));
  }

  StatusOr<Value> Of(Interpreter* in, const Value& item) const {
    if (paths.empty()) return Fold(in, item);
    std::vector<Value> parts;
    for (const std::vector<Value>& path : paths) {
      WEFT_ASSIGN_OR_RETURN(Value part, Follow(in, item, path));
      parts.push_back(Fold(in, std::move(part)));
    }
    if (parts.size() == 1) return parts[0];
    return in->NewList(std::move(parts));
  }
};

struct Keyed {
  Value key;
  Value item;
};

// With `held` for the result, and as much again to sort it.
StatusOr<std::vector<Keyed>> KeyedItems(Interpreter* in, const Value& self, const SortKey& key,
                                        Held* held) {
  WEFT_ASSIGN_OR_RETURN(const Value items, in->Iterate(self));
  std::vector<Keyed> keyed;
  if (!held->Add(2 * items.list().items.size() * sizeof(Keyed))) return in->meter()->status();
  keyed.reserve(items.list().items.size());
  for (const Value& item : items.list().items) {
    WEFT_ASSIGN_OR_RETURN(Value k, key.Of(in, item));
    keyed.push_back({std::move(k), item});
    if (!in->meter()->Spend()) return in->meter()->status();
  }
  return keyed;
}

Status SortItems(Interpreter* in, bool reverse, std::vector<Keyed>* keyed) {
  Status failed;
  // stable_sort tolerates inconsistent comparisons.
  std::ranges::stable_sort(*keyed, [&](const Keyed& a, const Keyed& b) {
    const StatusOr<int> order = Compare(a.key, b.key, in->meter());
    if (!order.ok()) failed = order.status();
    return order.ok() && (reverse ? *order > 0 : *order < 0);
  });
  return failed;
}

StatusOr<Value> FilterSort(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const bool reverse, args->TakeBool("reverse", false));
  WEFT_ASSIGN_OR_RETURN(const SortKey key, SortKey::Take(args));
  WEFT_RETURN_IF_ERROR(args->Finish());
  Held held(in->meter());
  WEFT_ASSIGN_OR_RETURN(std::vector<Keyed> keyed, KeyedItems(in, self, key, &held));
  WEFT_RETURN_IF_ERROR(SortItems(in, reverse, &keyed));
  ListBuilder out(in->meter());
  for (Keyed& k : keyed) out.Add(std::move(k.item));
  return out.Finish();
}

Value PairOf(Interpreter* in, const Value& key, const Value& value) {
  return in->NewList({key, value}, ListKind::kTuple);
}

StatusOr<Value> FilterDictSort(Interpreter* in, const Value& self, Arguments* args) {
  SortKey key;
  WEFT_ASSIGN_OR_RETURN(key.case_sensitive, args->TakeBool("case_sensitive", false));
  WEFT_ASSIGN_OR_RETURN(const std::string_view by, args->TakeString("by", "key"));
  WEFT_ASSIGN_OR_RETURN(const bool reverse, args->TakeBool("reverse", false));
  WEFT_RETURN_IF_ERROR(args->Finish());
  if (by != "key" && by != "value") return InvalidArgument("dictsort sorts by key or by value");
  if (!self.is_dict()) return InvalidArgument("dictsort needs a dict, not a ", TypeName(self));
  std::vector<Keyed> keyed;
  Held held(in->meter());
  if (!held.Add(2 * self.dict().entries.size() * sizeof(Keyed))) return in->meter()->status();
  keyed.reserve(self.dict().entries.size());
  for (const auto& [name, value] : self.dict().entries) {
    keyed.push_back({key.Fold(in, by == "key" ? name : value), PairOf(in, name, value)});
    if (!in->meter()->Spend()) return in->meter()->status();
  }
  WEFT_RETURN_IF_ERROR(SortItems(in, reverse, &keyed));
  ListBuilder out(in->meter());
  for (Keyed& k : keyed) out.Add(std::move(k.item));
  return out.Finish();
}

StatusOr<Value> FilterUnique(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const SortKey key, SortKey::Take(args));
  WEFT_RETURN_IF_ERROR(args->Finish());
  Held held(in->meter());
  WEFT_ASSIGN_OR_RETURN(const std::vector<Keyed> keyed, KeyedItems(in, self, key, &held));
  const auto seen = std::make_shared<DictObject>(in->meter());
  ListBuilder out(in->meter());
  for (const Keyed& k : keyed) {
    const size_t before = seen->entries.size();
    WEFT_RETURN_IF_ERROR(Hash(k.key, in->meter()).status());
    seen->Set(k.key, Value(), in->meter());
    if (seen->entries.size() > before) out.Add(k.item);
    if (!in->meter()->ok()) return in->meter()->status();
  }
  return out.Finish(ListKind::kGenerator);
}

StatusOr<Value> Extreme(Interpreter* in, const Value& self, Arguments* args, int sign) {
  WEFT_ASSIGN_OR_RETURN(const SortKey key, SortKey::Take(args));
  WEFT_RETURN_IF_ERROR(args->Finish());
  Held held(in->meter());
  WEFT_ASSIGN_OR_RETURN(const std::vector<Keyed> keyed, KeyedItems(in, self, key, &held));
  if (keyed.empty()) return Value::Undefined("the minimum or maximum of an empty sequence");
  const Keyed* best = &keyed[0];
  for (const Keyed& k : keyed) {
    WEFT_ASSIGN_OR_RETURN(const int order, Compare(k.key, best->key, in->meter()));
    if (order * sign > 0) best = &k;
  }
  return best->item;
}
StatusOr<Value> FilterMin(Interpreter* in, const Value& self, Arguments* args) {
  return Extreme(in, self, args, -1);
}
StatusOr<Value> FilterMax(Interpreter* in, const Value& self, Arguments* args) {
  return Extreme(in, self, args, 1);
}

StatusOr<Value> FilterFirst(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_RETURN_IF_ERROR(args->Finish());
  if (self.is_string() && !self.text().empty()) {
    return self.Substring(self.text().substr(0, CharBytes(self.text())));
  }
  if (self.is_list_of(ListKind::kGenerator)) {
    const ListObject& list = self.list();
    if (list.next < list.items.size()) return list.items[list.next++];
  } else {
    WEFT_ASSIGN_OR_RETURN(const Value items, in->Iterate(self));
    if (!items.list().items.empty()) return items.list().items[0];
  }
  return Value::Undefined("the first item of an empty sequence");
}

StatusOr<Value> FilterLast(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_RETURN_IF_ERROR(args->Finish());
  if (self.is_list_of(ListKind::kGenerator)) {
    return InvalidArgument("a generator has no last item; make it a list first");
  }
  WEFT_ASSIGN_OR_RETURN(const Value items, in->Iterate(self));
  if (!items.list().items.empty()) return items.list().items.back();
  return Value::Undefined("the last item of an empty sequence");
}

StatusOr<Value> FilterList(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_RETURN_IF_ERROR(args->Finish());
  WEFT_ASSIGN_OR_RETURN(const Value items, in->Iterate(self));
  const bool is_new = items.identity() != self.identity();
  if (is_new && items.list().kind == ListKind::kList) return items;
  ListBuilder out(in->meter());
  for (const Value& item : items.list().items) out.Add(item);
  return out.Finish();
}

StatusOr<Value> FilterItems(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_RETURN_IF_ERROR(args->Finish());
  if (!self.is_dict() && !self.is_undefined()) {
    return InvalidArgument("items needs a dict, not a ", TypeName(self));
  }
  ListBuilder out(in->meter());
  if (self.is_dict()) {
    for (const auto& [key, value] : self.dict().entries) out.Add(PairOf(in, key, value));
  }
  return out.Finish(ListKind::kGenerator);
}

StatusOr<Value> FilterReverse(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_RETURN_IF_ERROR(args->Finish());
  if (self.is_string()) {
    if (!in->meter()->Fits(CharsBytes(self.text()) + self.text().size())) return Value();
    in->meter()->SpendChars(self.text().size());
    std::vector<std::string_view> chars = Chars(self.text());
    std::ranges::reverse(chars);
    return in->NewString(StrJoin(chars, ""));
  }
  WEFT_ASSIGN_OR_RETURN(const Value items, in->Iterate(self));
  ListBuilder out(in->meter());
  for (auto it = items.list().items.rbegin(); it != items.list().items.rend(); ++it) out.Add(*it);
  return out.Finish(self.is_list_of(ListKind::kGenerator) ? ListKind::kList : ListKind::kGenerator);
}

StatusOr<Value> FilterJoin(Interpreter* in, const Value& self, Arguments* args) {
  const Value* const separator = args->Take("d");
  const Value* const attribute = args->Take("attribute");
  WEFT_RETURN_IF_ERROR(args->Finish());
  std::vector<Value> path;
  if (attribute != nullptr && !attribute->is_none()) {
    WEFT_ASSIGN_OR_RETURN(path, AttributePath(*attribute));
  }
  const Value between = separator != nullptr ? ToStr(*separator, in->meter()) : Value::Borrowed("");
  WEFT_ASSIGN_OR_RETURN(const Value items, in->Iterate(self));
  TextBuilder out(in->meter());
  bool first = true;
  for (const Value& item : items.list().items) {
    if (!first) out.Append(between.text());
    first = false;
    WEFT_ASSIGN_OR_RETURN(const Value part, Follow(in, item, path));
    AppendStr(part, &out, in->meter());
    if (!in->meter()->ok()) break;
  }
  return out.Finish();
}

StatusOr<Value> FilterSum(Interpreter* in, const Value& self, Arguments* args) {
  const Value* const attribute = args->Take("attribute");
  const Value* const start = args->Take("start");
  WEFT_RETURN_IF_ERROR(args->Finish());
  std::vector<Value> path;
  if (attribute != nullptr && !attribute->is_none()) {
    WEFT_ASSIGN_OR_RETURN(path, AttributePath(*attribute));
  }
  Value sum = start != nullptr ? *start : Value::Int(0);
  if (sum.is_string()) return InvalidArgument("sum adds numbers; strings are joined");
  WEFT_ASSIGN_OR_RETURN(const Value items, in->Iterate(self));
  for (const Value& item : items.list().items) {
    WEFT_ASSIGN_OR_RETURN(const Value part, Follow(in, item, path));
    WEFT_ASSIGN_OR_RETURN(sum, Arithmetic(in, Op::kAdd, sum, part));
    if (!in->meter()->Spend()) return in->meter()->status();
  }
  return sum;
}

StatusOr<Value> FilterBatch(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const int64_t width, args->TakeInt("linecount", 0));
  const Value* const fill = args->Take("fill_with");
  WEFT_RETURN_IF_ERROR(args->Finish());
  if (width < 1) return InvalidArgument("batch needs a positive size");
  WEFT_ASSIGN_OR_RETURN(const Value items, in->Iterate(self));
  ListBuilder out(in->meter());
  ListBuilder line(in->meter());
  for (const Value& item : items.list().items) {
    if (static_cast<int64_t>(line.size()) == width) out.Add(line.Finish());
    line.Add(item);
  }
  const bool fills = line.size() > 0 && fill != nullptr && !fill->is_none();
  while (fills && static_cast<int64_t>(line.size()) < width && line.Add(*fill)) {
  }
  if (line.size() > 0) out.Add(line.Finish());
  return out.Finish(ListKind::kGenerator);
}

// --- filters that apply filters and tests -----------------------------------

StatusOr<Value> FilterMap(Interpreter* in, const Value& self, Arguments* args) {
  if (!Truth(self)) return in->NewList({}, ListKind::kGenerator);
  WEFT_ASSIGN_OR_RETURN(const Value items, in->Iterate(self));
  ListBuilder out(in->meter());
  if (args->positional.empty()) {
    const Value* const attribute = args->TakeKeyword("attribute");
    const Value* const absent = args->TakeKeyword("default");
    WEFT_RETURN_IF_ERROR(args->Finish());
    if (attribute == nullptr) return InvalidArgument("map needs a filter or an attribute");
    WEFT_ASSIGN_OR_RETURN(const std::vector<Value> path, AttributePath(*attribute));
    for (const Value& item : items.list().items) {
      WEFT_ASSIGN_OR_RETURN(Value part, Follow(in, item, path, absent));
      if (!out.Add(std::move(part))) break;
    }
    return out.Finish(ListKind::kGenerator);
  }
  WEFT_ASSIGN_OR_RETURN(const std::string_view name, args->RequireString("name"));
  const FilterEntry* const filter = FindFilter(name);
  if (filter == nullptr) return NoBuiltin("filter", name);
  const std::span<const Value> rest = args->TakeRest();
  for (const Value& item : items.list().items) {
    Arguments each(in->meter());
    if (!each.Copy(*args, rest, in->meter())) break;
    WEFT_ASSIGN_OR_RETURN(Value mapped, filter->apply(in, item, &each));
    if (!out.Add(std::move(mapped))) break;
  }
  return out.Finish(ListKind::kGenerator);
}

StatusOr<Value> Choose(Interpreter* in, const Value& self, Arguments* args, bool by_attribute,
                       bool wanted) {
  if (!Truth(self)) return in->NewList({}, ListKind::kGenerator);
  std::vector<Value> path;
  if (by_attribute) {
    WEFT_ASSIGN_OR_RETURN(const Value* const attribute, args->Require("attribute"));
    WEFT_ASSIGN_OR_RETURN(path, AttributePath(*attribute));
  }
  const TestEntry* test = nullptr;
  if (const Value* const name = args->Take("")) {
    test = name->is_string() ? FindTest(name->text()) : nullptr;
    if (test == nullptr) {
      return NoBuiltin("test", ToStr(*name, in->meter()).text());
    }
  }
  const std::span<const Value> rest = args->TakeRest();
  WEFT_ASSIGN_OR_RETURN(const Value items, in->Iterate(self));
  ListBuilder out(in->meter());
  for (const Value& item : items.list().items) {
    WEFT_ASSIGN_OR_RETURN(Value subject, Follow(in, item, path));
    if (test != nullptr) {
      Arguments each(in->meter());
      if (!each.Copy(*args, rest, in->meter())) break;
      WEFT_ASSIGN_OR_RETURN(subject, test->holds(in, subject, &each));
    }
    if (Truth(subject) == wanted) out.Add(item);
    if (!in->meter()->Spend()) break;
  }
  return out.Finish(ListKind::kGenerator);
}

template <bool kByAttribute, bool kWanted>
StatusOr<Value> FilterChoose(Interpreter* in, const Value& self, Arguments* args) {
  return Choose(in, self, args, kByAttribute, kWanted);
}

constexpr FilterEntry kFilters[] = {
    {"first", FilterFirst},
    {"last", FilterLast},
    {"list", FilterList},
    {"items", FilterItems},
    {"join", FilterJoin},
    {"map", FilterMap},
    {"select", FilterChoose<false, true>},
    {"reject", FilterChoose<false, false>},
    {"selectattr", FilterChoose<true, true>},
    {"rejectattr", FilterChoose<true, false>},
    {"sort", FilterSort},
    {"dictsort", FilterDictSort},
    {"unique", FilterUnique},
    {"reverse", FilterReverse},
    {"min", FilterMin},
    {"max", FilterMax},
    {"sum", FilterSum},
    {"batch", FilterBatch},
};

}  // namespace

std::span<const FilterEntry> ListFilters() { return kFilters; }

}  // namespace weft::jinja
