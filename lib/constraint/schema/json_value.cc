#include "constraint/schema/json_value.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>

#include "base/unicode.h"
#include "constraint/regex/hash_index.h"

namespace weft::constraint {
namespace {

constexpr size_t kChunkBytes = 16 << 10;

constexpr int kMaxJsonDepth = 500;

// Names of larger objects get a hash index.
constexpr size_t kFewMembers = 8;

class JsonReader {
 public:
  JsonReader(std::string_view text, JsonArena* arena, int64_t* parts_left)
      : text_(arena->Keep(text)), arena_(*arena), parts_left_(*parts_left) {}

  StatusOr<JsonValue> Read() {
    JsonValue value;
    WEFT_RETURN_IF_ERROR(ReadValue(0, &value));
    SkipSpace();
    if (at_ != text_.size()) return Wrong("text after the value");
    return value;
  }

 private:
  Status Wrong(std::string_view what) const {
    return InvalidArgument("not JSON: ", what, " at byte ", at_);
  }
  char Next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void SkipSpace() {
    for (char c = Next(); c == ' ' || c == '\n' || c == '\t' || c == '\r'; c = Next()) ++at_;
  }
  bool Take(char expected) {
    if (Next() != expected) return false;
    ++at_;
    return true;
  }
  bool Take(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected) return false;
    at_ += expected.size();
    return true;
  }
  // Counts an opening bracket, a comma or a colon.
  Status Count() {
    return --parts_left_ >= 0 ? OkStatus() : ResourceExhausted("the text has too many parts");
  }

  Status ReadValue(int depth, JsonValue* value) {
    if (depth > kMaxJsonDepth) return Wrong("values nested too deep");
    SkipSpace();
    using Kind = JsonValue::Kind;
    if (at_ >= text_.size()) return Wrong("the end of the text");
    const auto word = [&](std::string_view expected, Kind kind) {
      value->kind = kind;
      return Take(expected) ? OkStatus() : Wrong("no value");
    };
    switch (text_[at_]) {
      case 'n':
        return word("null", Kind::kNull);
      case 't':
        return word("true", Kind::kTrue);
      case 'f':
        return word("false", Kind::kFalse);
      case '"':
        value->kind = Kind::kString;
        return ReadString(&value->text);
      case '[':
        ++at_;
        return ReadArray(depth, value);
      case '{':
        ++at_;
        return ReadObject(depth, value);
      default:
        return ReadNumber(value);
    }
  }

  Status ReadArray(int depth, JsonValue* array) {
    array->kind = JsonValue::Kind::kArray;
    SkipSpace();
    if (Take(']')) return Count();
    const size_t begin = items_.size();
    do {
      WEFT_RETURN_IF_ERROR(Count());
      JsonValue item;
      WEFT_RETURN_IF_ERROR(ReadValue(depth + 1, &item));
      items_.push_back(item);
      SkipSpace();
    } while (Take(','));
    if (!Take(']')) return Wrong("an array that is not closed");
    array->items = Split(&items_, begin);
    return OkStatus();
  }

  Status ReadObject(int depth, JsonValue* object) {
    object->kind = JsonValue::Kind::kObject;
    SkipSpace();
    if (Take('}')) return Count();
    const size_t begin = members_.size();
    HashIndex known;
    do {
      WEFT_RETURN_IF_ERROR(Count());
      WEFT_RETURN_IF_ERROR(ReadMember(depth, begin, &known));
      SkipSpace();
    } while (Take(','));
    if (!Take('}')) return Wrong("an object that is not closed");
    object->members = Split(&members_, begin);
    for (const JsonMember& member : object->members)
      object->name_bits |= JsonValue::BitOf(member.name);
    return OkStatus();
  }

  // Reads a member of the object whose members start at `begin`.
  Status ReadMember(int depth, size_t begin, HashIndex* known) {
    JsonMember member;
    SkipSpace();
    WEFT_RETURN_IF_ERROR(ReadString(&member.name));
    SkipSpace();
    if (!Take(':')) return Wrong("a name without a colon");
    WEFT_RETURN_IF_ERROR(Count());
    WEFT_RETURN_IF_ERROR(ReadValue(depth + 1, &member.value));
    const size_t same = FindSame(member.name, begin, known);
    if (same == members_.size()) {
      members_.push_back(member);
    } else {
      members_[same].value = member.value;
    }
    return OkStatus();
  }

