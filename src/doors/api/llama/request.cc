#include "doors/api/llama/request.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "answer/chat/chat_context.h"
#include "base/strings.h"
#include "doors/api/fields/answer_rule.h"
#include "doors/api/fields/cache_report.h"
#include "doors/api/fields/fill_in_prompt.h"
#include "doors/api/fields/mixed_text.h"
#include "doors/api/fields/pictures.h"
#include "doors/api/fields/sampling_params.h"
#include "doors/api/fields/session_name.h"
#include "doors/api/fields/support.h"
#include "model/sampling/sampling_parameters.h"
#include "model/tokenizer/tokenizer.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxPrompts = 256;
constexpr size_t kMaxResponseFields = 256;
constexpr size_t kMaxExtraFiles = 256;

constexpr char kPromptShape[] =
    "must be a string, an array of token ids and strings, {\"prompt_string\": ...} with either, or "
    "an array of such prompts";

// A text with a marker for each picture.
Status ReadPicturedPrompt(PictureReader& reader, Ask* ask, const Json& text, const Json& data,
                          LlamaPrompt* prompt) {
  constexpr std::string_view kPlace = "prompt.multimodal_data";
  if (!text.is_string() || !data.is_array()) {
    return Misshapen(kPlace, "must be an array of pictures in base64, with a prompt_string");
  }
  prompt->text = prompt->written = text.get<std::string>();
  size_t at = 0;
  for (size_t i = 0; i < data.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const std::string mark,
                          reader.Take(data[i], StrCat(kPlace, "[", i, "]")));
    at = prompt->text.find(kMediaMarker, at);
    if (at == std::string::npos) break;
    prompt->text.replace(at, kMediaMarker.size(), mark);
    at += mark.size();
  }
  if (at == std::string::npos || prompt->text.find(kMediaMarker, at) != std::string::npos) {
    return Misshapen(kPlace, StrCat("has ", data.size(), " pictures; prompt_string must have ",
                                    kMediaMarker, " as often"));
  }
  prompt->pictures = std::exchange(ask->pictures, {});
  return OkStatus();
}

// `reader` adds to the pictures of `ask`, which has none before and after.
Status ReadPrompt(Host& host, PictureReader& reader, Ask* ask, ApiFields* fields, const Json& value,
                  std::vector<LlamaPrompt>* prompts) {
  const Json* text = &value;
  LlamaPrompt& prompt = prompts->emplace_back();
  if (value.is_object()) {
    const auto it = value.find("prompt_string");
    if (it != value.end()) text = &*it;
    const Json& data = ValueIn(value, "multimodal_data");
    if (!data.is_null() && data != Json::array()) {
      return ReadPicturedPrompt(reader, ask, *text, data, &prompt);
    }
  }
  const Model& model = host.model();
  const PromptEncoder encoder = MakePromptEncoder(model.tokenizer(), model.context_tokens());
  if (!ReadMixedText(*text, model.n_vocab(), encoder.encode, &prompt.tokens)) {
    fields->Fail("prompt", kPromptShape);
  }
  return OkStatus();
}

Status ReadPrompts(Host& host, const HttpRequest& request, ApiFields* fields,
                   std::vector<LlamaPrompt>* prompts) {
  const Json* const value = fields->Value("prompt");
  if (value == nullptr) {
    fields->Fail("prompt", kPromptShape);
    return OkStatus();
  }
  // An array that contains numbers is one prompt; otherwise it is several.
  const bool several =
      value->is_array() && !value->empty() &&
      std::none_of(value->begin(), value->end(), [](const Json& part) { return part.is_number(); });
  Ask ask;
  PictureReader reader(host, request, &ask);
  if (!several) return ReadPrompt(host, reader, &ask, fields, *value, prompts);
  if (value->size() > kMaxPrompts) {
    fields->Fail("prompt",
                 StrCat("has ", value->size(), " prompts, at most ", kMaxPrompts, " are taken"));
    return OkStatus();
  }
  size_t n_pictures = 0;
  for (const Json& prompt : *value) {
    WEFT_RETURN_IF_ERROR(ReadPrompt(host, reader, &ask, fields, prompt, prompts));
    n_pictures += prompts->back().pictures.size();
    if (n_pictures > kMaxPictures) {
      return Misshapen("prompt", StrCat("has more than ", kMaxPictures, " pictures"));
    }
  }
  return OkStatus();
}

