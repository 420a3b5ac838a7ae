#include "serve/http_server.h"

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdio>
#include <exception>
#include <future>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/strings.h"
#include "serve/handler_pool.h"
#include "serve/http_connection.h"

namespace weft::serve {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

// A client that vanished without a word is found out in about a minute.
void WatchPeer(tcp::socket* socket) {
  error_code ignored;
  socket->set_option(tcp::no_delay(true), ignored);
  socket->set_option(asio::socket_base::keep_alive(true), ignored);
  using Seconds = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPIDLE>;
  using Interval = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPINTVL>;
  using Count = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPCNT>;
  socket->set_option(Seconds(30), ignored);
  socket->set_option(Interval(10), ignored);
  socket->set_option(Count(3), ignored);
}

class Server : public HttpServer {
 public:
  Server(HttpServerOptions options, HttpServerHooks hooks)
      : pool_(options.max_threads, options.max_waiting),
        shared_{.options = std::move(options), .hooks = std::move(hooks)},
        acceptor_(io_),
        retry_(io_),
        work_(io_.get_executor()) {
    shared_.submit = [this](std::shared_ptr<HttpExchange> exchange) {
      const bool taken =
          pool_.Post([this, exchange = std::move(exchange)] { Handle(exchange.get()); });
      LoadChanged();
      return taken;
    };
  }

  ~Server() override { Shutdown(std::chrono::milliseconds(0)); }

  Status Listen() {
    const HttpServerOptions& options = shared_.options;
    error_code error;
    tcp::resolver resolver(io_);
    const auto found =
        resolver.resolve(options.host, StrCat(options.port), tcp::resolver::numeric_service, error);
    if (error || found.empty()) {
      return InvalidArgument("--host ", Printable(options.host),
                             " is no address of this machine: ", error.message());
    }
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) {
      return Unavailable("cannot listen on ", Printable(options.host), " port ", options.port, ": ",
                         error.message());
    }
    port_ = acceptor_.local_endpoint().port();
    Accept();
    thread_ = std::thread([this] { Run(); });
    return OkStatus();
  }

  int port() const override { return port_; }

  void Shutdown(std::chrono::milliseconds grace) override {
    MutexLock lock(&shutdown_mutex_);
    if (!thread_.joinable()) return;
    const auto deadline = std::chrono::steady_clock::now() + grace;
    shared_.stopping = true;
    OnIoThread([this] {
      error_code ignored;
      acceptor_.close(ignored);
      retry_.cancel();
      for (const auto& connection : Connections()) connection->StopWhenIdle();
    });
    while (n_connections_ > 0 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    OnIoThread([this] {
      for (const auto& connection : Connections()) connection->Close();
    });
    pool_.Stop();
    work_.reset();
    io_.stop();
    thread_.join();
  }

 private:
  // Runs `what` between two events and waits for it.
  void OnIoThread(const std::function<void()>& what) {
    std::promise<void> done;
    asio::post(io_, [&] {
      what();
      done.set_value();
    });
    done.get_future().wait();
  }

  void Run() {
    while (true) {
      try {
        io_.run();
        return;
      } catch (const std::exception& error) {
        // Memory for one connection that is not there; its deadline ends it.
        std::fprintf(stderr, "weft: a connection failed: %s\n", error.what());
      }
    }
  }

  void Accept() {
    acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
      if (!acceptor_.is_open()) return;
      if (!error) {
        Accept();  // first, so that a connection for which there is no memory is not the last
        return Add(std::move(socket));
      }
      // Out of descriptors, mostly: those in use will come back.
      retry_.expires_after(std::chrono::milliseconds(100));
      retry_.async_wait([this](const error_code& cancelled) {
        if (!cancelled) Accept();
      });
    });
  }

  void Add(tcp::socket socket) {
    const auto most = static_cast<size_t>(shared_.options.max_connections);
    // Even a refusal takes a connection; those must not be without end either.
    if (connections_.size() >= 2 * most) return;
    WatchPeer(&socket);
    const auto connection = std::make_shared<HttpConnection>(
        std::move(socket), &shared_, [this](HttpConnection* closed) { Remove(closed); });
    const bool refused = connections_.size() >= most;
    connections_.insert(connection);
    LoadChanged();
    if (!refused) return connection->Start();
    ApiError error;
    error.http_status = 503;
    error.type = "unavailable_error";
    error.message = "too many connections are open; try again later";
    error.retry_after_s = 1;
    connection->Refuse(error);
  }

  void Remove(HttpConnection* closed) {
    connections_.erase(closed->shared_from_this());
    LoadChanged();
  }

  void LoadChanged() {
    n_connections_ = connections_.size();
    if (shared_.hooks.load_changed) {
      shared_.hooks.load_changed(static_cast<int64_t>(connections_.size()), pool_.waiting());
    }
  }

  std::set<std::shared_ptr<HttpConnection>> Connections() const { return connections_; }

  // On a thread of the pool.
  void Handle(HttpExchange* exchange) {
    if (exchange->gone()) return;
    try {
      shared_.hooks.handler(exchange->request(), *exchange);
    } catch (const std::exception& error) {
      // Memory that is not there, as anything of ours reports by value.
      std::fprintf(stderr, "weft: request %s failed: %s\n", exchange->request().id.c_str(),
                   error.what());
    }
    exchange->HandlerReturned();
  }

  HandlerPool pool_;
  ConnectionShared shared_;  // outlives what io_ still holds of connections at its end
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::set<std::shared_ptr<HttpConnection>> connections_;  // I/O thread
  std::atomic<size_t> n_connections_{0};
  int port_ = 0;
  Mutex shutdown_mutex_;
  std::thread thread_;
};

}  // namespace

StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(HttpServerOptions options,
                                                        HttpServerHooks hooks) {
  auto server = std::make_unique<Server>(std::move(options), std::move(hooks));
  WEFT_RETURN_IF_ERROR(server->Listen());
  return std::unique_ptr<HttpServer>(std::move(server));
}

std::string NewRequestId() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string id;
  for (int word = 0; word < 2; ++word) {
    uint64_t bits = random();
    for (int i = 0; i < 16; ++i, bits >>= 4) id.push_back(kDigits[bits & 15]);
  }
  return id;
}

}  // namespace weft::serve
