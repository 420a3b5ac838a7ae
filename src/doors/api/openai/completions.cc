#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "answer/answer.h"
#include "base/strings.h"
#include "doors/api/fields/support.h"
#include "doors/api/openai/chat_request.h"
#include "doors/api/openai/completions_request.h"
#include "doors/api/openai/routes.h"
#include "doors/api/reply_json.h"
#include "doors/api/request_turns.h"
#include "doors/api/sse.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

// Prompts of one request submitted to the engine at a time. Their answers are read one after
// another, so each must fit the queue of an unread turn.
constexpr size_t kPromptsAtOnce = 8;
constexpr int64_t kMaxUnreadTokens = 500;

// The mean log-probability of its tokens.
double MeanLogprob(const Reply& reply) {
  double sum = 0;
  for (const TokenEvent& token : reply.tokens) sum += token.logprob;
  return reply.tokens.empty() ? -std::numeric_limits<double>::infinity()
                              : sum / static_cast<double>(reply.tokens.size());
}

// Keeps the `n` likeliest, best first.
void KeepBest(size_t n, std::vector<Reply>* replies) {
  if (replies->size() <= n) return;
  std::stable_sort(replies->begin(), replies->end(),
                   [](const Reply& a, const Reply& b) { return MeanLogprob(a) > MeanLogprob(b); });
  replies->resize(n);
}

// The answers of one request: prompts in order, each with its choices.
class CompletionRun {
 public:
  CompletionRun(Host& host, HttpResponder& responder, RequestTurns& turns, CompletionRequest read)
      : host_(host),
        responder_(responder),
        turns_(turns),
        read_(std::move(read)),
        envelope_(host, "cmpl-") {}

