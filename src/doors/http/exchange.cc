#include "doors/http/exchange.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "doors/http/api_error.h"
#include "doors/http/client_network.h"

namespace weft::serve {
namespace {

// Values may quote client input, which must not start a header line of its own.
void AppendHeader(std::string_view name, std::string_view value, std::string* out) {
  StrAppend(out, name, ": ");
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    out->push_back(byte < 0x20 || byte == 0x7F ? ' ' : c);
  }
  out->append("\r\n");
}

std::string Hex(size_t value) {
  char digits[20];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value, 16);
  return {digits, end.ptr};
}

}  // namespace

std::string_view HttpRequest::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (EqualIgnoringCase(key, name)) return value;
  }
  return "";
}

std::string HttpRequest::Account() const {
  return domain.empty() ? StrCat("address ", ClientNetwork(address)) : StrCat("key ", domain);
}

std::string_view ReasonPhrase(int status) {
  static constexpr std::pair<int, std::string_view> kPhrases[] = {
      {200, "OK"},
      {201, "Created"},
      {202, "Accepted"},
      {204, "No Content"},
      {304, "Not Modified"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {409, "Conflict"},
      {413, "Content Too Large"},
      {415, "Unsupported Media Type"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {500, "Internal Server Error"},
      {501, "Not Implemented"},
      {503, "Service Unavailable"},
      {504, "Gateway Timeout"}};
  for (const auto& [code, phrase] : kPhrases) {
    if (code == status) return phrase;
  }
  return "Status";
}

HttpExchange::HttpExchange(HttpRequest request, Options options)
    : request_(std::move(request)), options_(std::move(options)) {}

std::string HttpExchange::Head(int status, std::string_view content_type,
                               const HttpHeaders& headers, std::string_view framing) {
  must_close_ = must_close_ || !options_.keep_alive || options_.stopping->load();
  std::string head = StrCat("HTTP/1.1 ", status, " ", ReasonPhrase(status), "\r\n");
  if (!content_type.empty()) AppendHeader("Content-Type", content_type, &head);
  for (const auto& [name, value] : headers) AppendHeader(name, value, &head);
  head.append(framing);
  if (must_close_) {
    head.append("Connection: close\r\n");
  } else if (options_.is_http_1_0) {
    head.append("Connection: keep-alive\r\n");
  }
  return head.append("\r\n");
}

void HttpExchange::Append(std::string_view data) {
  output_.append(data);
  unsent_bytes_ += data.size();
}

void HttpExchange::Kick() { options_.kick(); }

void HttpExchange::Send(int status, std::string_view content_type, std::string body,
                        HttpHeaders headers) {
  {
    MutexLock lock(&mutex_);
    WEFT_CHECK(stage_ == Stage::kNothing, "a response was sent twice");
    stage_ = Stage::kEnded;
    if (gone()) return;
    const bool none = status == 204 || status == 304;
    Append(Head(status, none ? "" : content_type, headers,
                none ? "" : StrCat("Content-Length: ", body.size(), "\r\n")));
    if (!none && !options_.is_head) Append(body);
  }
  Kick();
}

bool HttpExchange::Begin(int status, std::string_view content_type, HttpHeaders headers) {
  {
    MutexLock lock(&mutex_);
    WEFT_CHECK(stage_ == Stage::kNothing, "a response was begun twice");
    stage_ = Stage::kStreaming;
    if (gone()) return false;
    has_body_ = !options_.is_head;
    chunked_ = !options_.is_http_1_0;
    // Without chunks, only closing the connection marks the end of the body.
    must_close_ = !chunked_;
    Append(Head(status, content_type, headers, chunked_ ? "Transfer-Encoding: chunked\r\n" : ""));
  }
  Kick();
  return true;
}

bool HttpExchange::Write(std::string_view data) {
  bool kick = false;
  {
    MutexLock lock(&mutex_);
    WEFT_CHECK(stage_ == Stage::kStreaming, "Write without Begin, or after End");
    if (gone()) return false;
    if (has_body_ && !data.empty()) {
      if (chunked_) Append(StrCat(Hex(data.size()), "\r\n"));
      Append(data);
      if (chunked_) Append("\r\n");
      kick = true;
    }
  }
  if (kick) Kick();
  return !gone();
}

bool HttpExchange::IsFull() const {
  MutexLock lock(&mutex_);
  return unsent_bytes_ > options_.max_unsent_bytes && !gone();
}

Task<void> HttpExchange::Room() {
  while (IsFull()) co_await sent_or_gone_.Wait();
}

void HttpExchange::End() {
  {
    MutexLock lock(&mutex_);
    WEFT_CHECK(stage_ == Stage::kStreaming, "End without Begin");
    stage_ = Stage::kEnded;
    if (has_body_ && chunked_ && !gone()) Append("0\r\n\r\n");
  }
  Kick();
}

void HttpExchange::KeepUntilSent(std::shared_ptr<void> what) {
  MutexLock lock(&mutex_);
  if (!gone()) kept_ = std::move(what);
}

void HttpExchange::HandlerEnded() {
  bool nothing;
  {
    MutexLock lock(&mutex_);
    nothing = stage_ == Stage::kNothing;
    if (stage_ == Stage::kStreaming) {
      stage_ = Stage::kEnded;
      must_close_ = true;
    }
  }
  if (nothing) {
    SendError(*this, ToApiError(Internal("the server failed to answer this request")), kPlainErrors,
              RequestIdHeaders(request_.id, kPlainErrors));
  } else {
    Kick();
  }
}

std::string HttpExchange::TakeOutput() {
  MutexLock lock(&mutex_);
  return std::exchange(output_, {});
}

void HttpExchange::Sent(size_t n_bytes) {
  bool makes_room;
  {
    MutexLock lock(&mutex_);
    const size_t before = unsent_bytes_;
    unsent_bytes_ -= std::min(n_bytes, unsent_bytes_);
    if (stage_ == Stage::kEnded && unsent_bytes_ == 0) kept_.reset();
    makes_room = before > options_.max_unsent_bytes && unsent_bytes_ <= options_.max_unsent_bytes;
  }
  if (makes_room) sent_or_gone_.Notify();
}

bool HttpExchange::Complete() const {
  MutexLock lock(&mutex_);
  return stage_ == Stage::kEnded && output_.empty();
}

bool HttpExchange::MustClose() const {
  MutexLock lock(&mutex_);
  return must_close_;
}

void HttpExchange::MarkGone() {
  {
    MutexLock lock(&mutex_);
    gone_.store(true, std::memory_order_release);
    output_.clear();
    kept_.reset();
  }
  sent_or_gone_.Notify();
  gone_source_.request_stop();
}

}  // namespace weft::serve
