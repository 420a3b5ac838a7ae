// A client's connection: requests are read and parsed one after another; each becomes an
// HttpExchange whose output is sent before the next request begins.
//
// Everything happens on the server's single I/O thread.
#ifndef WEFT_DOORS_HTTP_CONNECTION_H_
#define WEFT_DOORS_HTTP_CONNECTION_H_

#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <compare>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "doors/http/byte_budget.h"
#include "doors/http/exchange.h"
#include "doors/http/server.h"

namespace weft::serve {

// Shared by all connections of a server.
struct ConnectionShared {
  ConnectionShared(HttpServerOptions server_options, HttpServerHooks server_hooks)
      : options(std::move(server_options)),
        hooks(std::move(server_hooks)),
        max_body_bytes(options.max_body_bytes),
        bodies(options.max_total_body_bytes, options.max_share_body_bytes) {}

  const HttpServerOptions options;
  const HttpServerHooks hooks;
  // Hands an exchange to a handler; false if there are too many.
  std::function<bool(std::shared_ptr<HttpExchange>)> submit;
  std::atomic<bool> stopping{false};
  std::atomic<uint64_t> max_body_bytes;
  ByteBudget bodies;  // all requests' bodies in memory
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  // `closed` is called once, when the connection has ended.
  HttpConnection(Socket socket, ConnectionShared* shared, bool by_second_port,
                 std::function<void(HttpConnection*)> closed);

  void Start();
  const std::string& network() const { return network_; }
  // The wait for a request's head; nothing while there is a request.
  struct HeadWait {
    bool is_reused = false;  // a request was answered before
    std::chrono::steady_clock::time_point since;
    auto operator<=>(const HeadWait&) const = default;
  };
  std::optional<HeadWait> WaitForHead() const;
  // Instead of Start: answers any request with an error and closes.
  void Refuse(const ApiError& error);
  // The server is stopping: closes now if nothing is being answered.
  void StopWhenIdle();
  // Closes now.
  void Close();

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using Clock = std::chrono::steady_clock;

  void Read();
  void OnRead(const boost::system::error_code& error, size_t n_bytes);
  void ParseBuffered();
  void OnHead();
  Status CheckFraming() const;
  StatusOr<HttpRequest> ReadHead() const;
  void Admit(HttpRequest head);
  void WaitForBody();
  void CountBody();
  void Dispatch();
  void RejectParse(const boost::system::error_code& error);
  void Reject(const ApiError& error);
  void DropBody();
  void SendRejection(const ApiError& error);
  std::shared_ptr<HttpExchange> NewExchange(HttpRequest request, bool keep_alive);
  void Pump();
  void OnWritten(const boost::system::error_code& error, size_t n_bytes);
  void FinishExchange();
  void Linger();
  void SetDeadline(Clock::duration after);
  void ClearDeadline();
  void WaitForDeadline();
  void OnDeadline();
  void OnStall();
  // How many of the written bytes the client has not taken yet.
  int UntakenBytes();

  Socket socket_;
  boost::asio::steady_timer timer_;
  ConnectionShared& shared_;
  const bool by_second_port_;
  const std::function<void(HttpConnection*)> closed_callback_;

  std::array<char, 16 << 10> incoming_;  // target of the outstanding read
  boost::beast::flat_buffer buffer_;     // read but not parsed
  std::optional<Parser> parser_;         // for the request being read
  bool head_seen_ = false;
  HttpRequest head_;                 // the request whose body is being read
  Clock::time_point body_deadline_;  // for reading that body
  uint64_t max_body_bytes_ = 0;      // for the request being read
  ByteBudget::Hold body_hold_;       // for the body being read or worked on
  const std::string address_;        // the client's
  const std::string network_;        // see ClientNetwork

  HeadWait head_wait_;  // the last one

  std::shared_ptr<HttpExchange> exchange_;  // being answered; nothing is parsed meanwhile
  std::string interim_;                     // "100 Continue", sent before anything else
  std::string writing_;                     // being sent
  size_t written_ = 0;                      // how much of writing_ is sent
  bool writing_is_exchange_ = false;
  Clock::time_point stalled_since_;  // while is_writing_
  int untaken_bytes_ = 0;            // at that time

  bool is_reading_ = false;
  bool is_writing_ = false;
  bool is_lingering_ = false;  // everything is sent; discards further input
  bool closed_ = false;
  std::optional<Clock::time_point> deadline_;
  std::optional<Clock::time_point> timer_set_to_;
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_HTTP_CONNECTION_H_
