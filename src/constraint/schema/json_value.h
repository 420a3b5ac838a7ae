// JSON as a schema needs it: members in their order, numbers exactly as they are written.
#ifndef WEFT_CONSTRAINT_SCHEMA_JSON_VALUE_H_
#define WEFT_CONSTRAINT_SCHEMA_JSON_VALUE_H_

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

  bool Is(Kind k) const { return kind == k; }
  bool IsBool() const { return kind == Kind::kTrue || kind == Kind::kFalse; }
  const JsonValue* Find(std::string_view name) const;
};

struct JsonMember {
  std::string name;
  JsonValue value;
};

// REQUIRES: text is shorter than 2 GiB. Depth is limited.
StatusOr<JsonValue> ReadJson(std::string_view text);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_SCHEMA_JSON_VALUE_H_
