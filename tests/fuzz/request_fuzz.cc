// Fuzzing of request bodies: the first byte chooses the API, the rest is the body. Every input is
// either a request within its limits, which can be rendered, or an error with a message.
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answer/chat/chat_format.h"
#include "base/check.h"
#include "doors/api/anthropic/request.h"
#include "doors/api/fields/support.h"
#include "doors/api/llama/request.h"
#include "doors/api/ollama/request.h"
#include "doors/api/openai/chat_request.h"
#include "doors/api/openai/completions_request.h"
#include "doors/api/responses/request.h"
#include "doors/worker/worker_request.h"
#include "json/json_text.h"
#include "tests/support/engine_harness.h"

namespace weft::serve {
namespace {

// Shows tools, calls and reasoning, so that all of them come through.
constexpr char kTemplate[] = R"jinja(
{%- for tool in tools or [] %}{{ tool | tojson }}
{% endfor %}
{%- for message in messages %}<|{{ message.role }}|>
{%- if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}
{{- message.content or "" }}
{%- for call in message.tool_calls or [] %}<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>{% endfor %}
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %})jinja";

// A model that is there and never runs.
class IdleHost : public Host {
 public:
  IdleHost() : model_(testing::TinyModel("llama")) {
    auto chat = ChatFormat::Create(kTemplate, model_->tokenizer());
    WEFT_CHECK(chat.ok(), "the template is not understood");
    const std::shared_ptr<const ChatFormat> format = *std::move(chat);
    answerer_ = std::make_unique<Answerer>(Answerer::Parts{
        .model = model_,
        .chat = format,
        .prompts = std::make_shared<PromptMaker>(model_, format, PromptMaker::Options{}),
        .reports = std::make_shared<CacheReports>(),
        .observer = &metrics_});
  }

  Phase phase() const override { return Phase::kReady; }
  std::string phase_reason() const override { return ""; }
  std::stop_token draining() const override { return {}; }
  Answerer& answerer() const override { return *answerer_; }
  const std::string& model_id() const override { return id_; }
  int64_t created_s() const override { return 0; }
  Metrics& metrics() override { return metrics_; }
  const RequestDefaults& defaults() const override { return defaults_; }

 private:
  const std::shared_ptr<const Model> model_;
  const std::string id_ = "idle";
  const RequestDefaults defaults_{.server = {.strict_model_name = true}};
  Metrics metrics_;
  std::unique_ptr<Answerer> answerer_;
};

void CheckError(const Status& status) {
  const ApiError error = ToDetailedApiError(status);
  WEFT_CHECK(error.http_status >= 400 && error.http_status < 500, "not told as the client's error");
  WEFT_CHECK(!error.message.empty(), "an error says nothing");
  for (const ErrorShape shape : {kOpenAiErrors, kAnthropicErrors, kLlamaErrors, kOllamaErrors}) {
    WEFT_CHECK(!CompactJson(ErrorBody(error, shape)).empty(), "an error cannot be written");
  }
}

void CheckTurn(const TurnOptions& turn) {
  const SamplingOptions& sampling = turn.sampling;
  WEFT_CHECK(turn.n_choices >= 1 && turn.max_tokens >= -1, "counts out of their range");
  WEFT_CHECK(std::isfinite(sampling.temperature) && sampling.temperature >= 0, "temperature");
  WEFT_CHECK(sampling.top_p > 0 && sampling.top_p <= 1 && sampling.top_k >= 0, "top_p or top_k");
  WEFT_CHECK(sampling.logit_bias.size() <= 4096 + 256, "more biases than allowed");
  for (const std::string& stop : turn.stop_strings) WEFT_CHECK(!stop.empty(), "an empty stop");
}

void CheckChat(Host& host, const Ask& ask) {
  CheckTurn(ask.turn);
  const auto prompt = host.chat().Render(ask.chat);
  if (!prompt.ok()) CheckError(prompt.status());
}

void CheckPrompts(Host& host, const std::vector<int32_t>& tokens) {
  for (const int32_t token : tokens) {
    WEFT_CHECK(token >= 0 && token < host.model().n_vocab(), "a token that is none");
  }
}

void CheckWorkerLine(std::string_view line) {
  const auto request = ParseWorkerRequest(line);
  if (!request.ok()) return CheckError(request.status());
  const double top_p = request->sampling.top_p.value_or(1);
  WEFT_CHECK(top_p > 0 && top_p <= 1, "top_p is out of its range");
}

// Checks what `read` is, or its error.
template <typename Read, typename CheckRead>
void Check(const StatusOr<Read>& read, CheckRead check) {
  if (read.ok()) {
    check(*read);
  } else {
    CheckError(read.status());
  }
}

void Try(uint8_t kind, const HttpRequest& request) {
  static Host& host = *new IdleHost();
  const auto check_chat = [](const auto& read) { CheckChat(host, read.ask); };
  const auto check_ollama = [&](const OllamaRequest& read) {
    if (read.probe != OllamaRequest::Probe::kNone) return;
    if (read.ask.input == Ask::Input::kConversation) return check_chat(read);
    CheckTurn(read.ask.turn);
    CheckPrompts(host, read.ask.turn.tokens);
  };
  switch (kind % 8) {
    case 0:
      return Check(ReadChatCompletion(host, request), check_chat);
    case 1:
      return Check(ReadMessages(host, request), check_chat);
    case 2:
      return Check(ReadResponses(host, request), check_chat);
    case 3:
      return Check(ReadCompletion(host, request),
                   [](const CompletionRequest& read) { CheckTurn(read.ask.turn); });
    case 4:
      return Check(ReadLlamaCompletion(host, request), [](const LlamaCompletion& read) {
        CheckTurn(read.ask.turn);
        for (const LlamaPrompt& prompt : read.prompts) CheckPrompts(host, prompt.tokens);
        WEFT_CHECK(LlamaSettings(read, -1, *host.model().tokenizer()).is_object(), "no settings");
      });
    case 5:
      return CheckWorkerLine(request.body);
    case 6:
      return Check(ReadOllamaChat(host, request), check_ollama);
    default:
      return Check(ReadOllamaGenerate(host, request), check_ollama);
  }
}

}  // namespace
}  // namespace weft::serve

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  weft::serve::HttpRequest request;
  request.method = "POST";
  request.body.assign(reinterpret_cast<const char*>(data) + 1, size - 1);
  weft::serve::Try(data[0], request);
  return 0;
}
