// Handles every request before and after its handler: access checks, API key, CORS, routing, 503
// while there is no model, memory limits, the request id, metrics and the log.
//
// Decisions that need only the request's head are made before its body is read. Any thread.
#ifndef WEFT_DOORS_API_FRONT_DOOR_H_
#define WEFT_DOORS_API_FRONT_DOOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "async/task.h"
#include "doors/host/api_keys.h"
#include "doors/host/host.h"
#include "doors/host/model_fleet.h"
#include "doors/host/picture_fetcher.h"
#include "doors/http/byte_budget.h"
#include "doors/http/guard.h"
#include "doors/http/router.h"
#include "doors/http/server.h"

namespace weft::serve {

class FrontDoor {
 public:
  struct Options {
    ApiKeys keys;
    // The operator's keys: they see data about all keys. If there are none, the only API key does,
    // or everybody if no keys are in use.
    ApiKeys metrics_keys;
    HttpGuard guard;
    // Total memory for requests being handled, estimated from the parsed size of their bodies;
    // beyond it requests get 503. One key (or address) may use half of it; beyond that its requests
    // get 429.
    uint64_t max_parsed_bytes = uint64_t{512} << 20;
    // If the server has several models: what chooses among them, for routes that need one. Outlives
    // the door; `host` is then that of what belongs to no model.
    ModelFleet* fleet = nullptr;
    // For pictures that requests name by addresses; null: none is fetched.
    std::shared_ptr<PictureFetcher> pictures = nullptr;
  };

  // `host` and `router` must outlive it.
  FrontDoor(Options options, const Router* router, Host* host);

  // The hooks that make a server send its requests through here.
  HttpServerHooks Hooks();

  // Looks at the head alone: fills in the request's owner and route. False if it has answered the
  // request.
  bool Admit(HttpRequest& request, HttpResponder& responder) const;
  // REQUIRES: Admit returned true.
  Task<void> Handle(HttpRequest& request, HttpResponder& responder);

 private:
  class CountingResponder;

  // False if it has answered the request instead of letting it pass.
  bool MayPass(HttpRequest& request, CountingResponder& responder) const;
  bool FindOwner(HttpRequest& request, CountingResponder& responder) const;
  // The pictures to fetch for the request.
  std::vector<std::string> PicturesOf(const HttpRequest& request) const;
  // Fetches them, if the model sees any.
  Task<void> FetchPictures(Host& host, std::vector<std::string> urls, HttpRequest& request,
                           const HttpResponder& responder) const;
  Task<void> Answer(HttpRequest& request, CountingResponder& responder);
  Task<void> AnswerByModel(HttpRequest& request, CountingResponder& responder);
  // False if it has refused the request because of the memory it takes.
  bool Charge(const HttpRequest& request, CountingResponder& responder);
  void AnswerOptions(const std::vector<std::string>& segments, CountingResponder& responder) const;
  void Finish(const HttpRequest& request, const CountingResponder& responder,
              int64_t start_us) const;

  bool TurnsWait() const;

  const Options options_;
  const Router& router_;
  Host& host_;
  ByteBudget parsed_;
};

// The error for a request that needs a model while there is none.
ApiError NotReadyError(const Host& host);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_FRONT_DOOR_H_
