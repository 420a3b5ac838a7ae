#include "doors/http/server.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdio>
#include <exception>
#include <future>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "async/task_pool.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "base/system.h"
#include "doors/http/client_socket.h"
#include "doors/http/connection.h"
#include "doors/http/connection_table.h"

namespace weft::serve {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

// For handlers that never wait: one can answer while the other builds a long list, and one is there
// for another tenant.
constexpr int kQuickThreads = 3;

// Every connection is a descriptor; files must find one too.
size_t MaxConnections(const HttpServerOptions& options) {
  const auto wanted = static_cast<size_t>(options.max_connections);
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  const size_t most = MaxServedConnections(wanted, limit.rlim_cur);
  if (most < wanted) {
    LogLine(StrCat("at most ", most, " of ", wanted, " connections are served, because this ",
                   "process may open ", limit.rlim_cur, " files: raise the limit (ulimit -n)"));
  }
  return most;
}

// Allocates nothing, because the failure may be a lack of memory.
void LogFailure(const char* what, const std::exception& error) {
  char line[200];
  std::snprintf(line, sizeof(line), "%s failed: %s", what, error.what());
  LogLine(line);
}

// One listening address.
struct Listener {
  explicit Listener(asio::io_context* io) : acceptor(*io), retry(*io) {}

  // Port 0 is replaced by the port found free.
  void Open(const tcp::endpoint& endpoint, bool only_ipv6, error_code* error) {
    acceptor.open(endpoint.protocol(), *error);
    if (!*error) acceptor.set_option(tcp::acceptor::reuse_address(true), *error);
    if (!*error && only_ipv6) acceptor.set_option(asio::ip::v6_only(true), *error);
    if (!*error) acceptor.bind(endpoint, *error);
    if (!*error) acceptor.listen(asio::socket_base::max_listen_connections, *error);
  }

  tcp::acceptor acceptor;
  tcp::endpoint endpoint;  // valid once open
  asio::steady_timer retry;
  bool is_second = false;
};

// The machine lacks this address: a name may stand for several.
bool IsMissingAddress(const error_code& error) {
  return error == asio::error::address_family_not_supported ||
         error == boost::system::errc::address_not_available;
}

class Server : public HttpServer {
 public:
  Server(HttpServerOptions options, HttpServerHooks hooks)
      : load_(hooks.load != nullptr ? hooks.load : std::make_shared<HttpLoad>()),
        pool_(PoolOptions(options, load_.get())),
        quick_pool_({.max_threads = kQuickThreads,
                     .max_posted = kQuickThreads,
                     .max_waiting = options.max_waiting}),
        shared_(std::move(options), std::move(hooks)),
        connections_(MaxConnections(shared_.options)),
        work_(io_.get_executor()) {
    shared_.submit = [this](std::shared_ptr<HttpExchange> exchange) {
      const auto& is_quick = shared_.hooks.is_quick;
      const bool quick = is_quick && is_quick(exchange->request());
      TaskPool& pool = quick ? quick_pool_ : pool_;
      const std::string tenant = exchange->request().Account();
      return pool.Post(tenant, [this, exchange = std::move(exchange)] {
        if (!exchange->gone()) StartTask(Handle(exchange));
      });
    };
  }

  ~Server() override { Shutdown(std::chrono::milliseconds(0)); }

  Status Listen() {
    const HttpServerOptions& options = shared_.options;
    WEFT_ASSIGN_OR_RETURN(
        port_, ListenOn(options.host, options.port, /*is_second=*/false,
                        "another program uses it; choose another --port, or 0 for any free one"));
    if (options.second) {
      WEFT_ASSIGN_OR_RETURN(second_port_, ListenOn(options.second->host, options.second->port,
                                                   /*is_second=*/true, options.second->way_out));
    }
    for (const auto& listener : listeners_) Accept(listener.get());
    thread_ = std::thread([this] {
      YieldToOthers();
      Run();
    });
    return OkStatus();
  }

  int port() const override { return port_; }
  int second_port() const override { return second_port_; }
  void SetMaxBodyBytes(uint64_t bytes) override { shared_.max_body_bytes = bytes; }

  void Shutdown(std::chrono::milliseconds grace) override {
    MutexLock lock(&shutdown_mutex_);
    if (!thread_.joinable()) return;
    const auto deadline = std::chrono::steady_clock::now() + grace;
    shared_.stopping = true;
    OnIoThread([this] {
      error_code ignored;
      for (const auto& listener : listeners_) {
        listener->acceptor.close(ignored);
        listener->retry.cancel();
      }
      for (const auto& connection : connections_.All()) connection->StopWhenIdle();
    });
    {
      MutexLock count_lock(&count_mutex_);
      while (n_connections_ > 0 && none_left_.WaitUntil(&count_mutex_, deadline)) {
      }
    }
    OnIoThread([this] {
      for (const auto& connection : connections_.All()) connection->Close();
    });
    {
      MutexLock count_lock(&count_mutex_);
      while (n_handled_ > 0) none_left_.Wait(&count_mutex_);
    }
    pool_.Stop();
    quick_pool_.Stop();
    work_.reset();
    io_.stop();
    thread_.join();
  }

