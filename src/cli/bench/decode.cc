#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "cli/bench/bench.h"
#include "engine/kv_type.h"
#include "engine/memory_budget.h"

namespace weft::cli {

Status BenchPrompt(const Bench& bench) {
  EngineOptions options = bench.options;
  options.prefix_cache = false;
  WEFT_ASSIGN_OR_RETURN(const auto engine, Engine::Start(bench.model, options));
  std::vector<double> rates;
  const EngineStats before = engine->Stats();
  for (int i = 0; i < bench.flags.repeat; ++i) {
    ShowProgress(StrCat("a prompt of ", bench.flags.prompt, " tokens, run ", i + 1, " of ",
                        bench.flags.repeat));
    WEFT_ASSIGN_OR_RETURN(
        const auto turn,
        engine->SubmitOnce(
            "",
            BenchTurn(RandomTokens(bench, 100 + static_cast<uint64_t>(i), bench.flags.prompt), 1)));
    const Timeline timeline = Follow(turn.get());
    WEFT_RETURN_IF_ERROR(timeline.status);
    rates.push_back(static_cast<double>(bench.flags.prompt) * 1e6 /
                    static_cast<double>(std::max<int64_t>(1, timeline.usage.prompt_us)));
  }
  const double rate = Median(rates);
  const RateLimit limit = PromptLimit(bench.cost, bench.limits);
  Report(bench, {{"work", "prompt"},
                 {"sessions", 1},
                 {"prompt_tokens", bench.flags.prompt},
                 {"tokens_per_s", rate},
                 {"limit", NameOf(limit.kind)},
                 {"limit_tokens_per_s", limit.tokens_per_s},
                 {"limit_share", rate / limit.tokens_per_s},
                 {"stages", StagesOf(bench, before, engine->Stats())},
                 {"bytes", MemoryOf(engine->Stats())}});
  return OkStatus();
}

namespace {

// Prompts of sessions that share their beginning, answered for long enough that all decode
// together.
StatusOr<std::vector<std::shared_ptr<Turn>>> SubmitAll(const Bench& bench, Engine* engine,
                                                       int n_sessions, int round) {
  const std::vector<int32_t> shared = RandomTokens(bench, 7, bench.flags.shared);
  std::vector<std::shared_ptr<Turn>> turns;
  for (int s = 0; s < n_sessions; ++s) {
    std::vector<int32_t> tokens = shared;
    const int64_t own = std::max<int64_t>(8, bench.flags.depth - bench.flags.shared);
    const auto seed = 1000 * static_cast<uint64_t>(round) + static_cast<uint64_t>(s) + 1;
    const std::vector<int32_t> tail = RandomTokens(bench, seed, own);
    tokens.insert(tokens.end(), tail.begin(), tail.end());
    // While prompts are computed, every step takes at least one prompt token.
    const int64_t most =
        bench.flags.decode + n_sessions * (static_cast<int64_t>(tokens.size()) + 1);
    WEFT_ASSIGN_OR_RETURN(auto turn, engine->SubmitOnce("", BenchTurn(tokens, most)));
    turns.push_back(std::move(turn));
  }
  return turns;
}

// Measured from when all sessions decode until the first one is done.
struct Together {
  double tokens_per_s = 0;
  double context_tokens_per_s = 0;  // prefill of all prompts, before that
  EngineStats begin, end;
};

// Sessions whose prompts finish earlier decode meanwhile.
StatusOr<Together> DecodeTogether(const Bench& bench, Engine* engine, int n_sessions, int round) {
  const int64_t submit_us = NowMicros();
  WEFT_ASSIGN_OR_RETURN(const auto turns, SubmitAll(bench, engine, n_sessions, round));
  Together together;
  std::once_flag ended;
  std::vector<Timeline> timelines(turns.size());
  std::vector<std::thread> readers;
  std::atomic<int> n_begun = 0;
  for (size_t s = 0; s < turns.size(); ++s) {
    readers.emplace_back([&, s] {
      bool begun = false;
      int64_t n_together = 0;
      const auto begin = [&] {
        if (!std::exchange(begun, true) && ++n_begun == n_sessions)
          together.begin = engine->Stats();
      };
      timelines[s] = Follow(turns[s].get(), [&] {
        begin();
        if (n_begun < n_sessions || ++n_together <= bench.flags.decode) return;
        std::call_once(ended, [&] { together.end = engine->Stats(); });
        turns[s]->Cancel();
      });
      begin();  // a failed turn must not hold up the others
    });
  }
  for (std::thread& reader : readers) reader.join();
  int64_t begin_us = 0, end_us = INT64_MAX, n_tokens = 0, n_context = 0;
  for (const Timeline& timeline : timelines) {
    WEFT_RETURN_IF_ERROR(timeline.status);
    if (timeline.token_us.empty()) {
      end_us = 0;
      continue;
    }
    n_context += timeline.usage.computed_tokens;
    begin_us = std::max(begin_us, timeline.token_us.front());
    end_us = std::min(end_us, timeline.token_us.back());
  }
  if (end_us <= begin_us) {
    return FailedPrecondition(
        "the sessions did not all decode at once; give fewer --sessions, a smaller --depth or a "
        "larger --ctx");
  }
  for (const Timeline& timeline : timelines) {
    for (const int64_t us : timeline.token_us) n_tokens += us > begin_us && us <= end_us;
  }
  together.tokens_per_s =
      static_cast<double>(n_tokens) * 1e6 / static_cast<double>(end_us - begin_us);
  together.context_tokens_per_s =
      static_cast<double>(n_context) * 1e6 / static_cast<double>(begin_us - submit_us);
  return together;
}

}  // namespace

Status BenchDecode(const Bench& bench, int n_sessions) {
  EngineOptions options = bench.options;
  options.max_running = std::max(options.max_running, n_sessions);
  options.prefix_cache = bench.flags.shared > 0;
  WEFT_ASSIGN_OR_RETURN(const auto engine, Engine::Start(bench.model, options));
  std::vector<double> rates, context_rates;
  nlohmann::json stages;  // the last run's
  const EngineStats before = engine->Stats();
  for (int i = 0; i < bench.flags.repeat; ++i) {
    ShowProgress(StrCat(n_sessions, " decoding, run ", i + 1, " of ", bench.flags.repeat));
    StatusOr<Together> together = DecodeTogether(bench, engine.get(), n_sessions, i);
    // On a busy machine, the first session may end before the last one is submitted.
    for (int tries = 1; tries < 3 && together.status().code() == StatusCode::kFailedPrecondition;
         ++tries) {
      together = DecodeTogether(bench, engine.get(), n_sessions, i);
    }
    WEFT_ASSIGN_OR_RETURN(const Together run, std::move(together));
    rates.push_back(run.tokens_per_s);
    context_rates.push_back(run.context_tokens_per_s);
    stages = StagesOf(bench, run.begin, run.end);
  }
  const double rate = Median(rates), context_rate = Median(context_rates);
  const ModelSpec& spec = bench.model->spec();
  const double kv_bytes_per_token = KvBytesPerToken(spec, KvTypesOf(options));
  const RateLimit limit = DecodeLimit(bench.cost, bench.limits, n_sessions,
                                      kv_bytes_per_token * static_cast<double>(bench.flags.depth));
  const EngineStats after = engine->Stats();
  Report(bench, {{"work", "decode"},
                 {"sessions", n_sessions},
                 {"depth", bench.flags.depth},
                 {"context_tokens_per_s", context_rate},
                 {"context_limit_share",
                  context_rate / PromptLimit(bench.cost, bench.limits).tokens_per_s},
                 {"tokens_per_s", rate},
                 {"limit", NameOf(limit.kind)},
                 {"limit_tokens_per_s", limit.tokens_per_s},
                 {"limit_share", rate / limit.tokens_per_s},
                 {"speculate", bench.flags.model.speculate},
                 {"guessed_tokens", after.guessed_tokens - before.guessed_tokens},
                 {"accepted_guesses", after.accepted_guesses - before.accepted_guesses},
                 {"draft_steps", after.draft_steps - before.draft_steps},
                 {"draft_us", after.draft_us - before.draft_us},
                 {"stages", stages},
                 {"bytes", MemoryOf(after)}});
  return OkStatus();
}

}  // namespace weft::cli
