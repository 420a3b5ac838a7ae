#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "chat/chat_context.h"
#include "serve/api_openai.h"
#include "serve/api_support.h"
#include "serve/chat_turn.h"
#include "serve/openai_chat_request.h"
#include "serve/reply_json.h"
#include "serve/reply_stream.h"
#include "serve/sampling_params.h"
#include "serve/sse.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxPrompts = 256;
constexpr int64_t kDefaultMaxTokens = 16;  // OpenAI's
// Prompts of one request that are with the engine at a time. Their answers are read one
// after the other, so each must fit the queue of a turn that nobody reads.
constexpr size_t kPromptsAtOnce = 8;
constexpr int64_t kMaxUnreadTokens = 500;

void Refuse(HttpResponder& responder, const Status& status) {
  SendError(responder, ToDetailedApiError(status), ErrorShape::kOpenAi);
}

struct Prompt {
  std::vector<int32_t> tokens;
  std::string text;  // what echo repeats
};

struct CompletionRequest {
  std::vector<Prompt> prompts;
  TurnOptions turn;
  SessionChoice session;
  StreamChoice stream;
  bool echo = false;
  std::vector<std::string> ignored;
};

constexpr char kPromptShape[] =
    "must be a string, an array of strings, an array of token ids, or an array of such arrays";

bool IsTokens(const ordered_json& value) {
  if (!value.is_array() || value.empty()) return false;
  for (const ordered_json& id : value) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
      return false;
    }
  }
  return true;
}

bool ReadPrompt(const ordered_json& value, const Model& model, std::vector<Prompt>* prompts) {
  Prompt prompt;
  if (value.is_string()) {
    prompt.text = value.get<std::string>();
    prompt.tokens = MakePromptEncoder(model.tokenizer()).encode(prompt.text, /*at_start=*/true);
  } else if (IsTokens(value)) {
    prompt.tokens = value.get<std::vector<int32_t>>();
    prompt.text = model.Decode(prompt.tokens, /*render_special=*/true);
  } else {
    return false;
  }
  prompts->push_back(std::move(prompt));
  return true;
}

void ReadPrompts(ApiFields* fields, const Model& model, std::vector<Prompt>* prompts) {
  const ordered_json* const value = fields->Value("prompt");
  if (value == nullptr) return fields->Fail("prompt", kPromptShape);
  if (value->is_string() || IsTokens(*value)) {
    ReadPrompt(*value, model, prompts);
    return;
  }
  if (!value->is_array() || value->empty()) return fields->Fail("prompt", kPromptShape);
  if (value->size() > kMaxPrompts) {
    return fields->Fail(
        "prompt", StrCat("has ", value->size(), " prompts, at most ", kMaxPrompts, " are taken"));
  }
  for (const ordered_json& entry : *value) {
    if (!ReadPrompt(entry, model, prompts)) return fields->Fail("prompt", kPromptShape);
  }
}

void ReadLegacyFields(ApiFields* fields, CompletionRequest* read) {
  TurnOptions& turn = read->turn;
  read->echo = fields->Bool("echo").value_or(false);
  for (const char* name : {"logprobs", "n_probs"}) {
    if (const auto n = fields->Integer(name, 0, kMaxTopLogprobs)) {
      if (*n > 0 || std::string_view(name) == "logprobs") turn.top_logprobs = static_cast<int>(*n);
    }
  }
  turn.prompt_logprobs = read->echo && turn.top_logprobs >= 0;
  turn.n_choices = static_cast<int>(fields->Integer("n", 1, kMaxChoices).value_or(1));
  turn.max_tokens = kDefaultMaxTokens;
  if (fields->Value("max_tokens") != nullptr || fields->Value("n_predict") != nullptr ||
      fields->Value("max_completion_tokens") != nullptr) {
    ReadMaxTokens(fields, /*least=*/0, &turn);
  }
  if (turn.max_tokens == 0 && turn.n_choices > 1) {
    fields->Fail("n", "must be 1 where max_tokens is 0");
  }
  fields->Refuse("best_of", "is not supported; use n", turn.n_choices);
  fields->Refuse("suffix", "is not supported: no model here fills in the middle", "");
  fields->Refuse("return_tokens", "is not supported; use /completion", false);
  fields->Refuse("response_format", "is not supported: this server cannot constrain output",
                 {{"type", "text"}});
}

