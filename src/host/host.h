// What every front end (HTTP, gRPC, the worker) shares: the model, its engine, its chat
// format, the metrics; and whether all that is loaded, ready, draining or has failed.
//
// Owned by the command; front ends hold a reference. Any thread.
#ifndef WEFT_HOST_HOST_H_
#define WEFT_HOST_HOST_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "chat/chat_format.h"
#include "formats/sampling_advice.h"
#include "host/metrics.h"
#include "host/prompt_memory.h"
#include "host/wakeup.h"
#include "weft/engine.h"
#include "weft/model.h"

namespace weft::serve {

enum class Phase { kLoading, kReady, kDraining, kFailed };

// A turn as a front end drives it: events are counted in the metrics as they pass, and
// the tokens of a chat are remembered for the next request of that conversation.
// One consumer; Cancel from any thread. Dropping it cancels.
class Generation {
 public:
  virtual ~Generation() = default;
  virtual std::optional<TurnEvent> Next() = 0;
  // Waits at most `patience` for Next to have something to give at once, an event or the
  // end. False when it has not.
  virtual bool WaitFor(std::chrono::milliseconds patience) = 0;
  virtual void Cancel() = 0;
  // The prompt's length as submitted.
  virtual int64_t prompt_tokens() const = 0;
};

struct GenerationRequest {
  std::string domain;
  // Empty: an anonymous session, closed with the turn. Else the session of that name in
  // the domain, made when there is none.
  std::string session;
  NamedTurnPolicy policy;
  TurnOptions turn;  // tokens are the whole context
  // The text that turn.tokens stand for, when they come from PromptMemory: the reply is
  // then remembered behind it. Empty: not remembered.
  std::string prompt_text;
  // Called from the Next that gives the last Done, with the usage of all choices. May be
  // empty.
  std::function<void(const TurnUsage&)> finished;
  // Advanced whenever Next has something to give; for those who wait for several
  // generations. May be null.
  std::shared_ptr<Wakeup> wakeup;
};

// What holds for all requests: the operator's word, and where he says nothing the model's.
struct RequestDefaults {
  SamplingOptions sampling;  // of what a request does not mention
  // The same as it was said, by the operator before the model's makers: for the doors that have
  // values of their own where nobody says anything.
  SamplingAdvice advice;
  // What `advice` ends answers with, made when the model is loaded; its texts do where a request
  // has none of its own.
  AnswerEnds ends;
  bool end_loops = true;  // TurnOptions::end_loops
  // Requests that name another model than the one served are refused. Most agents send
  // some name that they were configured with.
  bool strict_model_name = false;
  // Calls of offered tools are recognised in other shapes than the model's own format too.
  bool lenient_tool_calls = true;
  // A call that the model begins in its own format is held to that and to its tool's schema. (What
  // a request demands is held to in any case.)
  bool hold_calls = true;
  // Whether templates that ask for it are told to think, where a request does not say; unset:
  // they are, but for APIs with another default of their own.
  std::optional<bool> thinking;
  // Tokens of a thought, behind which it is ended; -1: as many as it takes.
  int64_t thought_tokens = -1;
  // A request that names a slot (llama-server's id_slot) belongs to the session of that slot.
  bool slots_are_sessions = false;
  // A streamed answer begins after so long at the latest, and then says at least so often
  // that it is still being worked on (0: no more after the beginning).
  std::chrono::milliseconds stream_begin{500};
  std::chrono::milliseconds ping_interval{10'000};
  // Of a request that says nothing about it, where its API has no number of its own (-1: as
  // many as fit).
  int64_t max_tokens = -1;
  std::vector<std::string> further_names;  // of the model, beside its id
};

class Host {
 public:
  virtual ~Host() = default;

  virtual Phase phase() const = 0;
  // Why it is not ready: a sentence for /health and errors, for everybody to read.
  virtual std::string phase_reason() const = 0;

  // --- REQUIRES: phase() was kReady or kDraining once -----------------------------
  virtual Engine& engine() = 0;
  virtual const Model& model() const = 0;
  virtual const ChatFormat& chat() const = 0;
  // Tokens of a rendered prompt, those of earlier turns of the same conversation kept as
  // the model made them (see prompt_memory.h).
  virtual std::vector<int32_t> EncodeChat(std::string_view domain, std::string_view text) = 0;
  // UNAVAILABLE while loading or draining; the engine's own refusals otherwise.
  virtual StatusOr<std::unique_ptr<Generation>> Generate(GenerationRequest request) = 0;

  virtual const std::string& model_id() const = 0;  // --alias, or made from the model's name
  virtual int64_t created_s() const = 0;            // start, seconds since 1970
  virtual Metrics& metrics() = 0;
  virtual const RequestDefaults& defaults() const = 0;
};

}  // namespace weft::serve

#endif  // WEFT_HOST_HOST_H_
