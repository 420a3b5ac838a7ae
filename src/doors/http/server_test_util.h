// A server whose handler is selected by the request's path, and clients for it.
#ifndef WEFT_DOORS_HTTP_SERVER_TEST_UTIL_H_
#define WEFT_DOORS_HTTP_SERVER_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "async/signal.h"
#include "async/task.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "doors/http/server.h"
#include "tests/support/socket_client.h"

namespace weft::serve {

using std::chrono::milliseconds;
using ::weft::testing::kPatienceMs;
using Client = ::weft::testing::SocketClient;

// A one-time event.
class Event {
 public:
  void Happen() {
    MutexLock lock(&mutex_);
    happened_ = true;
    changed_.NotifyAll();
  }
  bool happened() {
    MutexLock lock(&mutex_);
    return happened_;
  }
  bool Wait() {
    const auto deadline = std::chrono::steady_clock::now() + milliseconds(kPatienceMs);
    MutexLock lock(&mutex_);
    while (!happened_) {
      if (!changed_.WaitUntil(&mutex_, deadline)) return happened_;
    }
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool happened_ WEFT_GUARDED_BY(mutex_) = false;
};

// /echo returns the request, /large a body of a mebibyte, /stream endless chunks, /wait answers
// when the client is gone or the test says so, /hold does too but keeps its thread, /silent never
// answers.
class ServerTest : public ::testing::Test {
 protected:
  void StartServer(HttpServerOptions options = {}) {
    options.port = 0;
    auto server = HttpServer::Start(
        options, {.admit = [](HttpRequest& q, HttpResponder& r) { return Admit(q, r); },
                  .handler = [this](HttpRequest& q, HttpResponder& r) { return Handle(q, r); },
                  .others_wait = [this] { return others_wait_.load(); },
                  .load = load_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void TearDown() override {
    release_.Happen();
    server_.reset();
  }
  int port() const { return server_->port(); }

  // X-Key names a request's owner; "wrong" is rejected.
  static bool Admit(HttpRequest& request, HttpResponder& responder) {
    request.domain = request.Header("X-Key");
    if (request.domain != "wrong") return true;
    responder.Send(401, "text/plain", "who are you?\n");
    return false;
  }
  Task<void> Handle(const HttpRequest& request, HttpResponder& responder) {
    ++handled_;
    came_by_second_port_ = request.by_second_port;
    if (request.path == "/stream") return Stream(responder);
    if (request.path == "/wait") return Wait(responder);
    return AnswerAtOnce(request, responder);
  }
  Task<void> AnswerAtOnce(const HttpRequest& request, HttpResponder& responder) {
    Answer(request, responder);
    co_return;
  }
  void Answer(const HttpRequest& request, HttpResponder& responder) {
    if (request.path == "/silent") return;
    if (request.path == "/hold") {
      waiting_.Happen();
      release_.Wait();
      return responder.Send(200, "text/plain", "held\n");
    }
    if (request.path == "/large") {
      responder.KeepUntilSent(large_is_kept_);
      return responder.Send(200, "text/plain", std::string(8 << 20, 'x'));
    }
    if (request.path == "/cut") {
      responder.Begin(200, "text/plain");
      responder.Write("half");
      return;
    }
    std::string text = StrCat(request.method, " ", request.path);
    for (const auto& [name, value] : request.query) StrAppend(&text, " ", name, "=", value);
    StrAppend(&text, " [", request.body, "]\n");
    responder.Send(200, "text/plain", std::move(text), {{"X-Tag", request.Header("x-tag").data()}});
  }
  Task<void> Stream(HttpResponder& responder) {
    bool is_there = responder.Begin(200, "text/plain");
    const std::string data(1024, 's');
    while (is_there) {
      is_there = responder.Write(data);
      if (is_there) streamed_ += data.size();
      co_await responder.Room();
    }
    stream_ended_.Happen();
  }
  Task<void> Wait(HttpResponder& responder) {
    waiting_.Happen();
    Signal over;
    const auto leave = [&] {
      ++gone_;
      over.Notify();
    };
    const std::stop_callback<decltype(leave)> on_gone(responder.cancellation(), leave);
    std::thread release([&] {
      release_.Wait();
      over.Notify();
    });
    co_await over.Wait();
    if (!responder.gone()) responder.Send(200, "text/plain", "waited\n");
    release_.Happen();
    release.join();
    wait_ended_.Happen();
  }

  const std::shared_ptr<HttpLoad> load_ = std::make_shared<HttpLoad>();
  std::unique_ptr<HttpServer> server_;
  std::atomic<int> handled_{0}, gone_{0};
  std::atomic<size_t> streamed_{0};
  std::atomic<bool> others_wait_{false}, came_by_second_port_{false};
  // Use count: shared by the server as long as it holds part of /large, otherwise 1.
  const std::shared_ptr<int> large_is_kept_ = std::make_shared<int>();
  Event waiting_, release_, wait_ended_, stream_ended_;
};

inline constexpr char kGet[] = "GET /echo HTTP/1.1\r\nHost: h\r\n\r\n";

}  // namespace weft::serve

#endif  // WEFT_DOORS_HTTP_SERVER_TEST_UTIL_H_
