// What happens to every request before and after its handler: the API key, CORS, the
// route, 503 while there is no model, the request's id in the answer, counting, the log.
//
// Immutable once made; any thread.
#ifndef WEFT_SERVE_FRONT_DOOR_H_
#define WEFT_SERVE_FRONT_DOOR_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "serve/api_keys.h"
#include "serve/host.h"
#include "serve/http_server.h"
#include "serve/router.h"

namespace weft::serve {

class FrontDoor {
 public:
  struct Options {
    ApiKeys keys;
    // Origins whose pages may read answers; "*" is any. Empty: none.
    std::vector<std::string> cors_origins;
    // Also the text of requests and answers goes to the log.
    bool log_text = false;
  };

  // `host` and `router` must outlive it.
  FrontDoor(Options options, const Router* router, Host* host);

  // What a server needs to send its requests through here.
  HttpServerHooks Hooks();

  void Handle(HttpRequest& request, HttpResponder& responder) const;

 private:
  class CountingResponder;

  void Answer(HttpRequest& request, CountingResponder& responder) const;
  void AnswerOptions(const std::vector<std::string>& segments, CountingResponder& responder) const;
  // The headers that let a page read the answer; none for an origin that may not.
  HttpHeaders CorsHeaders(const HttpRequest& request) const;
  void Log(const HttpRequest& request, const CountingResponder& responder,
           int64_t duration_us) const;

  const Options options_;
  const Router& router_;
  Host& host_;
};

// The status with which a request is refused that needs a model while there is none.
ApiError NotReadyError(const Host& host);

}  // namespace weft::serve

#endif  // WEFT_SERVE_FRONT_DOOR_H_
