#include "doors/api/front_door.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/system.h"
#include "doors/api/fields/picture_addresses.h"
#include "doors/api/fields/support.h"
#include "doors/api/model_wish.h"
#include "doors/api/sse.h"
#include "doors/host/presented_key.h"
#include "doors/host/turn_work.h"
#include "doors/http/request_log.h"

namespace weft::serve {
namespace {

// Largest complete answer that is not charged: every connection may hold this much.
constexpr size_t kSmallAnswerBytes = 64 << 10;
// After a request of this size it is worth returning freed memory to the system.
constexpr uint64_t kLargeRequestBytes = 4 << 20;
// After which a client asks again for a model that is not loaded.
constexpr int kModelRetrySeconds = 5;

std::string_view PresentedKey(const HttpRequest& request) {
  return ApiKeyOf(request.Header("Authorization"), request.Header("x-api-key"));
}

ApiError UnauthenticatedError(bool without_key) {
  return ToApiError(absl::UnauthenticatedError(
      without_key ? "this server needs an API key: send it as \"Authorization: Bearer KEY\" or as "
                    "\"x-api-key: KEY\""
                  : "this API key is not valid"));
}

ApiError NoModelError(const Status& status) {
  if (status.code() == StatusCode::kNotFound) {
    return ToDetailedApiError(WithCode(WithParam(status, "model"), "model_not_found"));
  }
  if (status.code() == StatusCode::kInvalidArgument) {
    return ToDetailedApiError(WithCode(WithParam(status, "model"), "model_not_loaded"));
  }
  ApiError error = MakeError(503, "unavailable_error", std::string(Message(status)));
  error.retry_after_s = kModelRetrySeconds;
  return error;
}

// The path's segments, decoded: one may contain a slash.
std::vector<std::string> SegmentsOf(const HttpRequest& request) {
  std::vector<std::string> segments;
  size_t n_arguments = 0;
  for (const std::string_view part :
       StrSplit(std::string_view(request.route->pattern).substr(1), '/')) {
    const bool is_argument = part.starts_with('{') && n_arguments < request.path_arguments.size();
    segments.emplace_back(is_argument ? request.path_arguments[n_arguments++] : part);
  }
  return segments;
}

Task<void> Run(const Route& route, const HttpRequest& request, HttpResponder& responder) {
  if (route.task) {
    co_await route.task(request, responder);
  } else {
    route.handler(request, responder);
  }
}

}  // namespace

// Wraps the server's responder: adds headers and records what passes.
class FrontDoor::CountingResponder : public HttpResponder {
 public:
  // `request` and `options` outlive it.
  CountingResponder(HttpResponder* inner, const HttpRequest& request, const Options& options,
                    bool keeps_text)
      : inner_(*inner), request_(request), options_(options), keeps_text_(keeps_text) {
    if (request.route != nullptr) shape = request.route->shape;
  }

  void Send(int status, std::string_view content_type, std::string body,
            HttpHeaders headers) override {
    status_ = status;
    if (signs_) return SendInStream(body);
    Keep(body);
    answer_ = WholeAnswer{std::string(content_type), std::move(body), WithOurs(std::move(headers))};
    // An accepted request is still being worked on.
    if (status == 202) SendAnswer();
  }
  // Called when the handler is done with the request and its memory is free again: returns that
  // memory, then ends the answer, so that the client can ask again.
  void Leave() {
    if (is_large_) ReturnFreedMemory();
    ChargeAnswer(answer_.has_value() ? answer_->body.size() : 0);
    if (answer_.has_value()) SendAnswer();
    if (ended_) inner_.End();
  }
  bool Begin(int status, std::string_view content_type, HttpHeaders headers) override {
    status_ = status;
    if (signs_) return !gone();
    return inner_.Begin(status, content_type, WithOurs(std::move(headers)));
  }
  // Before the handler runs, which will answer with server-sent events: a comment, which clients
  // ignore.
  void SendSign(std::string_view text) {
    if (!signs_) signs_.emplace(inner_, WithOurs({}));
    signs_->Comment(text);
  }
  bool Write(std::string_view data) override {
    left_before_last_ = inner_.gone();
    Keep(data);
    return inner_.Write(data);
  }
  Task<void> Room() override { return inner_.Room(); }
  void End() override { ended_ = true; }
  std::string_view request_id() const override { return request_.id; }
  bool gone() const override { return inner_.gone(); }
  std::stop_token cancellation() const override { return inner_.cancellation(); }
  void NoteHeader(std::string_view name, std::string_view value) override {
    std::erase_if(noted_, [&](const auto& header) { return header.first == name; });
    noted_.emplace_back(name, value);
  }
  void NoteWork(const HttpWork& work) override {
    for (const auto& [name, amount] : work) work_[name] += amount;
  }

