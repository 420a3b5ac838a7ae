// Building an engine. Sessions are in engine_sessions.cc, turns in engine_turns.cc and
// engine_named.cc, the step in engine_step.cc, engine_room.cc and engine_results.cc, publishing to
// readers in engine_publish.cc.
#include "engine/engine_core.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "engine/kv_type.h"
#include "engine/memory_budget.h"

namespace weft {
namespace {

std::atomic<uint16_t> next_engine_tag{1};

}  // namespace

std::string_view NameOf(SessionState state) {
  switch (state) {
    case SessionState::kReady:
      return "ready";
    case SessionState::kRunning:
      return "running";
    case SessionState::kParked:
      return "parked";
    case SessionState::kPoisoned:
      return "poisoned";
  }
  return "unknown";
}

EngineCore::EngineCore(std::shared_ptr<const Model> model, const EngineOptions& options,
                       PostBack post_back)
    : model_(std::move(model)),
      options_(options),
      post_back_(std::move(post_back)),
      sessions_(next_engine_tag.fetch_add(1), options.max_sessions,
                options.max_sessions_per_domain),
      planner_({}),
      view_(std::make_shared<EngineView>(sessions_.tag())) {}

EngineCore::~EngineCore() = default;

StatusOr<std::unique_ptr<EngineCore>> EngineCore::Create(std::shared_ptr<const Model> model,
                                                         const EngineOptions& options,
                                                         PostBack post_back) {
  if (options.max_running < 1 || options.max_queued < 0 || options.max_sessions < 1) {
    return InvalidArgument("max_running and max_sessions must be at least 1, max_queued 0");
  }
  if (options.max_step_tokens < 1 || options.max_pending_events < 1 || options.step_ms < 1) {
    return InvalidArgument("max_step_tokens, max_pending_events and step_ms must be at least 1");
  }
  if (!(options.checkpoint_share >= 0 && options.checkpoint_share <= 1) ||
      options.checkpoint_tokens < 0) {
    return InvalidArgument(
        "checkpoint_share must be between 0 and 1, checkpoint_tokens at least 0");
  }
  std::unique_ptr<EngineCore> core(new EngineCore(std::move(model), options, std::move(post_back)));
  ExecutorOptions executor;
  executor.kv_type = KvInfo(options.kv_type).dtype;
  executor.page_tokens = options.page_tokens;
  executor.n_threads = options.n_threads;
  executor.max_step_tokens = options.max_step_tokens;
  const Model& loaded = core->model();
  // Room for every decoding lane and some prompt rows.
  executor.max_beside_tokens = 2 * std::max(32, options.max_running);
  WEFT_ASSIGN_OR_RETURN(core->executor_, loaded.backend().NewExecutor(loaded.weights(), executor));
  core->planner_ = StepPlanner({.max_step_tokens = options.max_step_tokens,
                                .max_beside_tokens = core->executor_->max_beside_tokens(),
                                .pause_points = core->executor_->pause_points(),
                                .decode_stretch = options.decode_stretch,
                                .step_us = options.step_ms * int64_t{1000}});
  StateMemory::Options memory;
  memory.budget_bytes = options.memory_bytes > 0 ? options.memory_bytes : DefaultMemoryBudget();
  memory.prefix_cache = options.prefix_cache;
  memory.share_across_domains = options.share_prefixes_across_domains;
  memory.checkpoint_share = options.checkpoint_share;
  memory.checkpoint_tokens = options.checkpoint_tokens;
  WEFT_ASSIGN_OR_RETURN(core->memory_,
                        StateMemory::Create(loaded.spec(), core->executor_.get(), memory));
  core->idle_ = std::make_unique<IdleSessions>(&core->sessions_, core->memory_.get());
  WEFT_RETURN_IF_ERROR(Annotate(core->WarmUp(), "the warm-up step failed: "));
  WEFT_RETURN_IF_ERROR(core->OpenStore());
  WEFT_RETURN_IF_ERROR(loaded.CheckFile());
  return core;
}

// Computes a few tokens on a temporary session, so that the first real turn meets warm caches and a
// backend that cannot compute is detected now.
Status EngineCore::WarmUp() {
  WEFT_ASSIGN_OR_RETURN(Session* const session, sessions_.Create("", ""));
  session->tokens.assign(2, 0);
  const auto run = [&]() -> Status {
    std::vector<float> logits(static_cast<size_t>(model_->n_vocab()));
    for (int i = 0; i < 2; ++i) {
      const int64_t position = session->computed;
      WEFT_RETURN_IF_ERROR(memory_->Prepare(session, 1));
      StepSequence sequence = SequenceOf(*session, position, 1);
      sequence.n_logits = 1;
      const Step step{.sequences = std::span(&sequence, 1)};
      WEFT_RETURN_IF_ERROR(executor_->Forward(step, logits));
      memory_->Commit(session);
      if (!std::isfinite(logits[0]))
        return Internal("the model computes logits that are not finite");
    }
    return OkStatus();
  };
  const Status status = run();
  DestroySession(session);
  memory_->DropPrefixes();
  memory_->ReturnFreed();
  return status;
}

// --- checks -----------------------------------------------------------------------------

Status EngineCore::CheckIntegrity() {
  if (disk_ != nullptr) WEFT_RETURN_IF_ERROR(disk_->CheckIntegrity());
  WEFT_RETURN_IF_ERROR(memory_->CheckIntegrity(sessions_));
  WEFT_RETURN_IF_ERROR(idle_->CheckIntegrity());
  Publish();
  return CheckPublished();
}

void EngineCore::DropPrefixes() {
  memory_->DropPrefixes();
  memory_->ReturnFreed();
  n_stale_places_ = sessions_.n_places();
}

std::chrono::steady_clock::time_point EngineCore::NextWake() const {
  auto wake = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (const TurnList* list : {&queued_, &running_}) {
    for (const auto& turn : *list) {
      if (turn->options.deadline) wake = std::min(wake, *turn->options.deadline);
      if (turn->stalled_since_us > 0) {
        const auto left = std::chrono::microseconds(turn->stalled_since_us - NowMicros()) +
                          std::chrono::microseconds(StallPatienceUs());
        wake = std::min(wake, std::chrono::steady_clock::now() + left);
      }
    }
  }
  if (const auto us = keeper_ != nullptr ? keeper_->NextWake() : std::nullopt; us.has_value()) {
    // Work in flight wakes the engine by itself.
    const auto left = std::chrono::microseconds(*us - NowMicros());
    if (left.count() > 0) wake = std::min(wake, std::chrono::steady_clock::now() + left);
  }
  return wake;
}

}  // namespace weft