  Task<void> AnswerWhole() {
    ordered_json choices = ordered_json::array();
    AnswerUsage usage;
    for (const CompletionRequest::Prompt& prompt : read_.prompts) {
      auto stream = co_await NextStream(nullptr);
      if (!stream.ok()) {
        SendError(responder_, stream.status(), kOpenAiErrors);
        co_return;
      }
      auto replies = co_await CollectReplies(stream->get(), read_.ask.turn.n_choices);
      if (!replies.ok()) {
        SendError(responder_, replies.status(), kOpenAiErrors);
        co_return;
      }
      KeepBest(static_cast<size_t>(read_.n_answers), &*replies);
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

  Task<void> AnswerStreamed() {
    SseStream sse(responder_, NoticeHeaders(read_.ignored));
    AnswerUsage usage;
    for (size_t i = 0; i < read_.prompts.size(); ++i) {
      auto stream = co_await NextStream(&sse);
      if (!stream.ok() && !sse.begun()) {
        SendError(responder_, stream.status(), kOpenAiErrors);
        co_return;
      }
      Status status = stream.status();
      if (status.ok()) {
        const bool is_there = co_await StreamPrompt(i, stream->get(), &sse, &status);
        if (!is_there) co_return;
      }
      if (!status.ok()) {
        sse.Fail(status);
        co_return;
      }
      usage = Sum(usage, (*stream)->usage());
    }
    ordered_json last = envelope_.Make("text_completion");
    last["choices"] = ordered_json::array();
    last["usage"] = OpenAiUsage(usage);
    last["timings"] = LlamaTimings(usage);
    if (read_.stream.include_usage && !sse.Data(last)) co_return;
    sse.Done();
  }

 private:
  // The answer to the next prompt; later ones are already submitted.
  Task<StatusOr<std::unique_ptr<Answer>>> NextStream(SseStream* sse) {
    const TurnOptions& turn = read_.ask.turn;
    const bool bounded =
        turn.max_tokens >= 0 && turn.max_tokens * turn.n_choices <= kMaxUnreadTokens;
    const size_t at_once = bounded ? kPromptsAtOnce : 1;
    while (ahead_.size() < at_once && n_submitted_ < read_.prompts.size()) {
      Ask ask = read_.ask;
      ask.turn.tokens = read_.prompts[n_submitted_].tokens;
      ask.turn.parts = read_.prompts[n_submitted_].parts;
      StreamSigns signs;
      if (sse != nullptr) {
        const size_t first_choice = n_submitted_ * static_cast<size_t>(turn.n_choices);
        signs.alive = [this, sse, first_choice](const AnswerUsage&) {
          sse->Data(Chunk(first_choice, "", nullptr));
        };
      }
      auto beginning = turns_.Begin(std::move(ask), std::move(signs));
      auto answer = co_await beginning;
      // A prompt that the engine refuses waits until earlier ones are answered.
      if (answer.status().code() == StatusCode::kResourceExhausted && !ahead_.empty()) break;
      if (!answer.ok()) co_return answer.status();
      ++n_submitted_;
      ahead_.push_back(*std::move(answer));
    }
    auto stream = std::move(ahead_.front());
    ahead_.pop_front();
    const Status started = co_await turns_.Start(*stream);
    if (!started.ok()) co_return started;
    co_return stream;
  }

  ordered_json WholeChoice(const CompletionRequest::Prompt& prompt, const StartedEvent& started,
                           const Reply& reply, size_t index) const {
    LegacyLogprobs logprobs(*host_.model().tokenizer());
    if (read_.echo) logprobs.AddPrompt(started.prompt_logprobs, prompt.text);
    logprobs.Add(reply.tokens);
    const std::string text = reply.Joined(ReplyBlock::Kind::kContent);
    ordered_json choice = {{"text", read_.echo ? prompt.text + text : text},
                           {"index", index},
                           {"logprobs", read_.wants_logprobs ? logprobs.Take() : ordered_json()}};
    SetFinish(reply.end, &choice);
    return choice;
  }

  ordered_json Chunk(size_t index, std::string_view text, ordered_json logprobs) const {
    ordered_json chunk = envelope_.Make("text_completion");
    chunk["choices"] = ordered_json::array({{{"text", text},
                                             {"index", index},
                                             {"logprobs", std::move(logprobs)},
                                             {"finish_reason", nullptr}}});
    return chunk;
  }

  // False once the client has left.
  Task<bool> StreamPrompt(size_t i, Answer* stream, SseStream* sse, Status* status) {
    const size_t n_choices = static_cast<size_t>(read_.ask.turn.n_choices);
    std::vector<LegacyLogprobs> logprobs(n_choices, LegacyLogprobs(*host_.model().tokenizer()));
    for (size_t choice = 0; read_.echo && choice < n_choices; ++choice) {
      logprobs[choice].AddPrompt(stream->started().prompt_logprobs, read_.prompts[i].text);
      if (!sse->Data(
              Chunk(i * n_choices + choice, read_.prompts[i].text, logprobs[choice].Take()))) {
        co_return false;
      }
    }
    const bool is_last_prompt = i + 1 == read_.prompts.size();
    size_t open = n_choices;
    while (true) {
      std::optional<AnswerPiece> piece = co_await stream->Next();
      if (!piece) break;
      *status = piece->status;
      if (!status->ok()) co_return true;
      const bool is_end = piece->kind == AnswerPiece::Kind::kEnd;
      const size_t choice = static_cast<size_t>(piece->choice);
      logprobs[choice].Add(piece->tokens);
      ordered_json chunk = Chunk(i * n_choices + choice, piece->text,
                                 read_.wants_logprobs ? logprobs[choice].Take() : ordered_json());
      if (is_end) SetFinish(piece->end, &chunk["choices"][0]);
      if (is_end) --open;
      const bool is_last = open == 0 && is_last_prompt && !read_.stream.include_usage;
      if (is_last || read_.stream.timings_per_token) {
        chunk["timings"] = LlamaTimings(stream->usage());
      }
      if (!sse->Data(chunk)) co_return false;
    }
    co_return true;
  }

  Host& host_;
  HttpResponder& responder_;
  RequestTurns& turns_;
  const CompletionRequest read_;
  const OpenAiEnvelope envelope_;
  std::deque<std::unique_ptr<Answer>> ahead_;
  size_t n_submitted_ = 0;
};

}  // namespace

Task<void> HandleCompletions(Host& host, const HttpRequest& request, HttpResponder& responder) {
  auto read = ReadCompletion(host, request);
  if (!read.ok()) {
    SendError(responder, read.status(), kOpenAiErrors);
    co_return;
  }
  const bool stream = read->stream.stream;
  RequestTurns turns(host, responder);
  CompletionRun run(host, responder, turns, *std::move(read));
  if (stream) {
    co_await run.AnswerStreamed();
  } else {
    co_await run.AnswerWhole();
  }
  co_await turns.End();
}

void RegisterOpenAiApi(Router& router, Host& host) {
  using Handler = void (*)(Host&, const HttpRequest&, HttpResponder&);
  using Waiting = Task<void> (*)(Host&, const HttpRequest&, HttpResponder&);
  const auto add = [&](std::string_view path, Handler handler) {
    router.Add("POST", path, kOpenAiErrors,
               [&host, handler](const HttpRequest& request, HttpResponder& responder) {
                 handler(host, request, responder);
               });
  };
  const auto add_stream = [&](std::string_view path, Waiting handler) {
    router.AddStream("POST", path, kOpenAiErrors,
                     [&host, handler](const HttpRequest& request, HttpResponder& responder) {
                       return handler(host, request, responder);
                     });
  };
  for (const char* const version : {"", "/v1"}) {
    add_stream(StrCat(version, "/chat/completions"), HandleChatCompletions);
    add(StrCat(version, "/chat/completions/input_tokens"), HandleChatInputTokens);
  }
  add("/v1/chat/completions/render", HandleChatRender);
  add("/v1/completions/render", HandleCompletionsRender);
  // Without the version these are llama-server's own.
  add_stream("/v1/completions", HandleCompletions);
  router.AddTask("POST", "/v1/embeddings", kOpenAiErrors,
                 [&host](const HttpRequest& request, HttpResponder& responder) {
                   return HandleEmbeddings(host, request, responder);
                 });
}

}  // namespace weft::serve
