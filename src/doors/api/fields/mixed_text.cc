#include "doors/api/fields/mixed_text.h"

#include <algorithm>
#include <string>

namespace weft::serve {

bool ReadMixedText(const nlohmann::ordered_json& value, int64_t n_vocab, const TextEncoder& encode,
                   std::vector<int32_t>* tokens) {
  const auto read_part = [&](const nlohmann::ordered_json& part) {
    if (part.is_string()) {
      const auto more = encode(part.get_ref<const std::string&>(), tokens->empty());
      tokens->insert(tokens->end(), more.begin(), more.end());
      return true;
    }
    if (!part.is_number_integer() || part.get<int64_t>() < 0 || part.get<int64_t>() >= n_vocab) {
      return false;
    }
    tokens->push_back(part.get<int32_t>());
    return true;
  };
  if (!value.is_array()) return value.is_string() && read_part(value);
  return std::all_of(value.begin(), value.end(), read_part);
}

}  // namespace weft::serve
