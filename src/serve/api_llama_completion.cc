// POST /completion: llama-server's own form of a completion.
#include <chrono>
#include <cmath>
#include <iterator>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "serve/api_llama.h"
#include "serve/api_support.h"
#include "serve/chat_turn.h"
#include "serve/llama_request.h"
#include "serve/reply_json.h"
#include "serve/sse.h"
#include "serve/wakeup.h"
#include "tokenizer/tokenizer.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::milliseconds;

// Prompts of one request that are with the engine at a time.
constexpr size_t kPromptsAtOnce = 32;

// How long a stream may have nothing to tell before it says so.
constexpr milliseconds kPatience{10'000};

Json ProbabilityEntry(const Tokenizer& tokenizer, TokenLogprob token, bool of_draw) {
  const std::string piece = tokenizer.Piece(token.token, /*render_special=*/true);
  Json bytes = Json::array();
  for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
  Json entry = {{"id", token.token}, {"token", piece}, {"bytes", std::move(bytes)}};
  if (of_draw) {
    entry["prob"] = std::exp(token.logprob);
  } else {
    // JSON has no infinity; this is what OpenAI's API says instead.
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
      return "limit";
    default:
      return "none";
  }
}

// The parts of a result that a client wants: "a/b" is b of a, and stands by itself under
// that whole name.
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

// The answer to one prompt, while it is made.
class PromptRun {
 public:
  PromptRun(Host& host, const LlamaCompletion& read, size_t index)
      : host_(host), read_(read), index_(index), tokenizer_(*host.model().tokenizer()) {}

  Status Start(const HttpRequest& request, GoneWatch& watch, std::shared_ptr<Wakeup> wakeup) {
    GenerationRequest generation{
        .domain = request.domain, .turn = read_.turn, .wakeup = std::move(wakeup)};
    generation.turn.tokens = read_.prompts[index_];
    WEFT_ASSIGN_OR_RETURN(generation_,
                          StartGeneration(host_, watch, read_.session, std::move(generation)));
    return OkStatus();
  }

  // --- REQUIRES: Start was OK --------------------------------------------------------
  bool WaitFor(std::chrono::milliseconds patience) { return generation_->WaitFor(patience); }
  // Takes what comes next. `piece` is what a stream shows of it, null where that is nothing.
  Status TakeEvent(Json* piece) {
    const auto event = generation_->Next();
    if (!event.has_value()) return Cancelled("the request was cancelled");
    if (const auto* started = std::get_if<StartedEvent>(&*event)) {
      usage_.prompt_tokens = started->prompt_tokens;
      usage_.cached_tokens = started->cached_tokens;
      seed_ = started->seed;
    } else if (const auto* token = std::get_if<TokenEvent>(&*event)) {
      *piece = Take(*token);
    } else if (const auto* done = std::get_if<DoneEvent>(&*event)) {
      return Ended(*done);
    }
    return OkStatus();
  }

  size_t index() const { return index_; }
  bool ended() const { return ended_; }
  // REQUIRES: ended()
  Json Result() const {
    const bool streamed = read_.stream;
    const bool at_limit = done_.reason == FinishReason::kLength;
    const bool full = usage_.prompt_tokens + usage_.completion_tokens >= ContextTokens();
    Json result = {{"index", index_},
                   {"content", streamed ? done_.text : content_},
                   {"tokens", read_.return_tokens && !streamed ? Json(tokens_) : Json::array()},
                   {"id_slot", -1},
                   {"stop", true},
                   {"model", host_.model_id()},
                   {"tokens_predicted", usage_.completion_tokens},
                   {"tokens_evaluated", usage_.prompt_tokens},
                   {"generation_settings", LlamaSettings(read_, seed_, tokenizer_)},
                   {"prompt", host_.model().Decode(read_.prompts[index_], /*render_special=*/true)},
                   {"has_new_line", content_.find('\n') != content_.npos},
                   {"truncated", at_limit && full},
                   {"stop_type", StopType(done_.reason)},
                   {"stopping_word", done_.stop_string},
                   {"tokens_cached", usage_.cached_tokens},
                   {"timings", LlamaTimings(usage_)}};
    if (!streamed && read_.turn.top_logprobs > 0) {
      result["completion_probabilities"] = probabilities_;
    }
    return Selected(result, read_.response_fields);
  }

 private:
  int64_t ContextTokens() const { return host_.model().context_tokens(); }

  Json Take(const TokenEvent& token) {
    content_ += token.text;
    ++usage_.completion_tokens;
    // An end token is no part of the answer, and completes no text.
    if (tokenizer_.IsEndOfGeneration(token.token) && !read_.turn.ignore_eos) return nullptr;
    tokens_.push_back(token.token);
    Json entry;
    if (read_.turn.top_logprobs > 0) {
      entry = Probabilities(tokenizer_, token, read_.turn.logprobs_of_draw);
      if (!read_.stream) probabilities_.push_back(entry);
    }
    if (!read_.stream) return nullptr;
    Json piece = {{"index", index_},
                  {"content", token.text},
                  {"tokens", Json::array({token.token})},
                  {"stop", false},
                  {"id_slot", -1},
                  {"tokens_predicted", usage_.completion_tokens},
                  {"tokens_evaluated", usage_.prompt_tokens}};
    if (!entry.is_null()) piece["completion_probabilities"] = Json::array({std::move(entry)});
    if (read_.timings_per_token) piece["timings"] = LlamaTimings(usage_);
    return piece;
  }

  Status Ended(const DoneEvent& done) {
    ended_ = true;
    done_ = done;
    content_ += done.text;
    usage_.completion_tokens = done.usage.completion_tokens;
    usage_.prompt_us = done.usage.prompt_us;
    usage_.decode_us = done.usage.decode_us;
    if (done.reason == FinishReason::kCancelled) {
      return Unavailable(
          "the generation was cancelled: its session was closed, or the server stops");
    }
    return done.status;
  }

  Host& host_;
  const LlamaCompletion& read_;
  const size_t index_;
  const Tokenizer& tokenizer_;
  std::shared_ptr<Generation> generation_;
  ReplyUsage usage_;
  uint64_t seed_ = 0;
  std::string content_;
  std::vector<int32_t> tokens_;
  Json probabilities_ = Json::array();
  bool ended_ = false;
  DoneEvent done_;
};

// Answers all prompts of a request together.
class CompletionRun {
 public:
  CompletionRun(Host& host, const LlamaCompletion& read, const HttpRequest& request,
                HttpResponder& responder)
      : host_(host),
        read_(read),
        request_(request),
        responder_(responder),
        watch_(responder),
        sse_(responder, IgnoredHeader(read.ignored)),
        results_(read.prompts.size()) {}

  void Answer() {
    const Status status = Run();
    if (!status.ok() && !sse_.begun()) {
      return SendError(responder_, ToDetailedApiError(status), ErrorShape::kLlama);
    }
    if (read_.stream) {
      if (!status.ok()) sse_.Data(ErrorBody(ToDetailedApiError(status), ErrorShape::kLlama));
      return sse_.End();
    }
    SendJson(responder_, results_.size() == 1 ? results_[0] : Json(results_), read_.ignored);
  }

 private:
  Status Run() {
    while (true) {
      WEFT_RETURN_IF_ERROR(StartMore());
      if (open_.empty()) return OkStatus();
      WEFT_RETURN_IF_ERROR(TakeWhatIsThere());
    }
  }

  // As many prompts as may be with the engine at a time; one that finds no place there waits
  // until one of the others is answered.
  Status StartMore() {
    while (n_started_ < read_.prompts.size() && open_.size() < kPromptsAtOnce) {
      PromptRun run(host_, read_, n_started_);
      const Status status = run.Start(request_, watch_, wakeup_);
      if (status.code() == StatusCode::kResourceExhausted && !open_.empty()) break;
      WEFT_RETURN_IF_ERROR(status);
      open_.push_back(std::move(run));
      ++n_started_;
    }
    return OkStatus();
  }

  // Waits until there is something to take, and takes it. A stream that has nothing to tell
  // says so.
  Status TakeWhatIsThere() {
    const uint64_t seen = wakeup_->count();
    bool took = false;
    for (auto run = open_.begin(); run != open_.end();) {
      const milliseconds patience = open_.size() == 1 ? kPatience : milliseconds(0);
      if (run->WaitFor(patience)) {
        took = true;
        WEFT_RETURN_IF_ERROR(TakeEvent(&*run));
      } else if (open_.size() == 1) {
        if (read_.stream) sse_.Comment();
        return OkStatus();
      }
      run = run->ended() ? open_.erase(run) : std::next(run);
    }
    if (took || wakeup_->WaitPast(seen, std::chrono::steady_clock::now() + kPatience)) {
      return OkStatus();
    }
    if (read_.stream) sse_.Comment();
    return OkStatus();
  }

  Status TakeEvent(PromptRun* run) {
    Json piece;
    WEFT_RETURN_IF_ERROR(run->TakeEvent(&piece));
    if (!piece.is_null() && !sse_.Data(piece)) return Cancelled("the client is gone");
    if (!run->ended()) return OkStatus();
    if (!read_.stream) {
      results_[run->index()] = run->Result();
    } else if (!sse_.Data(run->Result())) {
      return Cancelled("the client is gone");
    }
    return OkStatus();
  }

  Host& host_;
  const LlamaCompletion& read_;
  const HttpRequest& request_;
  HttpResponder& responder_;
  GoneWatch watch_;
  SseStream sse_;
  const std::shared_ptr<Wakeup> wakeup_ = std::make_shared<Wakeup>();
  std::list<PromptRun> open_;
  size_t n_started_ = 0;
  std::vector<Json> results_;
};

}  // namespace

void HandleLlamaCompletion(Host& host, const HttpRequest& request, HttpResponder& responder) {
  const auto read = ReadLlamaCompletion(host, request);
  if (!read.ok()) {
    return SendError(responder, ToDetailedApiError(read.status()), ErrorShape::kLlama);
  }
  CompletionRun(host, *read, request, responder).Answer();
}

}  // namespace weft::serve
