#include "chat/template.h"

#include <algorithm>
#include <ctime>

#include "base/strings.h"
#include "jinja/interpreter.h"
#include "jinja/parser.h"
#include "json/big_integer.h"
#include "nlohmann/json.hpp"

namespace weft {
namespace {

using jinja::DictObject;
using jinja::Meter;
using jinja::Value;
using Json = nlohmann::ordered_json;

// String values are views into `json`.
Value ToValue(const Json& json, int depth, Meter* meter);

std::shared_ptr<DictObject> ToDict(const Json& json, int depth, Meter* meter) {
  auto dict = std::make_shared<DictObject>(meter);
  for (auto it = json.begin(); it != json.end() && meter->ok(); ++it) {
    dict->Set(Value::Borrowed(it.key()), ToValue(it.value(), depth + 1, meter), meter);
  }
  return dict;
}

Value ToValue(const Json& json, int depth, Meter* meter) {
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
      for (const Json& item : json) items.push_back(ToValue(item, depth + 1, meter));
      return Value::List(std::move(items), meter);
    }
    case Json::value_t::object:
      return Value::Dict(ToDict(json, depth, meter));
    default:
      return Value::None();
  }
}

int64_t LocalSeconds() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  if (localtime_r(&now, &parts) == nullptr) return now;
  return now + parts.tm_gmtoff;
}

}  // namespace

int64_t WallClock(const RenderOptions& options) {
  return options.wall_clock_s ? *options.wall_clock_s : LocalSeconds();
}

ChatTemplate::ChatTemplate(std::shared_ptr<const jinja::Program> program)
    : program_(std::move(program)) {}

ChatTemplate::~ChatTemplate() = default;

StatusOr<std::shared_ptr<const ChatTemplate>> ChatTemplate::Parse(std::string source) {
  WEFT_ASSIGN_OR_RETURN(auto program, jinja::ParseProgram(std::move(source)));
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(std::move(program)));
}

StatusOr<std::string> ChatTemplate::Render(const nlohmann::ordered_json& context,
                                           const RenderOptions& options) const {
  if (!context.is_object()) {
    return InvalidArgument("a chat template is rendered with an object of variables");
  }
  Meter meter(options.limits.max_steps, options.limits.max_bytes);
  const std::shared_ptr<DictObject> variables = ToDict(context, 0, &meter);
  if (!meter.ok()) return meter.status();
  jinja::Interpreter interpreter(program_.get(), variables.get(), WallClock(options), &meter);
  return interpreter.Render();
}

const std::string& ChatTemplate::source() const { return program_->source; }

bool ChatTemplate::Mentions(std::string_view name) const {
  return std::ranges::find(program_->symbols, name) != program_->symbols.end();
}

}  // namespace weft
