// A Host whose model's output is scripted, for tests of APIs and their clients: the engine, its
// tokens and their counts are real; only the choice of tokens is not.
//
// A prompt that contains <<say>>TEXT<</say>> is answered with TEXT and an end token; of several
// such scripts, the last one counts. Within TEXT:
//   <<fail>>  the generation fails here
//   <<elsewhere>>, <<moved>>, <<unavailable>>  it fails here with this trouble of a shared store;
//   at
//             the beginning of TEXT, it is refused
//   <<slow>>  (at its beginning) every token takes 10 ms
// The model answers all other prompts freely.
//
// Any thread, as Host.
#ifndef WEFT_TESTS_SUPPORT_SCRIPTED_HOST_H_
#define WEFT_TESTS_SUPPORT_SCRIPTED_HOST_H_

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "doors/host/host.h"
#include "doors/host/model_host.h"

namespace weft::testing {

class ScriptedHost : public serve::Host {
 public:
  // `inner` is ready and outlives this.
  explicit ScriptedHost(serve::Host& inner) : ScriptedHost(inner, inner.defaults().policy()) {}
  ScriptedHost(serve::Host& inner, serve::AnswerPolicy policy);

  serve::Phase phase() const override { return inner_.phase(); }
  std::string phase_reason() const override { return inner_.phase_reason(); }
  std::stop_token draining() const override { return inner_.draining(); }
  serve::Answerer& answerer() const override { return *answerer_; }
  const std::string& model_id() const override { return inner_.model_id(); }
  int64_t created_s() const override { return inner_.created_s(); }
  serve::Metrics& metrics() override { return inner_.metrics(); }
  const serve::RequestDefaults& defaults() const override { return inner_.defaults(); }

  // Submits what the answerer is to submit, with the script's tokens.
  virtual Task<StatusOr<std::unique_ptr<serve::Generation>>> Submit(serve::Ask ask,
                                                                    serve::PromptRecord record,
                                                                    serve::TurnListener listener);

 private:
  class ScriptedAnswerer;

  serve::Host& inner_;
  std::unique_ptr<serve::Answerer> answerer_;
};

// What <<elsewhere>> says.
inline constexpr char kScriptedOwner[] = "http://127.0.0.1:8082";
inline constexpr int kScriptedRetrySeconds = 7;

// A tiny model of random weights, with a template for tools (Hermes-style) and thinking, and a
// ScriptedHost. Its id is "scripted".
inline constexpr int64_t kScriptedContext = 8192;
class ScriptedModel {
 public:
  // Loaded and ready when this returns. Small `max_running` and `max_queued` make it easy to
  // overload. `architecture`: see TinyModelFile.
  static StatusOr<std::unique_ptr<ScriptedModel>> Start(const EngineOptions& options,
                                                        int64_t context = kScriptedContext,
                                                        const std::string& architecture = "llama",
                                                        const serve::RequestDefaults& defaults = {
                                                            .server = {.hold_calls = false}});

  ScriptedHost& host() { return *scripted_; }

 private:
  explicit ScriptedModel(serve::ModelHost::Options options) : real_(std::move(options)) {}

  serve::ModelHost real_;
  std::unique_ptr<ScriptedHost> scripted_;  // once the model is loaded
};

// The tokens that spell `text` byte by byte if the vocabulary has bytes, without the token that
// begins a text; otherwise its normal encoding, with control tokens as themselves.
std::vector<int32_t> SpellingOf(std::string_view text, const Tokenizer& tokenizer);

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_SCRIPTED_HOST_H_
