#include "serve/presented_key.h"

#include <algorithm>

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
  const bool is_bearer =
      authorization.size() > kBearer.size() &&
      kBlanks.find(authorization[kBearer.size()]) != kBlanks.npos &&
      std::equal(kBearer.begin(), kBearer.end(), authorization.begin(), [](char lower, char c) {
        return lower == (c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
      });
  return is_bearer ? WithoutBlanks(authorization.substr(kBearer.size())) : WithoutBlanks(x_api_key);
}

}  // namespace weft::serve
