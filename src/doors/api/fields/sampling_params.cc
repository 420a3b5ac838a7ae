#include "doors/api/fields/sampling_params.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answer/answer_ends.h"
#include "base/strings.h"
#include "json/json_text.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
constexpr size_t kMaxBiasTextBytes = 256;

template <typename T, typename U>
void Assign(const std::optional<U>& given, T* target) {
  if (given) *target = static_cast<T>(*given);
}

std::optional<double> ReadNumber(ApiFields* fields, const SamplingParameter& parameter,
                                 std::string_view name, double min, double max) {
  if (!parameter.is_whole()) return fields->Number(name, min, max);
  const auto number = fields->Integer(name, static_cast<int64_t>(min), static_cast<int64_t>(max));
  if (!number) return std::nullopt;
  return static_cast<double>(*number);
}

// Fails if both names of a parameter are given with different values.
std::optional<double> ReadParameter(ApiFields* fields, const SamplingParameter& parameter,
                                    bool has_openai_limits) {
  double min = parameter.min, max = parameter.max;
  if (has_openai_limits && parameter.openai_max > 0) {
    min = std::max(min, -parameter.openai_max);
    max = parameter.openai_max;
  }
  const auto first = ReadNumber(fields, parameter, parameter.name, min, max);
  if (parameter.other_name.empty()) return first;
  const auto second = ReadNumber(fields, parameter, parameter.other_name, min, max);
  if (first && second && *first != *second) {
    fields->Fail(parameter.other_name,
                 StrCat("is another name for ", parameter.name, "; use only one of them"));
  }
  return first ? first : second;
}

// -infinity for a ban, nothing for an invalid value.
std::optional<float> BiasValue(const ordered_json& value) {
  if (value.is_boolean() && !value.get<bool>()) return -std::numeric_limits<float>::infinity();
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  if (!std::isfinite(number) || std::abs(number) > 1e6) return std::nullopt;
  return static_cast<float>(number);
}

constexpr char kBiasShape[] =
    "must be an object of token ids and numbers, or an array of [token id or text, number or "
    "false]";

// The tokens named by an entry of the array form: an id, or those of a text.
bool BiasTokens(const ordered_json& key, const Model& model, std::vector<int32_t>* tokens) {
  if (key.is_number_integer()) {
    const int64_t id = key.get<int64_t>();
    if (id < 0 || id >= model.n_vocab()) return false;
    tokens->push_back(static_cast<int32_t>(id));
    return true;
  }
  if (!key.is_string()) return false;
  const std::string& text = key.get_ref<const std::string&>();
  if (text.size() > kMaxBiasTextBytes) return false;
  *tokens = model.Encode(text, false, true);
  return true;
}

void AddBias(ApiFields* fields, const Model& model, const ordered_json& key,
             const ordered_json& value, SamplingOptions* sampling) {
  std::vector<int32_t> tokens;
  const auto bias = BiasValue(value);
  if (!bias || !BiasTokens(key, model, &tokens)) {
    fields->Fail("logit_bias",
                 StrCat(kBiasShape, ", with ids below ", model.n_vocab(), "; not ",
                        Printable(CompactJson(key)), ": ", Printable(CompactJson(value))));
    return;
  }
  for (const int32_t token : tokens) sampling->logit_bias.emplace_back(token, *bias);
  if (sampling->logit_bias.size() > kMaxLogitBiases) {
    fields->Fail("logit_bias", StrCat("names more than ", kMaxLogitBiases, " tokens"));
  }
}

// llama-server's list of samplers to use: all others are off.
void ReadSamplers(ApiFields* fields, SamplingOptions* sampling) {
  const ordered_json* const list = fields->Value("samplers");
  if (list == nullptr) return;
  if (!list->is_array()) return fields->Fail("samplers", "must be an array of names");
  std::vector<std::string_view> names;
  for (const ordered_json& entry : *list) {
    std::string_view name;
    if (entry.is_string()) name = entry.get_ref<const std::string&>();
    if (name == "infill") {
      fields->Ignore("samplers.infill");
    } else {
      names.push_back(name);
    }
  }
  SamplingAdvice off;
  if (const auto bad = SamplersOff(names, &off)) {
    return fields->Unsupported(
        "samplers", StrCat("can contain ", SamplerList(), ", in this order; the invalid one is ",
                           bad->empty() ? "not a name" : Printable(*bad)));
  }
  *sampling = Advised(*sampling, off);
}

}  // namespace

void ReadLogitBias(ApiFields* fields, const Model& model, SamplingOptions* sampling) {
  const ordered_json* const biases = fields->Value("logit_bias");
  if (biases == nullptr) return;
  if (!biases->is_object() && !biases->is_array()) return fields->Fail("logit_bias", kBiasShape);
  if (biases->size() > kMaxLogitBiases) {
    return fields->Fail("logit_bias", StrCat("has ", biases->size(), " entries, at most ",
                                             kMaxLogitBiases, " are taken"));
  }
  for (const auto& [key, value] : biases->items()) {
    if (!fields->ok()) return;
    if (biases->is_object()) {
      int64_t id = 0;
      const bool is_id = ParseInt64(key, &id);
      AddBias(fields, model, is_id ? ordered_json(id) : ordered_json(key), value, sampling);
    } else if (value.is_array() && value.size() == 2) {
      AddBias(fields, model, value[0], value[1], sampling);
    } else {
      fields->Fail("logit_bias", kBiasShape);
    }
  }
}

SamplingRules RulesOf(const Host& host) {
  return {.defaults = host.defaults().sampling, .end_loops = host.defaults().end_loops};
}

