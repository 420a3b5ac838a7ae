#include "constraint/schema/json_value.h"

#include <unordered_map>

namespace weft::constraint {
namespace {

constexpr int kMostJsonDepth = 500;

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  StatusOr<JsonValue> Read() {
    WEFT_ASSIGN_OR_RETURN(JsonValue value, ReadValue(0));
    SkipSpace();
    if (at_ != text_.size()) return Wrong("text behind the value");
    return value;
  }

 private:
  Status Wrong(std::string_view what) const {
    return InvalidArgument("not JSON: ", what, " at byte ", at_);
  }
  void SkipSpace() {
    while (at_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }
  bool Take(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected) return false;
    at_ += expected.size();
    return true;
  }

  StatusOr<JsonValue> ReadValue(int depth) {
    if (depth > kMostJsonDepth) return Wrong("values nested too deep");
    SkipSpace();
    using Kind = JsonValue::Kind;
    if (at_ >= text_.size()) return Wrong("the end of the text");
    if (Take("null")) return JsonValue{.kind = Kind::kNull};
    if (Take("true")) return JsonValue{.kind = Kind::kTrue};
    if (Take("false")) return JsonValue{.kind = Kind::kFalse};
    if (text_[at_] == '"') {
      JsonValue value{.kind = Kind::kString};
      WEFT_RETURN_IF_ERROR(ReadString(&value.text));
      return value;
    }
    if (Take("[")) return ReadArray(depth);
    if (Take("{")) return ReadObject(depth);
    return ReadNumber();
  }

  StatusOr<JsonValue> ReadArray(int depth) {
    JsonValue value{.kind = JsonValue::Kind::kArray};
    SkipSpace();
    if (Take("]")) return value;
    do {
      WEFT_ASSIGN_OR_RETURN(JsonValue item, ReadValue(depth + 1));
      value.items.push_back(std::move(item));
      SkipSpace();
    } while (Take(","));
    if (!Take("]")) return Wrong("an array that is not closed");
    return value;
  }

  StatusOr<JsonValue> ReadObject(int depth) {
    JsonValue value{.kind = JsonValue::Kind::kObject};
    std::unordered_map<std::string, size_t> known;
    SkipSpace();
    if (Take("}")) return value;
    do {
      SkipSpace();
      std::string name;
      WEFT_RETURN_IF_ERROR(ReadString(&name));
      SkipSpace();
      if (!Take(":")) return Wrong("a name without a colon");
      WEFT_ASSIGN_OR_RETURN(JsonValue member, ReadValue(depth + 1));
      const auto [it, added] = known.try_emplace(name, value.members.size());
      if (added) {
        value.members.push_back({std::move(name), std::move(member)});
      } else {
        value.members[it->second].value = std::move(member);
      }
      SkipSpace();
    } while (Take(","));
    if (!Take("}")) return Wrong("an object that is not closed");
    return value;
  }

  StatusOr<JsonValue> ReadNumber() {
    const size_t begin = at_;
    Take("-");
    const auto digits = [&] {
      const size_t from = at_;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
      return at_ > from;
    };
    const bool zero = Take("0");
    bool good = zero || digits();
    if (good && Take(".")) good = digits();
    if (good && (Take("e") || Take("E"))) {
      if (!Take("+")) Take("-");
      good = digits();
    }
    if (!good) return Wrong("no value");
    return JsonValue{.kind = JsonValue::Kind::kNumber,
                     .text = std::string(text_.substr(begin, at_ - begin))};
  }

  Status ReadHex(uint32_t* value) {
    *value = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = at_ < text_.size() ? AsciiLower(text_[at_]) : '?';
      const bool decimal = c >= '0' && c <= '9';
      if (!decimal && !(c >= 'a' && c <= 'f')) return Wrong("an escape without four digits");
      *value = *value * 16 + static_cast<uint32_t>(decimal ? c - '0' : c - 'a' + 10);
    }
    return OkStatus();
  }

  static void AppendUtf8(uint32_t c, std::string* out) {
    if (c < 0x80) {
      out->push_back(static_cast<char>(c));
      return;
    }
    const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    constexpr uint32_t kLead[] = {0, 0xC0, 0xE0, 0xF0};
    out->push_back(static_cast<char>(kLead[more] | c >> (6 * more)));
    for (int i = more - 1; i >= 0; --i)
      out->push_back(static_cast<char>(0x80 | (c >> (6 * i) & 0x3F)));
  }

  Status ReadEscape(std::string* out) {
    const char c = at_ < text_.size() ? text_[at_++] : '?';
    constexpr std::string_view kNames = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
    if (const size_t i = kNames.find(c); i != std::string_view::npos) {
      out->push_back(kValues[i]);
      return OkStatus();
    }
    if (c != 'u') return Wrong("an unknown escape");
    uint32_t code = 0;
    WEFT_RETURN_IF_ERROR(ReadHex(&code));
    if (code >= 0xD800 && code < 0xDC00 && Take("\\u")) {
      uint32_t low = 0;
      WEFT_RETURN_IF_ERROR(ReadHex(&low));
      if (low < 0xDC00 || low > 0xDFFF) return Wrong("half a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    if (code >= 0xD800 && code <= 0xDFFF) return Wrong("half a surrogate pair");
    AppendUtf8(code, out);
    return OkStatus();
  }

  Status ReadString(std::string* out) {
    if (!Take("\"")) return Wrong("no string");
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (static_cast<uint8_t>(c) < 0x20) return Wrong("a control character in a string");
      ++at_;
      if (c == '"') return OkStatus();
      if (c == '\\') {
        WEFT_RETURN_IF_ERROR(ReadEscape(out));
      } else {
        out->push_back(c);
      }
    }
    return Wrong("a string that does not end");
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

const JsonValue* JsonValue::Find(std::string_view name) const {
  for (const auto& [known, value] : members) {
    if (known == name) return &value;
  }
  return nullptr;
}

StatusOr<JsonValue> ReadJson(std::string_view text) { return JsonReader(text).Read(); }

}  // namespace weft::constraint
