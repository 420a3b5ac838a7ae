// Non-mutating methods of strings, lists and dicts.
#include <algorithm>

#include "jinja/builtins.h"
#include "jinja/interpreter.h"
#include "jinja/text.h"

namespace weft::jinja {

Value ReplaceText(Interpreter* in, std::string_view text, std::string_view old,
                  std::string_view replacement, int64_t count) {
  TextBuilder out(in->meter());
  size_t at = 0;
  for (; count != 0; --count) {
    const size_t found = FindText(in->meter(), text, old, at);
    if (found == std::string_view::npos) break;
    out.Append(text.substr(at, found - at));
    if (!out.Append(replacement)) break;
    at = found + old.size();
    if (!old.empty()) continue;
    // An empty pattern matches between all code points, and at both ends.
    if (at >= text.size()) return out.Finish();
    const size_t bytes = CharBytes(text.substr(at));
    out.Append(text.substr(at, bytes));
    at += bytes;
  }
  out.Append(text.substr(at));
  return out.Finish();
}

namespace {

// The last bytes of what ends lines, and some others.
size_t MaxLines(std::string_view text) {
  return 2 + static_cast<size_t>(std::ranges::count_if(text, [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return (byte >= 10 && byte <= 13) || (byte >= 0x1C && byte <= 0x1E) || byte == 0x85 ||
                  byte == 0xA8 || byte == 0xA9;
         }));
}

}  // namespace

size_t SplitLinesBytes(std::string_view text) { return MaxLines(text) * sizeof(std::string_view); }

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  lines.reserve(MaxLines(text));
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = CharBytes(text.substr(at));
    const char32_t c = FirstChar(text.substr(at));
    const bool ends =
        (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    size_t next = at + bytes;
    if (ends) {
      if (c == '\r' && next < text.size() && text[next] == '\n') ++next;
      lines.push_back(text.substr(start, (keep_ends ? next : at) - start));
      start = next;
    }
    at = next;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

StatusOr<Value> StripText(Interpreter* in, const Value& self, const Value* chars, bool left,
                          bool right) {
  std::string_view text = self.text();
  size_t factor = 1;
  if (chars == nullptr || chars->is_none()) {
    if (left) text = StripLeft(text);
    if (right) text = StripRight(text);
  } else {
    factor += chars->text().size() / 8;
    if (!in->meter()->Fits(CharsBytes(chars->text()))) return in->meter()->status();
    if (!in->meter()->SpendBytes(text.size() * factor)) return in->meter()->status();
    if (left) text = StripLeft(text, chars->text());
    if (right) text = StripRight(text, chars->text());
  }
  in->meter()->SpendChars((self.text().size() - text.size()) * factor);
  return self.Substring(text);
}

namespace {

template <std::string (*kMap)(std::string_view)>
StatusOr<Value> MapText(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_RETURN_IF_ERROR(args->Finish());
  // A text that becomes longer is moved to twice its room.
  if (!in->meter()->Fits(3 * self.text().size())) return Value();
  in->meter()->SpendChars(self.text().size());
  return in->NewString(kMap(self.text()));
}

template <bool kLeft, bool kRight>
StatusOr<Value> StripMethod(Interpreter* in, const Value& self, Arguments* args) {
  const Value* const chars = args->Take("");
  WEFT_RETURN_IF_ERROR(args->Finish());
  if (chars != nullptr && !chars->is_none() && !chars->is_string()) {
    return InvalidArgument("strip takes a string of characters");
  }
  return StripText(in, self, chars, kLeft, kRight);
}

void SplitWhiteSpace(const Value& self, int64_t most, bool from_right, ListBuilder* parts) {
  std::string_view rest = Strip(self.text());
  if (from_right) {
    while (!rest.empty() && most-- != 0) {
      size_t start = rest.size();
      // Finds words by walking back over non-space characters.
      std::string_view head = rest;
      while (!head.empty()) {
        size_t at = head.size() - 1;
        while (at > 0 && (static_cast<unsigned char>(head[at]) & 0xC0) == 0x80) --at;
        if (IsSpace(FirstChar(head.substr(at)))) break;
        start = at;
        head = head.substr(0, at);
      }
      parts->Add(self.Substring(rest.substr(start)));
      rest = StripRight(rest.substr(0, start));
    }
    if (!rest.empty()) parts->Add(self.Substring(rest));
    std::ranges::reverse(parts->items());
    return;
  }
  rest = StripLeft(self.text());
  while (!rest.empty() && most-- != 0) {
    size_t end = 0;
    while (end < rest.size() && !IsSpace(FirstChar(rest.substr(end)))) {
      end += CharBytes(rest.substr(end));
    }
    if (!parts->Add(self.Substring(rest.substr(0, end)))) return;
    rest = StripLeft(rest.substr(end));
  }
  if (!rest.empty()) parts->Add(self.Substring(rest));
}

void SplitAt(Meter* meter, const Value& self, std::string_view separator, int64_t most,
             bool from_right, ListBuilder* parts) {
  const std::string_view text = self.text();
  if (!from_right) {
    size_t at = 0;
    for (; most != 0; --most) {
      const size_t found = FindText(meter, text, separator, at);
      if (found == std::string_view::npos) break;
      if (!parts->Add(self.Substring(text.substr(at, found - at)))) return;
      at = found + separator.size();
    }
    parts->Add(self.Substring(text.substr(at)));
    return;
  }
  std::string_view rest = text;
  for (; most != 0; --most) {
    const size_t found = FindLastText(meter, rest, separator);
    if (found == std::string_view::npos) break;
    if (!parts->Add(self.Substring(rest.substr(found + separator.size())))) return;
    rest = rest.substr(0, found);
  }
  parts->Add(self.Substring(rest));
  std::ranges::reverse(parts->items());
}

template <bool kFromRight>
StatusOr<Value> SplitMethod(Interpreter* in, const Value& self, Arguments* args) {
  const Value* const separator = args->Take("sep");
  WEFT_ASSIGN_OR_RETURN(const int64_t most, args->TakeInt("maxsplit", -1));
  WEFT_RETURN_IF_ERROR(args->Finish());
  in->meter()->SpendBytes(self.text().size());
  ListBuilder parts(in->meter());
  if (separator == nullptr || separator->is_none()) {
    in->meter()->SpendChars(self.text().size());
    SplitWhiteSpace(self, most, kFromRight, &parts);
  } else if (!separator->is_string() || separator->text().empty()) {
    return InvalidArgument("split needs a separator that is a string and not empty");
  } else {
    SplitAt(in->meter(), self, separator->text(), most, kFromRight, &parts);
  }
  return parts.Finish();
}

StatusOr<Value> SplitLinesMethod(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const bool keep_ends, args->TakeBool("keepends", false));
  WEFT_RETURN_IF_ERROR(args->Finish());
  Held held(in->meter());
  if (!held.Add(SplitLinesBytes(self.text()))) return Value();
  in->meter()->SpendChars(self.text().size());
  ListBuilder lines(in->meter());
  for (const std::string_view line : SplitLines(self.text(), keep_ends)) {
    lines.Add(self.Substring(line));
  }
  return lines.Finish();
}

template <bool kFromRight>
StatusOr<Value> PartitionMethod(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const std::string_view separator, args->RequireString("sep"));
  WEFT_RETURN_IF_ERROR(args->Finish());
  if (separator.empty()) return InvalidArgument("partition needs a separator that is not empty");
  const std::string_view text = self.text();
  const size_t at = kFromRight ? FindLastText(in->meter(), text, separator)
                               : FindText(in->meter(), text, separator);
  const Value none = Value::Borrowed("");
  std::vector<Value> parts;
  if (at == std::string_view::npos) {
    parts =
        kFromRight ? std::vector<Value>{none, none, self} : std::vector<Value>{self, none, none};
  } else {
    parts = {self.Substring(text.substr(0, at)), self.Substring(text.substr(at, separator.size())),
             self.Substring(text.substr(at + separator.size()))};
  }
  return in->NewList(std::move(parts), ListKind::kTuple);
}

StatusOr<Value> ReplaceMethod(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const std::string_view old, args->RequireString("old"));
  WEFT_ASSIGN_OR_RETURN(const std::string_view replacement, args->RequireString("new"));
  WEFT_ASSIGN_OR_RETURN(const int64_t count, args->TakeInt("count", -1));
  WEFT_RETURN_IF_ERROR(args->Finish());
  return ReplaceText(in, self.text(), old, replacement, count);
}

