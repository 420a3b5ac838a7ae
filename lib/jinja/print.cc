// Values as text: str, repr and JSON.
#include <algorithm>
#include <cmath>

#include "jinja/text.h"
#include "jinja/value.h"

namespace weft::jinja {

bool TextBuilder::AppendRepeated(std::string_view text, int64_t times) {
  if (times <= 0 || text.empty()) return true;
  const auto n = static_cast<uint64_t>(times);
  const size_t bytes = n > SIZE_MAX / text.size() ? SIZE_MAX : n * text.size();
  if (!held_.Grow(&text_, bytes) || !meter_->SpendBytes(bytes)) return false;
  for (uint64_t i = 0; i < n; ++i) text_.append(text);
  return true;
}

namespace {

// Escapes a text without ever holding much more of it than a piece: escaped, it may be six times as
// long. Code points stay whole.
template <typename Escape>
void InPieces(std::string_view text, TextBuilder* out, Escape escape) {
  constexpr size_t kPieceBytes = 16 << 10, kMaxOver = 3;
  std::string escaped;
  while (!text.empty()) {
    size_t end = std::min(text.size(), kPieceBytes);
    const auto continues = [&](size_t at) {
      return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
    };
    for (size_t i = 0; i < kMaxOver && end < text.size() && continues(end); ++i) --end;
    escaped.clear();
    escape(text.substr(0, end), &escaped);
    if (!out->Append(escaped)) return;
    text.remove_prefix(end);
  }
}

void AppendItems(const std::vector<Value>& items, std::string_view open, std::string_view close,
                 TextBuilder* out, Meter* meter, int depth) {
  out->Append(open);
  for (size_t i = 0; i < items.size() && meter->ok(); ++i) {
    if (i > 0) out->Append(", ");
    AppendRepr(items[i], out, meter, depth + 1);
  }
  out->Append(close);
}

void AppendRangeRepr(const ListObject& range, TextBuilder* out) {
  const std::vector<Value>& items = range.items;
  if (items.empty()) {
    out->Append("range(0, 0)");
    return;
  }
  const int64_t step = items.size() > 1 ? items[1].integer() - items[0].integer() : 1;
  out->Append(StrCat("range(", items.front().integer(), ", ",
                     items.back().integer() + (step > 0 ? 1 : -1)));
  if (step != 1) out->Append(StrCat(", ", step));
  out->Append(')');
}

void AppendListRepr(const ListObject& list, TextBuilder* out, Meter* meter, int depth) {
  switch (list.kind) {
    case ListKind::kList:
      return AppendItems(list.items, "[", "]", out, meter, depth);
    case ListKind::kTuple:
      return AppendItems(list.items, "(", list.items.size() == 1 ? ",)" : ")", out, meter, depth);
    case ListKind::kKeys:
      return AppendItems(list.items, "dict_keys([", "])", out, meter, depth);
    case ListKind::kValues:
      return AppendItems(list.items, "dict_values([", "])", out, meter, depth);
    case ListKind::kItems:
      return AppendItems(list.items, "dict_items([", "])", out, meter, depth);
    case ListKind::kRange:
      return AppendRangeRepr(list, out);
    case ListKind::kGenerator:
      out->Append("<generator object>");
  }
}

void AppendDictRepr(const DictObject& dict, TextBuilder* out, Meter* meter, int depth) {
  out->Append('{');
  for (size_t i = 0; i < dict.entries.size() && meter->ok(); ++i) {
    if (i > 0) out->Append(", ");
    AppendRepr(dict.entries[i].first, out, meter, depth + 1);
    out->Append(": ");
    AppendRepr(dict.entries[i].second, out, meter, depth + 1);
  }
  out->Append('}');
}

void AppendNamespaceRepr(const NamespaceObject& ns, TextBuilder* out, Meter* meter, int depth) {
  out->Append("<Namespace {");
  for (size_t i = 0; i < ns.attributes.size() && meter->ok(); ++i) {
    if (i > 0) out->Append(", ");
    AppendRepr(Value::Borrowed(ns.attributes[i].first), out, meter, depth + 1);
    out->Append(": ");
    AppendRepr(ns.attributes[i].second, out, meter, depth + 1);
  }
  out->Append("}>");
}

}  // namespace

void AppendRepr(const Value& value, TextBuilder* out, Meter* meter, int depth) {
  if (!meter->Spend()) return;
  if (depth > 2 * kMaxValueDepth) {  // a namespace that holds itself
    meter->Fail(InvalidArgument("a value that contains itself cannot be written out"));
    return;
  }
  switch (value.kind()) {
    case Kind::kUndefined:
      out->Append("Undefined");
      return;
    case Kind::kNone:
      out->Append("None");
      return;
    case Kind::kBool:
      out->Append(value.integer() ? "True" : "False");
      return;
    case Kind::kInt:
      out->Append(StrCat(value.integer()));
      return;
    case Kind::kFloat:
      out->Append(value.digits().empty() ? FloatRepr(value.number()) : std::string(value.digits()));
      return;
    case Kind::kString: {
      if (!meter->SpendScan(value.text().size())) return;
      const char quote = QuoteFor(value.text());
      out->Append(quote);
      InPieces(value.text(), out,
               [&](std::string_view piece, std::string* to) { AppendQuoted(piece, quote, to); });
      out->Append(quote);
      return;
    }
    case Kind::kList:
      return AppendListRepr(value.list(), out, meter, depth);
    case Kind::kDict:
      return AppendDictRepr(value.dict(), out, meter, depth);
    case Kind::kNamespace:
      return AppendNamespaceRepr(*value.ns(), out, meter, depth);
    case Kind::kCallable:
      out->Append(StrCat("<", value.callable()->type_name(), ">"));
      return;
  }
}

void AppendStr(const Value& value, TextBuilder* out, Meter* meter) {
  if (value.is_undefined()) return;
  if (value.is_string()) {
    out->Append(value.text());
  } else {
    AppendRepr(value, out, meter);
  }
}

Value ToStr(const Value& value, Meter* meter) {
  if (value.is_string()) return value;
  TextBuilder out(meter);
  AppendStr(value, &out, meter);
  return out.Finish();
}

// --- JSON -------------------------------------------------------------------

namespace {

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, TextBuilder* out, Meter* meter)
      : style_(style), out_(out), meter_(meter) {}

