// POST /completion: llama-server's own completions.
#include <chrono>
#include <cmath>
#include <iterator>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "async/signal.h"
#include "async/task.h"
#include "base/strings.h"
#include "doors/api/fields/cache_report.h"
#include "doors/api/fields/support.h"
#include "doors/api/llama/request.h"
#include "doors/api/llama/routes.h"
#include "doors/api/reply_json.h"
#include "doors/api/request_turns.h"
#include "doors/api/sse.h"
#include "model/tokenizer/tokenizer.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::milliseconds;

// Prompts of one request submitted to the engine at a time.
constexpr size_t kPromptsAtOnce = 32;

Json ProbabilityEntry(const Tokenizer& tokenizer, TokenLogprob token, bool of_draw) {
  const std::string piece = tokenizer.Piece(token.token, /*render_special=*/true);
  Json bytes = Json::array();
  for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
  Json entry = {{"id", token.token}, {"token", piece}, {"bytes", std::move(bytes)}};
  if (of_draw) {
    entry["prob"] = std::exp(token.logprob);
  } else {
    // JSON has no infinity; OpenAI's API uses this instead.
    entry["logprob"] = std::isfinite(token.logprob) ? token.logprob : -9999.0f;
  }
  return entry;
}

Json Probabilities(const Tokenizer& tokenizer, const TokenEvent& event, bool of_draw) {
  Json entry =
      ProbabilityEntry(tokenizer, {.token = event.token, .logprob = event.logprob}, of_draw);
  Json top = Json::array();
  for (const TokenLogprob& other : event.alternatives) {
    top.push_back(ProbabilityEntry(tokenizer, other, of_draw));
  }
  entry[of_draw ? "top_probs" : "top_logprobs"] = std::move(top);
  return entry;
}

const char* StopType(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "eos";
    case FinishReason::kStopString:
      return "word";
    case FinishReason::kLength:
    case FinishReason::kContext:
    case FinishReason::kLoop:
      return "limit";
    default:
      return "none";
  }
}

// The result's fields that the client wants: "a/b" means b of a, and appears under that whole name.
Json Selected(const Json& result, const std::vector<std::string>& wanted) {
  if (wanted.empty()) return result;
  Json selected = Json::object();
  for (const std::string& path : wanted) {
    const Json* at = &result;
    for (const std::string_view part : StrSplit(path, '/')) {
      if (at == nullptr || !at->is_object()) {
        at = nullptr;
        break;
      }
      const auto it = at->find(part);
      at = it == at->end() ? nullptr : &*it;
    }
    if (at != nullptr) selected[path] = *at;
  }
  return selected;
}

// An answer in progress.
struct Choice {
  std::string content;
  std::vector<int32_t> tokens;
  Json probabilities = Json::array();
  AnswerUsage usage;
  DoneEvent done;
  std::chrono::steady_clock::time_point first_token;
  bool is_late = false;
};

// The outcome of one event; fields are null if there is none.
struct PromptStep {
  Json piece;        // for a stream
  Json result;       // set once an answer is complete
  size_t index = 0;  // that answer's index among all of the request's
};

// The answers to one prompt.
class PromptRun {
 public:
  PromptRun(Host& host, const LlamaCompletion& read, size_t index)
      : host_(host),
        read_(read),
        index_(index),
        tokenizer_(*host.model().tokenizer()),
        choices_(static_cast<size_t>(read.ask.turn.n_choices)) {}

  // `ready` is notified when there is an event to take.
  Task<Status> Start(RequestTurns& turns, const std::shared_ptr<Signal>& ready) {
    Ask ask = read_.ask;
    const LlamaPrompt& prompt = read_.prompts[index_];
    ask.turn.tokens = prompt.tokens;
    ask.text = prompt.text;
    ask.pictures = prompt.pictures;
    auto submitting = turns.Submit(std::move(ask), ready);
    StatusOr<std::shared_ptr<Generation>> generation = co_await submitting;
    if (!generation.ok()) co_return generation.status();
    generation_ = *std::move(generation);
    co_return OkStatus();
  }

