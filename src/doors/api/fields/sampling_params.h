// Request fields that control sampling and stopping, under all names used by OpenAI's API,
// llama-server and vLLM.
//
// Missing fields keep the server's default: the operator's, else the model's own, else the engine's
// (weft/options.h), which `weft run` and llama-server use too. Pure functions; any thread.
#ifndef WEFT_DOORS_API_FIELDS_SAMPLING_PARAMS_H_
#define WEFT_DOORS_API_FIELDS_SAMPLING_PARAMS_H_

#include <string>

#include "doors/api/fields/support.h"
#include "nlohmann/json.hpp"
#include "weft/model.h"
#include "weft/options.h"

namespace weft::serve {

inline constexpr int64_t kMaxTopLogprobs = 20;
inline constexpr int64_t kMaxChoices = 16;

// A request's limits and its starting values.
struct SamplingRules {
  SamplingOptions defaults;
  bool end_loops = true;
  bool has_openai_limits = true;
};

// The rules for APIs without limits of their own.
SamplingRules RulesOf(const Host& host);
// The rules for APIs whose original servers have no limits; these only keep the arithmetic finite.
SamplingRules WideRulesOf(const Host& host);

// The parameters of model/sampling/sampling_parameters.h, logit_bias, seed, ignore_eos, min_tokens,
// end_loops, speculative.*; refuses samplers that the engine lacks.
void ReadSampling(ApiFields* fields, const Model& model, const SamplingRules& rules,
                  TurnOptions* turn);
// stop (ignoring empty strings) and stop_token_ids.
void ReadStops(ApiFields* fields, TurnOptions* turn);
// For text completions: the ends that apply if the request gives none, and those that always apply.
// (Chats get theirs in StartChat.)
void AddEnds(const AnswerEnds& ends, TurnOptions* turn);
// max_completion_tokens, max_tokens, n_predict: the first one present, else the turn's own value.
// `least` is the smallest meaningful number (0: only the prompt is computed).
void ReadMaxTokens(ApiFields* fields, int64_t least, TurnOptions* turn);
// n, which llama-server also calls n_cmpl.
void ReadChoices(ApiFields* fields, TurnOptions* turn);
// {"17": -5, ...}, [[17, -5], ["text", false], ...]: false is a ban.
void ReadLogitBias(ApiFields* fields, const Model& model, SamplingOptions* sampling);
// The parameters' values by name, as llama-server tells them.
nlohmann::ordered_json SamplingJson(const SamplingOptions& sampling);
// "penalties, top_k and temperature": what the engine has, for refusals of other samplers.
std::string SamplerList();
// priority (as vLLM's: lower ones go first). Refuses unsupported fields of llama-server and others
// that would change the output, and accepts those that cannot.
void ReadForeignFields(ApiFields* fields, TurnOptions* turn);
// return_progress, in APIs that send nothing before the answer begins.
void RefuseProgress(ApiFields* fields);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_FIELDS_SAMPLING_PARAMS_H_
