#include "doors/kv_events/kv_publisher.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "base/system.h"
#include "doors/host/prefix_reader.h"
#include "doors/kv_events/kv_client.h"

namespace weft::serve {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

// How often the default adapters are looked at, and after which time accepting is tried again.
constexpr std::chrono::seconds kLook{1};

// Wakes a publisher from any thread, as long as it is there.
class Waker {
 public:
  explicit Waker(std::function<void()> wake) : wake_(std::move(wake)) {}
  void Wake() {
    MutexLock lock(&mutex_);
    if (wake_) wake_();
  }
  void Stop() {
    MutexLock lock(&mutex_);
    wake_ = nullptr;
  }

 private:
  Mutex mutex_;
  std::function<void()> wake_ WEFT_GUARDED_BY(mutex_);
};

class Publisher final : public KvPublisher {
 public:
  Publisher(Host* host, KvPublisherOptions options)
      : options_(std::move(options)),
        state_{options_.topic, options_.max_unsent_bytes, KvEventLog(options_.limits)},
        work_(io_.get_executor()),
        timer_(io_),
        waker_(std::make_shared<Waker>([this] { PostPump(); })),
        host_(*host) {
    Watch(options_.domain);
  }

  ~Publisher() override {
    waker_->Stop();
    if (thread_.joinable()) {
      asio::post(io_, [this] { Stop(); });
      thread_.join();
    }
  }

  Status Listen() {
    WEFT_ASSIGN_OR_RETURN(port_, Listen(options_.port, &subscribers_.acceptor));
    WEFT_ASSIGN_OR_RETURN(replay_port_, Listen(options_.replay_port, &replayers_.acceptor));
    Accept<KvSubscriber>(&subscribers_);
    Accept<KvReplayer>(&replayers_);
    Look();
    thread_ = std::thread([this] {
      YieldToOthers();
      io_.run();
    });
    return OkStatus();
  }

  int port() const override { return port_; }
  int replay_port() const override { return replay_port_; }

  void Follow(std::optional<std::string> domain) override {
    asio::post(io_, [this, domain = std::move(domain)] {
      if (domain == domain_) return;
      Watch(domain);
      if (!domain) Publish(/*begins=*/true, {});
      Pump();
    });
  }

 private:
  // A ZeroMQ socket: a port and its connections.
  struct Socket {
    const char* kind;
    tcp::acceptor acceptor;
    std::vector<std::shared_ptr<KvClient>> clients = {};
  };

  StatusOr<int> Listen(int port, tcp::acceptor* acceptor) {
    error_code error;
    tcp::resolver resolver(io_);
    const std::string host = options_.host == "*" ? "0.0.0.0" : options_.host;
    const auto found = resolver.resolve(host, StrCat(port), tcp::resolver::numeric_service, error);
    if (error || found.empty()) {
      return InvalidArgument("KV events: ", Printable(host, 100),
                             " is not an address of this machine: ", error.message());
    }
    // ZeroMQ's clients look for a name's address of version 4.
    const auto of_v4 = std::find_if(found.begin(), found.end(), [](const auto& result) {
      return result.endpoint().address().is_v4();
    });
    const tcp::endpoint endpoint = (of_v4 != found.end() ? of_v4 : found.begin())->endpoint();
    acceptor->open(endpoint.protocol(), error);
    if (!error) acceptor->set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor->bind(endpoint, error);
    if (!error) acceptor->listen(asio::socket_base::max_listen_connections, error);
    if (!error) return acceptor->local_endpoint().port();
    return Unavailable("KV events: cannot listen on ", Printable(host, 100), " port ", port, ": ",
                       error == asio::error::address_in_use
                           ? "another program uses it; choose another one"
                           : error.message());
  }

  template <typename Client>
  void Accept(Socket* socket) {
    socket->acceptor.async_accept([this, socket](const error_code& error, tcp::socket accepted) {
      if (!socket->acceptor.is_open()) return;
      // Without descriptors every try would fail at once.
      if (error) return retries_.push_back([this, socket] { Accept<Client>(socket); });
      if (std::ssize(socket->clients) >= options_.max_clients) {
        state_.Complain(StrCat("a client is refused: ", options_.max_clients, " are connected"));
      } else {
        const auto forget = [socket](KvClient* gone) {
          std::erase_if(socket->clients, [&](const auto& other) { return other.get() == gone; });
        };
        const auto client = std::make_shared<Client>(std::move(accepted), &state_, forget);
        socket->clients.push_back(client);
        client->Start(socket->kind);
      }
      Accept<Client>(socket);
    });
  }

  void Watch(const std::optional<std::string>& domain) {
    reader_.reset();
    domain_ = domain;
    if (domain) reader_.emplace(&host_, *domain, [waker = waker_] { waker->Wake(); });
  }

  void Look() {
    for (const auto& retry : std::exchange(retries_, {})) retry();
    Pump();
    timer_.expires_after(kLook);
    timer_.async_wait([this](const error_code& error) {
      if (!error) Look();
    });
  }

  void PostPump() {
    if (is_pump_posted_.exchange(true)) return;
    asio::post(io_, [this] {
      is_pump_posted_ = false;
      Pump();
    });
  }

  // Publishes the changes since the last call.
  void Pump() {
    if (!reader_) return;
    std::vector<PrefixEvent> events;
    const StatusOr<bool> begins = reader_->Take(&events);
    if (!begins.ok()) {
      LogLine(StrCat("KV events end: ", Message(begins.status())));
      reader_.reset();
      events.clear();
    } else if (!*begins && events.empty()) {
      return;
    }
    Publish(!begins.ok() || *begins, events);
    PostPump();
  }

  void Publish(bool begins, const std::vector<PrefixEvent>& events) {
    state_.log.Add(begins, events);
    for (const auto& client : subscribers_.clients) client->SendMore();
  }

  void Stop() {
    error_code ignored;
    for (Socket* const socket : {&subscribers_, &replayers_}) {
      socket->acceptor.close(ignored);
      for (const auto& client : std::vector(socket->clients)) client->Close();
    }
    timer_.cancel();
    retries_.clear();
    reader_.reset();
    work_.reset();
    io_.stop();
  }

  const KvPublisherOptions options_;
  KvPublisherState state_;
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  Socket subscribers_{"PUB", tcp::acceptor(io_)}, replayers_{"ROUTER", tcp::acceptor(io_)};
  asio::steady_timer timer_;
  int port_ = 0, replay_port_ = 0;
  const std::shared_ptr<Waker> waker_;
  Host& host_;
  std::optional<std::string> domain_;  // whose prefixes are published
  std::atomic<bool> is_pump_posted_{false};
  std::optional<PrefixReader> reader_;  // none: no prefixes are published any more
  std::vector<std::function<void()>> retries_;
  std::thread thread_;
};

}  // namespace

StatusOr<std::unique_ptr<KvPublisher>> KvPublisher::Start(Host* host, KvPublisherOptions options) {
  auto publisher = std::make_unique<Publisher>(host, std::move(options));
  WEFT_RETURN_IF_ERROR(publisher->Listen());
  return std::unique_ptr<KvPublisher>(std::move(publisher));
}

}  // namespace weft::serve
