#include "grpc/generate_request.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

#include "host/sampling_defaults.h"

namespace weft::serve {
namespace {

namespace pb = mlx::grpc::engine;

constexpr uint32_t kMaxId = std::numeric_limits<int32_t>::max();

StatusOr<int32_t> TokenOf(uint32_t id, std::string_view field) {
  if (id > kMaxId) return InvalidArgument(field, " holds ", id, ", which is not a token id");
  return static_cast<int32_t>(id);
}

// A field in which 0 means "not given"; otherwise it must be in its range.
StatusOr<float> NumberOr(float value, float if_zero, float min, float max, std::string_view field) {
  if (value == 0) return if_zero;
  if (value >= min && value <= max) return value;
  return InvalidArgument("sampling_params.", field, " must be between ", min, " and ", max,
                         ", not ", value);
}

StatusOr<SamplingOptions> SamplingOf(const pb::SamplingParams& params,
                                     const RequestDefaults& defaults) {
  constexpr float kLargest = 1e6f;
  SamplingOptions options = Advised(
      {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = defaults.sampling.seed},
      defaults.advice);
  // Temperature has presence: 0 is a value.
  if (params.has_temperature()) options.temperature = 0;
  struct Field {
    const char* name;
    float given;
    float* value;
    float least, most;
  };
  const Field fields[] = {
      {"temperature", params.temperature(), &options.temperature, 0, kLargest},
      {"top_p", params.top_p(), &options.top_p, 0, 1},
      {"min_p", params.min_p(), &options.min_p, 0, 1},
      {"repetition_penalty", params.repetition_penalty(), &options.repetition_penalty, 0, kLargest},
      {"frequency_penalty", params.frequency_penalty(), &options.frequency_penalty, -kLargest,
       kLargest},
      {"presence_penalty", params.presence_penalty(), &options.presence_penalty, -kLargest,
       kLargest},
  };
  for (const Field& field : fields) {
    WEFT_ASSIGN_OR_RETURN(*field.value,
                          NumberOr(field.given, *field.value, field.least, field.most, field.name));
  }
  if (params.top_k() > kMaxId) {
    return InvalidArgument("sampling_params.top_k must be at most ", kMaxId);
  }
  if (params.top_k() > 0) options.top_k = static_cast<int>(params.top_k());
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

StatusOr<TurnOptions> TurnOptionsOf(const pb::GenerateRequest& request,
                                    const RequestDefaults& defaults) {
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
  WEFT_ASSIGN_OR_RETURN(turn.sampling, SamplingOf(params, defaults));
  if (params.has_max_tokens()) turn.max_tokens = params.max_tokens();
  for (const uint32_t id : params.stop_token_ids()) {
    WEFT_ASSIGN_OR_RETURN(const int32_t token, TokenOf(id, "sampling_params.stop_token_ids"));
    turn.stop_tokens.push_back(token);
  }
  turn.ignore_eos = params.ignore_eos();
  AddEndTokens(defaults.ends.tokens, &turn);
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
