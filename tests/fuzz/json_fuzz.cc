// Fuzzing of request bodies: any bytes, read as JSON under small limits and asked for
// fields of every kind.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "doors/api/fields/support.h"
#include "json/json_fields.h"
#include "json/json_text.h"

namespace weft::serve {
namespace {

constexpr JsonLimits kLimits = {.max_depth = 20, .max_values = 5000};

int Depth(const nlohmann::ordered_json& value) {
  int deepest = 0;
  if (!value.is_structured()) return 0;
  for (const auto& part : value) deepest = std::max(deepest, Depth(part));
  return deepest + 1;
}

void ReadFields(const nlohmann::ordered_json& body) {
  JsonFields fields(body);
  fields.Bool("b");
  const auto integer = fields.Integer("i", -5, 5);
  WEFT_CHECK(!integer || (*integer >= -5 && *integer <= 5), "an integer out of its range");
  const auto number = fields.Number("n", 0, 1);
  WEFT_CHECK(!number || (*number >= 0 && *number <= 1), "a number out of its range");
  fields.String("s");
  const auto strings = fields.Strings("l", 3);
  WEFT_CHECK(!strings || strings->size() <= 3, "more strings than allowed");
  fields.Refuse("r", "is refused", false);
  fields.CannotMatter({"user"});
  std::vector<std::string> unknown;
  const Status status = fields.Finish(&unknown);
  WEFT_CHECK(status.ok() == fields.ok(), "an error got lost");
}

}  // namespace
}  // namespace weft::serve

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace serve = weft::serve;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parsed = ParseJson(text, serve::kLimits);
  if (!parsed.ok()) {
    WEFT_CHECK(parsed.status().code() == weft::StatusCode::kInvalidArgument, "another error");
    return 0;
  }
  WEFT_CHECK(serve::Depth(*parsed) <= serve::kLimits.max_depth, "a limit did not hold");
  // A parsed value can be written and read again.
  const std::string written = weft::CompactJson(*parsed);
  const auto again = ParseJson(written, serve::kLimits);
  WEFT_CHECK(again.ok() && weft::CompactJson(*again) == written, "reading twice differs");
  serve::ReadFields(*parsed);
  return 0;
}
