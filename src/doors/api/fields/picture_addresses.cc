#include "doors/api/fields/picture_addresses.h"

#include <algorithm>

#include "answer/asked_picture.h"
#include "doors/api/fields/pictures.h"
#include "doors/api/fields/support.h"
#include "json/json_fields.h"
#include "nlohmann/json.hpp"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

class Finder {
 public:
  // `value` may be any part of the body. Bodies are only as deep as ParseJson allows.
  void Visit(const ordered_json& value) {
    if (value.is_object()) {
      LookIn(value);
    }
    if (value.is_structured()) {
      for (const ordered_json& part : value) Visit(part);
    }
  }
  std::vector<std::string> found;

 private:
  void LookIn(const ordered_json& object) {
    if (IsPicture(object)) {
      const ordered_json& source = ValueIn(object, "image_url");
      Add(source.is_object() ? ValueIn(source, "url") : source);
    } else if (ValueIn(object, "type") == "image") {
      Add(ValueIn(ValueIn(object, "source"), "url"));
    }
    for (const char* const list : {"images", "multimodal_data"}) {
      const ordered_json& files = ValueIn(object, list);
      if (!files.is_array()) continue;
      for (const ordered_json& file : files) Add(file);
    }
  }
  void Add(const ordered_json& source) {
    if (!source.is_string() || found.size() == kMaxPictures) return;
    const auto& text = source.get_ref<const std::string&>();
    if (IsPictureAddress(text) && std::ranges::count(found, text) == 0) found.push_back(text);
  }
};

}  // namespace

bool IsPictureAddress(std::string_view text) {
  return text.starts_with("http://") || text.starts_with("https://");
}

std::vector<std::string> PictureAddresses(std::string_view body) {
  // Most bodies name none, and are not parsed twice.
  if (body.find("\"http") == body.npos && body.find("\"\\u") == body.npos) return {};
  const auto parsed = ParseJson(body, {});
  if (!parsed.ok()) return {};
  Finder finder;
  finder.Visit(*parsed);
  return std::move(finder.found);
}

}  // namespace weft::serve
