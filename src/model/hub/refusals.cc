#include "model/hub/refusals.h"

namespace weft::hub {
namespace {

Status Unauthorized(const Wish& wish, const std::string& what) {
  if (wish.has_token) {
    return PermissionDenied(wish.host, " does not show ", what,
                            " to your token: check the name, and that the token in HF_TOKEN is "
                            "valid and may read it");
  }
  if (wish.how_to_log_in.empty()) {
    return PermissionDenied(
        wish.host, " gives ", what,
        " only to logged-in users: download it with a program that can log in, and give its path");
  }
  return PermissionDenied(wish.host, " does not show ", what,
                          ": check the name; if it is private or has terms to accept, ",
                          wish.how_to_log_in);
}

Status Forbidden(const Wish& wish, const std::string& what) {
  if (wish.how_to_accept.empty()) {
    return PermissionDenied(wish.host, " refuses ", what,
                            ": download it with a program that has access, and give its path");
  }
  return PermissionDenied(wish.host, " refuses ", what, wish.has_token ? " to your token: " : ": ",
                          wish.how_to_accept);
}

Status TooOften(const HttpAnswer& answer, const Wish& wish) {
  int64_t seconds = 0;
  std::string when = "in a few minutes";
  if (ParseInt64(answer.head.Header("retry-after"), &seconds) && seconds > 0) {
    when = StrCat("in ", seconds, " seconds");
  }
  return ResourceExhausted(
      wish.host, " received too many requests from here (429): try again ", when,
      wish.how_to_log_in.empty() || wish.has_token ? ""
                                                   : "; with a token in HF_TOKEN it allows more");
}

}  // namespace

Status RefusalOf(const HttpAnswer& answer, const Wish& wish) {
  const std::string what = Printable(wish.what, 200);
  const int status = answer.head.status;
  // The hub also answers 401 for repositories that do not exist, and says so in a header.
  const std::string_view code = answer.head.Header("x-error-code");
  if (code == "GatedRepo") return Forbidden(wish, what);
  if (status == 401) return Unauthorized(wish, what);
  if (status == 403) return Forbidden(wish, what);
  if (status == 404 || status == 410) {
    return NotFound(wish.host, " has no ", what,
                    code == "RevisionNotFound" ? " of that revision" : "", ": check the name");
  }
  if (status == 429) return TooOften(answer, wish);
  if (status == 407) {
    return PermissionDenied(
        "the proxy requires a user name and password (407): put them into https_proxy, as in "
        "http://name:password@proxy:8080");
  }
  if (status >= 500) {
    return Unavailable(wish.host, " has a server error (", status, "): try again later");
  }
  return FailedPrecondition(wish.host, " answers ", status, " for ", what,
                            ", an unexpected answer: check the name");
}

Wish HubWish(const Places& places, const HubName& name) {
  const std::string page = StrCat(places.hub_endpoint, "/", name.repo);
  return {.what = name.repo,
          .host = HostOf(places.hub_endpoint),
          .has_token = !places.hub_token.empty(),
          .how_to_log_in = StrCat("put one of your tokens (", places.hub_endpoint,
                                  "/settings/tokens) into HF_TOKEN"),
          .how_to_accept =
              StrCat("accept its terms at ", page,
                     places.hub_token.empty() ? ", and put one of your tokens into HF_TOKEN"
                                              : " with the token's account")};
}

Wish OllamaWish(const OllamaName& name, const std::string& registry) {
  return {.what = StrCat("ollama:", name.Short()), .host = HostOf(registry)};
}

Wish AddressWish(const std::string& url) { return {.what = url, .host = HostOf(url)}; }

}  // namespace weft::hub