StatusOr<Value> JoinMethod(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const Value* const iterable, args->Require("iterable"));
  WEFT_RETURN_IF_ERROR(args->Finish());
  WEFT_ASSIGN_OR_RETURN(const Value items, in->Iterate(*iterable));
  TextBuilder out(in->meter());
  bool first = true;
  for (const Value& item : items.list().items) {
    if (!item.is_string()) return InvalidArgument("join needs strings, not a ", TypeName(item));
    if (!first) out.Append(self.text());
    first = false;
    if (!out.Append(item.text())) break;
  }
  return out.Finish();
}

StatusOr<Value> FormatMethod(Interpreter* in, const Value& self, Arguments* args) {
  return FormatBraces(in, self.text(), *args);
}

StatusOr<Value> RemovePrefix(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const std::string_view prefix, args->RequireString("prefix"));
  WEFT_RETURN_IF_ERROR(args->Finish());
  if (!self.text().starts_with(prefix)) return self;
  return self.Substring(self.text().substr(prefix.size()));
}

StatusOr<Value> RemoveSuffix(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const std::string_view suffix, args->RequireString("suffix"));
  WEFT_RETURN_IF_ERROR(args->Finish());
  if (!self.text().ends_with(suffix)) return self;
  return self.Substring(self.text().substr(0, self.text().size() - suffix.size()));
}

