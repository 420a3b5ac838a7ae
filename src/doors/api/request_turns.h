// The answers of one HTTP request: asks for them, notes in headers what is known before they begin,
// and cancels them when the client leaves.
#ifndef WEFT_DOORS_API_REQUEST_TURNS_H_
#define WEFT_DOORS_API_REQUEST_TURNS_H_

#include <functional>
#include <memory>
#include <stop_token>
#include <vector>

#include "answer/answerer.h"
#include "async/task.h"
#include "base/mutex.h"
#include "base/status.h"
#include "doors/host/host.h"
#include "doors/http/http.h"

namespace weft::serve {

// What a streamed answer shows before and between its pieces. Empty: nothing.
struct StreamSigns {
  std::function<void(const AnswerUsage&)> alive = {};
  std::function<void(const ProgressEvent&)> progress = {};
};

// Used by the request's handler.
class RequestTurns {
 public:
  RequestTurns(Host& host, HttpResponder& responder);
  ~RequestTurns();  // cancels

  // Submits a prompt and returns its events.
  Task<StatusOr<std::shared_ptr<Generation>>> Submit(Ask ask, std::shared_ptr<Signal> ready);
  // Submits; Start then waits until the prompt is computed. With signs, the reply may already have
  // begun when an error is returned.
  Task<StatusOr<std::unique_ptr<Answer>>> Begin(Ask ask, StreamSigns signs);
  Task<Status> Start(Answer& answer);
  // Both.
  Task<StatusOr<std::unique_ptr<Answer>>> Open(Ask ask, StreamSigns signs);

  // Call last, unless an exception ends the handler: cancels what was not read to its end, and
  // waits for that end, a step away, so that its cost is counted before the request is logged.
  Task<void> End();

 private:
  void Add(std::shared_ptr<Generation> generation);
  // Cancels all generations, and future ones too.
  void CancelAll() WEFT_EXCLUDES(mutex_);
  TurnListener Listener();
  bool is_begun() {
    MutexLock lock(&mutex_);
    return is_begun_;
  }

  Host& host_;
  HttpResponder& responder_;
  Mutex mutex_;
  bool cancelled_ WEFT_GUARDED_BY(mutex_) = false;
  bool is_begun_ WEFT_GUARDED_BY(mutex_) = false;  // a turn of the request was taken
  std::vector<std::shared_ptr<Generation>> generations_ WEFT_GUARDED_BY(mutex_);
  // Last, so that it is over before the rest goes.
  const std::stop_callback<std::function<void()>> on_cancellation_;
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_REQUEST_TURNS_H_
