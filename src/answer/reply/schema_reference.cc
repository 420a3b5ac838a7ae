#include "answer/reply/schema_reference.h"

#include <optional>
#include <string_view>
#include <utility>

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxReferences = 8;  // that lead to one another

const Json* Child(const Json& object, const std::string& key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

std::optional<ReferredSchema> Definition(const Json& root, std::string_view reference) {
  for (const std::string home : {"$defs", "definitions"}) {
    const std::string prefix = "#/" + home + "/";
    if (!reference.starts_with(prefix)) continue;
    const std::string name(reference.substr(prefix.size()));
    const Json* const definitions = Child(root, home);
    const Json* const found = definitions == nullptr ? nullptr : Child(*definitions, name);
    if (found != nullptr) return ReferredSchema{found, {home, name}};
  }
  return std::nullopt;
}

}  // namespace

ReferredSchema FollowReferences(const Json& root, const Json& schema) {
  ReferredSchema at{&schema};
  for (int step = 0; step < kMaxReferences; ++step) {
    const Json* const reference = Child(*at.schema, "$ref");
    if (reference == nullptr || !reference->is_string()) break;
    auto next = Definition(root, reference->get_ref<const std::string&>());
    if (!next) break;
    at = *std::move(next);
  }
  return at;
}

}  // namespace weft