  Status Write(const Value& value, int depth) {
    if (!meter_->Spend()) return meter_->status();
    switch (value.kind()) {
      case Kind::kNone:
        out_->Append("null");
        return OkStatus();
      case Kind::kBool:
        out_->Append(value.integer() ? "true" : "false");
        return OkStatus();
      case Kind::kInt:
        out_->Append(StrCat(value.integer()));
        return OkStatus();
      case Kind::kFloat:
        if (value.digits().empty()) {
          WriteFloat(value.number());
        } else {
          out_->Append(value.digits());
        }
        return OkStatus();
      case Kind::kString:
        WriteString(value.text());
        return OkStatus();
      case Kind::kList:
        if (value.list().kind == ListKind::kList || value.list().kind == ListKind::kTuple) {
          return WriteList(value.list().items, depth);
        }
        break;
      case Kind::kDict:
        return WriteDict(value.dict(), depth);
      case Kind::kUndefined:
        return InvalidArgument(value.UndefinedMessage(), ", so it cannot be written as JSON");
      default:
        break;
    }
    return InvalidArgument("a ", TypeName(value), " cannot be written as JSON");
  }

 private:
  void WriteFloat(double number) {
    if (std::isnan(number)) {
      out_->Append("NaN");
    } else if (std::isinf(number)) {
      out_->Append(number < 0 ? "-Infinity" : "Infinity");
    } else {
      out_->Append(FloatRepr(number));
    }
  }

  void WriteString(std::string_view text) {
    if (!meter_->SpendScan(text.size())) return;
    out_->Append('"');
    InPieces(text, out_, [&](std::string_view piece, std::string* to) {
      AppendJsonText(piece, style_.ensure_ascii, to);
    });
    out_->Append('"');
  }

  void NewLine(int depth) {
    if (!style_.multi_line) return;
    out_->Append('\n');
    out_->AppendRepeated(style_.indent, depth);
  }

  Status WriteList(const std::vector<Value>& items, int depth) {
    if (items.empty()) {
      out_->Append("[]");
      return OkStatus();
    }
    out_->Append('[');
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_->Append(style_.item_separator);
      NewLine(depth + 1);
      WEFT_RETURN_IF_ERROR(Write(items[i], depth + 1));
    }
    NewLine(depth);
    out_->Append(']');
    return OkStatus();
  }

  Status WriteKey(const Value& key) {
    if (key.is_string()) {
      WriteString(key.text());
      return OkStatus();
    }
    if (!key.is_none() && !key.is_number()) {
      return InvalidArgument("a ", TypeName(key), " cannot be a key in JSON");
    }
    out_->Append('"');
    WEFT_RETURN_IF_ERROR(Write(key, 0));
    out_->Append('"');
    return OkStatus();
  }

  Status SortKeys(std::vector<const ValuePair*>* entries) {
    Status failed;
    std::ranges::stable_sort(*entries, [&](const ValuePair* a, const ValuePair* b) {
      const StatusOr<int> order = Compare(a->first, b->first, meter_);
      if (!order.ok()) failed = order.status();
      return order.ok() && *order < 0;
    });
    return failed;
  }

  Status WriteDict(const DictObject& dict, int depth) {
    if (dict.entries.empty()) {
      out_->Append("{}");
      return OkStatus();
    }
    std::vector<const ValuePair*> entries;
    Held held(meter_);
    if (!held.Add(2 * dict.entries.size() * sizeof(ValuePair*))) return meter_->status();
    entries.reserve(dict.entries.size());
    for (const ValuePair& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) WEFT_RETURN_IF_ERROR(SortKeys(&entries));
    out_->Append('{');
    bool first = true;
    for (const ValuePair* entry : entries) {
      if (!first) out_->Append(style_.item_separator);
      first = false;
      NewLine(depth + 1);
      WEFT_RETURN_IF_ERROR(WriteKey(entry->first));
      out_->Append(style_.key_separator);
      WEFT_RETURN_IF_ERROR(Write(entry->second, depth + 1));
    }
    NewLine(depth);
    out_->Append('}');
    return OkStatus();
  }

  const JsonStyle& style_;
  TextBuilder* const out_;
  Meter* const meter_;
};

}  // namespace

Status AppendJson(const Value& value, const JsonStyle& style, TextBuilder* out, Meter* meter) {
  WEFT_RETURN_IF_ERROR(JsonWriter(style, out, meter).Write(value, 0));
  return meter->ok() ? OkStatus() : meter->status();
}

}  // namespace weft::jinja
