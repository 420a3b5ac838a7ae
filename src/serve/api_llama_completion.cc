// POST /completion: llama-server's own form of a completion.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "chat/chat_context.h"
#include "serve/api_llama.h"
#include "serve/api_support.h"
#include "serve/chat_turn.h"
#include "serve/reply_json.h"
#include "serve/sampling_params.h"
#include "serve/session_name.h"
#include "serve/sse.h"
#include "tokenizer/tokenizer.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxPrompts = 256;
constexpr size_t kMaxResponseFields = 256;
constexpr char kPromptShape[] =
    "must be a string, an array of token ids and strings, or an array of such prompts";

// How long a stream may have nothing to tell before it says so.
constexpr std::chrono::milliseconds kPatience{10'000};

struct Completion {
  std::vector<std::vector<int32_t>> prompts;  // tokens
  TurnOptions turn;
  SessionChoice session;
  bool stream = false;
  bool return_tokens = false;
  bool timings_per_token = false;
  std::vector<std::string> response_fields;
  std::vector<std::string> ignored;
};

// One prompt: a string, or ids and strings in turn.
bool ReadPrompt(const Json& value, const Model& model, std::vector<std::vector<int32_t>>* prompts) {
  std::vector<int32_t> prompt;
  const PromptEncoder encoder = MakePromptEncoder(model.tokenizer());
  const Json parts = value.is_array() ? value : Json::array({value});
  for (const Json& part : parts) {
    if (part.is_string()) {
      const auto more = encoder.encode(part.get_ref<const std::string&>(), prompt.empty());
      prompt.insert(prompt.end(), more.begin(), more.end());
    } else if (part.is_number_integer() && part.get<int64_t>() >= 0 &&
               part.get<int64_t>() < model.n_vocab()) {
      prompt.push_back(part.get<int32_t>());
    } else {
      return false;
    }
  }
  prompts->push_back(std::move(prompt));
  return true;
}

void ReadPrompts(ApiFields* fields, const Model& model,
                 std::vector<std::vector<int32_t>>* prompts) {
  const Json* const value = fields->Value("prompt");
  if (value == nullptr) return fields->Fail("prompt", kPromptShape);
  // Numbers make an array one prompt; strings and arrays alone make it several.
  const bool several =
      value->is_array() && !value->empty() &&
      std::none_of(value->begin(), value->end(), [](const Json& part) { return part.is_number(); });
  if (!several) {
    if (!ReadPrompt(*value, model, prompts)) fields->Fail("prompt", kPromptShape);
    return;
  }
  if (value->size() > kMaxPrompts) {
    return fields->Fail(
        "prompt", StrCat("has ", value->size(), " prompts, at most ", kMaxPrompts, " are taken"));
  }
  for (const Json& prompt : *value) {
    if (!ReadPrompt(prompt, model, prompts)) return fields->Fail("prompt", kPromptShape);
  }
}

StatusOr<Completion> ReadCompletion(Host& host, const HttpRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const Json body, ParseJson(request.body, {}));
  Completion read;
  ApiFields fields(body);
  const auto model = fields.String("model");
  ReadPrompts(&fields, host.model(), &read.prompts);
  ReadSampling(&fields, host.model(), &read.turn);
  ReadStops(&fields, &read.turn);
  ReadMaxTokens(&fields, /*least=*/-1, &read.turn);
  if (const auto n_probs = fields.Integer("n_probs", 0, kMaxTopLogprobs); n_probs.value_or(0) > 0) {
    read.turn.top_logprobs = static_cast<int>(*n_probs);
  }
  read.stream = fields.Bool("stream").value_or(false);
  read.return_tokens = fields.Bool("return_tokens").value_or(false);
  read.timings_per_token = fields.Bool("timings_per_token").value_or(false);
  read.response_fields =
      fields.Strings("response_fields", kMaxResponseFields).value_or(std::vector<std::string>());
  fields.Refuse("n", "is not supported here; send several prompts", 1);
  fields.Refuse("image_data", "is not supported: no model here sees images", Json::array());
  ReadForeignFields(&fields);
  WEFT_ASSIGN_OR_RETURN(read.session, FinishFields(host, request, model, read.prompts.size(),
                                                   &fields, &read.ignored));
  return read;
}