  // Whether the client went away before the last event was written. Many close as soon as they have
  // read that.
  bool left() const { return ended_ ? left_before_last_ : inner_.gone(); }
  // A failure after the client has left counts as the client's.
  int status() const { return inner_.gone() && status_ >= 500 ? 499 : status_; }
  const std::string& text() const { return text_; }
  const HttpWork& work() const { return work_; }
  // The answer's warning; empty if none.
  const std::string& warning() const { return warning_; }

  // Charges the estimated memory of the request; refused if it is too much.
  Status Hold(ByteBudget* budget, uint64_t bytes) {
    is_large_ = bytes >= kLargeRequestBytes;
    hold_ = ByteBudget::Hold(budget, request_.Account());
    return hold_.Resize(bytes);
  }

  ErrorShape shape = kOpenAiErrors;  // the answer's

 private:
  struct WholeAnswer {
    std::string content_type;
    std::string body;
    HttpHeaders headers;
  };

  // An error, for which it is too late to be the whole answer.
  void SendInStream(std::string_view body) {
    const std::string_view event = shape == kAnthropicErrors ? "event: error\n" : "";
    Write(StrCat(event, "data: ", body, "\n\n"));
    End();
  }
  void SendAnswer() {
    WholeAnswer answer = *std::exchange(answer_, std::nullopt);
    inner_.Send(status_, answer.content_type, std::move(answer.body), std::move(answer.headers));
  }
  // A large answer is charged instead of its request until it has been sent: clients may never read
  // it.
  void ChargeAnswer(size_t n_bytes) {
    ByteBudget::Hold answer = std::exchange(hold_, {});
    if (n_bytes <= kSmallAnswerBytes) return;
    answer.Take(n_bytes);
    inner_.KeepUntilSent(std::make_shared<ByteBudget::Hold>(std::move(answer)));
  }
  HttpHeaders WithOurs(HttpHeaders headers) {
    for (const auto& [name, value] : headers) {
      if (name == kWarningHeader) warning_ = value;
    }
    for (auto& noted : noted_) headers.push_back(std::move(noted));
    for (auto& ours : options_.guard.CorsHeaders(request_)) headers.push_back(std::move(ours));
    for (auto& ours : RequestIdHeaders(request_.id, shape)) headers.push_back(std::move(ours));
    return headers;
  }
  void Keep(std::string_view data) {
    if (!keeps_text_ || text_.size() > kLoggedTextBytes) return;
    text_.append(data.substr(0, kLoggedTextBytes + 1));
  }

