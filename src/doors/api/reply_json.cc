#include "doors/api/reply_json.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/strings.h"
#include "base/unicode.h"
#include "doors/api/fields/cache_report.h"
#include "doors/api/fields/support.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

// How OpenAI's API writes minus infinity in JSON.
constexpr double kImpossible = -9999.0;

double JsonLogprob(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : kImpossible;
}

ordered_json Bytes(std::string_view piece) {
  ordered_json bytes = ordered_json::array();
  for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

ordered_json LogprobEntry(const Tokenizer& tokenizer, TokenLogprob token) {
  const std::string piece = tokenizer.Piece(token.token, true);
  return {{"token", piece}, {"logprob", JsonLogprob(token.logprob)}, {"bytes", Bytes(piece)}};
}

// Characters that begin in `text`; the two halves of a split character count as one in total.
int64_t CountCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return !IsContinuationByte(c); });
}

double PerSecond(int64_t n, double ms) {
  return ms > 0 ? 1000.0 * static_cast<double>(n) / ms : 0.0;
}

double Each(int64_t n, double ms) { return n > 0 ? ms / static_cast<double>(n) : 0.0; }

}  // namespace

OpenAiEnvelope::OpenAiEnvelope(Host& host, std::string_view id_prefix)
    : id_(NewId(id_prefix)),
      created_s_(NowSeconds()),
      model_(host.model_id()),
      // llama-server's clients expect the leading b of its build numbers.
      fingerprint_(StrCat("b", host.model().fingerprint().substr(0, 12), "-weft")) {}

ordered_json OpenAiEnvelope::Make(std::string_view object) const {
  return {{"id", id_},
          {"object", object},
          {"created", created_s_},
          {"model", model_},
          {"system_fingerprint", fingerprint_}};
}

void SetFinish(const AnswerEnd& end, ordered_json* choice) {
  (*choice)["finish_reason"] = end.by_calls ? "tool_calls" : IsCut(end.reason) ? "length" : "stop";
  if (end.reason == FinishReason::kContext) (*choice)["stop_reason"] = kContextIsFull;
  if (end.reason == FinishReason::kLoop) (*choice)["stop_reason"] = "loop";
}

AnswerUsage Sum(const AnswerUsage& a, const AnswerUsage& b) {
  AnswerUsage sum = a;
  sum.prompt_tokens += b.prompt_tokens;
  sum.cached_tokens += b.cached_tokens;
  sum.disk_tokens += b.disk_tokens;
  sum.completion_tokens += b.completion_tokens;
  sum.first_tokens += b.first_tokens;
  sum.reasoning_tokens += b.reasoning_tokens;
  sum.queued_us = std::max(a.queued_us, b.queued_us);
  sum.prompt_us += b.prompt_us;
  sum.decode_us += b.decode_us;
  sum.guessed_tokens += b.guessed_tokens;
  sum.accepted_guesses += b.accepted_guesses;
  sum.kept_prediction += b.kept_prediction;
  sum.lost_prediction += b.lost_prediction;
  if (sum.cache_report == nullptr) sum.cache_report = b.cache_report;
  return sum;
}

