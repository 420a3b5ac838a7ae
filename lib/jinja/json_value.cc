#include "jinja/json_value.h"

#include <utility>
#include <vector>

#include "base/status.h"
#include "base/strings.h"
#include "json/big_integer.h"

namespace weft {

using jinja::DictObject;
using jinja::Meter;
using jinja::Value;
using Json = nlohmann::ordered_json;

void SetMembers(const Json& json, int depth, Meter* meter, DictObject* dict) {
  for (auto it = json.begin(); it != json.end() && meter->ok(); ++it) {
    dict->Set(Value::Borrowed(it.key()), JsonValue(it.value(), depth + 1, meter), meter);
  }
}

Value JsonValue(const Json& json, int depth, Meter* meter) {
  if (depth > jinja::kMaxValueDepth) {
    meter->Fail(InvalidArgument("the conversation is nested more than ", jinja::kMaxValueDepth,
                                " values deep"));
    return Value();
  }
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::Bool(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::Int(json.get<int64_t>());
    case Json::value_t::number_unsigned: {
      const auto number = json.get<uint64_t>();
      return number <= INT64_MAX ? Value::Int(static_cast<int64_t>(number))
                                 : Value::BigInt(StrCat(number), meter);
    }
    case Json::value_t::binary:
      return Value::BigInt(BigIntegerDigits(json), meter);
    case Json::value_t::number_float:
      return Value::Float(json.get<double>());
    case Json::value_t::string:
      return Value::Borrowed(json.get_ref<const std::string&>());
    case Json::value_t::array: {
      std::vector<Value> items;
      jinja::Held held(meter);
      if (!held.Add(json.size() * sizeof(Value))) return Value();
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(JsonValue(item, depth + 1, meter));
      held.Release();
      return Value::List(std::move(items), meter);
    }
    case Json::value_t::object: {
      auto dict = std::make_shared<DictObject>(meter);
      SetMembers(json, depth, meter, dict.get());
      return Value::Dict(std::move(dict));
    }
    default:
      return Value::None();
  }
}

}  // namespace weft
