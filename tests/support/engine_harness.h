// For tests of the engine: tiny models of random weights, a backend that fails on demand, and turns
// read to their end.
#ifndef WEFT_TESTS_SUPPORT_ENGINE_HARNESS_H_
#define WEFT_TESTS_SUPPORT_ENGINE_HARNESS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/tokens.h"
#include "compute/backend.h"
#include "tests/support/wrapped_backend.h"
#include "weft/engine.h"

namespace weft::testing {

inline constexpr int64_t kTinyVocab = 512;
inline constexpr int64_t kTinyContext = 512;
// Window of the tiny gemma3's windowed layers, in positions.
inline constexpr int64_t kTinyWindow = 32;

// A model file of a few layers of 64 channels, with a vocabulary of bytes (id 3 + byte) and pieces.
// `architecture` is "llama", "gemma3" (5 of 6 layers have a window), an encoder's name
// (tools/make_encoder.h), or "qwen35-mtp" or "glm4moe-mtp", which have a prediction head. The
// prefix "foreseeing-" before these gives a head that is always right in greedy turns. Made once
// per process, removed at its end.
std::string TinyModelFile(std::string_view architecture, uint64_t seed = 1);

// The same, loaded for a context of kTinyContext. Lives as long as the process if `backend` is
// null. "recurrent-llama" and "recurrent-gemma3" run on a RecurrentBackend, with recurrent state in
// addition to their pages.
std::shared_ptr<const Model> TinyModel(std::string_view architecture, uint64_t seed = 1,
                                       const Backend* backend = nullptr);

// Faults of a FaultyBackend's executors. Counters count from 1 over all of them; 0 turns a fault
// off. Any thread.
struct Faults {
  std::atomic<int64_t> forwards{0};  // so far
  std::atomic<int64_t> fail_forward{0};
  std::atomic<int64_t> nan_forward{0};  // the forward whose logits are NaN
  std::atomic<int64_t> step_delay_us{0};
  std::atomic<bool> hold_steps{false};  // steps begin, but do not end until this is false
  std::atomic<bool> is_held{false};     // a step is held now
  std::atomic<int64_t> parts{0};        // pause points of long steps so far
  std::atomic<int64_t> part_delay_us{0};
  std::atomic<bool> fail_grow{false};  // RESOURCE_EXHAUSTED
  std::atomic<bool> fail_copy{false};
  std::atomic<bool> fail_executor{false};
};

// The cpu backend, or another one, with faults.
class FaultyBackend : public WrappedBackend {
 public:
  using WrappedBackend::WrappedBackend;
  Faults& faults() { return *faults_; }

  StatusOr<std::unique_ptr<StateStore>> NewState(const Weights& weights,
                                                 const StateOptions& options) const override;
  StatusOr<std::unique_ptr<Executor>> NewExecutor(std::shared_ptr<const Weights> weights,
                                                  StateStore* state,
                                                  const ExecutorOptions& options) const override;

 private:
  const std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
};

// During its lifetime, a step that begins does not end, but for no more than 20 s, so that a test
// whose threads wait for that step fails instead of hanging.
class HeldSteps {
 public:
  explicit HeldSteps(Faults* faults);
  ~HeldSteps() { Release(); }
  // Waits until a step is held.
  bool WaitForOne() const;
  // Whether a step is still held.
  bool holds() const { return faults_.is_held && faults_.hold_steps; }
  void Release();

 private:
  Faults& faults_;
  std::atomic<bool> ended_{false};
  std::thread watchdog_;
};

// The sizes of the model's state with these options.
StateLayout LayoutOf(const Model& model, const EngineOptions& options);
// Bytes of one page of every layer group.
int64_t PageBytes(const Model& model, const EngineOptions& options);
// Bytes of everything that sessions and the prefix cache hold.
int64_t StateBytes(const EngineStats& stats);

// A token mask that allows the tokens of a script one after the other, so that a test decides the
// output. After the script, all tokens are allowed.
std::function<std::unique_ptr<TokenMask>(int)> Script(std::vector<TokenId> tokens);
// The byte tokens of the tiny llama's vocabulary that spell `text`.
std::vector<TokenId> Bytes(std::string_view text);

// `n` tokens that are not controls; equal seeds give equal tokens.
std::vector<TokenId> RandomTokens(int64_t n, uint64_t seed);

// A greedy turn that ends only after `max_tokens`.
TurnOptions Greedy(std::vector<TokenId> tokens, int64_t max_tokens);

struct ChoiceOutcome {
  std::vector<TokenId> tokens;
  std::string text;  // including the text that Done delivers
  std::vector<TokenEvent> events;
  std::optional<DoneEvent> done;
};
struct TurnOutcome {
  std::vector<ProgressEvent> progress;
  std::optional<StartedEvent> started;
  std::vector<ChoiceOutcome> choices;

  const DoneEvent& done() const { return *choices.at(0).done; }
  const std::vector<TokenId>& tokens() const { return choices.at(0).tokens; }
};
// Reads the turn to its end.
TurnOutcome Collect(Turn* turn);
void AddEvent(TurnEvent event, TurnOutcome* outcome);

// Submits a turn and reads it to its end; an error of Submit becomes that of choice 0.
TurnOutcome RunTurn(Engine* engine, SessionId session, const TurnOptions& options);

// The outcomes of turns run one after the other in one session of a separate engine.
std::vector<TurnOutcome> RunAlone(std::shared_ptr<const Model> model, EngineOptions engine,
                                  std::span<const TurnOptions> turns);

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_ENGINE_HARNESS_H_