ordered_json OpenAiUsage(const AnswerUsage& usage) {
  ordered_json json = {{"prompt_tokens", usage.prompt_tokens},
                       {"completion_tokens", usage.completion_tokens},
                       {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
                       {"prompt_tokens_details",
                        {{"cached_tokens", usage.cached_tokens},
                         {"cache_write_tokens", usage.written_tokens()},
                         {"disk_tokens", usage.disk_tokens}}},
                       {"completion_tokens_details",
                        {{"reasoning_tokens", usage.reasoning_tokens},
                         {"accepted_prediction_tokens", usage.kept_prediction},
                         {"rejected_prediction_tokens", usage.lost_prediction}}}};
  AddCacheReport(usage.cache_report, &json);
  return json;
}

ordered_json LlamaTimings(const AnswerUsage& usage) {
  const int64_t prompt_n = usage.prompt_tokens - usage.cached_tokens;
  const double prompt_ms = static_cast<double>(usage.prompt_us) / 1000.0;
  const double predicted_ms = static_cast<double>(usage.decode_us) / 1000.0;
  // From the first token to the last: the first one came with the prompt.
  const int64_t timed_n = std::max<int64_t>(usage.completion_tokens - usage.first_tokens, 0);
  ordered_json timings = {{"cache_n", usage.cached_tokens},
                          {"cache_disk_n", usage.disk_tokens},
                          {"queued_ms", static_cast<double>(usage.queued_us) / 1000.0},
                          {"prompt_n", prompt_n},
                          {"prompt_ms", prompt_ms},
                          {"prompt_per_token_ms", Each(prompt_n, prompt_ms)},
                          {"prompt_per_second", PerSecond(prompt_n, prompt_ms)},
                          {"predicted_n", usage.completion_tokens},
                          {"predicted_ms", predicted_ms},
                          {"predicted_per_token_ms", Each(timed_n, predicted_ms)},
                          {"predicted_per_second", PerSecond(timed_n, predicted_ms)}};
  if (usage.guessed_tokens > 0) {
    timings["draft_n"] = usage.guessed_tokens;
    timings["draft_n_accepted"] = usage.accepted_guesses;
  }
  return timings;
}

ordered_json LlamaProgress(const ProgressEvent& progress) {
  ordered_json json = {{"total", progress.prompt_tokens},
                       {"cache", progress.cached_tokens},
                       {"processed", progress.done_tokens},
                       {"time_ms", progress.elapsed_us / 1000}};
  if (progress.waits_behind_tokens > 0) {
    json["waits_behind_tokens"] = progress.waits_behind_tokens;
  }
  return json;
}

ordered_json LlamaTimings(const ProgressEvent& progress) {
  // Before the first token is computed it has taken no time, whatever the clock says.
  const bool computed = progress.done_tokens > progress.cached_tokens;
  return LlamaTimings(AnswerUsage{{.prompt_tokens = progress.done_tokens,
                                   .cached_tokens = progress.cached_tokens,
                                   .prompt_us = computed ? progress.elapsed_us : 0}});
}

ordered_json LogprobEntries(const Tokenizer& tokenizer, std::span<const TokenEvent> tokens) {
  ordered_json entries = ordered_json::array();
  for (const TokenEvent& event : tokens) {
    if (tokenizer.IsEndOfGeneration(event.token)) continue;
    ordered_json entry = LogprobEntry(tokenizer, {.token = event.token, .logprob = event.logprob});
    ordered_json top = ordered_json::array();
    for (const TokenLogprob& other : event.alternatives) {
      top.push_back(LogprobEntry(tokenizer, other));
    }
    entry["top_logprobs"] = std::move(top);
    entries.push_back(std::move(entry));
  }
  return entries;
}

ordered_json ChatLogprobs(const Tokenizer& tokenizer, std::span<const TokenEvent> tokens) {
  return {{"content", LogprobEntries(tokenizer, tokens)}, {"refusal", nullptr}};
}

void LegacyLogprobs::AddToken(TokenLogprob token, std::span<const TokenLogprob> alternatives,
                              bool has_logprob, int64_t offset) {
  const std::string piece = tokenizer_.Piece(token.token, true);
  tokens_.push_back(piece);
  text_offset_.push_back(offset);
  if (!has_logprob) {
    token_logprobs_.push_back(nullptr);
    top_logprobs_.push_back(nullptr);
    return;
  }
  token_logprobs_.push_back(JsonLogprob(token.logprob));
  // Different tokens may have the same text; the likeliest of them counts. The chosen one is always
  // included.
  ordered_json top = ordered_json::object();
  for (const TokenLogprob& other : alternatives) {
    const std::string text = tokenizer_.Piece(other.token, true);
    if (!top.contains(text)) top[text] = JsonLogprob(other.logprob);
  }
  if (!top.contains(piece)) top[piece] = JsonLogprob(token.logprob);
  top_logprobs_.push_back(std::move(top));
}

void LegacyLogprobs::AddPrompt(std::span<const StartedEvent::PromptToken> prompt,
                               std::string_view text) {
  const int64_t text_characters = CountCharacters(text);
  int64_t all_characters = 0;
  for (const auto& entry : prompt) {
    all_characters += CountCharacters(tokenizer_.Piece(entry.token.token, true));
  }
  // Tokens beyond the text come before it.
  int64_t at = text_characters - all_characters;
  bool first = true;
  for (const auto& entry : prompt) {
    AddToken(entry.token, entry.alternatives, !first, std::max<int64_t>(at, 0));
    at += CountCharacters(tokenizer_.Piece(entry.token.token, true));
    first = false;
  }
  offset_ = text_characters;
}

void LegacyLogprobs::Add(std::span<const TokenEvent> tokens) {
  for (const TokenEvent& event : tokens) {
    if (tokenizer_.IsEndOfGeneration(event.token)) continue;
    AddToken({.token = event.token, .logprob = event.logprob}, event.alternatives, true, offset_);
    offset_ += CountCharacters(tokenizer_.Piece(event.token, false));
  }
}

ordered_json LegacyLogprobs::Take() {
  if (tokens_.empty()) return nullptr;
  ordered_json taken = {{"tokens", std::move(tokens_)},
                        {"token_logprobs", std::move(token_logprobs_)},
                        {"top_logprobs", std::move(top_logprobs_)},
                        {"text_offset", std::move(text_offset_)}};
  for (auto* array : {&tokens_, &token_logprobs_, &top_logprobs_, &text_offset_}) {
    *array = ordered_json::array();
  }
  return taken;
}

}  // namespace weft::serve
