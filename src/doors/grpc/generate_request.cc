#include "doors/grpc/generate_request.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "answer/answer_ends.h"
#include "answer/masks/constraint_mask.h"
#include "answer/reply_mask.h"
#include "answer/structural_tag.h"
#include "base/strings.h"
#include "model/sampling/sampling_parameters.h"

namespace weft::serve {
namespace {

namespace mlx_pb = mlx::grpc::engine;
namespace vllm_pb = vllm::grpc::engine;

constexpr uint32_t kMaxId = std::numeric_limits<int32_t>::max();

// The field of a parameter's name, if the protocol has it.
const google::protobuf::FieldDescriptor* FieldOf(const google::protobuf::Message& params,
                                                 const SamplingParameter& parameter) {
  const auto* const descriptor = params.GetDescriptor();
  const auto* const field = descriptor->FindFieldByName(std::string(parameter.name));
  if (field != nullptr || parameter.other_name.empty()) return field;
  return descriptor->FindFieldByName(std::string(parameter.other_name));
}

// A field without presence of its own is not given if it is 0; otherwise it must be in its range.
Status ReadParameter(const google::protobuf::Message& params, const SamplingParameter& parameter,
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

// The fields that both services have under the same names.
template <typename Params>
StatusOr<SamplingOptions> SamplingOf(const Params& params, const RequestDefaults& defaults) {
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

template <typename Request>
StatusOr<TurnOptions> SharedOptionsOf(const Request& request, const RequestDefaults& defaults) {
  if (!request.has_tokenized()) {
    return InvalidArgument(
        "tokenized input is required: send input_ids, made with the tokenizer of GetTokenizer");
  }
  const auto& params = request.sampling_params();
  TurnOptions turn;
  WEFT_ASSIGN_OR_RETURN(turn.tokens, TokensOf(request.tokenized().input_ids(), "input_ids"));
  WEFT_ASSIGN_OR_RETURN(turn.sampling, SamplingOf(params, defaults));
  if (params.has_max_tokens()) turn.max_tokens = params.max_tokens();
  WEFT_ASSIGN_OR_RETURN(turn.stop_tokens,
                        TokensOf(params.stop_token_ids(), "sampling_params.stop_token_ids"));
  turn.ignore_eos = params.ignore_eos();
  AddEndTokens(defaults.ends.tokens, &turn);
  return turn;
}

Status CheckOffered(const vllm_pb::GenerateRequest& request) {
  if (request.has_mm_inputs() || request.extra_mm_inputs_size() > 0 || request.has_media_refs()) {
    return Unimplemented(
        "mm_inputs, extra_mm_inputs and media_refs are not supported: this service takes no "
        "pictures; the HTTP API does");
  }
  if (request.has_kv_transfer_params() || request.has_kv_transfer_params_json()) {
    return Unimplemented(
        "kv_transfer_params is not supported: prefill and decode run in one place");
  }
  if (request.has_data_parallel_rank() && request.data_parallel_rank() != 0) {
    return InvalidArgument("data_parallel_rank must be 0, the only one, not ",
                           request.data_parallel_rank());
  }
  return OkStatus();
}

// Keeps the last tokens; -1: as many as leave room for one more.
Status Truncate(const vllm_pb::SamplingParams& params, int64_t context_tokens,
                std::vector<int32_t>* tokens) {
  if (!params.has_truncate_prompt_tokens()) return OkStatus();
  const int64_t wanted = params.truncate_prompt_tokens();
  if (wanted == 0 || wanted < -1) {
    return InvalidArgument("sampling_params.truncate_prompt_tokens must be -1 or above 0, not ",
                           wanted);
  }
  const auto most = static_cast<size_t>(wanted < 0 ? context_tokens - 1 : wanted);
  if (tokens->size() > most) {
    tokens->erase(tokens->begin(), tokens->end() - static_cast<ptrdiff_t>(most));
  }
  return OkStatus();
}

Status ReadLogprobs(const vllm_pb::SamplingParams& params, TurnOptions* turn) {
  const int answer = params.has_logprobs() ? params.logprobs() : -1;
  const int prompt = params.has_prompt_logprobs() ? params.prompt_logprobs() : -1;
  if ((params.has_logprobs() && answer < 0) || (params.has_prompt_logprobs() && prompt < 0)) {
    return InvalidArgument(
        "sampling_params.logprobs and prompt_logprobs must be numbers of alternatives: those of "
        "the whole vocabulary (-1) are not sent");
  }
  turn->top_logprobs = std::max(answer, prompt);
  turn->prompt_logprobs = prompt >= 0;
  return OkStatus();
}

std::optional<AnswerRule> RuleOf(const vllm_pb::SamplingParams& params) {
  using Kind = ConstraintSpec::Kind;
  const auto rule = [](Kind kind, std::string text, const char* field) {
    return AnswerRule{{.kind = kind, .text = std::move(text)}, field};
  };
  switch (params.constraint_case()) {
    case vllm_pb::SamplingParams::kJsonSchema:
      return rule(Kind::kJsonSchema, params.json_schema(), "sampling_params.json_schema");
    case vllm_pb::SamplingParams::kRegex:
      return rule(Kind::kRegex, params.regex(), "sampling_params.regex");
    case vllm_pb::SamplingParams::kGrammar:
      return rule(Kind::kGrammar, params.grammar(), "sampling_params.grammar");
    case vllm_pb::SamplingParams::kJsonObject:
      if (!params.json_object()) return std::nullopt;
      return rule(Kind::kJsonSchema, R"({"type":"object"})", "sampling_params.json_object");
    case vllm_pb::SamplingParams::kChoice: {
      AnswerRule choice{{.kind = Kind::kChoice}, "sampling_params.choice"};
      for (const std::string& text : params.choice().choices()) choice.spec.choices.push_back(text);
      return choice;
    }
    case vllm_pb::SamplingParams::kStructuralTag:
    case vllm_pb::SamplingParams::CONSTRAINT_NOT_SET:
      break;
  }
  return std::nullopt;
}

Status CheckConstraint(const vllm_pb::SamplingParams& params) {
  if (params.constraint_case() == vllm_pb::SamplingParams::CONSTRAINT_NOT_SET) return OkStatus();
  if (!params.ignore_eos() && params.min_tokens() == 0) return OkStatus();
  return InvalidArgument(
      "sampling_params.", params.ignore_eos() ? "ignore_eos" : "min_tokens",
      " cannot be combined with a constraint, whose answer ends when its form is complete");
}

}  // namespace

StatusOr<std::vector<int32_t>> TokensOf(const google::protobuf::RepeatedField<uint32_t>& ids,
                                        std::string_view field) {
  std::vector<int32_t> tokens;
  tokens.reserve(static_cast<size_t>(ids.size()));
  for (const uint32_t id : ids) {
    if (id > kMaxId) return InvalidArgument(field, " holds ", id, ", which is not a token id");
    tokens.push_back(static_cast<int32_t>(id));
  }
  return tokens;
}

StatusOr<TurnOptions> TurnOptionsOf(const mlx_pb::GenerateRequest& request,
                                    const RequestDefaults& defaults) {
  WEFT_ASSIGN_OR_RETURN(TurnOptions turn, SharedOptionsOf(request, defaults));
  const mlx_pb::SamplingParams& params = request.sampling_params();
  if (params.logprobs() > 0) turn.top_logprobs = params.logprobs();
  return turn;
}

StatusOr<TurnOptions> TurnOptionsOf(const vllm_pb::GenerateRequest& request, int64_t context_tokens,
                                    const RequestDefaults& defaults) {
  WEFT_RETURN_IF_ERROR(CheckOffered(request));
  WEFT_ASSIGN_OR_RETURN(TurnOptions turn, SharedOptionsOf(request, defaults));
  const vllm_pb::SamplingParams& params = request.sampling_params();
  turn.n_choices = static_cast<int>(std::clamp(params.n(), uint32_t{1}, kMaxId));
  turn.min_tokens = params.min_tokens();
  for (const std::string& stop : params.stop()) {
    if (!stop.empty()) turn.stop_strings.push_back(stop);
  }
  WEFT_RETURN_IF_ERROR(Truncate(params, context_tokens, &turn.tokens));
  WEFT_RETURN_IF_ERROR(ReadLogprobs(params, &turn));
  WEFT_RETURN_IF_ERROR(CheckConstraint(params));
  return turn;
}

std::function<StatusOr<TokenMaskFactory>()> MaskMakerOf(const vllm_pb::SamplingParams& params,
                                                        const Model& model,
                                                        const std::string& tenant) {
  if (params.constraint_case() == vllm_pb::SamplingParams::kStructuralTag) {
    return [&model, tenant, tag = params.structural_tag()]() -> StatusOr<TokenMaskFactory> {
      const auto compiled = CompileStructuralTag(model, tag, tenant);
      if (!compiled.ok()) {
        return Annotate(compiled.status(), "sampling_params.structural_tag: ");
      }
      return MaskOf(model.tokenizer(), (*compiled)->Begin());
    };
  }
  std::optional<AnswerRule> rule = RuleOf(params);
  if (!rule.has_value()) return nullptr;
  return [&model, tenant, rule = *std::move(rule)]() -> StatusOr<TokenMaskFactory> {
    WEFT_ASSIGN_OR_RETURN(constraint::ConstraintState state,
                          BeginAnswer(model, rule, /*begun=*/"", tenant));
    return MaskOf(model.tokenizer(), std::move(state));
  };
}

}  // namespace weft::serve
