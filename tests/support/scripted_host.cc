#include "tests/support/scripted_host.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <future>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "base/strings.h"
#include "engine/state/session_trouble.h"
#include "tests/support/engine_harness.h"

namespace weft::testing {
namespace {

constexpr std::string_view kBegin = "<<say>>";
constexpr std::string_view kEnd = "<</say>>";
constexpr std::string_view kFail = "<<fail>>";
constexpr std::string_view kSlow = "<<slow>>";

// Hermes-style tools and calls, thinking in tags unless it is cleared, all in ChatML.
constexpr std::string_view kTemplate = R"jinja(
{%- if tools %}
{{- "<|im_start|>system\nFunctions:\n<tools>\n" }}
{%- for tool in tools %}{{- tool | tojson }}{{- "\n" }}{%- endfor %}
{{- "</tools>\nA call is <tool_call>{\"name\": ..., \"arguments\": ...}</tool_call>.<|im_end|>\n" }}
{%- endif %}
{%- for message in messages %}
{{- "<|im_start|>" + message.role + "\n" }}
{%- if message.reasoning_content and not clear_thinking %}{{- "<think>\n" + message.reasoning_content + "\n</think>\n\n" }}{%- endif %}
{%- if message.content %}{{- message.content }}{%- endif %}
{%- for call in message.tool_calls or [] %}
{{- "\n" if message.content or not loop.first else "" }}
{{- "<tool_call>\n{\"name\": \"" + call.function.name + "\", \"arguments\": " }}
{{- call.function.arguments | tojson }}{{- "}\n</tool_call>" }}
{%- endfor %}
{{- "<|im_end|>\n" }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- "<|im_start|>assistant\n" }}
{%- if enable_thinking is defined and not enable_thinking %}{{- "<think>\n\n</think>\n\n" }}{%- endif %}
{%- endif %}
)jinja";

struct Lines {
  std::vector<int32_t> tokens;
  bool fails = false;
  Status trouble = {};  // how it fails; OK: as it does in the engine
  bool slow = false;
};

// A generation that fails in the engine, with another error.
class TroubledGeneration : public serve::Generation {
 public:
  TroubledGeneration(std::unique_ptr<serve::Generation> inner, Status trouble)
      : inner_(std::move(inner)), trouble_(std::move(trouble)) {}

  void Cancel() override { inner_->Cancel(); }
  int64_t prompt_tokens() const override { return inner_->prompt_tokens(); }
  std::optional<TurnEvent> TryNext(bool* ended) override {
    std::optional<TurnEvent> event = inner_->TryNext(ended);
    auto* const done = event.has_value() ? std::get_if<DoneEvent>(&*event) : nullptr;
    if (done != nullptr && done->reason == FinishReason::kError) done->status = trouble_;
    return event;
  }
  Signal& ready() override { return inner_->ready(); }

 private:
  const std::unique_ptr<serve::Generation> inner_;
  const Status trouble_;
};

class ScriptMask : public TokenMask {
 public:
  // `own`: the request's own mask; may be null. Tokens that it forces are generated in between.
  ScriptMask(std::shared_ptr<const Lines> script, std::unique_ptr<TokenMask> own)
      : script_(std::move(script)), own_(std::move(own)) {}

  void Apply(std::span<const int32_t> generated, std::span<uint32_t> allowed) override {
    if (script_->slow) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (own_ != nullptr) own_->Apply(generated, allowed);
    const size_t at = generated.size() - n_own_;
    const bool is_said = at < script_->tokens.size();  // false: the turn fails
    const auto next = is_said ? static_cast<size_t>(script_->tokens[at]) : 0;
    const bool may_be = is_said && (allowed[next / 32] >> (next % 32) & 1) != 0;
    int choices = 0;
    for (const uint32_t word : allowed) choices += std::popcount(word);
    if (choices == 1 && !may_be) {
      ++n_own_;
      return;
    }
    std::fill(allowed.begin(), allowed.end(), 0u);
    if (may_be) allowed[next / 32] |= uint32_t{1} << (next % 32);
  }

 private:
  const std::shared_ptr<const Lines> script_;
  const std::unique_ptr<TokenMask> own_;
  size_t n_own_ = 0;  // tokens that `own_` chose
};

std::optional<std::string> ScriptIn(std::string_view prompt) {
  const size_t begin = prompt.rfind(kBegin);
  if (begin == std::string_view::npos) return std::nullopt;
  const std::string_view rest = prompt.substr(begin + kBegin.size());
  return std::string(rest.substr(0, rest.find(kEnd)));
}