  // --- REQUIRES: Start returned OK ---------------------------------------------------
  bool IsReady() { return generation_->IsReady(); }
  // REQUIRES: IsReady.
  Task<StatusOr<PromptStep>> TakeEvent() {
    const std::optional<TurnEvent> event = co_await generation_->Next();
    if (!event.has_value()) co_return Cancelled("the request was cancelled");
    co_return Take(*event);
  }
  // For a stream with nothing to report.
  Json EmptyPiece() const {
    return Piece(0, "", Json::array(), generation_->prompt_tokens(),
                 choices_[0].usage.completion_tokens);
  }
  bool ended() const { return n_ended_ == choices_.size(); }

 private:
  StatusOr<PromptStep> Take(const TurnEvent& event) {
    PromptStep step;
    if (const auto* progress = std::get_if<ProgressEvent>(&event)) {
      step.piece = Piece(0, "", Json::array(), progress->prompt_tokens, 0);
      step.piece["prompt_progress"] = LlamaProgress(*progress);
      if (read_.timings_per_token) step.piece["timings"] = LlamaTimings(*progress);
    } else if (const auto* started = std::get_if<StartedEvent>(&event)) {
      for (Choice& choice : choices_) {
        choice.usage.prompt_tokens = started->prompt_tokens;
        choice.usage.cached_tokens = started->cached_tokens;
        choice.usage.disk_tokens = started->disk_tokens;
      }
      seed_ = started->seed;
    } else if (const auto* token = std::get_if<TokenEvent>(&event)) {
      step.piece = TakeToken(*token);
    } else if (const auto* done = std::get_if<DoneEvent>(&event)) {
      WEFT_RETURN_IF_ERROR(End(*done));
      step.result = Result(choices_[static_cast<size_t>(done->choice)]);
      step.index = IndexOf(done->choice);
    }
    return step;
  }
  size_t IndexOf(int choice) const {
    return index_ * choices_.size() + static_cast<size_t>(choice);
  }

  Json Piece(int choice, std::string_view text, Json tokens, int64_t n_prompt,
             int64_t n_predicted) const {
    return {{"index", IndexOf(choice)},    {"content", text},
            {"tokens", std::move(tokens)}, {"stop", false},
            {"id_slot", read_.slot},       {"tokens_predicted", n_predicted},
            {"tokens_evaluated", n_prompt}};
  }

  Json TakeToken(const TokenEvent& token) {
    Choice& choice = choices_[static_cast<size_t>(token.choice)];
    AnswerUsage& usage = choice.usage;
    choice.content += token.text;
    ++usage.completion_tokens;
    usage.first_tokens = 1;
    EndInTime(&choice);
    // An end token is not part of the answer and completes no text.
    if (tokenizer_.IsEndOfGeneration(token.token) && !read_.ask.turn.ignore_eos) return nullptr;
    choice.tokens.push_back(token.token);
    Json entry;
    if (read_.ask.turn.top_logprobs > 0) {
      entry = Probabilities(tokenizer_, token, read_.ask.turn.logprobs_of_draw);
      if (!read_.stream) choice.probabilities.push_back(entry);
    }
    if (!read_.stream) return nullptr;
    Json piece = Piece(token.choice, token.text, Json::array({token.token}), usage.prompt_tokens,
                       usage.completion_tokens);
    if (!entry.is_null()) piece["completion_probabilities"] = Json::array({std::move(entry)});
    if (read_.timings_per_token) piece["timings"] = LlamaTimings(usage);
    return piece;
  }

