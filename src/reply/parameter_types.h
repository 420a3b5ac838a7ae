// The names of the offered tools and the types of their parameters. Formats that write values
// without quotes need the types: only the schema says whether 5 is a number or a string.
//
// Once filled, any thread.
#ifndef WEFT_REPLY_PARAMETER_TYPES_H_
#define WEFT_REPLY_PARAMETER_TYPES_H_

#include <map>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"

namespace weft {

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

  // `text` as JSON if it is a value of one of the `types`; otherwise the text as a string.
  static std::string ToJson(std::string_view text, unsigned types);

 private:
  std::map<std::string, std::map<std::string, unsigned, std::less<>>, std::less<>> functions_;
};

}  // namespace weft

#endif  // WEFT_REPLY_PARAMETER_TYPES_H_
