#include "serve/front_door.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "base/strings.h"
#include "serve/log.h"

namespace weft::serve {
namespace {

constexpr size_t kLoggedTextBytes = 4096;

std::string_view PresentedKey(const HttpRequest& request) {
  const std::string_view authorization = request.Header("Authorization");
  constexpr std::string_view kBearer = "bearer ";
  const bool is_bearer =
      authorization.size() > kBearer.size() &&
      std::equal(kBearer.begin(), kBearer.end(), authorization.begin(), [](char lower, char c) {
        return lower == (c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
      });
  if (!is_bearer) return request.Header("x-api-key");
  const std::string_view key = authorization.substr(kBearer.size());
  return key.substr(std::min(key.find_first_not_of(' '), key.size()));
}

ApiError UnauthenticatedError(bool without_key) {
  return ToApiError(absl::UnauthenticatedError(
      without_key ? "this server needs an API key: send it as \"Authorization: Bearer KEY\" or as "
                    "\"x-api-key: KEY\""
                  : "this API key is not known here"));
}

}  // namespace

// The server's responder, with headers of its own and an eye on what passes.
class FrontDoor::CountingResponder : public HttpResponder {
 public:
  CountingResponder(HttpResponder* inner, HttpHeaders headers, bool keeps_text)
      : inner_(*inner), headers_(std::move(headers)), keeps_text_(keeps_text) {}

  void Send(int status, std::string_view content_type, std::string body,
            HttpHeaders headers) override {
    status_ = status;
    Keep(body);
    inner_.Send(status, content_type, std::move(body), WithOurs(std::move(headers)));
  }
  bool Begin(int status, std::string_view content_type, HttpHeaders headers) override {
    status_ = status;
    return inner_.Begin(status, content_type, WithOurs(std::move(headers)));
  }
  bool Write(std::string_view data) override {
    Keep(data);
    return inner_.Write(data);
  }
  void End() override { inner_.End(); }
  bool gone() const override { return inner_.gone(); }
  void OnGone(std::function<void()> gone) override { inner_.OnGone(std::move(gone)); }
  void NoteTokens(const TurnTokens& tokens) override {
    tokens_.prompt += tokens.prompt;
    tokens_.cached += tokens.cached;
    tokens_.disk += tokens.disk;
    tokens_.computed += tokens.computed;
    tokens_.completion += tokens.completion;
  }

  // What became of a client that went away is the client's doing.
  int status() const { return inner_.gone() && status_ >= 500 ? 499 : status_; }
  const std::string& text() const { return text_; }
  // As the log shows them; nothing where there was no turn.
  std::string tokens() const {
    if (tokens_.prompt == 0) return "";
    std::string text = StrCat(" in=", tokens_.prompt, " cached=", tokens_.cached);
    if (tokens_.disk > 0) StrAppend(&text, " disk=", tokens_.disk);
    const bool is_whole = tokens_.cached + tokens_.computed >= tokens_.prompt;
    if (!is_whole) StrAppend(&text, " computed=", tokens_.computed);
    return StrCat(text, " out=", tokens_.completion);
  }

  // Set on the way.
  std::string_view route = "none";
  std::string key_name;

 private:
  HttpHeaders WithOurs(HttpHeaders headers) {
    std::move(headers_.begin(), headers_.end(), std::back_inserter(headers));
    return headers;
  }
  void Keep(std::string_view data) {
    if (!keeps_text_ || text_.size() > kLoggedTextBytes) return;
    text_.append(data.substr(0, kLoggedTextBytes + 1));
  }