SamplingRules WideRulesOf(const Host& host) {
  SamplingRules rules = RulesOf(host);
  rules.has_openai_limits = false;
  return rules;
}

void ReadSampling(ApiFields* fields, const Model& model, const SamplingRules& rules,
                  TurnOptions* turn) {
  SamplingOptions& sampling = turn->sampling;
  sampling = rules.defaults;
  for (const SamplingParameter& parameter : SamplingParameters()) {
    if (const auto number = ReadParameter(fields, parameter, rules.has_openai_limits)) {
      parameter.Set(*number, &sampling);
    }
  }
  // llama-server: -1 means a random seed.
  const auto seed = fields->Integer("seed", std::numeric_limits<int64_t>::min(),
                                    std::numeric_limits<int64_t>::max());
  if (seed) sampling.seed.reset();
  if (seed && *seed != -1) sampling.seed = static_cast<uint64_t>(*seed);
  Assign(fields->Bool("ignore_eos"), &turn->ignore_eos);
  turn->end_loops = fields->Bool("end_loops").value_or(rules.end_loops);
  Assign(fields->Integer("min_tokens", 0, kMaxInt), &turn->min_tokens);
  ReadLogitBias(fields, model, &sampling);
  ReadSamplers(fields, &sampling);
  Assign(fields->Integer("speculative.n_max", -1, kMaxInt), &turn->speculation.most);
  Assign(fields->Integer("speculative.n_min", 0, kMaxInt), &turn->speculation.least);
  Assign(fields->Number("speculative.p_min", 0, 1), &turn->speculation.min_probability);
}

void ReadStops(ApiFields* fields, TurnOptions* turn) {
  if (auto stops = fields->Strings("stop", kMaxStopStrings)) {
    for (std::string& stop : *stops) {
      if (!stop.empty()) turn->stop_strings.push_back(std::move(stop));
    }
  }
  const ordered_json* const ids = fields->Value("stop_token_ids");
  if (ids == nullptr) return;
  if (!ids->is_array() || ids->size() > kMaxStopTokens) {
    return fields->Fail("stop_token_ids",
                        StrCat("must be an array of at most ", kMaxStopTokens, " token ids"));
  }
  for (const ordered_json& id : *ids) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > kMaxInt) {
      return fields->Fail("stop_token_ids", "must be an array of token ids");
    }
    turn->stop_tokens.push_back(id.get<int32_t>());
  }
}

void AddEnds(const AnswerEnds& ends, TurnOptions* turn) {
  if (turn->stop_strings.empty()) turn->stop_strings = ends.texts;
  AddEndTokens(ends.tokens, turn);
}

void ReadMaxTokens(ApiFields* fields, int64_t least, TurnOptions* turn) {
  const auto newer = fields->Integer("max_completion_tokens", least, kMaxInt);
  const auto older = fields->Integer("max_tokens", least, kMaxInt);
  const auto llama = fields->Integer("n_predict", -1, kMaxInt);
  turn->max_tokens = newer.value_or(older.value_or(llama.value_or(turn->max_tokens)));
}

void ReadChoices(ApiFields* fields, TurnOptions* turn) {
  const auto n = fields->Integer("n", 1, kMaxChoices);
  const auto n_cmpl = fields->Integer("n_cmpl", 1, kMaxChoices);
  if (n && n_cmpl && *n != *n_cmpl) {
    fields->Fail("n_cmpl", "is another name for n; use only one of them");
  }
  turn->n_choices = static_cast<int>(n.value_or(n_cmpl.value_or(1)));
}

void ReadForeignFields(ApiFields* fields, TurnOptions* turn) {
  if (const auto priority = fields->Integer("priority", -kMaxPriority, kMaxPriority)) {
    turn->priority = -static_cast<int>(*priority);
  }
  const std::string why = StrCat("is not supported: this server supports ", SamplerList());
  for (const ForeignSampler& sampler : ForeignSamplers()) {
    fields->Refuse(sampler.name, why, sampler.off);
  }
  fields->Refuse("use_beam_search", why, false);
  fields->Refuse("bad_words", why, ordered_json::array());
  if (!fields->Knows("t_max_predict_ms")) {
    fields->Refuse("t_max_predict_ms",
                   "is only available in /completion and /infill; use max_tokens", 0);
  }
  fields->Refuse("context_shift",
                 "is not supported: the state of later tokens depends on the dropped ones, so it "
                 "would change the answer; an answer ends when the context is full",
                 false);
  for (const std::string_view name : ForeignTuning()) fields->CannotMatter({name});
  // Options for storing, finding or queueing results.
  fields->CannotMatter({"cache_prompt", "id_slot", "n_keep", "n_discard", "n_cache_reuse",
                        "n_indent", "backend_sampling"});
}

ordered_json SamplingJson(const SamplingOptions& sampling) {
  ordered_json json = ordered_json::object();
  for (const SamplingParameter& parameter : SamplingParameters()) {
    ordered_json& value = json[std::string(parameter.name)];
    value = parameter.In(sampling);
    if (parameter.is_whole()) value = value.get<int64_t>();
  }
  return json;
}

std::string SamplerList() {
  const std::vector<std::string_view> names = SamplerNames();
  return StrCat(StrJoin(std::span(names).first(names.size() - 1), ", "), " and ", names.back());
}

void RefuseProgress(ApiFields* fields) {
  fields->Refuse("return_progress",
                 "is only available in /v1/chat/completions, /v1/responses and /completion", false);
}

}  // namespace weft::serve
