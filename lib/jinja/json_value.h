// JSON as values of the template language.
#ifndef WEFT_JINJA_JSON_VALUE_H_
#define WEFT_JINJA_JSON_VALUE_H_

#include <memory>

#include "jinja/value.h"
#include "nlohmann/json.hpp"

namespace weft {

// Strings are views into `json`, which must outlive the value. `depth` is that of `json` among the
// variables of a rendering; what is nested too deep fails the meter.
jinja::Value JsonValue(const nlohmann::ordered_json& json, int depth, jinja::Meter* meter);
// Sets the members of `json`, an object, as entries of `dict`.
void SetMembers(const nlohmann::ordered_json& json, int depth, jinja::Meter* meter,
                jinja::DictObject* dict);

}  // namespace weft

#endif  // WEFT_JINJA_JSON_VALUE_H_
