// A schema, or a part of one, and how its values are written.
#ifndef WEFT_CONSTRAINT_SCHEMA_SCHEMA_PART_H_
#define WEFT_CONSTRAINT_SCHEMA_SCHEMA_PART_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft::constraint {

// How the values of a schema are written, where not as JSON writes them.
struct ValueStyle {
  enum class Words : uint8_t {
    kJson,              // true, false, null
    kPythonToo,         // or True, False, None
    kPythonTooOutside,  // the latter only where the whole value is one of them
  };
  enum class Strings : uint8_t {
    kJson,
    kPython,  // between quotation marks or apostrophes
    kQuoted,  // as they read, between `quote`; keys without it where they are plain words
  };
  Words words = Words::kJson;
  Strings strings = Strings::kJson;
  std::string quote;       // a literal
  std::string quote_text;  // what it reads, which no string may contain
  // No string contains this: it is what ends the value.
  std::string without;
  // Numbers are such as every reader can hold: 20 digits before the point and 20 behind it, an
  // exponent of two.
  bool short_numbers = false;
  // Objects have no properties but those listed, unless the schema says that there may be others.
  bool closed_objects = false;
  // Properties come in any order, whatever the options say.
  bool any_order = false;
};

// The text of a schema, shared by its copies; what has copies is read once for a structure.
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
  std::vector<std::string> path;  // the members that lead to the part
  std::string of;                 // whose it is, for errors; may be empty
};

enum class ValueKinds : uint8_t { kAll, kObjects, kNoStrings };

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_SCHEMA_SCHEMA_PART_H_