 private:
  // Listens on every address of `host`; returns the port.
  StatusOr<int> ListenOn(const std::string& host, int port, bool is_second,
                         std::string_view way_out) {
    error_code error;
    tcp::resolver resolver(io_);
    const auto found = resolver.resolve(host, StrCat(port), tcp::resolver::numeric_service, error);
    if (error || found.empty()) {
      return InvalidArgument("--host ", Printable(host),
                             " is not an address of this machine: ", error.message());
    }
    // A port that is free on one address may be in use on another.
    constexpr int kTries = 10;
    std::vector<std::unique_ptr<Listener>> listeners;
    for (int tries = port == 0 ? kTries : 1; tries > 0; --tries) {
      error = OpenAll(found, port, &listeners);
      if (error != asio::error::address_in_use) break;
    }
    if (error) {
      const bool in_use = error == asio::error::address_in_use;
      return Unavailable("cannot listen on ", Printable(host), " port ", port, ": ",
                         in_use ? std::string(way_out) : error.message());
    }
    const int found_port = listeners.front()->endpoint.port();
    for (auto& listener : listeners) {
      listener->is_second = is_second;
      listeners_.push_back(std::move(listener));
    }
    return found_port;
  }

  // Opens all with the same port; at least one.
  error_code OpenAll(const tcp::resolver::results_type& addresses, int port,
                     std::vector<std::unique_ptr<Listener>>* listeners) {
    listeners->clear();
    error_code missing;
    for (const auto& address : addresses) {
      const tcp::endpoint endpoint(address.endpoint().address(), static_cast<uint16_t>(port));
      const bool is_repeated =
          std::any_of(listeners->begin(), listeners->end(),
                      [&](const auto& other) { return other->endpoint == endpoint; });
      if (is_repeated) continue;
      auto listener = std::make_unique<Listener>(&io_);
      error_code error;
      listener->Open(endpoint, endpoint.address().is_v6() && addresses.size() > 1, &error);
      if (IsMissingAddress(error)) {
        missing = error;
        continue;
      }
      if (error) return error;
      listener->endpoint = listener->acceptor.local_endpoint(error);
      port = listener->endpoint.port();
      listeners->push_back(std::move(listener));
    }
    return listeners->empty() ? missing : error_code();
  }

  // Runs `what` on the I/O thread and waits for it.
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
        // No memory for one connection; its deadline ends it.
        LogFailure("a connection", error);
      }
    }
  }

  void Accept(Listener* listener) {
    listener->acceptor.async_accept([this, listener](const error_code& error, tcp::socket socket) {
      if (!listener->acceptor.is_open()) return;
      if (!error) {
        // Before Add, so that running out of memory there does not stop accepting.
        Accept(listener);
        return Add(std::move(socket), listener->is_second);
      }
      // Usually out of descriptors; some will be freed.
      listener->retry.expires_after(std::chrono::milliseconds(100));
      listener->retry.async_wait([this, listener](const error_code& cancelled) {
        if (!cancelled) Accept(listener);
      });
    });
  }

  void Add(tcp::socket socket, bool by_second_port) {
    SetUpClientSocket(&socket);
    const auto connection =
        std::make_shared<HttpConnection>(std::move(socket), &shared_, by_second_port,
                                         [this](HttpConnection* closed) { Remove(closed); });
    const auto verdict = connections_.Judge(connection->network());
    if (verdict == ConnectionTable::Verdict::kTurnAway) return;
    connections_.Add(connection, verdict);
    CountConnections();
    if (verdict == ConnectionTable::Verdict::kServe) return connection->Start();
    connection->Refuse(FullError(Unavailable("too many connections are open; try again later")));
  }

  void Remove(HttpConnection* closed) {
    connections_.Remove(closed);
    CountConnections();
  }

  void CountConnections() {
    load_->connections = static_cast<int64_t>(connections_.size());
    MutexLock lock(&count_mutex_);
    n_connections_ = static_cast<int64_t>(connections_.size());
    if (n_connections_ == 0) none_left_.NotifyAll();
  }

  // One handled request, counted until its handler has let go of everything.
  class Handled {
   public:
    explicit Handled(Server* server) : server_(*server) {
      MutexLock lock(&server_.count_mutex_);
      ++server_.n_handled_;
    }
    ~Handled() {
      MutexLock lock(&server_.count_mutex_);
      if (--server_.n_handled_ == 0) server_.none_left_.NotifyAll();
    }
    Handled(const Handled&) = delete;
    Handled& operator=(const Handled&) = delete;

   private:
    Server& server_;
  };

  Task<void> Handle(std::shared_ptr<HttpExchange> exchange) {
    const Handled handled(this);
    try {
      Task<void> task = shared_.hooks.handler(exchange->request(), *exchange);
      co_await task;
    } catch (const std::exception& error) {
      // Out of memory; our own code reports all other errors by value.
      LogFailure(exchange->request().id.c_str(), error);
    }
    exchange->HandlerEnded();
  }

  static TaskPool::Options PoolOptions(const HttpServerOptions& options, HttpLoad* load) {
    const int n_cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    const int n_of_one = options.max_threads > 0 ? options.max_threads : n_cores;
    const int n_beginning = n_of_one + 1;
    return {.max_threads = n_beginning + 1,
            .max_posted = n_beginning,
            .max_waiting = options.max_waiting,
            .waiting = &load->waiting};
  }

  const std::shared_ptr<HttpLoad> load_;
  TaskPool pool_;
  TaskPool quick_pool_;
  ConnectionShared shared_;  // outlives the parts of connections that io_ holds at its end
  asio::io_context io_{1};
  std::vector<std::unique_ptr<Listener>> listeners_;
  ConnectionTable connections_;  // I/O thread only
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  int port_ = 0;
  int second_port_ = 0;
  Mutex shutdown_mutex_;
  std::thread thread_;

  Mutex count_mutex_;
  CondVar none_left_;  // one of the counts has come to 0
  int64_t n_connections_ WEFT_GUARDED_BY(count_mutex_) = 0;
  int64_t n_handled_ WEFT_GUARDED_BY(count_mutex_) = 0;
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

bool IsSaneRequestId(std::string_view id) {
  constexpr size_t kMaxIdBytes = 128;
  return !id.empty() && id.size() <= kMaxIdBytes &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

}  // namespace weft::serve