StatusOr<CompletionRequest> ReadCompletion(Host& host, const HttpRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const ordered_json body, ParseJson(request.body, {}));
  CompletionRequest read;
  ApiFields fields(body);
  const auto model = fields.String("model");
  ReadPrompts(&fields, host.model(), &read.prompts);
  ReadSampling(&fields, host.model(), &read.turn);
  ReadStops(&fields, &read.turn);
  ReadLegacyFields(&fields, &read);
  ReadForeignFields(&fields);
  ReadAccountFields(&fields);
  read.stream = ReadStreamChoice(&fields, &read.ignored);
  WEFT_ASSIGN_OR_RETURN(read.session, FinishFields(host, request, model, read.prompts.size(),
                                                   &fields, &read.ignored));
  return read;
}

// The answers of one request: prompts in order, each with its choices.
class CompletionRun {
 public:
  CompletionRun(Host& host, const HttpRequest& request, HttpResponder& responder,
                CompletionRequest read)
      : host_(host),
        request_(request),
        responder_(responder),
        read_(std::move(read)),
        watch_(responder),
        envelope_(host, "cmpl-") {}

  void AnswerWhole() {
    ordered_json choices = ordered_json::array();
    ReplyUsage usage;
    for (const Prompt& prompt : read_.prompts) {
      auto stream = NextStream(nullptr);
      if (!stream.ok()) return Refuse(responder_, stream.status());
      auto replies = CollectReplies(stream->get(), read_.turn.n_choices);
      if (!replies.ok()) return Refuse(responder_, replies.status());
      for (const Reply& reply : *replies) {
        choices.push_back(WholeChoice(prompt, (*stream)->started(), reply, choices.size()));
      }
      usage = Sum(usage, (*stream)->usage());
    }
    ordered_json body = envelope_.Make("text_completion");
    body["choices"] = std::move(choices);
    body["usage"] = OpenAiUsage(usage);
    body["timings"] = LlamaTimings(usage);
    SendJson(responder_, body, read_.ignored);
  }

  void AnswerStreamed() {
    SseStream sse(responder_, IgnoredHeader(read_.ignored));
    ReplyUsage usage;
    for (size_t i = 0; i < read_.prompts.size(); ++i) {
      auto stream = NextStream(&sse);
      if (!stream.ok() && !sse.begun()) return Refuse(responder_, stream.status());
      Status status = stream.status();
      if (status.ok() && !StreamPrompt(i, stream->get(), &sse, &status)) return;
      if (!status.ok()) {
        sse.Data(ErrorBody(ToDetailedApiError(status), ErrorShape::kOpenAi));
        if (sse.Done()) sse.End();
        return;
      }
      usage = Sum(usage, (*stream)->usage());
    }
    ordered_json last = envelope_.Make("text_completion");
    last["choices"] = ordered_json::array();
    last["usage"] = OpenAiUsage(usage);
    last["timings"] = LlamaTimings(usage);
    if (read_.stream.include_usage && !sse.Data(last)) return;
    if (sse.Done()) sse.End();
  }

 private:
  // The answer to the next prompt; those behind it are submitted already.
  StatusOr<std::unique_ptr<ReplyStream>> NextStream(SseStream* sse) {
    const TurnOptions& turn = read_.turn;
    const bool bounded =
        turn.max_tokens >= 0 && turn.max_tokens * turn.n_choices <= kMaxUnreadTokens;
    const size_t at_once = bounded ? kPromptsAtOnce : 1;
    while (ahead_.size() < at_once && n_submitted_ < read_.prompts.size()) {
      GenerationRequest generation_request{.domain = request_.domain, .turn = turn};
      generation_request.turn.tokens = read_.prompts[n_submitted_].tokens;
      auto generation =
          StartGeneration(host_, watch_, read_.session, std::move(generation_request));
      // One that finds no place waits until those before it are answered.
      if (generation.status().code() == StatusCode::kResourceExhausted && !ahead_.empty()) break;
      WEFT_RETURN_IF_ERROR(generation.status());
      ++n_submitted_;
      ReplyPlan plan{.n_choices = turn.n_choices, .wants_logprobs = turn.top_logprobs >= 0};
      if (sse != nullptr) plan.while_quiet = [sse] { sse->Comment(); };
      ahead_.push_back(std::make_unique<ReplyStream>(*std::move(generation), std::move(plan)));
    }
    auto stream = std::move(ahead_.front());
    ahead_.pop_front();
    WEFT_RETURN_IF_ERROR(stream->Start());
    return stream;
  }

  bool wants_logprobs() const { return read_.turn.top_logprobs >= 0; }

  ordered_json WholeChoice(const Prompt& prompt, const StartedEvent& started, const Reply& reply,
                           size_t index) const {
    LegacyLogprobs logprobs(*host_.model().tokenizer());
    if (read_.echo) logprobs.AddPrompt(started.prompt_logprobs, prompt.text);
    logprobs.Add(reply.tokens);
    const std::string text = reply.Joined(ReplyBlock::Kind::kContent);
    return {{"text", read_.echo ? prompt.text + text : text},
            {"index", index},
            {"logprobs", wants_logprobs() ? logprobs.Take() : ordered_json()},
            {"finish_reason", OpenAiFinishReason(reply.finish)}};
  }

