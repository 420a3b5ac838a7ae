// Shared by all front ends (HTTP, gRPC, the worker): the model, its engine, its chat format and the
// metrics; and whether they are loading, ready, draining or failed.
//
// Owned by the command; front ends hold a reference. Any thread.
#ifndef WEFT_HOST_HOST_H_
#define WEFT_HOST_HOST_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "answer/cache_report.h"
#include "answer/prompt_memory.h"
#include "answer/prompt_trail.h"
#include "answer/reply_memory.h"
#include "answer/thinking.h"
#include "async/signal.h"
#include "async/task.h"
#include "base/status.h"
#include "chat/chat_format.h"
#include "host/metrics.h"
#include "host/server_options.h"
#include "nlohmann/json.hpp"
#include "sampling/sampling_parameters.h"
#include "weft/engine.h"
#include "weft/model.h"

namespace weft::serve {

enum class Phase { kLoading, kReady, kDraining, kFailed };

// A turn as driven by a front end: its events are counted in the metrics as they pass, and a chat's
// tokens are remembered for the conversation's next request. One task reads it; Cancel from any
// thread. Dropping it cancels.
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
  // What was found of the prompt, and why not more; null until Next has returned Started.
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

struct GenerationRequest {
  std::string domain;
  // Empty: an anonymous session, closed with the turn. Otherwise the session of that name in the
  // domain, created if necessary.
  std::string session;
  NamedTurnPolicy policy;
  TurnOptions turn;  // tokens are the whole context
  // The text that turn.tokens stand for, if they come from PromptMemory: the reply is then
  // remembered after it. Empty: not remembered.
  std::string prompt_text;
  // Of the same prompt; may be null.
  std::shared_ptr<const PromptTrail> trail;
  // Called when the last Done is taken, with the usage of all choices. May be empty.
  std::function<void(const TurnUsage&)> finished;
  // Notified whenever Next has something to return; lets a task wait for several generations. May
  // be null.
  std::shared_ptr<Signal> ready;
};

// Defaults for all requests: the operator's settings, or else the model's.
struct RequestDefaults {
  ServerOptions server = {};
  SamplingOptions sampling = {};  // for parameters a request omits
  // The same settings as explicitly given, the operator's before the model's: for APIs with
  // defaults of their own.
  SamplingAdvice advice = {};
  // The ends of answers in `advice`, resolved when the model is loaded; its texts apply to requests
  // without stop strings of their own.
  AnswerEnds ends = {};
  bool end_loops = true;  // see TurnOptions::end_loops
  ThinkingDefaults thinking = {};
  // A streamed answer begins after at most this.
  std::chrono::milliseconds stream_begin{500};
  // For requests that give none, if their API has no default of its own (-1: as many as fit).
  int64_t max_tokens = -1;
  std::vector<std::string> further_names = {};  // of the model, besides its id
};

class Host {
 public:
  virtual ~Host() = default;

  virtual Phase phase() const = 0;
  // Why it is not ready: a sentence for /health and errors, readable by everybody.
  virtual std::string phase_reason() const = 0;
  // Requested when phase() has become kDraining.
  virtual std::stop_token draining() const = 0;

  // --- REQUIRES: phase() has been kReady or kDraining ------------------------------
  virtual Engine& engine() = 0;
  virtual const Model& model() const = 0;
  virtual const ChatFormat& chat() const = 0;
  // Tokens of a rendered prompt; earlier turns of the same conversation keep the tokens that the
  // model generated (see prompt_memory.h).
  virtual std::vector<int32_t> EncodeChat(std::string_view domain, std::string_view text,
                                          std::span<const TokenSpan> known) = 0;
  // What the model said in recent conversations.
  virtual ReplyMemory& replies() = 0;
  // The prompt, which EncodeChat has encoded, is going to be submitted; it was rendered from
  // `chat`.
  virtual std::shared_ptr<const PromptTrail> TrackPrompt(std::string_view domain,
                                                         std::string_view text,
                                                         const ChatRequest& chat,
                                                         ClientList list) = 0;
  // UNAVAILABLE while loading or draining; otherwise the engine's own refusals.
  virtual Task<StatusOr<std::unique_ptr<Generation>>> Generate(GenerationRequest request) = 0;

  virtual const std::string& model_id() const = 0;  // --alias, or derived from the model's name
  virtual int64_t created_s() const = 0;            // start time, seconds since 1970
  virtual Metrics& metrics() = 0;
  virtual CacheReports& cache_reports() = 0;
  virtual const RequestDefaults& defaults() const = 0;
};

}  // namespace weft::serve

#endif  // WEFT_HOST_HOST_H_
