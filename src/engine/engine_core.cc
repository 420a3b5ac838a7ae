#include "engine/engine_core.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/clock.h"
#include "engine/drafting/model_drafter.h"
#include "engine/drafting/shared_head_drafter.h"
#include "engine/kv_type.h"
#include "engine/memory_budget.h"
#include "weft/model.h"

namespace weft {
namespace {

std::atomic<uint16_t> next_engine_tag{1};

Status ValidateOptions(const EngineOptions& options) {
  if (options.max_running < 1 || options.max_queued < 0 || options.max_sessions < 1) {
    return InvalidArgument("max_running and max_sessions must be at least 1, max_queued 0");
  }
  if (options.max_step_tokens < 1 || options.max_pending_events < 1 || options.step_ms < 1) {
    return InvalidArgument("max_step_tokens, max_pending_events and step_ms must be at least 1");
  }
  if (options.durable && options.state_dir.empty()) {
    return InvalidArgument("durable turns need a state directory: set state_dir (--state-dir)");
  }
  if (options.shared.objects != nullptr && options.state_dir.empty()) {
    return InvalidArgument("a shared store needs a state directory: set state_dir (--state-dir)");
  }
  if (options.max_guesses < 0) return InvalidArgument("max_guesses must be at least 0");
  if (!(options.checkpoint_share >= 0 && options.checkpoint_share <= 1) ||
      options.checkpoint_tokens < 0) {
    return InvalidArgument(
        "checkpoint_share must be between 0 and 1, checkpoint_tokens at least 0");
  }
  return OkStatus();
}

StateOptions StateOptionsOf(const EngineOptions& options) {
  return {.kv_type = KvTypesOf(options), .page_tokens = options.page_tokens};
}

// Steps that hold the longest text, where the model needs all of one in a step.
EngineOptions WithWholeTexts(const Model& model, const EngineOptions& options) {
  EngineOptions larger = options;
  if (NeedsWholeTexts(model.spec())) {
    const int64_t longest =
        std::min(model.context_tokens(), model.backend().capabilities().max_step_tokens);
    larger.max_step_tokens = std::max(options.max_step_tokens, longest);
  }
  return larger;
}

ExecutorOptions ExecutorOptionsOf(const EngineOptions& options) {
  ExecutorOptions executor;
  executor.n_threads = options.n_threads;
  executor.max_step_tokens = options.max_step_tokens;
  // Room for every decoding lane and some prompt rows.
  executor.max_beside_tokens = 2 * std::max(32, options.max_running);
  return executor;
}

StatusOr<int64_t> MemoryBudgetOf(const Model& model, const EngineOptions& options,
                                 const Executor& executor) {
  int64_t mapped_bytes = model.weights()->mapped_bytes();
  if (options.draft_model != nullptr && options.draft_model->weights() != model.weights()) {
    mapped_bytes += options.draft_model->weights()->mapped_bytes();
  }
  const MemoryClaims claims = {.taken_bytes = mapped_bytes, .later_bytes = executor.later_bytes()};
  const int device = model.weights()->device();
  const int64_t wanted = options.memory_bytes;
  if (wanted <= 0) return DefaultMemoryBudget(model.backend(), device, claims);
  WEFT_ASSIGN_OR_RETURN(const int64_t budget,
                        LimitMemoryBudget(wanted, model.backend(), device, claims));
  if (budget < wanted && options.on_notice) {
    options.on_notice(StrCat("sessions get ", HumanBytes(static_cast<uint64_t>(budget)),
                             " of memory, not ", HumanBytes(static_cast<uint64_t>(wanted)), ": ",
                             model.backend().NameOfDevice(device), " has no more"));
  }
  return budget;
}

StatusOr<StateMemory::Options> MemoryOptionsOf(const Model& model, const EngineOptions& options,
                                               const Executor& executor) {
  StateMemory::Options memory;
  WEFT_ASSIGN_OR_RETURN(memory.budget_bytes, MemoryBudgetOf(model, options, executor));
  memory.prefix_cache = options.prefix_cache;
  memory.share_across_domains = options.share_prefixes_across_domains;
  memory.checkpoint_share = options.checkpoint_share;
  memory.checkpoint_tokens = options.checkpoint_tokens;
  return memory;
}

StepPlanner::Options PlannerOptionsOf(const EngineOptions& options, const Executor& executor) {
  return {.max_step_tokens = options.max_step_tokens,
          .max_beside_tokens = executor.max_beside_tokens(),
          .pause_points = executor.pause_points(),
          .decode_stretch = options.decode_stretch,
          .step_us = options.step_ms * int64_t{1000}};
}

bool Drafts(const EngineOptions& options) {
  return options.speculation == Speculation::kDraft || options.speculation == Speculation::kAuto;
}

// Checks that the requested drafting is available and fits the model, used or not.
Status CheckDraft(const Model& model, const EngineOptions& options) {
  if (options.draft_model == nullptr) {
    if (options.speculation != Speculation::kDraft) return OkStatus();
    return InvalidArgument("there is no draft model to guess with");
  }
  WEFT_RETURN_IF_ERROR(CheckDraftModel(model, *options.draft_model));
  if (options.draft_model->spec().hidden_input && !options.draft_model->IsHeadOf(model)) {
    return InvalidArgument("the prediction head is of another model");
  }
  return OkStatus();
}

// Turns speculation off on backends whose results depend on the other rows of a step, and drops a
// draft model that would never be used.
EngineOptions WithSettledSpeculation(const Model& model, const EngineOptions& options) {
  EngineOptions settled = options;
  if (!model.same_bits() || options.max_guesses == 0) settled.speculation = Speculation::kOff;
  if (!Drafts(settled)) settled.draft_model = nullptr;
  return settled;
}

Speculator::Options SpeculatorOptionsOf(const EngineOptions& options) {
  return {.most = options.speculation != Speculation::kOff ? options.max_guesses : 0,
          .looks_in_texts = options.speculation != Speculation::kDraft,
          .share_texts = options.prefix_cache && options.speculation != Speculation::kDraft,
          .share_across_domains = options.share_prefixes_across_domains};
}

StatusOr<std::unique_ptr<Drafter>> NewSharedHeadDrafter(const EngineOptions& options,
                                                        const std::shared_ptr<const Model>& model,
                                                        StateStore* state,
                                                        const Executor& executor) {
  SharedHeadDrafter::Options drafter;
  drafter.model = model;
  drafter.state = state;
  drafter.executor = &executor;
  drafter.n_threads = options.n_threads;
  drafter.max_texts = options.max_running;
  drafter.on_notice = options.on_notice;
  return SharedHeadDrafter::Create(options.draft_model, drafter);
}

// `memory_bytes`: for both models. `executor`, `beside`: the engine's own.
StatusOr<std::unique_ptr<Drafter>> NewModelDrafter(const EngineOptions& options,
                                                   int64_t memory_bytes, const Executor& executor,
                                                   const StateLayout& beside) {
  ModelDrafter::Options drafter;
  drafter.n_threads = options.n_threads;
  drafter.executor = &executor;
  drafter.max_texts = options.max_running;
  drafter.state = StateOptionsOf(options);
  drafter.memory_bytes = memory_bytes;
  drafter.beside = beside;
  drafter.prefix_cache = options.prefix_cache;
  drafter.share_across_domains = options.share_prefixes_across_domains;
  drafter.checkpoint_share = options.checkpoint_share;
  drafter.on_notice = options.on_notice;
  return ModelDrafter::Create(options.draft_model, drafter);
}

// Null without a draft model.
StatusOr<std::unique_ptr<Drafter>> NewDrafter(const EngineOptions& options,
                                              const std::shared_ptr<const Model>& model,
                                              StateStore* state, const Executor& executor) {
  if (options.draft_model == nullptr) return std::unique_ptr<Drafter>();
  const auto& head = options.draft_model->spec().hidden_input;
  auto created = head && head->back
                     ? NewSharedHeadDrafter(options, model, state, executor)
                     : NewModelDrafter(options, options.memory_bytes, executor, state->layout());
  WEFT_RETURN_IF_ERROR(Annotate(created.status(), "the draft model: "));
  return created;
}

std::vector<AdapterMixes::Known> AdaptersOf(const Model& model) {
  std::vector<AdapterMixes::Known> known;
  for (const LoadedAdapter& adapter : model.adapters()) {
    known.push_back({adapter.name, FingerprintOf(adapter.fingerprint), adapter.invocation_tokens});
  }
  return known;
}

SessionFiles::Options FileOptionsOf(const Model& model, const EngineOptions& options) {
  SessionFiles::Options files;
  files.path = options.state_dir;
  // Reads the whole model file.
  if (!files.path.empty()) files.model = model.fingerprint();
  files.backend = model.backend().name();
  files.kv_type = KvNameOf(options);
  files.n_vocab = model.n_vocab();
  files.row_values = model.row_width();
  files.max_row_bytes = options.max_row_bytes;
  // -1: none, only tokens are stored.
  files.disk_bytes = KeepsState(model.spec()) ? options.state_disk_bytes : -1;
  files.disk_bytes_per_hour = options.state_disk_bytes_per_hour;
  files.share_across_domains = options.share_prefixes_across_domains;
  files.durable = options.durable;
  files.shared = options.shared;
  // The processors' kernels agree with each other; cards need not, and MLX does not name its own.
  files.shares_blocks = files.backend != "mlx";
  if (files.backend != "cpu" && files.backend != "reference") {
    files.machine = model.backend().NameOfDevice(model.weights()->device());
  }
  files.on_notice = options.on_notice;
  return files;
}

}  // namespace

StatusOr<std::unique_ptr<EngineCore>> EngineCore::Create(std::shared_ptr<const Model> model,
                                                         const EngineOptions& wanted,
                                                         const PostBack& post_back) {
  WEFT_RETURN_IF_ERROR(ValidateOptions(wanted));
  WEFT_RETURN_IF_ERROR(CheckDraft(*model, wanted));
  EngineOptions options = WithSettledSpeculation(*model, WithWholeTexts(*model, wanted));
  const Backend& backend = model->backend();
  WEFT_ASSIGN_OR_RETURN(auto store, backend.NewState(*model->weights(), StateOptionsOf(options)));
  WEFT_ASSIGN_OR_RETURN(auto executor, backend.NewExecutor(model->weights(), store.get(),
                                                           ExecutorOptionsOf(options)));
  WEFT_ASSIGN_OR_RETURN(auto memory_options, MemoryOptionsOf(*model, options, *executor));
  options.memory_bytes = memory_options.budget_bytes;  // settled from here on
  WEFT_ASSIGN_OR_RETURN(auto drafter, NewDrafter(options, model, store.get(), *executor));
  if (drafter != nullptr) memory_options.budget_bytes -= drafter->budget_bytes();
  WEFT_ASSIGN_OR_RETURN(auto memory,
                        StateMemory::Create(model->spec(), store.get(), memory_options));
  options.max_row_bytes = std::min(options.max_row_bytes, memory->max_row_bytes());
  std::unique_ptr<EngineCore> core(new EngineCore(std::move(model), options, post_back,
                                                  std::move(store), std::move(executor),
                                                  std::move(memory), std::move(drafter)));
  WEFT_RETURN_IF_ERROR(Annotate(core->WarmUp(), "the warm-up step failed: "));
  WEFT_RETURN_IF_ERROR(core->files_.Open());
  WEFT_RETURN_IF_ERROR(core->model_->CheckFile());
  return core;
}

EngineCore::EngineCore(std::shared_ptr<const Model> model, const EngineOptions& options,
                       const PostBack& post_back, std::unique_ptr<StateStore> store,
                       std::unique_ptr<Executor> executor, std::unique_ptr<StateMemory> memory,
                       std::unique_ptr<Drafter> drafter)
    : model_(std::move(model)),
      options_(options),
      store_(std::move(store)),
      executor_(std::move(executor)),
      memory_(std::move(memory)),
      drafter_(std::move(drafter)),
      adapters_(AdaptersOf(*model_)),
      table_(next_engine_tag.fetch_add(1), options.max_sessions, options.max_sessions_per_domain),
      idle_(&table_, memory_.get()),
      publisher_(&table_, memory_.get(), &idle_),
      files_(session_parts(), FileOptionsOf(*model_, options_), post_back),
      sessions_(session_parts(), &files_),
      disk_(memory_.get(), &files_),
      turns_(turn_parts(), [post_back] { post_back([] {}); }),
      named_(&sessions_, &files_, &turns_),
      room_(memory_.get(), &idle_, &files_, &turns_.running()),
      writer_(model_.get(), memory_.get(), &sessions_),
      speculator_(SpeculatorOptionsOf(options_)),
      drafts_(drafter_.get(), model_->n_vocab(), options_.draft_at_any_cost),
      steps_({.model = model_.get(),
              .executor = executor_.get(),
              .memory = memory_.get(),
              .running = &turns_.running(),
              .room = &room_,
              .writer = &writer_,
              .disk = &disk_,
              .speculator = &speculator_,
              .drafts = &drafts_},
             PlannerOptionsOf(options_, *executor_)),
      waits_(memory_.get(), &turns_, &steps_),
      watches_(memory_.get(), &files_) {}

SessionFiles::Parts EngineCore::session_parts() {
  return {.sessions = &table_,
          .memory = memory_.get(),
          .idle = &idle_,
          .publisher = &publisher_,
          .adapters = &adapters_};
}

TurnScheduler::Parts EngineCore::turn_parts() {
  return {.model = model_.get(),
          .options = &options_,
          .memory = memory_.get(),
          .publisher = &publisher_,
          .files = &files_,
          .sessions = &sessions_,
          .disk = &disk_,
          .adapters = &adapters_};
}

// On a temporary session.
Status EngineCore::WarmUp() {
  WEFT_ASSIGN_OR_RETURN(Session* const session, table_.Create("", ""));
  session->tokens = std::vector<TokenId>{0, 0};
  const Status status = steps_.WarmUp(session);
  sessions_.Destroy(session);
  memory_->DropPrefixes();
  memory_->ReturnFreed();
  return status;
}

StatusOr<SubmittedTurn> EngineCore::Submit(SessionId id, const TurnOptions& options) {
  WEFT_ASSIGN_OR_RETURN(Session* const session, sessions_.Get(id));
  return turns_.Submit(session, options, /*closes_session=*/false);
}

void EngineCore::Close(SessionId id, bool forget, const SessionFiles::Reply& reply) {
  files_.WhenFree(id, /*with_state=*/false, [=, this](const StatusOr<Session*>& found) {
    const bool is_unreadable = files_.is_shared() && SessionFiles::IsUnreadable(found.status());
    if (!found.ok() && !is_unreadable) return reply(found.status());
    if (ActiveTurn* const turn = turns_.FindOn(id); turn != nullptr) {
      turn->End(FinishReason::kCancelled, OkStatus());
      steps_.AbandonFor(*turn);
      Sweep();
    }
    Session* const session = table_.Find(id);
    if (session == nullptr) return reply(OkStatus());  // anonymous: destroyed with its turn
    sessions_.Close(session, forget, reply);
  });
}

// --- the loop ---------------------------------------------------------------------------

bool EngineCore::RunOnce(FunctionRef<bool()> interrupted) {
  Sweep();
  turns_.Admit();
  turns_.RefreshWaits();
  disk_.KeepRunning(turns_.running());
  const bool kept = files_.Pump();
  const bool resumed = steps_.Plan();
  PublishIfDue();  // admitted turns become visible while the step runs
  const bool ran = steps_.Run(interrupted);
  const bool retired = Sweep();
  if (ran) return true;
  memory_->ReturnFreed();
  return resumed || retired || kept;
}

// Ends unwanted turns and retires ended ones. True if there was anything to retire.
bool EngineCore::Sweep() {
  turns_.EndUnwanted();
  steps_.AbandonIfUnwanted();
  return turns_.RetireEnded();
}

void EngineCore::CutAll(const Status& status) {
  turns_.EndAll(status);
  Sweep();
}

std::chrono::steady_clock::time_point EngineCore::NextWake() const {
  const auto now = std::chrono::steady_clock::now();
  auto wake = turns_.NextWake(now + std::chrono::seconds(1));
  if (const auto us = files_.NextWake(); us.has_value()) {
    wake = std::min(wake, now + std::chrono::microseconds(std::max<int64_t>(0, *us - NowMicros())));
  }
  return wake;
}

// --- the published view -----------------------------------------------------------------

void EngineCore::Publish() {
  has_more_prefixes_ = watches_.Advance();
  EngineStats stats;
  stats.weight_bytes = model_->weight_bytes();
  memory_->FillStats(&stats);
  files_.FillStats(&stats);
  turns_.FillStats(&stats);
  steps_.FillStats(&stats);
  stats.disk_tokens = disk_.disk_tokens();
  writer_.FillStats(&stats);
  stats.guess_bytes = speculator_.memory_bytes();
  if (drafter_ != nullptr) drafter_->FillStats(&stats);
  stats.watch_bytes = watches_.memory_bytes();
  stats.preemptions = room_.preemptions();
  waits_.Look(NowMicros());
  publisher_.Publish(stats, turns_.Describe(), turns_.RunningSessions(), turns_.idle());
}

Status EngineCore::CheckIntegrity() {
  WEFT_RETURN_IF_ERROR(files_.CheckIntegrity());
  WEFT_RETURN_IF_ERROR(memory_->CheckIntegrity(table_));
  WEFT_RETURN_IF_ERROR(idle_.CheckIntegrity());
  if (drafter_ != nullptr) {
    WEFT_RETURN_IF_ERROR(Annotate(drafter_->CheckIntegrity(), "the draft model: "));
  }
  Publish();
  return publisher_.CheckIntegrity();
}

void EngineCore::WatchPrefixes(const std::string& domain, std::span<const AdapterScale> adapters,
                               const std::shared_ptr<PrefixQueue>& queue) {
  const StatusOr<AdapterMixRef> mix = adapters_.Of(adapters);
  if (!mix.ok()) return queue->End(mix.status());
  watches_.Add(domain, *mix, options_.share_prefixes_across_domains, queue);
}

void EngineCore::DropPrefixes() {
  speculator_.ForgetTexts();
  if (drafter_ != nullptr) drafter_->DropPrefixes();
  memory_->DropPrefixes();
  memory_->ReturnFreed();
  publisher_.SharingChanged();
}

}  // namespace weft
