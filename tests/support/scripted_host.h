// A Host whose model says what a test wants, for tests of APIs and their clients: the
// engine, its tokens and their counts are real, only the choice of tokens is not.
//
// A prompt that contains <<say>>TEXT<</say>> is answered with TEXT and an end token; of
// several such scripts the last one counts. Within TEXT:
//   <<fail>>  the generation fails here
//   <<slow>>  (at its beginning) every token takes 10 ms
// Everything else is answered as the model likes.
//
// Any thread, as Host.
#ifndef WEFT_TESTS_SUPPORT_SCRIPTED_HOST_H_
#define WEFT_TESTS_SUPPORT_SCRIPTED_HOST_H_

#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host/host.h"
#include "host/model_host.h"

namespace weft::testing {

class ScriptedHost : public serve::Host {
 public:
  // `inner` outlives this.
  explicit ScriptedHost(serve::Host& inner) : inner_(inner) {}

  serve::Phase phase() const override { return inner_.phase(); }
  std::string phase_reason() const override { return inner_.phase_reason(); }
  std::stop_token draining() const override { return inner_.draining(); }
  Engine& engine() override { return inner_.engine(); }
  const Model& model() const override { return inner_.model(); }
  const ChatFormat& chat() const override { return inner_.chat(); }
  std::vector<int32_t> EncodeChat(std::string_view domain, std::string_view text,
                                  std::span<const TokenSpan> known) override {
    return inner_.EncodeChat(domain, text, known);
  }
  serve::ReplyMemory& replies() override { return inner_.replies(); }
  std::shared_ptr<const serve::PromptTrail> TrackPrompt(std::string_view domain,
                                                        std::string_view text,
                                                        const ChatRequest& chat,
                                                        serve::ClientList list) override {
    return inner_.TrackPrompt(domain, text, chat, std::move(list));
  }
  Task<StatusOr<std::unique_ptr<serve::Generation>>> Generate(
      serve::GenerationRequest request) override;
  const std::string& model_id() const override { return inner_.model_id(); }
  int64_t created_s() const override { return inner_.created_s(); }
  serve::Metrics& metrics() override { return inner_.metrics(); }
  serve::CacheReports& cache_reports() override { return inner_.cache_reports(); }
  const serve::RequestDefaults& defaults() const override { return inner_.defaults(); }

 private:
  serve::Host& inner_;
};

// A tiny model of random weights, with a template that knows tools (in the form of Hermes)
// and thinking, behind a ScriptedHost. Its id is "scripted".
inline constexpr int64_t kScriptedContext = 8192;
class ScriptedModel {
 public:
  // Loaded and ready when it returns. Fewer `max_running` and `max_queued` than usual make
  // it easy to overload. `architecture` as TinyModelFile has it.
  static StatusOr<std::unique_ptr<ScriptedModel>> Start(const EngineOptions& options,
                                                        int64_t context = kScriptedContext,
                                                        const std::string& architecture = "llama",
                                                        const serve::RequestDefaults& defaults = {
                                                            .server = {.hold_calls = false}});

  ScriptedHost& host() { return scripted_; }

 private:
  explicit ScriptedModel(serve::ModelHost::Options options)
      : real_(std::move(options)), scripted_(real_) {}

  serve::ModelHost real_;
  ScriptedHost scripted_;
};

// The tokens that spell `text` byte by byte where the vocabulary has bytes, but for the token
// that begins a text; else as it is encoded, where all control tokens are themselves.
std::vector<int32_t> SpellingOf(std::string_view text, const Tokenizer& tokenizer);

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_SCRIPTED_HOST_H_