Json BiasList(const LlamaCompletion& read, const Tokenizer& tokenizer) {
  Json list = Json::array();
  const auto add = [&list](int32_t token, float bias) {
    list.push_back({{"bias", std::isfinite(bias) ? Json(bias) : Json()}, {"token", token}});
  };
  for (const auto& [token, bias] : read.ask.turn.sampling.logit_bias) add(token, bias);
  for (int32_t id = 0; read.ask.turn.ignore_eos && id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.IsEndOfGeneration(id)) add(id, -INFINITY);
  }
  return list;
}

// input_prefix and input_suffix, in which control tokens are plain text; `prompt` is the line being
// written, the end of the prefix.
FillIn ReadFillIn(ApiFields* fields, const Model& model) {
  FillIn parts{.names_files = true};
  const TextEncoder encode = [&model](std::string_view text, bool) {
    return model.Encode(text, /*add_special=*/false, /*parse_special=*/false);
  };
  for (const auto& [name, tokens] :
       {std::pair("input_prefix", &parts.prefix), std::pair("input_suffix", &parts.suffix)}) {
    const Json* const text = fields->Value(name);
    if (text == nullptr || !ReadMixedText(*text, model.n_vocab(), encode, tokens)) {
      fields->Fail(name, "must be a string, or an array of strings and token ids");
    }
  }
  const std::vector<int32_t> line = encode(fields->String("prompt").value_or(""), false);
  parts.prefix.insert(parts.prefix.end(), line.begin(), line.end());
  const Json* const extra = fields->Value("input_extra");
  if (extra == nullptr) return parts;
  bool fits = extra->is_array() && extra->size() <= kMaxExtraFiles;
  for (size_t i = 0; fits && i < extra->size(); ++i) {
    const Json& entry = (*extra)[i];
    const Json text = entry.is_object() ? entry.value("text", Json()) : Json();
    const Json name = entry.is_object() ? entry.value("filename", Json("tmp")) : Json();
    fits = text.is_string() && name.is_string();
    if (fits) {
      parts.extra.push_back({.name = name.get<std::string>(), .text = text.get<std::string>()});
    }
  }
  if (!fits) {
    fields->Fail("input_extra", StrCat("must be an array of at most ", kMaxExtraFiles,
                                       " objects {\"filename\": string, \"text\": string}"));
  }
  return parts;
}

// Everything except the prompt.
Status ReadRest(Host& host, const HttpRequest& request, ApiFields* fields, LlamaCompletion* read) {
  const auto model = fields->String("model");
  ReadSampling(fields, host.model(), WideRulesOf(host), &read->ask.turn);
  ReadStops(fields, &read->ask.turn);
  AddEnds(host.defaults().ends, &read->ask.turn);
  read->ask.turn.max_tokens = host.defaults().max_tokens;
  ReadMaxTokens(fields, /*least=*/-1, &read->ask.turn);
  const auto n_probs = fields->Integer("n_probs", 0, kMaxTopLogprobs);
  if (n_probs.value_or(0) > 0) read->ask.turn.top_logprobs = static_cast<int>(*n_probs);
  read->ask.turn.logprobs_of_draw = fields->Bool("post_sampling_probs").value_or(false);
  read->stream = fields->Bool("stream").value_or(false);
  read->return_tokens = fields->Bool("return_tokens").value_or(false);
  read->timings_per_token = fields->Bool("timings_per_token").value_or(false);
  read->ask.turn.report_progress = fields->Bool("return_progress").value_or(false) && read->stream;
  ReadChoices(fields, &read->ask.turn);
  read->response_fields =
      fields->Strings("response_fields", kMaxResponseFields).value_or(std::vector<std::string>());
  const auto limit_ms = fields->Integer("t_max_predict_ms", INT32_MIN, INT32_MAX);
  read->max_predict_ms = std::max<int64_t>(limit_ms.value_or(0), 0);
  if (read->max_predict_ms > 0 && read->ask.turn.n_choices > 1) {
    fields->Fail("t_max_predict_ms", "supports only one answer; n must be 1");
  }
  const auto slot = ReadSlot(fields, host, read->prompts.size());
  fields->CannotMatter({"t_max_prompt_ms"});  // unused by llama-server too
  fields->Refuse("image_data",
                 "is not supported: send {\"prompt_string\", \"multimodal_data\"} as the prompt",
                 Json::array());
  ReadForeignFields(fields, &read->ask.turn);
  ReadTextRule(fields, host.model(), request.Account(), &read->ask.turn);
  read->ask.tells_cache_report = WantsCacheReport(request, fields);
  WEFT_RETURN_IF_ERROR(
      FinishFields(host, request, model, read->prompts.size(), fields, &read->ignored, &read->ask));
  if (slot && read->ask.session.name.empty()) {
    read->slot = *slot;
    read->ask.session = SlotSession(*slot);
  }
  return OkStatus();
}

}  // namespace

