#include "tests/property/oracle.h"

#include "compute/backend.h"
#include "engine/sampling/random.h"

namespace weft::testing {
namespace {

constexpr size_t kMaxAnswers = 20000;

template <typename T>
void AppendBytes(std::string* key, const T& value) {
  key->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Everything that the output depends on.
std::string KeyOf(KvType kv_type, const Context& context, const TurnOptions& options,
                  uint64_t seed) {
  std::string key;
  const SamplingOptions& sampling = options.sampling;
  AppendBytes(&key, kv_type);
  AppendBytes(&key, sampling.temperature == 0 ? uint64_t{0} : seed);
  AppendBytes(&key, options.max_tokens);
  AppendBytes(&key, options.min_tokens);
  AppendBytes(&key, options.ignore_eos);
  AppendBytes(&key, options.top_logprobs);
  key += options.label;  // identifies the mask
  for (const AdapterScale& adapter : options.adapters) {
    key += adapter.name;
    AppendBytes(&key, adapter.scale);
  }
  for (const float value :
       {sampling.temperature, sampling.top_p, sampling.min_p, sampling.repetition_penalty,
        sampling.frequency_penalty, sampling.presence_penalty}) {
    AppendBytes(&key, value);
  }
  AppendBytes(&key, sampling.top_k);
  AppendBytes(&key, sampling.penalty_window);
  for (const auto& [token, bias] : sampling.logit_bias) {
    AppendBytes(&key, token);
    AppendBytes(&key, bias);
  }
  AppendBytes(&key, options.stop_tokens.size());
  for (const int32_t token : options.stop_tokens) AppendBytes(&key, token);
  AppendBytes(&key, options.stop_strings.size());
  for (const std::string& stop : options.stop_strings) key += stop + '\0';
  for (const int32_t token : context) AppendBytes(&key, token);
  return key;
}

}  // namespace

StatusOr<Engine*> Oracle::EngineOf(KvType kv_type) {
  std::unique_ptr<Engine>& engine = engines_[kv_type];
  if (engine == nullptr) {
    EngineOptions options;
    options.n_threads = 1;
    options.kv_type = kv_type;
    options.prefix_cache = false;
    options.speculation = Speculation::kOff;
    options.memory_bytes = int64_t{256} << 20;
    options.max_running = 1;
    WEFT_ASSIGN_OR_RETURN(engine, Engine::Start(model_, options));
  }
  return engine.get();
}

// Whether a row differs from its token: penalties count only tokens, checked slots hash their
// inputs, and adapters change the embeddings of tokens alone.
bool Oracle::TellsRowsApart(const TurnOptions& options) const {
  const SamplingOptions& sampling = options.sampling;
  return sampling.repetition_penalty != 1 || sampling.frequency_penalty != 0 ||
         sampling.presence_penalty != 0 || !options.adapters.empty() ||
         model_->backend().name() == "recurrent";
}

StatusOr<ChoiceRecord> Oracle::Ask(KvType kv_type, const Context& context,
                                   const TurnOptions& options, int choice) {
  const uint64_t seed = ChoiceSeed(options.sampling.seed.value_or(0), choice);
  const Context asked = TellsRowsApart(options) ? context : rows_.AsTokens(context);
  const std::string key = KeyOf(kv_type, asked, options, seed);
  if (const auto known = answers_.find(key); known != answers_.end()) return known->second;
  WEFT_ASSIGN_OR_RETURN(Engine* const engine, EngineOf(kv_type));
  TurnOptions alone;
  rows_.Put(asked, &alone);
  alone.tokens_are_whole_context = true;
  alone.adapters = options.adapters;
  alone.max_tokens = options.max_tokens;
  alone.sampling = options.sampling;
  alone.sampling.seed = seed;
  alone.stop_tokens = options.stop_tokens;
  alone.stop_strings = options.stop_strings;
  alone.min_tokens = options.min_tokens;
  alone.ignore_eos = options.ignore_eos;
  alone.top_logprobs = options.top_logprobs;
  alone.label = options.label;
  alone.token_mask = options.token_mask;
  WEFT_ASSIGN_OR_RETURN(const auto turn, engine->SubmitOnce("", alone));
  TurnRecord record = ReadTurn(turn.get(), 1);
  if (!record.choices[0].complete()) return Internal("the oracle failed");
  if (answers_.size() >= kMaxAnswers) answers_.clear();
  return answers_.emplace(key, std::move(record.choices[0])).first->second;
}

StatusOr<std::string> Oracle::Compare(KvType kv_type, const Context& context,
                                      const TurnOptions& options, int choice,
                                      const ChoiceRecord& got) {
  WEFT_ASSIGN_OR_RETURN(const ChoiceRecord alone, Ask(kv_type, context, options, choice));
  return CompareChoices(got, alone);
}

}  // namespace weft::testing
