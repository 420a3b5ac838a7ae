#include "tests/property/rounding_oracle.h"

#include <algorithm>
#include <cmath>

#include "base/strings.h"
#include "engine/kv_type.h"
#include "tests/support/logits.h"

namespace weft::testing {
namespace {

constexpr int64_t kRowsAtOnce = 512;

// If a sum differs in its last bit, a stored key or value may round the other way.
double ToleranceFor(KvType kv_type) {
  if (kv_type == KvType::kF32) return 2e-3;
  return kv_type == KvType::kF16 ? 2e-2 : 1e-1;
}

// Whether the output must be the most likely token.
bool IsGreedy(const TurnOptions& options) {
  const SamplingOptions& sampling = options.sampling;
  return sampling.temperature == 0 && sampling.repetition_penalty == 1 &&
         sampling.frequency_penalty == 0 && sampling.presence_penalty == 0 &&
         sampling.logit_bias.empty() && options.token_mask == nullptr && options.min_tokens == 0 &&
         !options.ignore_eos;
}

}  // namespace

StatusOr<std::vector<float>> RoundingOracle::LastRows(KvType kv_type, const Context& context,
                                                      int64_t n) {
  const Context tokens = rows().AsTokens(context);
  RunnerOptions options;
  options.state.kv_type = KvInfo(kv_type).dtype;
  options.executor.max_step_tokens = kRowsAtOnce;
  options.pool_pages = std::ssize(tokens) / 16 + 1;
  options.pool_slots = 1;
  WEFT_ASSIGN_OR_RETURN(const auto runner,
                        ModelRunner::New({&model().backend(), model().weights()}, options));
  const int sequence = runner->Add();
  std::vector<float> logits;
  std::span<const int32_t> left = tokens;
  while (!left.empty()) {
    const auto now = left.first(std::min<size_t>(kRowsAtOnce, left.size()));
    left = left.subspan(now.size());
    ModelRunner::Part part{
        .sequence = sequence,
        .tokens = now,
        .n_logits = std::clamp<int64_t>(n - std::ssize(left), 0, std::ssize(now))};
    std::vector<std::vector<float>> vectors;
    for (const int32_t number : now) {
      if (IsRowNumber(number)) vectors.push_back(rows().RowOf(number));
    }
    part.rows.assign(vectors.begin(), vectors.end());
    WEFT_ASSIGN_OR_RETURN(const std::vector<float> of_step, runner->Step({&part, 1}));
    logits.insert(logits.end(), of_step.begin(), of_step.end());
  }
  return logits;
}

std::string RoundingOracle::CompareToken(const TokenEvent& event, const std::vector<double>& row,
                                         double tolerance, bool is_greedy) {
  std::vector<TokenLogprob> reported = event.alternatives;
  reported.push_back({event.token, event.logprob});
  for (const TokenLogprob& entry : reported) {
    const double expected = row[static_cast<size_t>(entry.token)];
    const double difference = std::abs(expected - double{entry.logprob});
    if (!(difference <= tolerance)) {
      return StrCat("token ", entry.token, " has ", entry.logprob, ", by the reference ", expected);
    }
    largest_difference_ = std::max(largest_difference_, difference);
  }
  const double best = *std::ranges::max_element(row);
  const double said = row[static_cast<size_t>(event.token)];
  if (is_greedy && said < best - 2 * tolerance) {
    return StrCat("it said ", event.token, " with ", said, ", the likeliest has ", best);
  }
  ++n_compared_;
  return "";
}

StatusOr<std::string> RoundingOracle::Compare(KvType kv_type, const Context& context,
                                              const TurnOptions& options, int /*choice*/,
                                              const ChoiceRecord& got) {
  if (std::ssize(got.events) > options.max_tokens) {
    return StrCat("it said ", got.events.size(), " tokens of ", options.max_tokens);
  }
  if (got.events.empty() || options.top_logprobs < 0) return "";
  std::vector<int32_t> tokens = context;
  const std::vector<int32_t> said = got.Tokens();
  tokens.insert(tokens.end(), said.begin(), said.end() - 1);
  WEFT_ASSIGN_OR_RETURN(const std::vector<float> rows, LastRows(kv_type, tokens, std::ssize(said)));
  const bool is_greedy = IsGreedy(options);
  for (size_t i = 0; i < got.events.size(); ++i) {
    const auto row = LogSoftmax(LogitRow(rows, model().n_vocab(), static_cast<int64_t>(i)));
    const std::string difference =
        CompareToken(got.events[i], row, ToleranceFor(kv_type), is_greedy);
    if (!difference.empty()) return StrCat("token ", i, ": ", difference);
  }
  return "";
}

}  // namespace weft::testing
