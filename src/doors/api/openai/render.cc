// vLLM's /render routes: the tokens of a prompt and how its answer would be sampled, without an
// answer. Routers compare them with the prefixes that each server knows.
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/new_id.h"
#include "doors/api/fields/sampling_params.h"
#include "doors/api/fields/support.h"
#include "doors/api/openai/chat_request.h"
#include "doors/api/openai/completions_request.h"
#include "doors/api/openai/routes.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

ordered_json ParamsOf(const TurnOptions& turn) {
  ordered_json params = SamplingJson(turn.sampling);
  params["repetition_penalty"] = turn.sampling.repetition_penalty;  // vLLM's name
  params["n"] = turn.n_choices;
  params["stop"] = turn.stop_strings;
  params["stop_token_ids"] = turn.stop_tokens;
  params["ignore_eos"] = turn.ignore_eos;
  params["min_tokens"] = turn.min_tokens;
  params["max_tokens"] = turn.max_tokens >= 0 ? ordered_json(turn.max_tokens) : ordered_json();
  params["logprobs"] = turn.top_logprobs >= 0 ? ordered_json(turn.top_logprobs) : ordered_json();
  params["seed"] = turn.sampling.seed ? ordered_json(*turn.sampling.seed) : ordered_json();
  return params;
}

ordered_json Rendered(const Host& host, std::string_view id_prefix, const TurnOptions& turn,
                      const std::vector<int32_t>& tokens, bool streams) {
  return {{"request_id", NewId(id_prefix)},
          {"model", host.model_id()},
          {"token_ids", tokens},
          {"token_offsets", nullptr},
          {"features", nullptr},
          {"sampling_params", ParamsOf(turn)},
          {"stream", streams}};
}

}  // namespace

void HandleChatRender(Host& host, const HttpRequest& request, HttpResponder& responder) {
  const auto read = ReadChatCompletion(host, request);
  if (!read.ok()) return SendError(responder, read.status(), kOpenAiErrors);
  const auto tokens = host.answerer().PromptTokens(read->ask);
  if (!tokens.ok()) return SendError(responder, tokens.status(), kOpenAiErrors);
  SendJson(responder, Rendered(host, "chatcmpl-", read->ask.turn, *tokens, read->stream),
           read->ignored, read->warnings);
}

void HandleCompletionsRender(Host& host, const HttpRequest& request, HttpResponder& responder) {
  const auto read = ReadCompletion(host, request);
  if (!read.ok()) return SendError(responder, read.status(), kOpenAiErrors);
  ordered_json prompts = ordered_json::array();
  for (const CompletionRequest::Prompt& prompt : read->prompts) {
    if (prompt.parts != nullptr) {
      return SendError(responder, InvalidArgument("embeddings have no tokens: send text alone"),
                       kOpenAiErrors);
    }
    prompts.push_back(Rendered(host, "cmpl-", read->ask.turn, prompt.tokens, read->stream.stream));
  }
  SendJson(responder, prompts, read->ignored);
}

}  // namespace weft::serve
