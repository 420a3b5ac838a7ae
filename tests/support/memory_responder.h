// A responder that keeps a handler's output, for tests of handlers without a server. One thread.
#ifndef WEFT_TESTS_SUPPORT_MEMORY_RESPONDER_H_
#define WEFT_TESTS_SUPPORT_MEMORY_RESPONDER_H_

#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "doors/http/http.h"
#include "doors/http/router.h"
#include "nlohmann/json.hpp"
#include "tests/support/await.h"

namespace weft::testing {

struct SseEvent {
  std::string name;  // from "event:"; may be empty
  std::string data;

  nlohmann::ordered_json json() const {
    return nlohmann::ordered_json::parse(data, nullptr, /*allow_exceptions=*/false);
  }
};

class MemoryResponder : public serve::HttpResponder {
 public:
  // The client disconnects at its `n`-th Write; -1: never.
  explicit MemoryResponder(int leaves_at_write = -1) : leaves_at_write_(leaves_at_write) {}

  void Send(int status, std::string_view content_type, std::string body,
            serve::HttpHeaders headers = {}) override {
    status_ = status;
    type_ = std::string(content_type);
    body_ = std::move(body);
    headers_ = std::move(headers);
    headers_.insert(headers_.end(), noted_.begin(), noted_.end());
    ++answers_;
  }
  bool Begin(int status, std::string_view content_type, serve::HttpHeaders headers = {}) override {
    Send(status, content_type, "", std::move(headers));
    return !gone_;
  }
  bool Write(std::string_view data) override {
    if (n_writes_++ == leaves_at_write_) Leave();
    if (!gone_) body_.append(data);
    return !gone_;
  }
  void End() override { ended_ = true; }
  void NoteHeader(std::string_view name, std::string_view value) override {
    noted_.emplace_back(name, value);
  }
  std::string_view request_id() const override { return request_id_; }
  void set_request_id(std::string id) { request_id_ = std::move(id); }
  bool gone() const override { return gone_; }
  void KeepUntilSent(std::shared_ptr<void> what) override { kept_ = std::move(what); }
  // The client has read everything.
  void BeRead() { kept_.reset(); }
  std::stop_token cancellation() const override { return gone_source_.get_token(); }

  // The client disconnects.
  void Leave() {
    gone_ = true;
    gone_source_.request_stop();
  }

  int status() const { return status_; }
  const std::string& type() const { return type_; }
  const std::string& body() const { return body_; }
  int answers() const { return answers_; }
  bool ended() const { return ended_; }
  std::string Header(std::string_view name) const {
    for (const auto& [key, value] : headers_) {
      if (key == name) return value;
    }
    return "";
  }
  nlohmann::ordered_json json() const {
    return nlohmann::ordered_json::parse(body_, nullptr, /*allow_exceptions=*/false);
  }
  // The body as server-sent events.
  std::vector<SseEvent> Events() const;

 private:
  const int leaves_at_write_;
  int n_writes_ = 0;
  int answers_ = 0;
  int status_ = 0;
  std::string type_;
  std::string body_;
  std::string request_id_;
  serve::HttpHeaders headers_, noted_;
  bool ended_ = false;
  bool gone_ = false;
  std::stop_source gone_source_;
  std::shared_ptr<void> kept_;
};

inline std::vector<SseEvent> MemoryResponder::Events() const {
  std::vector<SseEvent> events;
  SseEvent event;
  std::string_view rest = body_;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
    if (line.starts_with("event: ")) event.name = line.substr(7);
    if (line.starts_with("data: ")) event.data = line.substr(6);
    if (line.empty()) events.push_back(std::exchange(event, {}));
  }
  return events;
}

// Runs a route's handler to its end.
inline void RunHandler(const serve::Route& route, const serve::HttpRequest& request,
                       serve::HttpResponder& responder) {
  if (route.task) {
    Await(route.task(request, responder));
  } else {
    route.handler(request, responder);
  }
}

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_MEMORY_RESPONDER_H_
