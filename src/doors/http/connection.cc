#include "doors/http/connection.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/http/error.hpp>
#include <climits>
#include <cstring>
#include <utility>

#include "base/strings.h"
#include "base/system.h"
#include "doors/http/client_network.h"
#include "doors/http/router.h"

namespace weft::serve {
namespace {

namespace http = boost::beast::http;
using boost::system::error_code;

// For requests that arrive before the current one is answered. Beyond this the connection is not
// read, and so not watched, until then.
constexpr size_t kMaxPipelinedBytes = 256 << 10;
// How long to discard further input after an error: closing at once would reset the connection
// before the client has read the reason.
constexpr std::chrono::seconds kLinger{3};

std::string AddressOf(const HttpConnection::Socket& socket) {
  error_code error;
  const auto peer = socket.remote_endpoint(error);
  return error ? std::string("gone") : peer.address().to_string();
}

// "http://host/path?query" and "/path?query" are the same request.
std::string_view WithoutOrigin(std::string_view target) {
  if (target.starts_with("/")) return target;
  const size_t scheme = target.find("://");
  if (scheme == target.npos) return target;
  const size_t path = target.find('/', scheme + 3);
  return path == target.npos ? "/" : target.substr(path);
}

bool ParseQuery(std::string_view query, std::map<std::string, std::string>* out) {
  if (query.empty()) return true;
  for (const std::string_view part : StrSplit(query, '&')) {
    const size_t equals = std::min(part.find('='), part.size());
    std::string name, value;
    if (!PercentDecode(part.substr(0, equals), /*plus_is_space=*/true, &name) ||
        !PercentDecode(part.substr(std::min(equals + 1, part.size())), true, &value)) {
      return false;
    }
    (*out)[name] = std::move(value);
  }
  return true;
}

}  // namespace

HttpConnection::HttpConnection(Socket socket, ConnectionShared* shared, bool by_second_port,
                               std::function<void(HttpConnection*)> closed)
    : socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      shared_(*shared),
      by_second_port_(by_second_port),
      closed_callback_(std::move(closed)),
      address_(AddressOf(socket_)),
      network_(ClientNetwork(address_)) {}

std::optional<HttpConnection::HeadWait> HttpConnection::WaitForHead() const {
  const bool has_head = parser_.has_value() && head_seen_;
  if (closed_ || exchange_ != nullptr || is_lingering_ || has_head) return std::nullopt;
  return head_wait_;
}

void HttpConnection::Start() {
  head_wait_.since = Clock::now();
  SetDeadline(shared_.options.header_timeout);
  Read();
}

void HttpConnection::Refuse(const ApiError& error) {
  SetDeadline(shared_.options.header_timeout);
  Reject(error);
}

void HttpConnection::StopWhenIdle() {
  if (exchange_ == nullptr && !is_lingering_) Close();
}

void HttpConnection::Close() {
  if (closed_) return;
  closed_ = true;
  error_code ignored;
  socket_.close(ignored);
  timer_.cancel();
  if (exchange_ != nullptr) exchange_->MarkGone();
  exchange_ = nullptr;
  closed_callback_(this);
}

// --- reading -------------------------------------------------------------------------

void HttpConnection::Read() {
  if (closed_ || is_reading_) return;
  if (exchange_ != nullptr && buffer_.size() >= kMaxPipelinedBytes) return;
  is_reading_ = true;
  socket_.async_read_some(boost::asio::buffer(incoming_),
                          [self = shared_from_this()](const error_code& error, size_t n_bytes) {
                            self->OnRead(error, n_bytes);
                          });
}

void HttpConnection::OnRead(const error_code& error, size_t n_bytes) {
  is_reading_ = false;
  if (closed_) return;
  // The end of the client's input counts as its departure: a half-closed connection looks like an
  // abandoned one.
  if (error) return Close();
  if (!is_lingering_) {
    const boost::asio::mutable_buffer place = buffer_.prepare(n_bytes);
    std::memcpy(place.data(), incoming_.data(), n_bytes);
    buffer_.commit(n_bytes);
    ParseBuffered();
  }
  Read();
}

void HttpConnection::ParseBuffered() {
  while (!closed_ && exchange_ == nullptr && buffer_.size() > 0) {
    if (!parser_.has_value()) {
      parser_.emplace();
      parser_->header_limit(shared_.options.max_header_bytes);
      max_body_bytes_ = shared_.max_body_bytes;
      parser_->body_limit(max_body_bytes_);
      parser_->eager(true);
      head_seen_ = false;
      SetDeadline(shared_.options.header_timeout);
    }
    error_code error;
    buffer_.consume(parser_->put(buffer_.data(), error));
    if (error && error != http::error::need_more) return RejectParse(error);
    if (parser_->is_header_done()) {
      if (head_seen_) {
        WaitForBody();
      } else {
        OnHead();
      }
      if (exchange_ == nullptr) CountBody();
    }
    if (exchange_ != nullptr) return;
    if (parser_->is_done()) return Dispatch();
    // If the parser wants more despite this much unread input, it is an endless line.
    if (error && buffer_.size() > shared_.options.max_header_bytes) {
      return RejectParse(http::error::header_limit);
    }
    if (error) return;
  }
}

void HttpConnection::OnHead() {
  head_seen_ = true;
  const Status framing = CheckFraming();
  if (!framing.ok()) return Reject(ToApiError(framing));
  auto head = ReadHead();
  if (!head.ok()) return Reject(ToApiError(head.status()));
  Admit(*std::move(head));
  if (exchange_ != nullptr) return;
  body_hold_ = ByteBudget::Hold(&shared_.bodies, head_.Account());
  body_deadline_ = Clock::now() + shared_.options.body_timeout;
  WaitForBody();
  if (parser_->is_done()) return;
  if (boost::beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
    interim_ = "HTTP/1.1 100 Continue\r\n\r\n";
    Pump();
  }
}

// A body's end must be unambiguous: otherwise what one server takes for the end may begin a request
// for another (request smuggling).
Status HttpConnection::CheckFraming() const {
  const auto& message = parser_->get();
  const std::string_view length = message[http::field::content_length];
  if (message.count(http::field::content_length) > 1 ||
      length.find_first_not_of("0123456789") != length.npos) {
    return InvalidArgument("a request must have one Content-Length, a number");
  }
  const size_t n_codings = message.count(http::field::transfer_encoding);
  if (n_codings == 0) return OkStatus();
  if (n_codings > 1 || message.version() < 11 ||
      !boost::beast::iequals(message[http::field::transfer_encoding], "chunked")) {
    return InvalidArgument("the only supported Transfer-Encoding is a single \"chunked\"");
  }
  return OkStatus();
}

StatusOr<HttpRequest> HttpConnection::ReadHead() const {
  const auto& message = parser_->get();
  HttpRequest request;
  request.method = std::string(message.method_string());
  const std::string_view target = WithoutOrigin(message.target());
  const size_t question = std::min(target.find('?'), target.size());
  const std::string_view query = target.substr(std::min(question + 1, target.size()));
  request.path = std::string(target.substr(0, question));
  if (!ParseQuery(query, &request.query)) {
    return InvalidArgument("the query of the URL is not well-formed");
  }
  for (const auto& field : message) {
    request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  const std::string_view id = request.Header("X-Request-Id");
  request.id = IsSaneRequestId(id) ? std::string(id) : NewRequestId();
  request.address = address_;
  request.by_second_port = by_second_port_;
  request.has_body = parser_->chunked() || parser_->content_length().value_or(0) > 0;
  return request;
}

// Leaves the request in head_, or its answer in exchange_.
void HttpConnection::Admit(HttpRequest head) {
  if (!shared_.hooks.admit) {
    head_ = std::move(head);
    return;
  }
  // If the body is not read, it is unknown where the next request begins.
  auto exchange = NewExchange(std::move(head), parser_->is_done() && parser_->keep_alive());
  if (shared_.hooks.admit(exchange->request(), *exchange)) {
    head_ = std::move(exchange->request());
    return;
  }
  exchange_ = std::move(exchange);
  ClearDeadline();
  Pump();
}

void HttpConnection::WaitForBody() {
  const auto pause = Clock::now() + shared_.options.body_pause_timeout;
  SetDeadline(std::min(body_deadline_, pause) - Clock::now());
}

void HttpConnection::CountBody() {
  const Status status = body_hold_.Resize(parser_->get().body().size());
  if (!status.ok()) Reject(FullError(status));
}

void HttpConnection::RejectParse(const error_code& error) {
  if (error == http::error::body_limit) {
    Reject(MakeError(413, "request_too_large",
                     StrCat("the body is larger than the ", max_body_bytes_,
                            " bytes allowed; the operator can raise the limit with --max-body")));
  } else if (error == http::error::header_limit) {
    Reject(MakeError(431, "invalid_request_error",
                     StrCat("the head of the request is longer than the ",
                            shared_.options.max_header_bytes, " bytes that are allowed")));
  } else {
    Reject(MakeError(400, "invalid_request_error",
                     StrCat("this is not a valid HTTP request: ", error.message())));
  }
}

// Answers the request being read with an error and ends the connection, since it is unknown where
// the next request would begin.
void HttpConnection::Reject(const ApiError& error) {
  HttpRequest request;
  if (parser_.has_value()) {
    request.method = std::string(parser_->get().method_string());
    const std::string_view target = WithoutOrigin(parser_->get().target());
    request.path = std::string(target.substr(0, target.find('?')));
  }
  request.id = NewRequestId();
  DropBody();
  exchange_ = NewExchange(std::move(request), /*keep_alive=*/false);
  SendRejection(error);
}

// Frees the memory at once, so that other requests' bodies are not refused for lack of it.
void HttpConnection::DropBody() {
  if (parser_.has_value()) std::string().swap(parser_->get().body());
  body_hold_ = {};
}

// For the request in exchange_, which never reaches a handler.
void HttpConnection::SendRejection(const ApiError& error) {
  const HttpRequest& request = exchange_->request();
  const auto& hooks = shared_.hooks;
  if (hooks.rejected) {
    hooks.rejected({.id = request.id,
                    .method = request.method,
                    .path = request.path,
                    .status = error.http_status});
  }
  const ErrorShape shape = hooks.shape_of ? hooks.shape_of(request.path) : kPlainErrors;
  SendError(*exchange_, error, shape, RequestIdHeaders(request.id, shape));
}

void HttpConnection::Dispatch() {
  const bool keep_alive = parser_->keep_alive();
  head_.body = std::move(parser_->get().body());
  exchange_ = NewExchange(std::move(head_), keep_alive);
  ClearDeadline();
  if (shared_.submit(exchange_)) return;
  SendRejection(FullError(Unavailable("too many requests are waiting; try again later")));
}

std::shared_ptr<HttpExchange> HttpConnection::NewExchange(HttpRequest request, bool keep_alive) {
  HttpExchange::Options options;
  options.is_head = request.method == "HEAD";
  options.is_http_1_0 =
      parser_.has_value() && parser_->is_header_done() && parser_->get().version() < 11;
  options.keep_alive = keep_alive;
  options.max_unsent_bytes = shared_.options.max_unsent_bytes;
  options.stopping = &shared_.stopping;
  // The connection may be gone before its handler stops writing.
  options.kick = [weak = weak_from_this(), executor = socket_.get_executor()] {
    boost::asio::post(executor, [weak] {
      if (const auto self = weak.lock()) self->Pump();
    });
  };
  return std::make_shared<HttpExchange>(std::move(request), std::move(options));
}

// --- sending -------------------------------------------------------------------------

void HttpConnection::Pump() {
  if (closed_ || is_writing_ || is_lingering_) return;
  if (written_ == writing_.size()) {
    written_ = 0;
    writing_is_exchange_ = interim_.empty();
    writing_ = writing_is_exchange_ ? std::string() : std::exchange(interim_, {});
    if (writing_is_exchange_ && exchange_ != nullptr) {
      const bool complete_before = exchange_->Complete();
      writing_ = exchange_->TakeOutput();
      if (writing_.empty() && complete_before) return FinishExchange();
    }
    if (writing_.empty()) {
      if (exchange_ != nullptr) ClearDeadline();
      return;
    }
  }
  is_writing_ = true;
  if (writing_is_exchange_) {
    stalled_since_ = Clock::now();
    untaken_bytes_ = INT_MAX;
    SetDeadline(std::min(shared_.options.stall_timeout, shared_.options.wanted_stall_timeout));
  }
  socket_.async_write_some(
      boost::asio::buffer(writing_.data() + written_, writing_.size() - written_),
      [self = shared_from_this()](const error_code& error, size_t n_bytes) {
        self->OnWritten(error, n_bytes);
      });
}

void HttpConnection::OnWritten(const error_code& error, size_t n_bytes) {
  is_writing_ = false;
  if (closed_) return;
  if (error) return Close();
  written_ += n_bytes;
  if (writing_is_exchange_ && exchange_ != nullptr) exchange_->Sent(n_bytes);
  Pump();
}

void HttpConnection::FinishExchange() {
  const bool must_close = exchange_->MustClose() || shared_.stopping;
  exchange_ = nullptr;
  parser_.reset();
  body_hold_ = {};
  if (must_close) return Linger();
  head_wait_ = {.is_reused = true, .since = Clock::now()};
  SetDeadline(shared_.options.idle_timeout);
  ParseBuffered();
  Read();
}

void HttpConnection::Linger() {
  is_lingering_ = true;
  buffer_.clear();
  error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  SetDeadline(kLinger);
  Read();
}

// --- time ----------------------------------------------------------------------------

void HttpConnection::SetDeadline(Clock::duration after) {
  deadline_ = Clock::now() + after;
  WaitForDeadline();
}

void HttpConnection::ClearDeadline() { deadline_.reset(); }

// Leaves the timer alone if it fires before the deadline anyway: deadlines move with every write,
// mostly further away.
void HttpConnection::WaitForDeadline() {
  if (closed_ || !deadline_.has_value()) return;
  if (timer_set_to_.has_value() && *timer_set_to_ <= *deadline_) return;
  timer_set_to_ = deadline_;
  timer_.expires_at(*deadline_);
  timer_.async_wait([weak = weak_from_this()](const error_code& error) {
    const auto self = weak.lock();
    if (error || self == nullptr || self->closed_) return;
    self->timer_set_to_.reset();
    if (self->deadline_.has_value() && *self->deadline_ <= Clock::now()) {
      self->OnDeadline();
    } else {
      self->WaitForDeadline();
    }
  });
}

// A client that takes a little at a time, too little to make room for more, is slow but not
// stalled.
void HttpConnection::OnStall() {
  const int untaken = UntakenBytes(), before = std::exchange(untaken_bytes_, untaken);
  const bool is_first_look = before == INT_MAX;
  if (!is_first_look && untaken < before) stalled_since_ = Clock::now();
  const auto stalled = Clock::now() - stalled_since_;
  const auto& options = shared_.options;
  const bool is_wanted = !is_first_look && stalled >= options.wanted_stall_timeout &&
                         shared_.hooks.others_wait && shared_.hooks.others_wait();
  if (is_wanted || stalled >= options.stall_timeout) return Close();
  constexpr Clock::duration kLook = std::chrono::seconds(1);
  SetDeadline(std::min<Clock::duration>(options.stall_timeout - stalled, kLook));
}

int HttpConnection::UntakenBytes() { return UnacknowledgedBytes(socket_.native_handle()); }

void HttpConnection::OnDeadline() {
  deadline_.reset();
  if (exchange_ != nullptr && is_writing_ && writing_is_exchange_) return OnStall();
  // An unread response, input after the last response, or no request at all: there is nobody to
  // tell.
  if (exchange_ != nullptr || is_lingering_ || !parser_.has_value()) return Close();
  Reject(MakeError(408, "timeout_error",
                   "the request did not arrive in time; send it faster, or less of it"));
}

}  // namespace weft::serve
