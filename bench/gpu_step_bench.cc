// What a decode step costs the host before a device can begin: pages are held, the step's buffer is
// filled and enqueued, its launches are found. On the emulated device, which only notes them.
//
//   gpu_step_bench MODEL.gguf [ROWS]
//
// Without arguments the model is $WEFT_BENCH_MODEL.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"

namespace weft {
namespace {

constexpr int64_t kBest = 40;
constexpr int kRounds = 300;

// Sessions that decode, all at the same position.
class Sessions {
 public:
  Sessions(const ModelSpec& spec, const StateStore& state, int64_t n, int64_t context)
      : tables_(static_cast<size_t>(n)), best_(static_cast<size_t>(n * kBest)) {
    const int64_t n_pages = (context + kRounds) / state.layout().page_tokens + 1;
    PageId next = 0;
    for (std::vector<PageId>& table : tables_) {
      table.resize(static_cast<size_t>(n_pages));
      std::iota(table.begin(), table.end(), next);
      next += static_cast<PageId>(n_pages);
    }
    n_pages_ = next;
    weights_.resize(tables_.size());
    for (const std::vector<PageId>& table : tables_) {
      StepSequence sequence{.tokens = token_, .position = context};
      sequence.page_tables.assign(spec.kv_groups.size(), table);
      if (!spec.slots.empty()) sequence.slot = static_cast<SlotId>(sequences_.size());
      sequence.n_logits = 1;
      sequence.n_best = kBest;
      sequence.temperature = 0.8f;
      sequences_.push_back(std::move(sequence));
    }
  }

  int64_t n_pages() const { return n_pages_; }
  Step Next() {
    for (StepSequence& sequence : sequences_) ++sequence.position;
    return {.sequences = sequences_, .best = best_, .weights = weights_};
  }

 private:
  const std::vector<TokenId> token_ = {1};
  std::vector<std::vector<PageId>> tables_;
  int64_t n_pages_ = 0;
  std::vector<StepSequence> sequences_;
  std::vector<TokenLogit> best_;
  std::vector<double> weights_;
};

Status Measure(const char* path, int64_t n_rows) {
  WEFT_ASSIGN_OR_RETURN(const Backend* const backend, FindBackend("emu"));
  WEFT_ASSIGN_OR_RETURN(const auto file, ModelFile::Open(path));
  WEFT_ASSIGN_OR_RETURN(ModelSpec spec, BuildModelSpec(*file, {}));
  WEFT_ASSIGN_OR_RETURN(const auto weights, backend->Load(file, std::move(spec), {}));
  for (const int64_t context : {512, 4096}) {
    WEFT_ASSIGN_OR_RETURN(const auto state, backend->NewState(*weights, {}));
    WEFT_ASSIGN_OR_RETURN(const auto executor,
                          backend->NewExecutor(weights, state.get(), {.n_threads = 1}));
    Sessions sessions(weights->spec(), *state, n_rows, context);
    for (size_t group = 0; group < weights->spec().kv_groups.size(); ++group) {
      WEFT_RETURN_IF_ERROR(state->GrowPages(static_cast<int>(group), sessions.n_pages()));
    }
    if (!weights->spec().slots.empty()) WEFT_RETURN_IF_ERROR(state->GrowSlots(n_rows));
    std::vector<double> us;
    for (int round = 0; round < kRounds - 1; ++round) {
      const Step step = sessions.Next();
      const auto begin = std::chrono::steady_clock::now();
      WEFT_ASSIGN_OR_RETURN(const auto run, executor->Begin(step));
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - begin;
      us.push_back(took.count());
    }
    std::ranges::sort(us);
    std::printf("%lld rows at %lld: p50 %.1f us, p90 %.1f us, most %.1f us\n",
                static_cast<long long>(n_rows), static_cast<long long>(context), us[us.size() / 2],
                us[us.size() * 9 / 10], us.back());
  }
  return OkStatus();
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  const char* const chosen = argc > 1 ? argv[1] : std::getenv("WEFT_BENCH_MODEL");
  if (chosen == nullptr || *chosen == '\0') {
    std::printf("gpu_step_bench MODEL.gguf [ROWS]: nothing to measure\n");
    return 0;
  }
  const int64_t n_rows = argc > 2 ? std::atoll(argv[2]) : 32;
  if (n_rows < 1 || n_rows > 512) {
    std::fprintf(stderr, "gpu_step_bench: ROWS must be 1 to 512, such as 32\n");
    return 2;
  }
  const weft::Status status = weft::Measure(chosen, n_rows);
  if (status.ok()) return 0;
  std::fprintf(stderr, "gpu_step_bench: %s\n", std::string(weft::Message(status)).c_str());
  return 1;
}