  HttpResponder& inner_;
  HttpHeaders headers_;
  const bool keeps_text_;
  int status_ = 500;
  std::string text_;
  TurnTokens tokens_;
};

ApiError NotReadyError(const Host& host) {
  ApiError error = MakeError(503, "unavailable_error", host.phase_reason());
  error.retry_after_s = host.phase() == Phase::kLoading ? 1 : 5;
  return error;
}

FrontDoor::FrontDoor(Options options, const Router* router, Host* host)
    : options_(std::move(options)), router_(*router), host_(*host) {}

HttpServerHooks FrontDoor::Hooks() {
  HttpServerHooks hooks;
  hooks.handler = [this](HttpRequest& request, HttpResponder& responder) {
    Handle(request, responder);
  };
  hooks.shape_of = [this](std::string_view path) {
    std::vector<std::string> segments;
    return SplitPath(path, &segments) ? router_.Find("", segments).shape : ErrorShape::kOpenAi;
  };
  hooks.rejected = [this](const RejectedRequest& request) {
    host_.metrics().CountRequest("rejected", request.status);
    LogLine(StrCat(request.method.empty() ? "-" : Printable(request.method, 20), " ",
                   request.path.empty() ? "-" : Printable(request.path, 200), " ", request.status,
                   " id=", request.id));
  };
  hooks.load = host_.metrics().http_load();
  return hooks;
}

HttpHeaders FrontDoor::CorsHeaders(const HttpRequest& request) const {
  const std::string_view origin = request.Header("Origin");
  const auto& allowed = options_.cors_origins;
  if (origin.empty() || allowed.empty()) return {};
  const bool any = std::find(allowed.begin(), allowed.end(), "*") != allowed.end();
  if (!any && std::find(allowed.begin(), allowed.end(), origin) == allowed.end()) return {};
  HttpHeaders headers = {{"Access-Control-Allow-Origin", any ? "*" : std::string(origin)},
                         {"Access-Control-Expose-Headers", "X-Request-Id, X-Weft-Ignored"},
                         {"Vary", "Origin"}};
  if (request.method == "OPTIONS") {
    const std::string_view asked = request.Header("Access-Control-Request-Headers");
    headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    headers.emplace_back("Access-Control-Allow-Headers",
                         asked.empty() ? "Authorization, Content-Type, x-api-key"
                                       : std::string(asked.substr(0, 1000)));
    headers.emplace_back("Access-Control-Max-Age", "3600");
  }
  return headers;
}

void FrontDoor::Handle(HttpRequest& request, HttpResponder& responder) const {
  const int64_t start_us = NowMicros();
  HttpHeaders headers = CorsHeaders(request);
  headers.emplace_back("X-Request-Id", request.id);
  CountingResponder counting(&responder, std::move(headers), options_.log_text);
  Answer(request, counting);
  host_.metrics().CountRequest(counting.route, counting.status());
  Log(request, counting, static_cast<double>(NowMicros() - start_us) * 1e-3);
}

void FrontDoor::Answer(HttpRequest& request, CountingResponder& responder) const {
  std::vector<std::string> segments;
  const bool whole_server = request.path == "*" && request.method == "OPTIONS";
  if (!whole_server && !SplitPath(request.path, &segments)) {
    return SendError(responder,
                     ToApiError(InvalidArgument("the path of the URL is not well-formed")),
                     ErrorShape::kOpenAi);
  }
  // A browser asks without the key whether it may send it.
  if (request.method == "OPTIONS") return AnswerOptions(segments, responder);
  Router::Match match = router_.Find(request.method, segments);
  if (match.route != nullptr) responder.route = match.route->pattern;
  const bool is_public = match.route != nullptr && match.route->is_public;
  if (options_.keys.required() && !is_public) {
    const std::string_view key = PresentedKey(request);
    const auto owner = options_.keys.Find(key);
    if (!owner.has_value()) {
      return SendError(responder, UnauthenticatedError(key.empty()), match.shape);
    }
    request.domain = owner->domain;
    responder.key_name = owner->name;
  }
  if (match.route == nullptr && !match.allowed.empty()) {
    const ApiError error =
        MakeError(405, "invalid_request_error",
                  StrCat(Printable(request.method, 20), " is not possible here; allowed are ",
                         StrJoin(match.allowed, ", ")));
    return responder.Send(405, "application/json", ErrorBody(error, match.shape).dump(),
                          {{"Allow", StrJoin(match.allowed, ", ")}});
  }
  if (match.route == nullptr) {
    return SendError(responder,
                     ToApiError(NotFound("there is nothing at ", Printable(request.path, 200))),
                     match.shape);
  }
  if (match.route->needs_model && host_.phase() != Phase::kReady) {
    return SendError(responder, NotReadyError(host_), match.shape);
  }
  request.path = StrCat("/", StrJoin(segments, "/"));
  request.path_arguments = std::move(match.arguments);
  match.route->handler(request, responder);
}

void FrontDoor::AnswerOptions(const std::vector<std::string>& segments,
                              CountingResponder& responder) const {
  std::vector<std::string> allowed = router_.Find("OPTIONS", segments).allowed;
  allowed.emplace_back("OPTIONS");
  responder.Send(200, "", "", {{"Allow", StrJoin(allowed, ", ")}});
}

void FrontDoor::Log(const HttpRequest& request, const CountingResponder& responder,
                    double ms) const {
  char duration[32];
  std::snprintf(duration, sizeof(duration), "%.1f", ms);
  std::string line = StrCat(Printable(request.method, 20), " ", Printable(request.path, 200), " ",
                            responder.status(), " ", duration, "ms", responder.tokens());
  if (!responder.key_name.empty()) StrAppend(&line, " key=", Printable(responder.key_name, 40));
  if (responder.gone()) line += " gone";
  StrAppend(&line, " id=", request.id);
  if (options_.log_text) {
    StrAppend(&line, " request=\"", Printable(request.body, kLoggedTextBytes), "\" answer=\"",
              Printable(responder.text(), kLoggedTextBytes), "\"");
  }
  LogLine(line);
}

}  // namespace weft::serve