StatusOr<LlamaCompletion> ReadLlamaCompletion(Host& host, const HttpRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const Json body, ParseJson(request.body, {}));
  LlamaCompletion read;
  ApiFields fields(body);
  WEFT_RETURN_IF_ERROR(ReadPrompts(host, request, &fields, &read.prompts));
  WEFT_RETURN_IF_ERROR(ReadRest(host, request, &fields, &read));
  return read;
}

StatusOr<LlamaCompletion> ReadLlamaInfill(Host& host, const HttpRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const FillInTokens tokens, NeedFillInTokens(host.model()));
  WEFT_ASSIGN_OR_RETURN(const Json body, ParseJson(request.body, {}));
  LlamaCompletion read;
  ApiFields fields(body);
  FillIn parts = ReadFillIn(&fields, host.model());
  read.prompts.emplace_back();  // filled in once the length of the answer is known
  WEFT_RETURN_IF_ERROR(ReadRest(host, request, &fields, &read));
  read.prompts[0].tokens =
      FillInPrompt(host.model(), tokens, std::move(parts), read.ask.turn.max_tokens);
  return read;
}

Json LlamaSettings(const LlamaCompletion& read, const Json& seed, const Tokenizer& tokenizer) {
  Json settings = {{"n_predict", read.ask.turn.max_tokens},
                   {"max_tokens", read.ask.turn.max_tokens},
                   {"seed", seed}};
  settings.update(SamplingJson(read.ask.turn.sampling));
  for (const ForeignSampler& sampler : ForeignSamplers()) {
    if (sampler.is_llamas) settings[std::string(sampler.name)] = sampler.off;
  }
  // Whole numbers, which strict clients distinguish.
  for (const char* const name : {"mirostat", "min_keep"}) {
    settings[name] = settings[name].get<int64_t>();
  }
  settings.update({{"dynatemp_exponent", 1.0},
                   {"adaptive_decay", 0.0},
                   {"n_keep", 0},
                   {"n_discard", 0},
                   {"ignore_eos", read.ask.turn.ignore_eos},
                   {"stop", read.ask.turn.stop_strings},
                   {"logit_bias", BiasList(read, tokenizer)},
                   {"n_probs", std::max(0, read.ask.turn.top_logprobs)},
                   {"post_sampling_probs", read.ask.turn.logprobs_of_draw},
                   {"samplers", SamplerNames()},
                   {"stream", read.stream},
                   {"timings_per_token", read.timings_per_token},
                   {"speculative.n_max", read.ask.turn.speculation.most},
                   {"speculative.n_min", read.ask.turn.speculation.least},
                   {"speculative.p_min", read.ask.turn.speculation.min_probability},
                   {"n", read.ask.turn.n_choices}});
  return settings;
}

}  // namespace weft::serve
