// Parses a JSON body in bounded time and memory, and reads its fields so that none is silently
// ignored.
//
//   WEFT_ASSIGN_OR_RETURN(const auto body, ParseJson(request.body, {}));
//   JsonFields fields(body);
//   options.temperature = fields.Number("temperature", 0.0, 2.0).value_or(1.0);
//   fields.Refuse("logit_bias_type", "is not supported");
//   fields.CannotMatter({"store", "metadata", "user"});
//   WEFT_RETURN_IF_ERROR(fields.Finish(&ignored));
//
// The first error wins; after it all getters return nothing. One thread.
#ifndef WEFT_JSON_JSON_FIELDS_H_
#define WEFT_JSON_JSON_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "nlohmann/json.hpp"

namespace weft {

struct JsonLimits {
  int max_depth = 64;
  size_t max_values = 2'000'000;  // array elements, members and scalars in total
};

// INVALID_ARGUMENT names the byte where the JSON becomes invalid, or the limit exceeded. Of
// duplicate keys the last one counts. Numbers too large for a double are errors; integers beyond 64
// bits keep their digits (json/big_integer.h).
StatusOr<nlohmann::ordered_json> ParseJson(std::string_view text, const JsonLimits& limits);

class JsonFields {
 public:
  // `object` must outlive this; anything but an object is the first error. `path` prefixes field
  // names in errors ("messages[2].").
  explicit JsonFields(const nlohmann::ordered_json& object, std::string path = "");

  // Absent and null fields give nothing; a wrong type or an out-of-range value is an error.
  std::optional<bool> Bool(std::string_view name);
  std::optional<int64_t> Integer(std::string_view name, int64_t min, int64_t max);
  std::optional<double> Number(std::string_view name, double min, double max);
  std::optional<std::string> String(std::string_view name);
  // A string or an array of strings, like "stop".
  std::optional<std::vector<std::string>> Strings(std::string_view name, size_t max_count);
  // Any type; nullptr if absent or null.
  const nlohmann::ordered_json* Value(std::string_view name);

  // Fails with "NAME <why>" if the field is present, not null and not equal to `harmless`.
  void Refuse(std::string_view name, std::string_view why,
              const nlohmann::ordered_json& harmless = nullptr);
  // Marks fields as known and without effect on the answer.
  void CannotMatter(std::initializer_list<std::string_view> names);

  void Fail(std::string_view name, std::string_view what);
  bool ok() const { return status_.ok(); }
  // Whether the field has been read or marked.
  bool Knows(std::string_view name) const { return seen_.contains(name); }
  // The field at fault, for "param".
  const std::string& failed_field() const { return failed_field_; }
  // The first error. `unknown` receives the names nobody asked for: no API served here has them,
  // and the response lists them in X-Weft-Ignored.
  Status Finish(std::vector<std::string>* unknown);

 private:
  const nlohmann::ordered_json* Take(std::string_view name);

  const nlohmann::ordered_json& object_;
  const std::string path_;
  std::set<std::string, std::less<>> seen_;
  Status status_;
  std::string failed_field_;
};

}  // namespace weft

#endif  // WEFT_JSON_JSON_FIELDS_H_
