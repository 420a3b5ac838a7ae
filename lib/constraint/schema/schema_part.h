// A schema or a part of one, and the notation of its values.
#ifndef WEFT_CONSTRAINT_SCHEMA_SCHEMA_PART_H_
#define WEFT_CONSTRAINT_SCHEMA_SCHEMA_PART_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft::constraint {

// The notation of values, if it differs from JSON.
struct ValueStyle {
  enum class Words : uint8_t {
    kJson,              // true, false, null
    kPythonToo,         // also True, False, None
    kPythonTooOutside,  // these only if they are the whole value
  };
  enum class Strings : uint8_t {
    kJson,
    kPython,  // between quotation marks or apostrophes
    kQuoted,  // unescaped, between `quote`; keys that are plain words need no quotes
  };
  Words words = Words::kJson;
  Strings strings = Strings::kJson;
  std::string quote;       // a literal
  std::string quote_text;  // its text, which no string may contain
  // A text that ends the value, so no string may contain it.
  std::string without;
  // Limits numbers to those that any reader can represent: 20 digits before the point, 20 after it,
  // and a two-digit exponent.
  bool short_numbers = false;
  // Objects have only the listed properties, unless the schema explicitly allows others.
  bool closed_objects = false;
  // Properties come in any order, whatever the options say.
  bool any_order = false;
};

// The text of a schema, shared between copies. A structure parses all copies only once.
class SchemaText {
 public:
  SchemaText() : SchemaText(std::string()) {}
  SchemaText(std::string text)  // NOLINT(google-explicit-constructor)
      : text_(std::make_shared<const std::string>(std::move(text))) {}
  SchemaText(const char* text)  // NOLINT(google-explicit-constructor)
      : SchemaText(std::string(text)) {}

  const std::string& operator*() const { return *text_; }

 private:
  std::shared_ptr<const std::string> text_;
};

// A schema, or a part of one.
struct SchemaPart {
  SchemaText schema;              // the whole document
  std::vector<std::string> path;  // member names that lead to the part
  std::string of;                 // the owner's name for error messages; may be empty
};

enum class ValueKinds : uint8_t { kAll, kObjects, kNoStrings };

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_SCHEMA_SCHEMA_PART_H_