  HttpResponder& inner_;
  const HttpRequest& request_;
  const Options& options_;
  const bool keeps_text_;  // for the log
  ByteBudget::Hold hold_;
  bool is_large_ = false;
  std::optional<WholeAnswer> answer_;  // until Leave
  std::optional<SseStream> signs_;     // if the response has begun with signs of life
  bool ended_ = false;
  bool left_before_last_ = false;
  int status_ = 500;
  std::string text_;
  std::string warning_;
  HttpHeaders noted_;
  HttpWork work_;
};

ApiError NotReadyError(const Host& host) {
  ApiError error = MakeError(503, "unavailable_error", host.phase_reason());
  error.retry_after_s = host.phase() == Phase::kLoading ? 1 : 5;
  return error;
}

FrontDoor::FrontDoor(Options options, const Router* router, Host* host)
    : options_(std::move(options)),
      router_(*router),
      host_(*host),
      parsed_(options_.max_parsed_bytes, options_.max_parsed_bytes / 2) {}

HttpServerHooks FrontDoor::Hooks() {
  HttpServerHooks hooks;
  hooks.admit = [this](HttpRequest& request, HttpResponder& responder) {
    return Admit(request, responder);
  };
  hooks.handler = [this](HttpRequest& request, HttpResponder& responder) {
    return Handle(request, responder);
  };
  hooks.is_quick = [](const HttpRequest& request) {
    return request.route != nullptr && request.route->is_quick;
  };
  hooks.others_wait = [this] { return TurnsWait(); };
  hooks.shape_of = [this](std::string_view path) {
    std::vector<std::string> segments;
    return SplitPath(path, &segments) ? router_.Find("", segments).shape : kOpenAiErrors;
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

bool FrontDoor::TurnsWait() const {
  if (options_.fleet == nullptr) {
    return host_.phase() == Phase::kReady && host_.engine().TurnsWaiting() > 0;
  }
  return std::ranges::any_of(options_.fleet->PeekAll(), [](const NamedLease& loaded) {
    return loaded.lease->host().engine().TurnsWaiting() > 0;
  });
}

bool FrontDoor::Admit(HttpRequest& request, HttpResponder& responder) const {
  const int64_t start_us = NowMicros();
  CountingResponder counting(&responder, request, options_, host_.defaults().server.log_text);
  if (MayPass(request, counting)) return true;
  counting.Leave();
  Finish(request, counting, start_us);
  return false;
}

Task<void> FrontDoor::Handle(HttpRequest& request, HttpResponder& responder) {
  const int64_t start_us = NowMicros();
  CountingResponder counting(&responder, request, options_, host_.defaults().server.log_text);
  co_await Answer(request, counting);
  request.pictures = nullptr;
  // Only the log still needs it.
  if (!host_.defaults().server.log_text) std::string().swap(request.body);
  counting.Leave();
  Finish(request, counting, start_us);
}

// Counts and logs the request.
void FrontDoor::Finish(const HttpRequest& request, const CountingResponder& responder,
                       int64_t start_us) const {
  host_.metrics().CountRequest(request.route == nullptr ? "none" : request.route->pattern,
                               responder.status());
  const bool is_watched = request.route != nullptr && request.route->is_watched;
  if (is_watched && responder.status() < 400 && !host_.defaults().server.log_text) return;
  LogRequest({.method = request.method,
              .path = request.path,
              .status = StrCat(responder.status()),
              .duration_us = NowMicros() - start_us,
              .work = WorkText(responder.work()),
              .key_name = request.key_name,
              .gone = responder.left(),
              .id = request.id,
              .warning = responder.warning(),
              .with_text = host_.defaults().server.log_text,
              .request_text = request.body,
              .answer_text = responder.text()});
}

bool FrontDoor::MayPass(HttpRequest& request, CountingResponder& responder) const {
  std::vector<std::string> segments;
  const bool whole_server = request.path == "*" && request.method == "OPTIONS";
  const bool is_path = whole_server || SplitPath(request.path, &segments);
  if (!is_path) segments.clear();
  Router::Match match = router_.Find(request.method, segments);
  responder.shape = match.shape;
  const bool is_public = match.route != nullptr && match.route->is_public;
  const auto refuse = [&](const ApiError& error, HttpHeaders headers = {}) {
    SendError(responder, error, match.shape, std::move(headers));
    return false;
  };
  if (const auto refusal = options_.guard.Refusal(request, is_public)) return refuse(*refusal);
  if (!is_path) {
    return refuse(ToApiError(InvalidArgument("the path of the URL is not well-formed")));
  }
  // A browser's preflight request carries no key.
  if (request.method == "OPTIONS") {
    AnswerOptions(segments, responder);
    return false;
  }
  request.route = match.route;
  if (!FindOwner(request, responder)) return false;
  if (match.route == nullptr && !match.allowed.empty()) {
    const std::string allowed = StrJoin(match.allowed, ", ");
    return refuse(MakeError(405, "invalid_request_error",
                            StrCat(Printable(request.method, 20),
                                   " is not possible here; allowed are ", allowed)),
                  {{"Allow", allowed}});
  }
  if (match.route == nullptr) {
    return refuse(ToApiError(NotFound("there is nothing at ", Printable(request.path, 200))));
  }
  if (const auto priority = PriorityHeader(request); !priority.ok()) {
    return refuse(ToApiError(priority.status()));
  }
  request.path = StrCat("/", StrJoin(segments, "/"));
  request.path_arguments = std::move(match.arguments);
  return true;
}

bool FrontDoor::FindOwner(HttpRequest& request, CountingResponder& responder) const {
  const ApiKeys &keys = options_.keys, &operators = options_.metrics_keys;
  if (!keys.required() && !operators.required()) {
    request.is_operators = true;
    return true;
  }
  const std::string_view key = PresentedKey(request);
  const auto owner = keys.Find(key), as_operator = operators.Find(key);
  const bool for_operators = request.route != nullptr && request.route->is_operators;
  request.is_operators = operators.required() ? as_operator.has_value() : keys.size() == 1;
  const bool may_ask = owner.has_value() || (as_operator.has_value() && for_operators) ||
                       (!keys.required() && !for_operators);
  const bool is_public = request.route != nullptr && request.route->is_public;
  if (!may_ask && is_public) {
    request.is_operators = false;
    return true;
  }
  if (!may_ask) {
    SendError(responder, UnauthenticatedError(key.empty()), responder.shape);
    return false;
  }
  if (owner.has_value()) request.domain = owner->domain;
  request.key_name = owner.has_value() ? owner->name : as_operator ? as_operator->name : "";
  return true;
}

std::vector<std::string> FrontDoor::PicturesOf(const HttpRequest& request) const {
  if (options_.pictures == nullptr || !request.route->needs_model) return {};
  return PictureAddresses(request.body);
}

Task<void> FrontDoor::FetchPictures(Host& host, std::vector<std::string> urls, HttpRequest& request,
                                    const HttpResponder& responder) const {
  if (!host.answerer().sees()) co_return;
  auto fetching =
      options_.pictures->Fetch(request.Account(), std::move(urls), responder.cancellation());
  request.pictures = co_await fetching;
  // Handlers run in the pool, in their tenant's turn. If its queue is full, this thread goes on.
  if (TaskPool* const pool = TaskPool::Current()) {
    auto entering = pool->EnterInTurn(request.Account());
    (void)co_await entering;
  }
}

Task<void> FrontDoor::Answer(HttpRequest& request, CountingResponder& responder) {
  const Route& route = *request.route;
  const bool chooses = route.needs_model && options_.fleet != nullptr;
  if (route.needs_model && !chooses && host_.phase() != Phase::kReady) {
    SendError(responder, NotReadyError(host_), route.shape);
  } else if (!Charge(request, responder)) {
    co_return;
  } else if (chooses) {
    co_await AnswerByModel(request, responder);
  } else {
    std::vector<std::string> urls = PicturesOf(request);
    if (!urls.empty()) co_await FetchPictures(host_, std::move(urls), request, responder);
    co_await Run(route, request, responder);
  }
}

// With the route of the model that the request is for, which stays loaded meanwhile.
Task<void> FrontDoor::AnswerByModel(HttpRequest& request, CountingResponder& responder) {
  const RequestDefaults& defaults = host_.defaults();
  const ModelWish wish = ReadModelWish(request, defaults.server.models_autoload);
  const Status drained = host_.drain_switch()->MayBegin();
  const auto info = options_.fleet->Find(wish.name);
  if (!drained.ok() && info.ok() && info->state == ModelFleet::State::kUnloaded) {
    SendError(responder, NoModelError(drained), request.route->shape);
    co_return;
  }
  ModelFleet::Signs signs{.first = defaults.stream_begin,
                          .interval = defaults.server.ping_interval};
  signs.tell = [&, wants_stream = std::optional<bool>()](std::string_view why) mutable {
    if (!wants_stream) wants_stream = request.route->streams_events && WantsStream(request);
    if (*wants_stream) responder.SendSign(why);
  };
  auto use = options_.fleet->Use(wish, responder.cancellation(), std::move(signs));
  const StatusOr<ModelLease> lease = co_await use;
  if (!lease.ok()) {
    SendError(responder, NoModelError(lease.status()), request.route->shape);
    co_return;
  }
  const Router::Match match = (*lease)->router().Find(request.method, SegmentsOf(request));
  WEFT_CHECK(match.route != nullptr, "a model lacks a route of the server");
  std::vector<std::string> urls = PicturesOf(request);
  if (!urls.empty()) {
    co_await FetchPictures((*lease)->host(), std::move(urls), request, responder);
  }
  co_await Run(*match.route, request, responder);
}

bool FrontDoor::Charge(const HttpRequest& request, CountingResponder& responder) {
  // A request without a body takes next to nothing, and is always answered.
  if (request.body.empty()) return true;
  const Route& route = *request.route;
  const uint64_t work_bytes = request.body.size() * uint64_t{route.work_bytes_per_byte};
  const Status status = responder.Hold(&parsed_, EstimateParsedBytes(request.body) + work_bytes);
  if (!status.ok()) SendError(responder, FullError(status), route.shape);
  return status.ok();
}

void FrontDoor::AnswerOptions(const std::vector<std::string>& segments,
                              CountingResponder& responder) const {
  std::vector<std::string> allowed = router_.Find("OPTIONS", segments).allowed;
  allowed.emplace_back("OPTIONS");
  responder.Send(200, "", "", {{"Allow", StrJoin(allowed, ", ")}});
}

}  // namespace weft::serve
