#include "doors/host/presented_key.h"

#include <algorithm>

#include "base/strings.h"

namespace weft::serve {
namespace {

constexpr std::string_view kBlanks = " \t";

std::string_view WithoutBlanks(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

}  // namespace

std::string_view ApiKeyOf(std::string_view authorization, std::string_view x_api_key) {
  constexpr std::string_view kBearer = "bearer";
  authorization = WithoutBlanks(authorization);
  const bool is_bearer = authorization.size() > kBearer.size() &&
                         kBlanks.find(authorization[kBearer.size()]) != kBlanks.npos &&
                         EqualIgnoringCase(authorization.substr(0, kBearer.size()), kBearer);
  return is_bearer ? WithoutBlanks(authorization.substr(kBearer.size())) : WithoutBlanks(x_api_key);
}

}  // namespace weft::serve
