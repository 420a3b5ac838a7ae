#include "answer/reply/parameter_types.h"

#include <algorithm>
#include <utility>

#include "answer/reply/call_writer.h"
#include "answer/reply/schema_reference.h"
#include "json/big_integer.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxAlternatives = 4;  // levels of nested anyOf
constexpr int kMaxShapeDepth = 8;    // levels of objects and arrays
constexpr int kMaxParts = 50'000;    // of parameters, in all schemas
constexpr int kMaxValueDepth = 64;

unsigned TypeNamed(std::string_view name) {
  constexpr std::pair<std::string_view, unsigned> kNames[] = {
      {"string", ParameterTypes::kString},   {"number", ParameterTypes::kNumber},
      {"integer", ParameterTypes::kInteger}, {"boolean", ParameterTypes::kBoolean},
      {"null", ParameterTypes::kNull},       {"object", ParameterTypes::kObject},
      {"array", ParameterTypes::kArray}};
  for (const auto& [known, type] : kNames) {
    if (known == name) return type;
  }
  return ParameterTypes::kAny;
}

unsigned TypeOfValue(const Json& value) {
  switch (value.type()) {
    case Json::value_t::string:
      return ParameterTypes::kString;
    case Json::value_t::number_float:
      return ParameterTypes::kNumber;
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
    case Json::value_t::binary:  // an integer of more than 64 bits
      return ParameterTypes::kInteger | ParameterTypes::kNumber;
    case Json::value_t::boolean:
      return ParameterTypes::kBoolean;
    case Json::value_t::null:
      return ParameterTypes::kNull;
    case Json::value_t::object:
      return ParameterTypes::kObject;
    default:
      return ParameterTypes::kArray;
  }
}

const Json* Member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

unsigned TypesOf(const Json& schema, int depth) {
  unsigned types = 0;
  if (const Json* const type = Member(schema, "type")) {
    if (type->is_string()) return TypeNamed(type->get_ref<const std::string&>());
    if (!type->is_array()) return ParameterTypes::kAny;
    for (const Json& one : *type) {
      types |= one.is_string() ? TypeNamed(one.get_ref<const std::string&>()) : 0U;
    }
    return types;
  }
  if (const Json* const values = Member(schema, "enum"); values && values->is_array()) {
    for (const Json& value : *values) types |= TypeOfValue(value);
  }
  if (const Json* const value = Member(schema, "const")) types |= TypeOfValue(*value);
  for (const char* const key : {"anyOf", "oneOf"}) {
    const Json* const choices = Member(schema, key);
    if (choices == nullptr || !choices->is_array() || depth >= kMaxAlternatives) continue;
    for (const Json& choice : *choices) types |= TypesOf(choice, depth + 1);
  }
  return types != 0 ? types : static_cast<unsigned>(ParameterTypes::kAny);
}

// Reads the shape of a value from its schema. A part that is too deep or too large keeps only its
// types.
class ShapeReader {
 public:
  ShapeReader(const Json& root, int* n_parts) : root_(root), n_parts_(n_parts) {}

  ValueShape Read(const Json& schema, int depth) {
    ValueShape shape{.types = TypesOf(*FollowReferences(root_, schema).schema, 0)};
    AddParts(schema, depth, &shape);
    return shape;
  }

 private:
  void AddParts(const Json& schema, int depth, ValueShape* shape) {
    const Json& at = *FollowReferences(root_, schema).schema;
    if (depth >= kMaxShapeDepth) return;
    if (const Json* const properties = Member(at, "properties");
        properties != nullptr && properties->is_object()) {
      for (const auto& [key, value] : properties->items()) {
        if (depth > 0 && ++*n_parts_ > kMaxParts) return;
        shape->properties.emplace(key, Read(value, depth + 1));
      }
    }
    if (const Json* const items = Member(at, "items"); items != nullptr && items->is_object()) {
      if (++*n_parts_ > kMaxParts) return;
      if (shape->items.empty()) shape->items.push_back(Read(*items, depth + 1));
    }
    for (const char* const key : {"anyOf", "oneOf"}) {
      const Json* const choices = Member(at, key);
      if (choices == nullptr || !choices->is_array()) continue;
      for (const Json& choice : *choices) AddParts(choice, depth + 1, shape);
    }
  }

  const Json& root_;
  int* const n_parts_;
};

// Deeper values are treated as text, so nothing walks them recursively.
bool IsShallow(std::string_view text) {
  int depth = 0;
  for (const char c : text) {
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (depth > kMaxValueDepth) return false;
  }
  return true;
}

}  // namespace

void ParameterTypes::Add(std::string_view function, const Json* parameters) {
  ValueShape shape;
  if (parameters != nullptr) shape = ShapeReader(*parameters, &n_parts_).Read(*parameters, 0);
  functions_[std::string(function)] = std::make_shared<const ValueShape>(std::move(shape));
}

bool ParameterTypes::OffersLike(std::string_view prefix) const {
  const auto function = functions_.lower_bound(prefix);
  return function != functions_.end() && function->first.starts_with(prefix);
}

const ValueShape* ParameterTypes::ShapeOf(std::string_view function) const {
  const auto found = functions_.find(function);
  return found == functions_.end() ? nullptr : found->second.get();
}

const ValueShape* ParameterTypes::ShapeOf(std::string_view function,
                                          std::string_view parameter) const {
  const ValueShape* const shape = ShapeOf(function);
  if (shape == nullptr) return nullptr;
  const auto found = shape->properties.find(parameter);
  return found == shape->properties.end() ? nullptr : &found->second;
}

bool ParameterTypes::Declares(std::string_view function, std::string_view parameter) const {
  return ShapeOf(function, parameter) != nullptr;
}

unsigned ParameterTypes::Of(std::string_view function, std::string_view parameter) const {
  const ValueShape* const shape = ShapeOf(function, parameter);
  return shape == nullptr ? static_cast<unsigned>(kString) : shape->types;
}

std::string ParameterTypes::ToJson(std::string_view text, unsigned types) {
  const std::string as_string = '"' + JsonEscaped(text) + '"';
  if (types == kString || !IsShallow(text)) return as_string;
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return as_string;
  std::string_view trimmed = text.substr(first);
  trimmed = trimmed.substr(0, trimmed.find_last_not_of(" \t\r\n") + 1);
  // Python's spellings, which templates write for these values.
  if (trimmed == "True") trimmed = "true";
  if (trimmed == "False") trimmed = "false";
  if (trimmed == "None") trimmed = "null";
  const Json value = ParseKeepingIntegers(trimmed);
  if (value.is_discarded() || (TypeOfValue(value) & types) == 0) return as_string;
  // A quoted text keeps its quotes where a string is allowed.
  return value.is_string() ? as_string : std::string(trimmed);
}

}  // namespace weft
