// JSON as a schema needs it: members in their order, numbers exactly as they are written.
#ifndef WEFT_CONSTRAINT_SCHEMA_JSON_VALUE_H_
#define WEFT_CONSTRAINT_SCHEMA_JSON_VALUE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weft::constraint {

struct JsonMember;

struct JsonValue {
  enum class Kind : uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  std::string text;  // of a number as written; of a string, decoded
  std::vector<JsonValue> items;
  std::vector<JsonMember> members;  // the last of equal names only
  // A bit for each name, as BitOf has it; 0 where nobody has looked. Most names that are asked for
  // are not there.
  uint64_t name_bits = 0;

  bool Is(Kind k) const { return kind == k; }
  bool IsBool() const { return kind == Kind::kTrue || kind == Kind::kFalse; }
  const JsonValue* Find(std::string_view name) const {
    return name_bits == 0 || (name_bits & BitOf(name)) != 0 ? FindMember(name) : nullptr;
  }
  static uint64_t BitOf(std::string_view name) {
    if (name.empty()) return 1;
    return 1ull << ((name.size() + 7u * static_cast<uint8_t>(name.front()) +
                     19u * static_cast<uint8_t>(name.back())) %
                    64);
  }

 private:
  const JsonValue* FindMember(std::string_view name) const;
};

struct JsonMember {
  std::string name;
  JsonValue value;
};

// REQUIRES: text is shorter than 2 GiB. Depth is limited. Of `parts_left` each opening bracket,
// comma and colon takes one; where there are none left, the text is not read on.
StatusOr<JsonValue> ReadJson(std::string_view text, int64_t* parts_left = nullptr);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_SCHEMA_JSON_VALUE_H_
