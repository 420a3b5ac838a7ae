#include "doors/http/client.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <functional>

#include "base/strings.h"

namespace weft::serve {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using tcp = boost::asio::ip::tcp;

struct Place {
  std::string host, port;
};

StatusOr<Place> ParseServer(std::string_view server) {
  constexpr std::string_view kScheme = "http://";
  std::string_view rest = server;
  if (rest.starts_with(kScheme)) rest.remove_prefix(kScheme.size());
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const size_t bracket = rest.find(']');  // ends an IPv6 address
  const size_t colon = rest.find(':', bracket == rest.npos ? 0 : bracket);
  Place place{.host = std::string(rest.substr(0, colon)), .port = "80"};
  if (colon != rest.npos) place.port = std::string(rest.substr(colon + 1));
  int64_t port = 0;
  if (place.host.empty() || place.host.find('/') != place.host.npos ||
      !ParseInt64(place.port, &port) || port < 1 || port > 65535) {
    return InvalidArgument("--server ", Printable(server, 200),
                           " is not a server address; write it as http://HOST:PORT");
  }
  if (place.host.front() == '[' && place.host.back() == ']') {
    place.host = place.host.substr(1, place.host.size() - 2);
  }
  return place;
}

// Waits for the operation started by `start`.
error_code Await(boost::asio::io_context* io,
                 const std::function<void(std::function<void(error_code)>)>& start) {
  error_code result;
  start([&result](error_code error) { result = error; });
  io->restart();
  io->run();
  return result;
}

}  // namespace

std::string PercentEncode(std::string_view text) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~';
    if (plain) {
      out.push_back(c);
    } else {
      out.append({'%', kDigits[byte >> 4], kDigits[byte & 15]});
    }
  }
  return out;
}

StatusOr<HttpAnswer> CallHttp(const HttpCall& call) {
  WEFT_ASSIGN_OR_RETURN(const Place place, ParseServer(call.server));
  boost::asio::io_context io;
  error_code error;
  const auto endpoints = tcp::resolver(io).resolve(place.host, place.port, error);
  const auto failed = [&](std::string_view doing) {
    return Unavailable("cannot ", doing, " ", Printable(call.server, 200), ": ", error.message(),
                       "; is weft serve running there?");
  };
  if (error) return failed("find");
  beast::tcp_stream stream(io);
  stream.expires_after(call.timeout);
  error = Await(&io, [&](auto done) {
    stream.async_connect(endpoints, [done](error_code e, const tcp::endpoint&) { done(e); });
  });
  if (error) return failed("connect to");

  http::request<http::string_body> request(http::string_to_verb(call.method), call.path, 11);
  request.set(http::field::host, StrCat(place.host, ":", place.port));
  request.set(http::field::connection, "close");
  if (!call.api_key.empty())
    request.set(http::field::authorization, StrCat("Bearer ", call.api_key));
  if (!call.body.empty()) request.set(http::field::content_type, "application/json");
  request.body() = call.body;
  request.prepare_payload();
  error = Await(&io, [&](auto done) {
    http::async_write(stream, request, [done](error_code e, size_t) { done(e); });
  });
  if (error) return failed("send to");

  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(uint64_t{256} << 20);
  error = Await(&io, [&](auto done) {
    http::async_read(stream, buffer, parser, [done](error_code e, size_t) { done(e); });
  });
  if (error) return failed("read from");
  return HttpAnswer{.status = static_cast<int>(parser.get().result_int()),
                    .body = std::move(parser.get().body())};
}

}  // namespace weft::serve
