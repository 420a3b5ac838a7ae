// One request and its response, shared by the two that work on it: the handler, which writes the
// response, and the connection's I/O thread, which sends it.
//
// Each section states its thread.
#ifndef WEFT_DOORS_HTTP_EXCHANGE_H_
#define WEFT_DOORS_HTTP_EXCHANGE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "async/signal.h"
#include "async/task.h"
#include "base/mutex.h"
#include "doors/http/http.h"

namespace weft::serve {

class HttpExchange : public HttpResponder {
 public:
  struct Options {
    bool is_head = false;      // the response has no body
    bool is_http_1_0 = false;  // no chunks: closing the connection ends a stream
    bool keep_alive = true;    // the client's wish
    size_t max_unsent_bytes = 256 << 10;
    // Wakes the I/O thread when there is output; any thread.
    std::function<void()> kick;
    // Set during server shutdown: no further request is accepted.
    const std::atomic<bool>* stopping = nullptr;
  };

  HttpExchange(HttpRequest request, Options options);

  // --- the handler ----------------------------------------------------------------
  HttpRequest& request() { return request_; }
  void Send(int status, std::string_view content_type, std::string body,
            HttpHeaders headers) override;
  bool Begin(int status, std::string_view content_type, HttpHeaders headers) override;
  bool Write(std::string_view data) override;
  Task<void> Room() override;
  void End() override;
  void KeepUntilSent(std::shared_ptr<void> what) override;
  std::string_view request_id() const override { return request_.id; }
  bool gone() const override { return gone_.load(std::memory_order_acquire); }
  std::stop_token cancellation() const override { return gone_source_.get_token(); }
  // The handler has ended. A missing response becomes a 500; an unfinished one is cut off
  // visibly to the client.
  void HandlerEnded();

  // --- the I/O thread -------------------------------------------------------------
  // Takes the next output to send.
  std::string TakeOutput();
  // `n_bytes` of the taken output have been sent.
  void Sent(size_t n_bytes);
  // Everything was taken and nothing will follow.
  bool Complete() const;
  // The connection ends with this response.
  bool MustClose() const;
  void MarkGone();

 private:
  enum class Stage { kNothing, kStreaming, kEnded };

  std::string Head(int status, std::string_view content_type, const HttpHeaders& headers,
                   std::string_view framing) WEFT_REQUIRES(mutex_);
  void Append(std::string_view data) WEFT_REQUIRES(mutex_);
  bool IsFull() const;
  void Kick();

  HttpRequest request_;
  const Options options_;
  std::atomic<bool> gone_{false};
  std::stop_source gone_source_;
  Signal sent_or_gone_;

  mutable Mutex mutex_;
  Stage stage_ WEFT_GUARDED_BY(mutex_) = Stage::kNothing;
  std::string output_ WEFT_GUARDED_BY(mutex_);       // not taken yet
  size_t unsent_bytes_ WEFT_GUARDED_BY(mutex_) = 0;  // not taken, or taken but not sent
  bool has_body_ WEFT_GUARDED_BY(mutex_) = true;
  bool chunked_ WEFT_GUARDED_BY(mutex_) = false;
  bool must_close_ WEFT_GUARDED_BY(mutex_) = false;
  std::shared_ptr<void> kept_ WEFT_GUARDED_BY(mutex_);
};

// "OK", "Not Found", ...
std::string_view ReasonPhrase(int status);

}  // namespace weft::serve

#endif  // WEFT_DOORS_HTTP_EXCHANGE_H_