Lines ReadScript(std::string text, const Tokenizer& tokenizer) {
  Lines script;
  if (text.starts_with(kSlow)) {
    script.slow = true;
    text.erase(0, kSlow.size());
  }
  const std::pair<std::string_view, Status> fails[] = {
      {kFail, OkStatus()},
      {"<<elsewhere>>", SessionElsewhere(kScriptedOwner, kScriptedRetrySeconds)},
      {"<<moved>>", SessionMoved()},
      {"<<unavailable>>", StoreUnavailable(Unavailable("no answer"))}};
  for (const auto& [mark, trouble] : fails) {
    const size_t at = text.find(mark);
    if (at == std::string::npos) continue;
    script.fails = true;
    script.trouble = trouble;
    text.erase(at);
  }
  script.tokens = SpellingOf(text, tokenizer);
  if (!script.fails) script.tokens.push_back(tokenizer.eos());
  return script;
}

}  // namespace

std::vector<int32_t> SpellingOf(std::string_view text, const Tokenizer& tokenizer) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::vector<int32_t> tokens;
  const std::string control = tokenizer.Piece(tokenizer.bos(), /*render_special=*/true);
  for (size_t at = 0; at < text.size(); ++at) {
    if (!control.empty() && text.substr(at).starts_with(control)) {
      tokens.push_back(tokenizer.bos());
      at += control.size() - 1;
      continue;
    }
    const unsigned byte = static_cast<unsigned char>(text[at]);
    const int32_t token = tokenizer.Find(StrCat("<0x", kHex[byte >> 4], kHex[byte & 15], ">"));
    if (token == kNoToken) return tokenizer.Encode(text, {.parse_special = true});
    tokens.push_back(token);
  }
  return tokens;
}

StatusOr<std::unique_ptr<ScriptedModel>> ScriptedModel::Start(
    const EngineOptions& options, int64_t context, const std::string& architecture,
    const serve::RequestDefaults& defaults) {
  std::promise<Status> loaded;
  serve::ModelHost::Options host_options{
      .load =
          [context, architecture] {
            return Model::Load(TinyModelFile(architecture),
                               {.n_threads = 1, .context_tokens = context});
          },
      .engine = options,
      .template_source = std::string(kTemplate),
      .model_id = "scripted",
      .defaults = defaults,
      .loaded = [&loaded](const Status& status) { loaded.set_value(status); }};
  std::unique_ptr<ScriptedModel> model(new ScriptedModel(std::move(host_options)));
  model->real_.StartLoading();
  WEFT_RETURN_IF_ERROR(loaded.get_future().get());
  model->scripted_ = std::make_unique<ScriptedHost>(model->real_);
  return model;
}

class ScriptedHost::ScriptedAnswerer : public serve::Answerer {
 public:
  ScriptedAnswerer(ScriptedHost* host, Parts parts) : Answerer(std::move(parts)), host_(*host) {}

  Task<StatusOr<std::unique_ptr<serve::Generation>>> Submit(serve::Ask ask,
                                                            serve::PromptRecord record,
                                                            serve::TurnListener listener) override {
    return host_.Submit(std::move(ask), std::move(record), std::move(listener));
  }

 private:
  ScriptedHost& host_;
};

ScriptedHost::ScriptedHost(serve::Host& inner, serve::AnswerPolicy policy)
    : serve::Host(inner.drain_switch()), inner_(inner) {
  serve::Answerer::Parts parts = inner.answerer().parts();
  parts.policy = std::move(policy);
  answerer_ = std::make_unique<ScriptedAnswerer>(this, std::move(parts));
}

Task<StatusOr<std::unique_ptr<serve::Generation>>> ScriptedHost::Submit(
    serve::Ask ask, serve::PromptRecord record, serve::TurnListener listener) {
  Status trouble;
  const std::string prompt =
      record.text.empty() ? model().Decode(ask.turn.tokens, true) : record.text;
  if (auto text = ScriptIn(prompt)) {
    auto script = std::make_shared<const Lines>(ReadScript(*std::move(text), *model().tokenizer()));
    // With speculation, a slow turn would take several tokens per step and starve the others.
    trouble = script->trouble;
    if (!trouble.ok() && script->tokens.empty()) co_return trouble;
    if (script->slow) ask.turn.speculation.most = 0;
    ask.turn.token_mask = [script, own = std::move(ask.turn.token_mask)](int choice) {
      return std::make_unique<ScriptMask>(script, own ? own(choice) : nullptr);
    };
  }
  auto submitting =
      answerer_->Answerer::Submit(std::move(ask), std::move(record), std::move(listener));
  StatusOr<std::unique_ptr<serve::Generation>> generation = co_await submitting;
  if (!generation.ok() || trouble.ok()) co_return std::move(generation);
  co_return std::make_unique<TroubledGeneration>(*std::move(generation), std::move(trouble));
}

}  // namespace weft::testing
