// A turn as a door reads it: its events, awaited without holding a thread.
//
// One task reads it; Cancel from any thread. Dropping it cancels.
#ifndef WEFT_ANSWER_GENERATION_H_
#define WEFT_ANSWER_GENERATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string_view>

#include "answer/cache_report.h"
#include "async/signal.h"
#include "async/task.h"
#include "weft/events.h"

namespace weft::serve {

class Generation {
 public:
  virtual ~Generation() = default;

  // Waits for the next event; nullopt after the last.
  Task<std::optional<TurnEvent>> Next();
  // Waits until Next can return at once, with an event or the end. False if it cannot at the
  // deadline.
  Task<bool> WaitUntil(std::optional<Signal::TimePoint> deadline);
  // Whether Next can return at once.
  bool IsReady();
  // Whether Next has returned the last event.
  bool has_ended() const { return ended_ && !next_.has_value(); }

  virtual void Cancel() = 0;
  // See Turn::ExpectMore.
  virtual void ExpectMore() {}
  // The prompt's length as submitted.
  virtual int64_t prompt_tokens() const = 0;
  // How much of the prompt was cached, and why not more; null until Next has returned Started.
  virtual std::shared_ptr<const CacheReport> cache_report() const { return nullptr; }

  // --- for Next ---------------------------------------------------------------------
  // The next event if there is one; `ended` is set when no event follows it.
  virtual std::optional<TurnEvent> TryNext(bool* ended) = 0;
  // Notified when TryNext has something new.
  virtual Signal& ready() = 0;

 private:
  std::optional<TurnEvent> next_;  // taken, but not returned yet
  bool ended_ = false;             // no event follows it
};

// How the one who reads a generation hears of it besides its events.
struct TurnListener {
  // Called when the last Done is taken, with the usage of all choices. May be empty.
  std::function<void(const TurnUsage&)> finished = {};
  // Notified whenever Next has something to return; lets a task wait for several generations. May
  // be null.
  std::shared_ptr<Signal> ready = nullptr;
  // Stopped when the client leaves: then its pictures need not be encoded. Its turn is cancelled by
  // other ways.
  std::stop_token left = {};
};

// Counts turns as their consumers see them. Any thread.
class TurnObserver {
 public:
  virtual ~TurnObserver() = default;
  // The time from submission to the first token, then between tokens of one choice.
  virtual void ObserveFirstToken(double seconds) = 0;
  virtual void ObserveNextToken(double seconds) = 0;
  virtual void CountFinished(FinishReason reason, const TurnUsage& usage) = 0;
  // Counts a whole turn for its domain.
  virtual void CountOwn(std::string_view domain, const TurnUsage& usage) = 0;
};

}  // namespace weft::serve

#endif  // WEFT_ANSWER_GENERATION_H_
