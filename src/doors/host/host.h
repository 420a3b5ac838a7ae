// Shared by all front ends (HTTP, gRPC, the worker): the model, its engine, its chat format and the
// metrics; and whether they are loading, ready, draining or failed.
//
// Owned by the command; front ends hold a reference. Any thread.
#ifndef WEFT_DOORS_HOST_HOST_H_
#define WEFT_DOORS_HOST_HOST_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "answer/answerer.h"
#include "answer/chat/chat_format.h"
#include "answer/thinking.h"
#include "base/status.h"
#include "doors/host/adapters.h"
#include "doors/host/drain_switch.h"
#include "doors/host/metrics.h"
#include "doors/host/server_options.h"
#include "model/sampling/sampling_parameters.h"
#include "weft/engine.h"
#include "weft/model.h"

namespace weft::serve {

enum class Phase { kLoading, kReady, kDraining, kFailed };

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
  std::shared_ptr<Adapters> adapters = {};      // the model's; null: it has none

  AnswerPolicy policy() const {
    return {.hold_calls = server.hold_calls,
            .lenient_tool_calls = server.lenient_tool_calls,
            .ends = ends};
  }
};

class Host {
 public:
  // `drain`: the server's, null for one of its own.
  explicit Host(std::shared_ptr<DrainSwitch> drain = nullptr)
      : drain_switch_(drain != nullptr ? std::move(drain) : std::make_shared<DrainSwitch>()) {}
  virtual ~Host() = default;

  const std::shared_ptr<DrainSwitch>& drain_switch() const { return drain_switch_; }

  virtual Phase phase() const = 0;
  // Why it is not ready: a sentence for /health and errors, readable by everybody.
  virtual std::string phase_reason() const = 0;
  // OK if new turns may begin: it is ready and not drained. Otherwise UNAVAILABLE with why.
  Status MayBegin() const {
    return phase() == Phase::kReady ? drain_switch_->MayBegin() : Unavailable(phase_reason());
  }
  // Requested when phase() has become kDraining.
  virtual std::stop_token draining() const = 0;

  // --- REQUIRES: phase() has been kReady or kDraining ------------------------------
  virtual Answerer& answerer() const = 0;
  Engine& engine() const { return answerer().engine(); }
  const Model& model() const { return answerer().model(); }
  const ChatFormat& chat() const { return answerer().chat(); }

  virtual const std::string& model_id() const = 0;  // --alias, or derived from the model's name
  virtual int64_t created_s() const = 0;            // start time, seconds since 1970
  virtual Metrics& metrics() = 0;
  virtual const RequestDefaults& defaults() const = 0;

 private:
  const std::shared_ptr<DrainSwitch> drain_switch_;
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_HOST_HOST_H_