Json ProbabilityEntry(const Tokenizer& tokenizer, TokenLogprob token) {
  const std::string piece = tokenizer.Piece(token.token, /*render_special=*/true);
  Json bytes = Json::array();
  for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
  // JSON has no infinity; this is what OpenAI's API says instead.
  const double logprob = std::isfinite(token.logprob) ? token.logprob : -9999.0;
  return {{"id", token.token}, {"token", piece}, {"bytes", std::move(bytes)}, {"logprob", logprob}};
}

Json Probabilities(const Tokenizer& tokenizer, const TokenEvent& event) {
  Json entry = ProbabilityEntry(tokenizer, {.token = event.token, .logprob = event.logprob});
  Json top = Json::array();
  for (const TokenLogprob& other : event.alternatives) {
    top.push_back(ProbabilityEntry(tokenizer, other));
  }
  entry["top_logprobs"] = std::move(top);
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

Json Settings(const Completion& read, uint64_t seed) {
  const SamplingOptions& sampling = read.turn.sampling;
  return {{"n_predict", read.turn.max_tokens},
          {"max_tokens", read.turn.max_tokens},
          {"seed", seed},
          {"temperature", sampling.temperature},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"min_p", sampling.min_p},
          {"repeat_last_n", sampling.penalty_window},
          {"repeat_penalty", sampling.repetition_penalty},
          {"presence_penalty", sampling.presence_penalty},
          {"frequency_penalty", sampling.frequency_penalty},
          {"ignore_eos", read.turn.ignore_eos},
          {"stop", read.turn.stop_strings},
          {"n_probs", std::max(0, read.turn.top_logprobs)},
          {"stream", read.stream},
          {"timings_per_token", read.timings_per_token}};
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

// The answer to one prompt, while it is made. `sse`, when it is streamed, is kept alive
// while there is nothing to tell.
class PromptRun {
 public:
  PromptRun(Host& host, const Completion& read, size_t index, SseStream* sse)
      : host_(host), read_(read), index_(index), sse_(sse), tokenizer_(*host.model().tokenizer()) {}

  Status Start(const HttpRequest& request, GoneWatch& watch) {
    GenerationRequest generation{.domain = request.domain, .turn = read_.turn};
    generation.turn.tokens = read_.prompts[index_];
    WEFT_ASSIGN_OR_RETURN(generation_,
                          StartGeneration(host_, watch, read_.session, std::move(generation)));
    // Until the prompt is computed an error can still be a plain answer.
    while (auto event = NextEvent()) {
      if (const auto* started = std::get_if<StartedEvent>(&*event)) {
        usage_.prompt_tokens = started->prompt_tokens;
        usage_.cached_tokens = started->cached_tokens;
        seed_ = started->seed;
        return OkStatus();
      }
      if (const auto* done = std::get_if<DoneEvent>(&*event)) return Ended(*done);
    }
    return Cancelled("the request was cancelled");
  }

  // To the end; `show` is given every piece before the last, and may stop it by false.
  template <typename Show>
  Status Run(Show show) {
    while (auto event = NextEvent()) {
      if (const auto* token = std::get_if<TokenEvent>(&*event)) {
        Json piece = Take(*token);
        if (!show(std::move(piece))) return Cancelled("the client is gone");
      } else if (const auto* done = std::get_if<DoneEvent>(&*event)) {
        return Ended(*done);
      }
    }
    return Cancelled("the request was cancelled");
  }

  // REQUIRES: Run has ended well.
  Json Result() const {
    const bool streamed = read_.stream;
    Json result = {{"index", index_},
                   {"content", streamed ? done_.text : content_},
                   {"tokens", read_.return_tokens && !streamed ? Json(tokens_) : Json::array()},
                   {"id_slot", -1},
                   {"stop", true},
                   {"model", host_.model_id()},
                   {"tokens_predicted", usage_.completion_tokens},
                   {"tokens_evaluated", usage_.prompt_tokens},
                   {"generation_settings", Settings(read_, seed_)},
                   {"prompt", host_.model().Decode(read_.prompts[index_], /*render_special=*/true)},
                   {"has_new_line", content_.find('\n') != content_.npos},
                   {"truncated", false},
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
  std::optional<TurnEvent> NextEvent() {
    while (sse_ != nullptr && !generation_->WaitFor(kPatience)) sse_->Comment();
    return generation_->Next();
  }

  Json Take(const TokenEvent& token) {
    content_ += token.text;
    ++usage_.completion_tokens;
    const bool is_end = tokenizer_.IsEndOfGeneration(token.token);
    Json ids = Json::array();
    if (!is_end) {
      tokens_.push_back(token.token);
      ids.push_back(token.token);
    }
    Json piece = {{"index", index_},
                  {"content", token.text},
                  {"tokens", std::move(ids)},
                  {"stop", false},
                  {"id_slot", -1},
                  {"tokens_predicted", usage_.completion_tokens},
                  {"tokens_evaluated", usage_.prompt_tokens}};
    if (read_.turn.top_logprobs > 0) {
      Json entry = Probabilities(tokenizer_, token);
      piece["completion_probabilities"] = Json::array({entry});
      if (!is_end) probabilities_.push_back(std::move(entry));
    }
    if (read_.timings_per_token) piece["timings"] = LlamaTimings(usage_);
    return piece;
  }

  Status Ended(const DoneEvent& done) {
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
  const Completion& read_;
  const size_t index_;
  SseStream* const sse_;
  const Tokenizer& tokenizer_;
  std::shared_ptr<Generation> generation_;
  ReplyUsage usage_;
  uint64_t seed_ = 0;
  std::string content_;
  std::vector<int32_t> tokens_;
  Json probabilities_ = Json::array();
  DoneEvent done_;
};

void Refuse(HttpResponder& responder, const Status& status) {
  SendError(responder, ToDetailedApiError(status), ErrorShape::kLlama);
}

void AnswerWhole(Host& host, const Completion& read, const HttpRequest& request,
                 HttpResponder& responder) {
  GoneWatch watch(responder);
  Json results = Json::array();
  for (size_t i = 0; i < read.prompts.size(); ++i) {
    PromptRun run(host, read, i, nullptr);
    Status status = run.Start(request, watch);
    if (status.ok()) status = run.Run([](Json) { return true; });
    if (!status.ok()) return Refuse(responder, status);
    results.push_back(run.Result());
  }
  SendJson(responder, results.size() == 1 ? results[0] : results, read.ignored);
}

void AnswerStreamed(Host& host, const Completion& read, const HttpRequest& request,
                    HttpResponder& responder) {
  GoneWatch watch(responder);
  SseStream sse(responder, IgnoredHeader(read.ignored));
  for (size_t i = 0; i < read.prompts.size(); ++i) {
    PromptRun run(host, read, i, &sse);
    Status status = run.Start(request, watch);
    if (!status.ok() && !sse.begun()) return Refuse(responder, status);
    if (status.ok()) status = run.Run([&](const Json& piece) { return sse.Data(piece); });
    if (!status.ok()) {
      sse.Data(ErrorBody(ToDetailedApiError(status), ErrorShape::kLlama));
      break;
    }
    sse.Data(run.Result());
  }
  sse.End();
}

}  // namespace

void HandleLlamaCompletion(Host& host, const HttpRequest& request, HttpResponder& responder) {
  const auto read = ReadCompletion(host, request);
  if (!read.ok()) return Refuse(responder, read.status());
  if (read->stream) {
    AnswerStreamed(host, *read, request, responder);
  } else {
    AnswerWhole(host, *read, request, responder);
  }
}

}  // namespace weft::serve