  // t_max_predict_ms: editors prefer a few lines now to all of them later.
  void EndInTime(Choice* choice) {
    if (read_.max_predict_ms == 0 || choice->is_late) return;
    const auto now = std::chrono::steady_clock::now();
    if (choice->usage.completion_tokens == 1) choice->first_token = now;
    choice->is_late = now - choice->first_token > milliseconds(read_.max_predict_ms) &&
                      choice->content.find('\n') != choice->content.npos;
    if (choice->is_late) generation_->Cancel();
  }

  Status End(const DoneEvent& done) {
    ++n_ended_;
    Choice& choice = choices_[static_cast<size_t>(done.choice)];
    choice.done = done;
    choice.content += done.text;
    choice.usage.completion_tokens = done.usage.completion_tokens;
    choice.usage.queued_us = done.usage.queued_us;
    choice.usage.prompt_us = done.usage.prompt_us;
    choice.usage.decode_us = done.usage.decode_us;
    choice.usage.guessed_tokens = done.usage.guessed_tokens;
    choice.usage.accepted_guesses = done.usage.accepted_guesses;
    if (done.reason == FinishReason::kCancelled && choice.is_late) {
      choice.done.reason = FinishReason::kLength;
      return OkStatus();
    }
    if (done.reason == FinishReason::kCancelled) {
      return Unavailable(
          "the generation was cancelled: its session was closed, or the server stops");
    }
    return done.status;
  }

  std::string PromptText() const {
    const LlamaPrompt& prompt = read_.prompts[index_];
    if (!prompt.written.empty()) return prompt.written;
    return host_.model().Decode(prompt.tokens, /*render_special=*/true);
  }

  Json Result(const Choice& choice) const {
    const bool streamed = read_.stream;
    const DoneEvent& done = choice.done;
    const AnswerUsage& usage = choice.usage;
    Json result = {
        {"index", IndexOf(done.choice)},
        {"content", streamed ? done.text : choice.content},
        {"tokens", read_.return_tokens && !streamed ? Json(choice.tokens) : Json::array()},
        {"id_slot", read_.slot},
        {"stop", true},
        {"model", host_.model_id()},
        {"tokens_predicted", usage.completion_tokens},
        {"tokens_evaluated", usage.prompt_tokens},
        {"generation_settings", LlamaSettings(read_, seed_, tokenizer_)},
        {"prompt", PromptText()},
        {"has_new_line", choice.content.find('\n') != choice.content.npos},
        {"truncated", done.reason == FinishReason::kContext},
        {"stop_type", StopType(done.reason)},
        {"stopped_in_loop", done.reason == FinishReason::kLoop},
        {"stopping_word", done.stop_string},
        {"tokens_cached", usage.cached_tokens},
        {"timings", LlamaTimings(usage)}};
    if (!streamed && read_.ask.turn.top_logprobs > 0) {
      result["completion_probabilities"] = choice.probabilities;
    }
    if (read_.ask.tells_cache_report) AddCacheReport(generation_->cache_report(), &result);
    return Selected(result, read_.response_fields);
  }

  Host& host_;
  const LlamaCompletion& read_;
  const size_t index_;
  const Tokenizer& tokenizer_;
  std::shared_ptr<Generation> generation_;
  uint64_t seed_ = 0;
  std::vector<Choice> choices_;
  size_t n_ended_ = 0;
};

// Answers all prompts of a request together.
class CompletionRun {
 public:
  CompletionRun(Host& host, const LlamaCompletion& read, HttpResponder& responder,
                RequestTurns& turns)
      : host_(host),
        read_(read),
        responder_(responder),
        turns_(turns),
        sse_(responder, NoticeHeaders(read.ignored)),
        results_(read.prompts.size() * static_cast<size_t>(read.ask.turn.n_choices)) {}

  Task<void> Answer() {
    const Status status = co_await Run();
    if (!status.ok() && !sse_.begun()) {
      SendError(responder_, status, kLlamaErrors);
    } else if (read_.stream) {
      if (!status.ok()) sse_.Data(ErrorBody(ToDetailedApiError(status), kLlamaErrors));
      sse_.End();
    } else {
      SendJson(responder_, results_.size() == 1 ? results_[0] : Json(results_), read_.ignored);
    }
  }

