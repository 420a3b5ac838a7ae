#include "cli/commands/kv_accuracy.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <iterator>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "engine/kv_type.h"
#include "engine/memory_budget.h"
#include "weft/engine.h"

namespace weft::cli {
namespace {

constexpr const char* kTypes[] = {"f32",       "f16",  "bf16",      "q8_0",
                                  "q8_0,q5_0", "q5_0", "q5_0,q4_0", "q4_0"};
// For the rows of one step of an engine.
constexpr int64_t kStepLogitBytes = int64_t{16} << 20;
// Rows with fewer tokens before them say little of a long context.
constexpr int64_t kFirstRow = 256;

// All engines compute the same rows in step: no more than one exact row is ever held.
class Meeting {
 public:
  explicit Meeting(int n_others) : n_others_(n_others) {}

  // Called by the exact engine: returns when the others have compared row `position`.
  void Post(int64_t position, std::span<const float> logits) {
    float top = logits[0];
    for (const float x : logits) top = std::max(top, x);
    std::vector<float> probs(logits.size());
    double sum = 0, mean = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      probs[i] = std::exp(logits[i] - top);
      sum += static_cast<double>(probs[i]);
    }
    const double log_sum = std::log(sum) + static_cast<double>(top);
    for (size_t i = 0; i < logits.size(); ++i) {
      if (probs[i] == 0) continue;  // also of a token that is ruled out
      mean += static_cast<double>(probs[i]) / sum * (static_cast<double>(logits[i]) - log_sum);
    }
    std::unique_lock lock(mutex_);
    probs_ = std::move(probs);
    sum_ = sum;
    mean_log_ = mean;
    best_ = std::ranges::max_element(logits) - logits.begin();
    position_ = position;
    n_waiting_ = n_others_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return n_waiting_ == 0; });
  }
  // Called by the others. Does nothing once the exact engine has ended.
  void Compare(int64_t position, std::span<const float> logits, KvAccuracy* out) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return position_ == position || exact_ended_; });
      if (position_ != position) return;
    }
    float top = logits[0];
    for (const float x : logits) top = std::max(top, x);
    double sum = 0, cross = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      sum += static_cast<double>(std::exp(logits[i] - top));
      if (probs_[i] == 0) continue;
      cross += static_cast<double>(probs_[i]) * static_cast<double>(logits[i] - top);
    }
    out->kl += mean_log_ - (cross / sum_ - std::log(sum));
    out->same_best += std::ranges::max_element(logits) - logits.begin() == best_ ? 1 : 0;
    const std::scoped_lock lock(mutex_);
    if (--n_waiting_ == 0) changed_.notify_all();
  }
  // An engine has ended, perhaps by an error, before `position`.
  void Leave(bool exact, int64_t next_position) {
    const std::scoped_lock lock(mutex_);
    if (exact) {
      exact_ended_ = true;
    } else {
      --n_others_;
      if (next_position <= position_) --n_waiting_;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<float> probs_;  // times sum_; written only while nobody compares
  double sum_ = 0, mean_log_ = 0;
  std::ptrdiff_t best_ = 0;
  int64_t position_ = -1;
  int n_others_, n_waiting_ = 0;
  bool exact_ended_ = false;
};

// One KV type's engine.
struct Measured {
  KvAccuracy result;
  std::unique_ptr<Engine> engine;
  int64_t next_position = 0;
  Status status;
};

Status RunTurn(Engine* engine, const TurnOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const auto turn, engine->SubmitOnce("", options));
  Status status;
  while (auto event = turn->Next()) {
    if (const auto* done = std::get_if<DoneEvent>(&*event)) status = done->status;
  }
  return status;
}

void ComputeRows(Measured* own, bool exact, TurnOptions options, int64_t first_row,
                 Meeting* meeting) {
  options.on_prompt_logits = [&](int64_t position, std::span<const float> logits) {
    if (position >= first_row) {
      if (exact) {
        meeting->Post(position, logits);
      } else {
        meeting->Compare(position, logits, &own->result);
      }
    }
    own->next_position = position + 1;
  };
  own->status = RunTurn(own->engine.get(), options);
  meeting->Leave(exact, own->next_position);
}

// Whether the backend can keep the model's keys and values so.
bool Holds(const Model& model, KvTypes types) {
  return std::ranges::count(model.backend().capabilities().kv_types, types) > 0 &&
         model.backend().NewState(*model.weights(), {.kv_type = types}).ok();
}

// An engine for the type, or null where the backend does not have it.
StatusOr<std::unique_ptr<Engine>> StartFor(const std::shared_ptr<const Model>& model,
                                           const std::string& kv, int n_threads,
                                           KvAccuracy* result) {
  WEFT_ASSIGN_OR_RETURN(const KvPair pair, ParseKvTypes(kv));
  EngineOptions options;
  options.kv_type = pair.keys;
  options.kv_values = pair.values;
  options.n_threads = n_threads;
  options.max_running = 1;
  options.prefix_cache = false;
  options.speculation = Speculation::kOff;
  result->kv = kv;
  result->bytes_per_token = KvBytesPerToken(model->spec(), KvTypesOf(options));
  if (!Holds(*model, KvTypesOf(options))) return std::unique_ptr<Engine>();
  return Engine::Start(model, options);
}

}  // namespace

StatusOr<std::vector<KvAccuracy>> MeasureKvTypes(std::shared_ptr<const Model> model,
                                                 const std::vector<int32_t>& tokens,
                                                 int n_threads) {
  const auto n = static_cast<int64_t>(tokens.size());
  if (n < 2) return InvalidArgument("the text has less than two tokens; give a longer one");
  // The engines compute at the same time.
  const int n_cores =
      n_threads > 0 ? n_threads : static_cast<int>(std::thread::hardware_concurrency());
  const int n_each = std::max(1, n_cores / static_cast<int>(std::size(kTypes)));
  std::vector<Measured> all;
  for (const char* const kv : kTypes) {
    Measured measured;
    WEFT_ASSIGN_OR_RETURN(measured.engine, StartFor(model, kv, n_each, &measured.result));
    if (measured.engine != nullptr) all.push_back(std::move(measured));
  }
  if (all.empty() || all[0].result.kv != kTypes[0]) {
    return Unimplemented("the backend has no KV cache of ", kTypes[0],
                         " to compare with; use --backend cpu");
  }
  TurnOptions options;
  options.tokens = tokens;
  options.max_tokens = 0;
  options.prompt_chunks = {
      std::clamp<int64_t>(kStepLogitBytes / (model->n_vocab() * int64_t{4}), 1, 256)};
  const int64_t first_row = std::min(kFirstRow, n / 2);
  Meeting meeting(static_cast<int>(all.size()) - 1);
  std::vector<std::thread> threads;
  threads.reserve(all.size());
  for (Measured& own : all) {
    threads.emplace_back(ComputeRows, &own, &own == all.data(), options, first_row, &meeting);
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<KvAccuracy> results;
  for (Measured& own : all) {
    WEFT_RETURN_IF_ERROR(own.status);
    const auto n_rows = static_cast<double>(n - first_row);
    if (!std::isfinite(own.result.kl)) {
      return Internal("the probabilities with --kv ", own.result.kv, " are not numbers");
    }
    own.result.kl = std::max(0.0, own.result.kl / n_rows);  // less is rounding
    own.result.same_best = results.empty() ? 1 : own.result.same_best / n_rows;
    results.push_back(own.result);
  }
  return results;
}

}  // namespace weft::cli
