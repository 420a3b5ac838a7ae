#include "doors/worker/worker_request.h"

#include <limits>
#include <utility>

#include "base/strings.h"
#include "json/json_fields.h"
#include "weft/options.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMin64 = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax64 = std::numeric_limits<int64_t>::max();

StatusOr<WorkerRequest::Op> ParseOp(const std::string& name) {
  if (name.empty()) return WorkerRequest::Op::kGenerate;
  if (name == "open") return WorkerRequest::Op::kOpen;
  if (name == "close") return WorkerRequest::Op::kClose;
  if (name == "reset") return WorkerRequest::Op::kReset;
  return InvalidArgument("op '", Printable(name), "' is not one of open, close, reset");
}

StatusOr<WorkerRequest::Segment> ParseIds(const Json& ids, std::string_view where) {
  if (!ids.is_array()) return InvalidArgument(where, ".ids must be an array of token ids");
  std::vector<int32_t> tokens;
  tokens.reserve(ids.size());
  for (const Json& id : ids) {
    if (!id.is_number_integer() || id < 0 || id > std::numeric_limits<int32_t>::max()) {
      return InvalidArgument(where, ".ids must be an array of token ids, which are integers");
    }
    tokens.push_back(id.get<int32_t>());
  }
  return tokens;
}

StatusOr<WorkerRequest::Segment> ParseSegment(const Json& segment, std::string_view where) {
  if (!segment.is_object()) return InvalidArgument(where, " must be an object");
  if (segment.contains("image")) {
    return InvalidArgument(where, " is an image, but this model takes text only");
  }
  const auto ids = segment.find("ids");
  const auto text = segment.find("text");
  if ((ids == segment.end()) == (text == segment.end())) {
    return InvalidArgument("prompt_segment needs `text` or `ids`, and not both");
  }
  if (ids != segment.end()) return ParseIds(*ids, where);
  if (!text->is_string()) return InvalidArgument(where, ".text must be a string");
  return text->get<std::string>();
}

Status ParsePrompt(JsonFields* fields, WorkerRequest* request) {
  const Json* const prompt = fields->Value("prompt");
  const Json* const segments = fields->Value("prompt_segments");
  if ((prompt == nullptr) == (segments == nullptr)) {
    return InvalidArgument("exactly one of prompt / prompt_segments is required");
  }
  if (prompt != nullptr) {
    if (!prompt->is_string()) return InvalidArgument("prompt must be a string");
    request->prompt.emplace_back(prompt->get<std::string>());
    return OkStatus();
  }
  if (!segments->is_array()) return InvalidArgument("prompt_segments must be an array");
  for (size_t i = 0; i < segments->size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(WorkerRequest::Segment segment,
                          ParseSegment((*segments)[i], StrCat("prompt_segments[", i, "]")));
    request->prompt.push_back(std::move(segment));
  }
  return OkStatus();
}

// At most one of json_schema (an object, or its text), grammar and regex.
Status ParseAnswer(JsonFields* fields, WorkerRequest* request) {
  const auto take = [&](ConstraintSpec::Kind kind, const char* name, std::string text) {
    if (request->answer) {
      fields->Fail(name, "cannot be combined with another one of json_schema, grammar and regex");
    }
    request->answer = AnswerRule{.spec = {.kind = kind, .text = std::move(text)}, .field = name};
  };
  if (const Json* const schema = fields->Value("json_schema")) {
    const bool is_text = schema->is_string();
    if (!is_text && !schema->is_object()) {
      return InvalidArgument(
          "json_schema must be a JSON Schema, given as an object or as JSON text");
    }
    take(ConstraintSpec::Kind::kJsonSchema, "json_schema",
         is_text ? schema->get<std::string>() : schema->dump());
  }
  if (auto grammar = fields->String("grammar")) {
    take(ConstraintSpec::Kind::kGrammar, "grammar", *std::move(grammar));
  }
  if (auto regex = fields->String("regex")) {
    take(ConstraintSpec::Kind::kRegex, "regex", *std::move(regex));
  }
  return OkStatus();
}

// The parameters that the protocol has. `wrong`: the first error in its own wording.
SamplingAdvice ParseParameters(JsonFields* fields, Status* wrong) {
  constexpr double kAny = std::numeric_limits<double>::max();
  SamplingAdvice said;
  for (const SamplingParameter& parameter : SamplingParameters()) {
    if (parameter.worker == nullptr) continue;
    const std::string_view must = parameter.worker;
    std::optional<double> number;
    if (parameter.is_whole()) {
      const auto whole = fields->Integer(parameter.name, kMin64, kMax64);
      if (whole) number = static_cast<double>(*whole);
    } else {
      number = must.empty() ? fields->Number(parameter.name, parameter.min, parameter.max)
                            : fields->Number(parameter.name, -kAny, kAny);
    }
    const bool is_alias = number == parameter.alias.said && number != parameter.alias.means;
    if (number && (is_alias || !parameter.Takes(*number))) {
      wrong->Update(InvalidArgument(parameter.name, " ", must));
    }
    said.*parameter.advice = number;
  }
  return said;
}

Status ParseSampling(JsonFields* fields, WorkerRequest* request) {
  request->max_new_tokens = fields->Integer("max_new_tokens", kMin64, kMax64).value_or(-1);
  Status wrong;
  request->sampling = ParseParameters(fields, &wrong);
  const int64_t seed = fields->Integer("seed", kMin64, kMax64).value_or(0);
  request->stop = fields->Strings("stop", kMaxStopStrings).value_or(std::vector<std::string>());
  if (seed < 0) wrong.Update(InvalidArgument("seed must be nonnegative"));
  // An empty string would stop before the first character; ignore it.
  std::erase(request->stop, "");
  request->seed = static_cast<uint64_t>(seed);
  return wrong;
}

}  // namespace

StatusOr<WorkerRequest> ParseWorkerRequest(std::string_view line) {
  WEFT_ASSIGN_OR_RETURN(const Json body, ParseJson(line, {}));
  if (!body.is_object()) return InvalidArgument("a request must be a JSON object");
  JsonFields fields(body);
  WorkerRequest request;
  WEFT_ASSIGN_OR_RETURN(request.op, ParseOp(fields.String("op").value_or("")));
  request.session_id = fields.String("session_id").value_or("");
  if (request.op == WorkerRequest::Op::kGenerate) {
    // Wrong types are reported first, then errors in the prompt or in ranges.
    const Status sampling = ParseSampling(&fields, &request);
    const Status prompt = ParsePrompt(&fields, &request);
    const Status answer = ParseAnswer(&fields, &request);
    WEFT_RETURN_IF_ERROR(fields.Finish(&request.unknown));
    WEFT_RETURN_IF_ERROR(sampling);
    WEFT_RETURN_IF_ERROR(prompt);
    WEFT_RETURN_IF_ERROR(answer);
    return request;
  }
  WEFT_RETURN_IF_ERROR(fields.Finish(&request.unknown));
  if (request.session_id.empty()) return InvalidArgument("session_id required for op");
  return request;
}

}  // namespace weft::serve
