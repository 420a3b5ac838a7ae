// The names of the offered tools and the types of their parameters. Formats that write values
// without quotes need the types: only the schema says whether 5 is a number or a string.
//
// Once filled, any thread.
#ifndef WEFT_ANSWER_REPLY_PARAMETER_TYPES_H_
#define WEFT_ANSWER_REPLY_PARAMETER_TYPES_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"

namespace weft {

// What a schema says of a value: its types, and for objects and arrays those of the parts.
struct ValueShape {
  unsigned types = 0;  // bits of ParameterTypes::Type
  std::map<std::string, ValueShape, std::less<>> properties;
  std::vector<ValueShape> items;  // one if known
};

class ParameterTypes {
 public:
  // Bits for the types that a value may have.
  enum Type : unsigned {
    kString = 1,
    kNumber = 2,
    kInteger = 4,
    kBoolean = 8,
    kNull = 16,
    kObject = 32,
    kArray = 64,
    kAny = 127,
  };

  // `parameters` is the function's JSON Schema, null if there is none; malformed parts get no
  // types.
  void Add(std::string_view function, const nlohmann::ordered_json* parameters);

  bool Offers(std::string_view function) const { return functions_.contains(function); }
  // Whether some tool's name begins with `prefix`.
  bool OffersLike(std::string_view prefix) const;
  // Whether the tool's schema has this parameter.
  bool Declares(std::string_view function, std::string_view parameter) const;

  // A parameter in no schema is a string.
  unsigned Of(std::string_view function, std::string_view parameter) const;

  // The same with the parts: of all arguments and of one, null if no schema has it.
  const ValueShape* ShapeOf(std::string_view function) const;
  const ValueShape* ShapeOf(std::string_view function, std::string_view parameter) const;

  // `text` as JSON if it is a value of one of the `types`; otherwise the text as a string.
  static std::string ToJson(std::string_view text, unsigned types);

 private:
  // The shapes of their arguments, shared between copies.
  std::map<std::string, std::shared_ptr<const ValueShape>, std::less<>> functions_;
  int n_parts_ = 0;  // in all shapes, without the parameters themselves
};

}  // namespace weft

#endif  // WEFT_ANSWER_REPLY_PARAMETER_TYPES_H_
