// What happens to every request before and after its handler: whether it may come in from
// where it comes, the API key, CORS, the route, 503 while there is no model, the memory that
// it may take, the request's id in the answer, counting, the log.
//
// What the head of a request tells is decided before its body is read. Any thread.
#ifndef WEFT_API_FRONT_DOOR_H_
#define WEFT_API_FRONT_DOOR_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "host/api_keys.h"
#include "host/host.h"
#include "http/byte_budget.h"
#include "http/guard.h"
#include "http/router.h"
#include "http/server.h"

namespace weft::serve {

class FrontDoor {
 public:
  struct Options {
    ApiKeys keys;
    // Of the operator: these see what concerns all keys. None: the only key does, or everybody
    // where no keys are in use.
    ApiKeys metrics_keys;
    HttpGuard guard;
    // The memory that requests in work may take together, counted by what their bodies become
    // when they are parsed; one more is answered with 503. One key (or address) may take half
    // of it; one more of its own is answered with 429.
    uint64_t max_parsed_bytes = uint64_t{512} << 20;
    // Also the text of requests and answers goes to the log.
    bool log_text = false;
  };

  // `host` and `router` must outlive it.
  FrontDoor(Options options, const Router* router, Host* host);

  // What a server needs to send its requests through here.
  HttpServerHooks Hooks();

  // From the head alone: fills in whose request it is, and its route. False when it was
  // answered here.
  bool Admit(HttpRequest& request, HttpResponder& responder) const;
  // REQUIRES: Admit said true.
  void Handle(HttpRequest& request, HttpResponder& responder);

 private:
  class CountingResponder;

  // Whether it is to be read and handled; else it is answered.
  bool MayPass(HttpRequest& request, CountingResponder& responder) const;
  bool FindOwner(HttpRequest& request, CountingResponder& responder) const;
  void Answer(HttpRequest& request, CountingResponder& responder);
  void AnswerOptions(const std::vector<std::string>& segments, CountingResponder& responder) const;
  void Finish(const HttpRequest& request, const CountingResponder& responder,
              int64_t start_us) const;

  const Options options_;
  const Router& router_;
  Host& host_;
  ByteBudget parsed_;
};

// The status with which a request is refused that needs a model while there is none.
ApiError NotReadyError(const Host& host);

}  // namespace weft::serve

#endif  // WEFT_API_FRONT_DOOR_H_
