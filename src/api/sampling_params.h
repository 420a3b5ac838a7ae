// The fields of a request body that say how tokens are chosen and when to stop, by all
// the names that OpenAI's API, llama-server and vLLM have for them.
//
// What is not given keeps the server's default: the operator's, else the model's own, else that
// of the engine (weft/options.h), which `weft run` and llama-server have too. Functions of their
// arguments; any thread.
#ifndef WEFT_API_SAMPLING_PARAMS_H_
#define WEFT_API_SAMPLING_PARAMS_H_

#include "api/support.h"
#include "nlohmann/json.hpp"
#include "weft/model.h"
#include "weft/options.h"

namespace weft::serve {

inline constexpr int64_t kMaxTopLogprobs = 20;
inline constexpr int64_t kMaxChoices = 16;

// How far a request may go, and where it starts from.
struct SamplingRules {
  SamplingOptions defaults;
  bool end_loops = true;
  // OpenAI's limits.
  double max_temperature = 2;
  double max_penalty = 2;  // frequency_penalty, presence_penalty; also below zero
};

// Those that hold where an API has no limits of its own.
SamplingRules RulesOf(const Host& host);
// Those of APIs whose own servers have none; they keep the arithmetic finite.
SamplingRules WideRulesOf(const Host& host);

// temperature, top_p, top_k, min_p, the penalties and their window, logit_bias, seed,
// ignore_eos, min_tokens, end_loops; refuses samplers that the engine does not have.
void ReadSampling(ApiFields* fields, const Model& model, const SamplingRules& rules,
                  TurnOptions* turn);
// stop, of which empty strings are left out; stop_token_ids.
void ReadStops(ApiFields* fields, TurnOptions* turn);
// Of completions of a text: what ends them where the request does not say, and in any case. (What
// ends an answer in a chat, StartChat knows.)
void AddEnds(const AnswerEnds& ends, TurnOptions* turn);
// max_completion_tokens, max_tokens, n_predict: the first that is there, else what the turn has.
// `least` is the smallest number that makes sense (0: only the prompt is computed).
void ReadMaxTokens(ApiFields* fields, int64_t least, TurnOptions* turn);
// n, which llama-server calls n_cmpl too.
void ReadChoices(ApiFields* fields, TurnOptions* turn);
// {"17": -5, ...}, [[17, -5], ["text", false], ...]: false is a ban.
void ReadLogitBias(ApiFields* fields, const Model& model, SamplingOptions* sampling);
// Fields of llama-server and others that would change the output and are not there, and
// those that cannot change it.
void ReadForeignFields(ApiFields* fields);
// return_progress, in APIs that tell nothing before the answer begins.
void RefuseProgress(ApiFields* fields);

}  // namespace weft::serve

#endif  // WEFT_API_SAMPLING_PARAMS_H_
