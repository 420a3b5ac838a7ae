#include "serve/grpc/generate_request.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

namespace weft::serve {
namespace {

namespace pb = mlx::grpc::engine;

constexpr uint32_t kMaxId = std::numeric_limits<int32_t>::max();

StatusOr<int32_t> TokenOf(uint32_t id, std::string_view field) {
  if (id > kMaxId) return InvalidArgument(field, " holds ", id, ", which is no token id");
  return static_cast<int32_t>(id);
}

// A field where 0 stands for "not given", or a number of its range.
StatusOr<float> NumberOr(float value, float if_zero, float min, float max, std::string_view field) {
  if (value == 0) return if_zero;
  if (value >= min && value <= max) return value;
  return InvalidArgument("sampling_params.", field, " must be between ", min, " and ", max,
                         ", not ", value);
}

StatusOr<SamplingOptions> SamplingOf(const pb::SamplingParams& params) {
  constexpr float kLargest = 1e6f;
  SamplingOptions options;
  const float temperature = params.has_temperature() ? params.temperature() : 1.0f;
  WEFT_ASSIGN_OR_RETURN(options.temperature, NumberOr(temperature, 0, 0, kLargest, "temperature"));
  WEFT_ASSIGN_OR_RETURN(options.top_p, NumberOr(params.top_p(), 1, 0, 1, "top_p"));
  WEFT_ASSIGN_OR_RETURN(options.min_p, NumberOr(params.min_p(), 0, 0, 1, "min_p"));
  WEFT_ASSIGN_OR_RETURN(options.repetition_penalty, NumberOr(params.repetition_penalty(), 1, 0,
                                                             kLargest, "repetition_penalty"));
  WEFT_ASSIGN_OR_RETURN(
      options.frequency_penalty,
      NumberOr(params.frequency_penalty(), 0, -kLargest, kLargest, "frequency_penalty"));
  WEFT_ASSIGN_OR_RETURN(options.presence_penalty, NumberOr(params.presence_penalty(), 0, -kLargest,
                                                           kLargest, "presence_penalty"));
  if (params.top_k() > kMaxId) {
    return InvalidArgument("sampling_params.top_k must be at most ", kMaxId);
  }
  options.top_k = static_cast<int>(params.top_k());
  for (const auto& [token, bias] : params.logit_bias()) {
    if (std::isnan(bias)) {
      return InvalidArgument("sampling_params.logit_bias of token ", token, " is not a number");
    }
    options.logit_bias.emplace_back(token, bias);
  }
  if (params.has_seed()) options.seed = static_cast<uint32_t>(params.seed());
  return options;
}

}  // namespace

StatusOr<TurnOptions> TurnOptionsOf(const pb::GenerateRequest& request) {
  if (!request.has_tokenized()) {
    return InvalidArgument(
        "tokenized input is required: send input_ids, made with the tokenizer of GetTokenizer");
  }
  TurnOptions turn;
  turn.tokens.reserve(static_cast<size_t>(request.tokenized().input_ids_size()));
  for (const uint32_t id : request.tokenized().input_ids()) {
    WEFT_ASSIGN_OR_RETURN(const int32_t token, TokenOf(id, "input_ids"));
    turn.tokens.push_back(token);
  }
  const pb::SamplingParams& params = request.sampling_params();
  WEFT_ASSIGN_OR_RETURN(turn.sampling, SamplingOf(params));
  if (params.has_max_tokens()) turn.max_tokens = params.max_tokens();
  for (const uint32_t id : params.stop_token_ids()) {
    WEFT_ASSIGN_OR_RETURN(const int32_t token, TokenOf(id, "sampling_params.stop_token_ids"));
    turn.stop_tokens.push_back(token);
  }
  turn.ignore_eos = params.ignore_eos();
  if (params.logprobs() > 0) turn.top_logprobs = params.logprobs();
  return turn;
}

void AddLogprobs(const TokenEvent& token, pb::OutputLogProbs* out) {
  out->add_token_ids(static_cast<uint32_t>(token.token));
  out->add_token_logprobs(token.logprob);
  pb::TopLogProbs* const top = out->add_top_logprobs();
  for (const TokenLogprob& alternative : token.alternatives) {
    top->add_values(alternative.logprob);
    top->add_token_ids(static_cast<uint32_t>(alternative.token));
  }
}

}  // namespace weft::serve
