#include "doors/stores/s3_options.h"

#include <algorithm>
#include <cstdlib>

#include "base/strings.h"
#include "model/hub/net/http_client.h"

namespace weft::stores {
namespace {

constexpr std::string_view kLetters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
// What S3 allows for a name, together with the names of objects.
constexpr size_t kMaxPrefixBytes = 512;

bool IsOf(std::string_view text, std::string_view others) {
  return std::ranges::all_of(text, [others](char c) {
    return kLetters.find(c) != kLetters.npos || others.find(c) != others.npos;
  });
}

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool IsBucket(std::string_view text) {
  return text.size() >= 3 && text.size() <= 63 && IsOf(text, ".-_") &&
         text.find("..") == text.npos && IsOf(text.substr(0, 1), "");
}

bool IsPrefix(std::string_view text) {
  if (text.empty()) return true;
  if (text.size() > kMaxPrefixBytes || !IsOf(text, "/-_.@=+~")) return false;
  return std::ranges::none_of(StrSplit(text, '/'), [](std::string_view part) {
    return part.empty() || part == "." || part == "..";
  });
}

Status ReadAddress(std::string_view address, S3Options* options) {
  constexpr std::string_view kScheme = "s3://";
  if (address.starts_with(kScheme)) {
    const std::string_view rest = address.substr(kScheme.size());
    const size_t slash = rest.find('/');
    options->bucket = rest.substr(0, slash);
    options->prefix = slash == rest.npos ? "" : rest.substr(slash + 1);
    if (options->prefix.size() > 1 && options->prefix.ends_with('/')) options->prefix.pop_back();
    if (IsBucket(options->bucket) && IsPrefix(options->prefix)) return OkStatus();
  }
  return InvalidArgument("\"", Printable(address, 200),
                         "\" is no store; write one such as s3://conversations/weft");
}

Status ReadEndpoint(std::string_view endpoint, S3Options* options) {
  if (endpoint.empty()) {
    const bool is_in_china = options->region.starts_with("cn-");
    options->endpoint =
        StrCat("https://s3.", options->region, ".amazonaws.com", is_in_china ? ".cn" : "");
    return OkStatus();
  }
  std::string_view place = endpoint;
  if (place.ends_with('/')) place.remove_suffix(1);
  if (!hub::IsBareOrigin(place)) {
    return InvalidArgument("\"", Printable(endpoint, 200),
                           "\" is no store's endpoint; write one such as https://s3.example:9000");
  }
  options->endpoint = place;
  return OkStatus();
}

Status ReadRegion(S3Options* options) {
  options->region = Environment("AWS_REGION");
  if (options->region.empty()) options->region = Environment("AWS_DEFAULT_REGION");
  if (options->region.empty()) options->region = "us-east-1";
  if (IsOf(options->region, "-_")) return OkStatus();
  return InvalidArgument("\"", Printable(options->region, 100),
                         "\" is no region; set AWS_REGION to one such as us-east-1");
}

Status ReadKeys(S3Options* options) {
  const auto read = [](const char* name, std::string* value) {
    *value = Environment(name);
    const bool is_plain =
        std::ranges::all_of(*value, [](unsigned char c) { return c > ' ' && c < 127; });
    return is_plain ? OkStatus() : InvalidArgument(name, " has characters that no key has");
  };
  WEFT_RETURN_IF_ERROR(read("AWS_ACCESS_KEY_ID", &options->access_key));
  WEFT_RETURN_IF_ERROR(read("AWS_SECRET_ACCESS_KEY", &options->secret_key));
  WEFT_RETURN_IF_ERROR(read("AWS_SESSION_TOKEN", &options->session_token));
  if (!options->access_key.empty() && !options->secret_key.empty()) return OkStatus();
  return InvalidArgument(
      "the store needs a key; set ", options->access_key.empty() ? "AWS_ACCESS_KEY_ID" : "",
      options->access_key.empty() && options->secret_key.empty() ? " and " : "",
      options->secret_key.empty() ? "AWS_SECRET_ACCESS_KEY" : "", " in the server's environment");
}

}  // namespace

StatusOr<S3Options> ReadS3Options(std::string_view address, std::string_view endpoint) {
  S3Options options;
  WEFT_RETURN_IF_ERROR(ReadAddress(address, &options));
  WEFT_RETURN_IF_ERROR(ReadRegion(&options));
  WEFT_RETURN_IF_ERROR(ReadEndpoint(endpoint, &options));
  WEFT_RETURN_IF_ERROR(ReadKeys(&options));
  return options;
}

}  // namespace weft::stores
