#include "doors/grpc/generate_request.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

#include "answer/answer_ends.h"
#include "model/sampling/sampling_parameters.h"

namespace weft::serve {
namespace {

namespace pb = mlx::grpc::engine;

constexpr uint32_t kMaxId = std::numeric_limits<int32_t>::max();

StatusOr<int32_t> TokenOf(uint32_t id, std::string_view field) {
  if (id > kMaxId) return InvalidArgument(field, " holds ", id, ", which is not a token id");
  return static_cast<int32_t>(id);
}

// The field of a parameter's name, if the protocol has it.
const google::protobuf::FieldDescriptor* FieldOf(const pb::SamplingParams& params,
                                                 const SamplingParameter& parameter) {
  const auto* const descriptor = params.GetDescriptor();
  const auto* const field = descriptor->FindFieldByName(std::string(parameter.name));
  if (field != nullptr || parameter.other_name.empty()) return field;
  return descriptor->FindFieldByName(std::string(parameter.other_name));
}

// A field without presence of its own is not given if it is 0; otherwise it must be in its range.
Status ReadParameter(const pb::SamplingParams& params, const SamplingParameter& parameter,
                     SamplingOptions* options) {
  const auto* const field = FieldOf(params, parameter);
  if (field == nullptr) return OkStatus();
  const auto* const reflection = params.GetReflection();
  const double number = parameter.is_whole() ? reflection->GetUInt32(params, field)
                                             : reflection->GetFloat(params, field);
  const bool is_given = field->has_presence() ? reflection->HasField(params, field) : number != 0;
  if (!is_given) return OkStatus();
  if (!parameter.Takes(number)) {
    return InvalidArgument("sampling_params.", field->name(), " must be between ",
                           NumberText(parameter.min), " and ", NumberText(parameter.max), ", not ",
                           NumberText(number));
  }
  parameter.Set(number, options);
  return OkStatus();
}

StatusOr<SamplingOptions> SamplingOf(const pb::SamplingParams& params,
                                     const RequestDefaults& defaults) {
  SamplingOptions options = UnchangedSampling();
  options.seed = defaults.sampling.seed;
  options = Advised(options, defaults.advice);
  for (const SamplingParameter& parameter : SamplingParameters()) {
    WEFT_RETURN_IF_ERROR(ReadParameter(params, parameter, &options));
  }
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