constexpr MethodEntry kStringMethods[] = {
    {"strip", StripMethod<true, true>},
    {"lstrip", StripMethod<true, false>},
    {"rstrip", StripMethod<false, true>},
    {"split", SplitMethod<false>},
    {"rsplit", SplitMethod<true>},
    {"splitlines", SplitLinesMethod},
    {"partition", PartitionMethod<false>},
    {"rpartition", PartitionMethod<true>},
    {"replace", ReplaceMethod},
    {"join", JoinMethod},
    {"format", FormatMethod},
    {"removeprefix", RemovePrefix},
    {"removesuffix", RemoveSuffix},
    {"upper", MapText<ToUpper>},
    {"lower", MapText<ToLower>},
    {"capitalize", MapText<Capitalize>},
    {"title", MapText<TitleCase>},
};

// --- lists and dicts --------------------------------------------------------

StatusOr<Value> ListCount(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const Value* const wanted, args->Require("value"));
  WEFT_RETURN_IF_ERROR(args->Finish());
  int64_t count = 0;
  for (const Value& item : self.list().items) count += Equal(item, *wanted, in->meter());
  return Value::Int(count);
}

StatusOr<Value> ListIndex(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const Value* const wanted, args->Require("value"));
  WEFT_RETURN_IF_ERROR(args->Finish());
  const std::vector<Value>& items = self.list().items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (Equal(items[i], *wanted, in->meter())) return Value::Int(static_cast<int64_t>(i));
  }
  return InvalidArgument("the value is not in the list");
}

StatusOr<Value> CopyList(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_RETURN_IF_ERROR(args->Finish());
  const ListObject& list = self.list();
  if (!in->meter()->Fits(list.items.size() * sizeof(Value))) return in->meter()->status();
  return in->NewList(std::vector<Value>(list.items), list.kind);
}

StatusOr<Value> CopyDict(Interpreter*, const Value& self, Arguments* args) {
  WEFT_RETURN_IF_ERROR(args->Finish());
  return self;
}

constexpr MethodEntry kListMethods[] = {
    {"count", ListCount}, {"index", ListIndex}, {"copy", CopyList}};

StatusOr<Value> AppendToList(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const Value* const item, args->Require(""));
  WEFT_RETURN_IF_ERROR(args->Finish());
  WEFT_RETURN_IF_ERROR(self.Append(*item, in->meter()));
  return Value();
}

StatusOr<Value> PopFromList(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const int64_t index, args->TakeInt("", -1));
  WEFT_RETURN_IF_ERROR(args->Finish());
  in->meter()->Spend(1 + self.list().items.size() / 8);
  return self.Pop(index);
}

constexpr MethodEntry kListChanges[] = {{"append", AppendToList}, {"pop", PopFromList}};

StatusOr<Value> DictGet(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const Value* const key, args->Require("key"));
  const Value* const absent = args->Take("default");
  WEFT_RETURN_IF_ERROR(args->Finish());
  if (key->is_dict() || key->is_list_of(ListKind::kList)) {
    return InvalidArgument("a ", TypeName(*key), " cannot be a key of a dict");
  }
  if (const Value* const value = self.dict().Find(*key, in->meter())) return *value;
  return absent != nullptr ? *absent : Value();
}

template <ListKind kKind>
StatusOr<Value> DictView(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_RETURN_IF_ERROR(args->Finish());
  ListBuilder out(in->meter());
  for (const auto& [key, value] : self.dict().entries) {
    if (kKind == ListKind::kItems) {
      out.Add(in->NewList({key, value}, ListKind::kTuple));
    } else {
      out.Add(kKind == ListKind::kKeys ? key : value);
    }
  }
  return out.Finish(kKind);
}

constexpr MethodEntry kDictMethods[] = {
    {"get", DictGet},
    {"keys", DictView<ListKind::kKeys>},
    {"values", DictView<ListKind::kValues>},
    {"items", DictView<ListKind::kItems>},
    {"copy", CopyDict},
};

}  // namespace

std::span<const MethodEntry> StringMethods() { return kStringMethods; }
std::span<const MethodEntry> ListMethods() { return kListMethods; }
std::span<const MethodEntry> DictMethods() { return kDictMethods; }

const MethodEntry* FindListChange(std::string_view name) {
  const auto* const it = std::ranges::find(kListChanges, name, &MethodEntry::name);
  return it == std::end(kListChanges) ? nullptr : it;
}

}  // namespace weft::jinja