  ordered_json Chunk(size_t index, std::string_view text, ordered_json logprobs,
                     ordered_json finish_reason) const {
    ordered_json chunk = envelope_.Make("text_completion");
    chunk["choices"] = ordered_json::array({{{"text", text},
                                             {"index", index},
                                             {"logprobs", std::move(logprobs)},
                                             {"finish_reason", std::move(finish_reason)}}});
    return chunk;
  }

  // False when the client is gone.
  bool StreamPrompt(size_t i, ReplyStream* stream, SseStream* sse, Status* status) {
    const size_t n_choices = static_cast<size_t>(read_.turn.n_choices);
    std::vector<LegacyLogprobs> logprobs(n_choices, LegacyLogprobs(*host_.model().tokenizer()));
    for (size_t choice = 0; read_.echo && choice < n_choices; ++choice) {
      logprobs[choice].AddPrompt(stream->started().prompt_logprobs, read_.prompts[i].text);
      if (!sse->Data(Chunk(i * n_choices + choice, read_.prompts[i].text, logprobs[choice].Take(),
                           nullptr))) {
        return false;
      }
    }
    const bool is_last_prompt = i + 1 == read_.prompts.size();
    size_t open = n_choices;
    while (auto piece = stream->Next()) {
      *status = piece->status;
      if (!status->ok()) return true;
      const bool is_end = piece->kind == ReplyPiece::Kind::kEnd;
      const size_t choice = static_cast<size_t>(piece->choice);
      logprobs[choice].Add(piece->tokens);
      ordered_json chunk =
          Chunk(i * n_choices + choice, piece->text,
                wants_logprobs() ? logprobs[choice].Take() : ordered_json(),
                is_end ? ordered_json(OpenAiFinishReason(piece->finish)) : ordered_json());
      if (is_end) --open;
      const bool is_last = open == 0 && is_last_prompt && !read_.stream.include_usage;
      if (is_last || read_.stream.timings_per_token) {
        chunk["timings"] = LlamaTimings(stream->usage());
      }
      if (!sse->Data(chunk)) return false;
    }
    return true;
  }

  Host& host_;
  const HttpRequest& request_;
  HttpResponder& responder_;
  const CompletionRequest read_;
  GoneWatch watch_;
  const OpenAiEnvelope envelope_;
  std::deque<std::unique_ptr<ReplyStream>> ahead_;
  size_t n_submitted_ = 0;
};

void HandleEmbeddings(Host& host, const HttpRequest& request, HttpResponder& responder) {
  auto body = ParseJson(request.body, {});
  if (!body.ok()) return Refuse(responder, body.status());
  ApiFields fields(*body);
  const auto model = fields.String("model");
  std::vector<std::string> ignored;
  Status status = fields.Finish(&ignored);
  if (status.ok()) status = CheckModel(host, model);
  if (status.ok()) {
    status = Unimplemented("the model ", host.model_id(),
                           " gives no embeddings: it is a model that generates text; serve an "
                           "embedding model for this");
  }
  Refuse(responder, status);
}

}  // namespace

void HandleCompletions(Host& host, const HttpRequest& request, HttpResponder& responder) {
  auto read = ReadCompletion(host, request);
  if (!read.ok()) return Refuse(responder, read.status());
  const bool stream = read->stream.stream;
  CompletionRun run(host, request, responder, *std::move(read));
  if (stream) {
    run.AnswerStreamed();
  } else {
    run.AnswerWhole();
  }
}

void RegisterOpenAiApi(Router& router, Host& host) {
  using Handler = void (*)(Host&, const HttpRequest&, HttpResponder&);
  const std::pair<const char*, Handler> routes[] = {
      {"/chat/completions", HandleChatCompletions},
      {"/chat/completions/input_tokens", HandleChatInputTokens},
      {"/embeddings", HandleEmbeddings}};
  const auto add = [&](std::string_view path, Handler handler) {
    router.Add("POST", path, ErrorShape::kOpenAi,
               [&host, handler](const HttpRequest& request, HttpResponder& responder) {
                 handler(host, request, responder);
               });
  };
  for (const auto& [path, handler] : routes) {
    add(path, handler);
    add(StrCat("/v1", path), handler);
  }
  add("/v1/completions", HandleCompletions);  // "/completions" is llama-server's own
}

}  // namespace weft::serve