 private:
  Task<Status> Run() {
    while (true) {
      Status status = co_await StartMore();
      if (!status.ok() || open_.empty()) co_return status;
      status = co_await TakeWhatIsThere();
      if (!status.ok()) co_return status;
    }
  }

  // Submits as many prompts as allowed at a time; one that the engine refuses waits until another
  // is answered.
  Task<Status> StartMore() {
    while (n_started_ < read_.prompts.size() && open_.size() < kPromptsAtOnce) {
      PromptRun run(host_, read_, n_started_);
      const Status status = co_await run.Start(turns_, ready_);
      if (status.code() == StatusCode::kResourceExhausted && !open_.empty()) break;
      if (!status.ok()) co_return status;
      open_.push_back(std::move(run));
      ++n_started_;
    }
    co_return OkStatus();
  }

  // Takes the next event, or waits for one. Streams with nothing to report send a sign of life.
  Task<Status> TakeWhatIsThere() {
    co_await responder_.Room();
    bool took = false;
    for (auto run = open_.begin(); run != open_.end();) {
      if (run->IsReady()) {
        took = true;
        StatusOr<PromptStep> step = co_await run->TakeEvent();
        if (!step.ok()) co_return step.status();
        const Status told = Tell(*std::move(step));
        if (!told.ok()) co_return told;
      }
      run = run->ended() ? open_.erase(run) : std::next(run);
    }
    if (took) co_return OkStatus();
    const auto deadline = SignDue();
    const bool is_in_time = co_await ready_->WaitUntil(deadline);
    co_return is_in_time ? OkStatus() : TellAlive();
  }

  // When a stream with nothing to report sends a sign of life; nullopt: never.
  std::optional<Signal::TimePoint> SignDue() const {
    const RequestDefaults& defaults = host_.defaults();
    const milliseconds patience =
        sse_.begun() ? defaults.server.ping_interval : defaults.stream_begin;
    if (!read_.stream || patience.count() <= 0) return std::nullopt;
    return std::chrono::steady_clock::now() + patience;
  }

  Status TellAlive() {
    if (!sse_.Data(open_.front().EmptyPiece())) return Cancelled("the client is gone");
    return OkStatus();
  }

  Status Tell(PromptStep step) {
    if (!step.piece.is_null() && !sse_.Data(step.piece)) return Cancelled("the client is gone");
    if (step.result.is_null()) return OkStatus();
    if (!read_.stream) {
      results_[step.index] = std::move(step.result);
    } else if (!sse_.Data(step.result)) {
      return Cancelled("the client is gone");
    }
    return OkStatus();
  }

  Host& host_;
  const LlamaCompletion& read_;
  HttpResponder& responder_;
  RequestTurns& turns_;
  SseStream sse_;
  const std::shared_ptr<Signal> ready_ = std::make_shared<Signal>();
  std::list<PromptRun> open_;
  size_t n_started_ = 0;
  std::vector<Json> results_;
};

Task<void> Complete(Host& host, const StatusOr<LlamaCompletion>& read, HttpResponder& responder) {
  if (!read.ok()) {
    SendError(responder, read.status(), kLlamaErrors);
    co_return;
  }
  RequestTurns turns(host, responder);
  CompletionRun run(host, *read, responder, turns);
  co_await run.Answer();
  co_await turns.End();
}

}  // namespace

Task<void> HandleLlamaCompletion(Host& host, const HttpRequest& request, HttpResponder& responder) {
  const auto read = ReadLlamaCompletion(host, request);
  co_await Complete(host, read, responder);
}

Task<void> HandleLlamaInfill(Host& host, const HttpRequest& request, HttpResponder& responder) {
  const auto read = ReadLlamaInfill(host, request);
  co_await Complete(host, read, responder);
}

}  // namespace weft::serve