  // The index of the member with this name, or the index for a new one.
  size_t FindSame(std::string_view name, size_t begin, HashIndex* known) const {
    const size_t end = members_.size();
    if (end - begin < kFewMembers) {
      size_t at = begin;
      while (at < end && members_[at].name != name) ++at;
      return at;
    }
    const std::hash<std::string_view> hash;
    if (end - begin == kFewMembers && known->empty()) {
      for (size_t at = begin; at < end; ++at)
        known->Add(hash(members_[at].name), static_cast<int32_t>(at));
    }
    const int32_t found = known->Find(
        hash(name), [&](int32_t at) { return members_[static_cast<size_t>(at)].name == name; });
    if (found >= 0) return static_cast<size_t>(found);
    known->Add(hash(name), static_cast<int32_t>(end));
    return end;
  }

  // Moves the elements from `begin` on into the arena.
  template <typename T>
  JsonParts<T> Split(std::vector<T>* all, size_t begin) {
    const JsonParts<T> parts(std::span<const T>(*all).subspan(begin), &arena_);
    all->resize(begin);
    return parts;
  }

  Status ReadNumber(JsonValue* value) {
    const size_t begin = at_;
    Take('-');
    const auto digits = [&] {
      const size_t from = at_;
      while (Next() >= '0' && Next() <= '9') ++at_;
      return at_ > from;
    };
    const bool zero = Take('0');
    bool good = zero || digits();
    if (good && Take('.')) good = digits();
    if (good && (Take('e') || Take('E'))) {
      if (!Take('+')) Take('-');
      good = digits();
    }
    if (!good) return Wrong("no value");
    value->kind = JsonValue::Kind::kNumber;
    value->text = text_.substr(begin, at_ - begin);
    return OkStatus();
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

  // Skips characters of a string that stand for themselves.
  void SkipPlain() {
    // Eight bytes at a time, as long as none of them is special.
    constexpr uint64_t kEach = 0x0101010101010101, kTop = 0x80 * kEach;
    const auto has_below = [](uint64_t bytes, uint64_t limit) {
      return (bytes - limit * kEach) & ~bytes & kTop;
    };
    for (; at_ + sizeof(uint64_t) <= text_.size(); at_ += sizeof(uint64_t)) {
      uint64_t bytes = 0;
      std::memcpy(&bytes, text_.data() + at_, sizeof(bytes));
      if ((has_below(bytes, 0x20) | has_below(bytes ^ '"' * kEach, 1) |
           has_below(bytes ^ '\\' * kEach, 1)) != 0) {
        break;
      }
    }
    while (at_ < text_.size() && static_cast<uint8_t>(text_[at_]) >= 0x20 && text_[at_] != '"' &&
           text_[at_] != '\\') {
      ++at_;
    }
  }

  // A string without escapes points into the text.
  Status ReadString(std::string_view* out) {
    if (!Take('"')) return Wrong("no string");
    decoded_.clear();
    while (true) {
      const size_t begin = at_;
      SkipPlain();
      const std::string_view plain = text_.substr(begin, at_ - begin);
      if (at_ >= text_.size()) return Wrong("a string that does not end");
      if (Take('"')) {
        *out = decoded_.empty() ? plain : arena_.Keep(decoded_.append(plain));
        return OkStatus();
      }
      if (!Take('\\')) return Wrong("a control character in a string");
      decoded_.append(plain);
      WEFT_RETURN_IF_ERROR(ReadEscape(&decoded_));
    }
  }

  const std::string_view text_;  // in the arena
  JsonArena& arena_;
  int64_t& parts_left_;
  size_t at_ = 0;
  // Elements and members of the arrays and objects that are still open.
  std::vector<JsonValue> items_;
  std::vector<JsonMember> members_;
  std::string decoded_;  // the current string
};

}  // namespace

const void* JsonArena::Copy(const void* bytes, size_t n_bytes) {
  if (n_bytes == 0) return nullptr;
  const size_t taken = (n_bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (room_.size() < taken) {
    // Later chunks are larger.
    const size_t size = std::max(taken, kChunkBytes << std::min<size_t>(chunks_.size(), 6));
    chunks_.push_back(std::make_unique_for_overwrite<std::byte[]>(size));
    room_ = {chunks_.back().get(), size};
  }
  std::byte* const copy = room_.data();
  room_ = room_.subspan(taken);
  std::memcpy(copy, bytes, n_bytes);
  return copy;
}

std::string_view JsonArena::Keep(std::string_view text) {
  return {static_cast<const char*>(Copy(text.data(), text.size())), text.size()};
}

const JsonValue* JsonValue::FindMember(std::string_view name) const {
  for (const auto& [known, value] : members) {
    if (known == name) return &value;
  }
  return nullptr;
}

StatusOr<JsonValue> ReadJson(std::string_view text, JsonArena* arena, int64_t* parts_left) {
  int64_t many = INT64_MAX;
  return JsonReader(text, arena, parts_left == nullptr ? &many : parts_left).Read();
}

}  // namespace weft::constraint
