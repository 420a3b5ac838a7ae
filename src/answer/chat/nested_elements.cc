#include "answer/chat/nested_elements.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "answer/chat/call_text.h"
#include "answer/reply/schema_reference.h"

namespace weft {
namespace {

using constraint::kUnlimited;
using constraint::Structure;
using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 8;
constexpr int kMaxElements = 2000;  // of a tool
constexpr size_t kMaxKeyBytes = 256;
constexpr int64_t kMaxItems = 1'000'000;

bool HasOnly(const Json& schema, const std::set<std::string_view>& keywords) {
  constexpr std::string_view kAnnotations[] = {
      "type",     "title", "description", "default",
      "examples", "$defs", "definitions", "additionalProperties"};
  return std::ranges::all_of(schema.items(), [&](const auto& item) {
    const std::string_view key = item.key();
    return keywords.contains(key) || std::ranges::find(kAnnotations, key) != std::end(kAnnotations);
  });
}

bool IsOfType(const Json& schema, const char* type) {
  const auto found = schema.find("type");
  return found != schema.end() && *found == type;
}

// A limit on the number of items, or nothing if it is not a usable number.
std::optional<int32_t> ItemLimit(const Json& schema, const char* keyword, int32_t otherwise) {
  const auto found = schema.find(keyword);
  if (found == schema.end()) return otherwise;
  if (!found->is_number_unsigned() || found->get<uint64_t>() > kMaxItems) return std::nullopt;
  return static_cast<int32_t>(found->get<uint64_t>());
}

bool IsFitKey(const std::string& key) {
  return !key.empty() && key.size() <= kMaxKeyBytes && key.find_first_of("></") == key.npos;
}

// One choice of a schema as a document of its own.
Json Standalone(const Json& choice, const Json& root) {
  Json document = choice;
  for (const char* const home : {"$defs", "definitions"}) {
    if (!document.contains(home) && root.contains(home)) document[home] = root[home];
  }
  return document;
}

}  // namespace

Structure NestedElements::Of(const TaggedPart& parameter) {
  const ValueShape* const shape = parts_.types.ShapeOf(tool_.name, parameter.key);
  if (!parameter.grammar.empty() || shape == nullptr) return as_text_(parts_, parameter);
  const Json& schema = tool_.parameters.at("properties").at(parameter.key);
  return Value({.root = &tool_.parameters, .schema = &schema, .part = parameter.schema}, *shape,
               parameter.key, 0);
}

NestedElements::Place NestedElements::Resolved(Place place) {
  ReferredSchema found = FollowReferences(*place.root, *place.schema);
  place.schema = found.schema;
  if (!found.path.empty()) place.part.path = std::move(found.path);
  return place;
}

Structure NestedElements::Value(const Place& place, const ValueShape& shape, const std::string& key,
                                int depth) {
  const TagSyntax& tags = *parts_.syntax.tags;
  const auto closed = [&](const Structure& elements) {
    return Structure::Sequence({parts_.Markup(tags.key_end), elements,
                                parts_.Markup(tags.parameter_close, key, tags.key_end)});
  };
  const Place at = Resolved(place);
  if (auto elements = Elements(at, shape, /*alone=*/true, depth)) return closed(*elements);
  StructureList ways{
      as_text_(parts_, {.key = key, .schema = place.part, .types = shape.types, .grammar = {}})};
  for (const char* const keyword : {"anyOf", "oneOf"}) {
    if (!at.schema->is_object() || !at.schema->contains(keyword)) continue;
    for (const Json& choice : at.schema->at(keyword)) {
      if (!choice.is_object()) continue;
      const Json document = Standalone(choice, *at.root);
      const Place one = Resolved({.root = &document,
                                  .schema = &document,
                                  .part = {.schema = JsonText(document), .of = at.part.of}});
      if (auto elements = Elements(one, shape, /*alone=*/false, depth))
        ways.push_back(closed(*elements));
    }
  }
  return Structure::OneOf(std::move(ways));
}

std::optional<Structure> NestedElements::Elements(const Place& place, const ValueShape& shape,
                                                  bool alone, int depth) {
  if (depth >= kMaxDepth || !place.schema->is_object()) return std::nullopt;
  if (alone ? shape.types == ParameterTypes::kObject : IsOfType(*place.schema, "object")) {
    return Members(place, shape, alone, depth);
  }
  if (alone ? shape.types == ParameterTypes::kArray : IsOfType(*place.schema, "array")) {
    return Items(place, shape, alone, depth);
  }
  return std::nullopt;
}

std::optional<Structure> NestedElements::Members(const Place& place, const ValueShape& shape,
                                                 bool alone, int depth) {
  const Json& schema = *place.schema;
  const auto properties = schema.find("properties");
  if (!HasOnly(schema, {"properties", "required"}) || properties == schema.end()) {
    return std::nullopt;
  }
  std::set<std::string> required;
  if (const auto names = schema.find("required"); names != schema.end()) {
    for (const Json& name : *names)
      required.insert(name.is_string() ? name.get<std::string>() : "");
  }
  const auto is_known = [&](const std::string& key) {
    return properties->contains(key) && shape.properties.contains(key);
  };
  if (!properties->is_object() || !std::ranges::all_of(required, is_known)) return std::nullopt;
  // A value without elements could be an empty object or an empty text.
  if (!alone && required.empty()) return std::nullopt;
  StructureList all;
  for (const auto& [key, value] : properties->items()) {
    if (!IsFitKey(key) || !is_known(key) || ++n_elements_ > kMaxElements) return std::nullopt;
    Place member{.root = place.root, .schema = &value, .part = place.part};
    member.part.path.insert(member.part.path.end(), {"properties", key});
    const Structure one = Element(member, shape.properties.find(key)->second, key, depth + 1);
    all.push_back(required.contains(key) ? one : Structure::Optional(one));
  }
  return Structure::Sequence(std::move(all));
}

std::optional<Structure> NestedElements::Items(const Place& place, const ValueShape& shape,
                                               bool alone, int depth) {
  const Json& schema = *place.schema;
  const auto items = schema.find("items");
  const std::string key(kListItem);
  if (!HasOnly(schema, {"items", "minItems", "maxItems"}) || items == schema.end() ||
      shape.items.empty() || shape.properties.contains(key) || ++n_elements_ > kMaxElements) {
    return std::nullopt;
  }
  const auto least = ItemLimit(schema, "minItems", 0);
  const auto most = ItemLimit(schema, "maxItems", kUnlimited);
  if (!least || !most || (*most != kUnlimited && *most < *least)) return std::nullopt;
  Place item{.root = place.root, .schema = &*items, .part = place.part};
  item.part.path.emplace_back("items");
  const Structure one = Element(item, shape.items[0], key, depth + 1);
  // Empty text is a list only if nothing else can be here.
  const int32_t first = alone ? *least : std::max(*least, 1);
  if (*most != kUnlimited && *most < first) return std::nullopt;
  return Structure::Repeat(one, first, *most);
}

Structure NestedElements::Element(const Place& place, const ValueShape& shape,
                                  const std::string& key, int depth) {
  return Structure::Sequence({parts_.Markup(parts_.syntax.tags->parameter_open), Plain(key),
                              Value(place, shape, key, depth)});
}

}  // namespace weft
