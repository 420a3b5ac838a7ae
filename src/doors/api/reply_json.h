// Parts of answers shared by OpenAI's APIs and llama-server's: usage, timings, log-probabilities.
//
// Pure functions; any thread.
#ifndef WEFT_DOORS_API_REPLY_JSON_H_
#define WEFT_DOORS_API_REPLY_JSON_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "answer/answer.h"
#include "doors/host/host.h"
#include "model/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"
#include "weft/events.h"

namespace weft::serve {

// The fields common to all objects of one answer in OpenAI's completions.
class OpenAiEnvelope {
 public:
  OpenAiEnvelope(Host& host, std::string_view id_prefix);
  nlohmann::ordered_json Make(std::string_view object) const;

 private:
  const std::string id_;
  const int64_t created_s_;
  const std::string model_;
  const std::string fingerprint_;
};

// Anthropic's name for an answer that ends because the context is full. The other APIs have none.
inline constexpr char kContextIsFull[] = "model_context_window_exceeded";

// Sets how an OpenAI choice ended: `finish_reason` and, if that is "length" for another reason than
// the limit, also `stop_reason`.
void SetFinish(const AnswerEnd& end, nlohmann::ordered_json* choice);

AnswerUsage Sum(const AnswerUsage& a, const AnswerUsage& b);

// {prompt_tokens, completion_tokens, total_tokens, prompt_tokens_details{cached_tokens,
// cache_write_tokens, disk_tokens}, completion_tokens_details{reasoning_tokens,
// accepted_prediction_tokens, rejected_prediction_tokens}}
nlohmann::ordered_json OpenAiUsage(const AnswerUsage& usage);
// llama-server's `timings` and `prompt_progress`.
nlohmann::ordered_json LlamaTimings(const AnswerUsage& usage);
nlohmann::ordered_json LlamaTimings(const ProgressEvent& progress);  // for the prompt so far
nlohmann::ordered_json LlamaProgress(const ProgressEvent& progress);

// For chat completions: {content: [{token, logprob, bytes, top_logprobs}], refusal: null}.
nlohmann::ordered_json ChatLogprobs(const Tokenizer& tokenizer, std::span<const TokenEvent> tokens);
// Only the entries, as in the Responses API.
nlohmann::ordered_json LogprobEntries(const Tokenizer& tokenizer,
                                      std::span<const TokenEvent> tokens);

// For the older completions: four arrays of equal length, built token by token.
class LegacyLogprobs {
 public:
  explicit LegacyLogprobs(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Adds the prompt. `text` is the text repeated in the answer; the tokenizer may have added tokens
  // before it and removed a space from its beginning.
  void AddPrompt(std::span<const StartedEvent::PromptToken> prompt, std::string_view text);
  void Add(std::span<const TokenEvent> tokens);
  // The part added since the last call, with offsets continuing. null if there is none.
  nlohmann::ordered_json Take();

 private:
  void AddToken(TokenLogprob token, std::span<const TokenLogprob> alternatives, bool has_logprob,
                int64_t offset);

  const Tokenizer& tokenizer_;
  nlohmann::ordered_json tokens_ = nlohmann::ordered_json::array();
  nlohmann::ordered_json token_logprobs_ = nlohmann::ordered_json::array();
  nlohmann::ordered_json top_logprobs_ = nlohmann::ordered_json::array();
  nlohmann::ordered_json text_offset_ = nlohmann::ordered_json::array();
  int64_t offset_ = 0;  // characters of text so far
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_REPLY_JSON_H_
