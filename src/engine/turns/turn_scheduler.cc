#include "engine/turns/turn_scheduler.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "engine/sampling/random.h"
#include "engine/sessions/message_starts.h"
#include "engine/turns/turn_adapters.h"
#include "engine/turns/turn_prompt.h"
#include "engine/turns/turn_use.h"
#include "weft/model.h"

namespace weft {

TurnScheduler::TurnScheduler(const Parts& parts, std::function<void()> wake)
    : parts_(parts),
      wake_(std::move(wake)),
      places_(*parts.options, &queued_, &running_),
      prompts_(parts.options->share_prefixes_across_domains) {}

// --- submission -------------------------------------------------------------------------

// All other sessions wait meanwhile, so anything too long is refused before it is scanned.
Status TurnScheduler::Validate(const Session& session, const TurnOptions& options) const {
  WEFT_RETURN_IF_ERROR(RefuseBusy(session));
  WEFT_RETURN_IF_ERROR(RefusePoisoned(session));
  WEFT_RETURN_IF_ERROR(CheckUse(*parts_.model, options));
  WEFT_RETURN_IF_ERROR(CheckRowsFit(*parts_.model, options));
  WEFT_RETURN_IF_ERROR(CheckSize(session, options));
  const int64_t n_vocab = parts_.model->n_vocab();
  WEFT_RETURN_IF_ERROR(CheckPrompt(*parts_.model, options));
  WEFT_RETURN_IF_ERROR(ValidateTokens(options.prediction, n_vocab, "token of the prediction"));
  WEFT_RETURN_IF_ERROR(CheckEnds(options, n_vocab));
  const int max_choices = parts_.options->max_running;
  if (options.n_choices < 1 || options.n_choices > max_choices) {
    return InvalidArgument("n must be between 1 and ", max_choices);
  }
  if (options.top_logprobs < -1 || options.top_logprobs > 100) {
    return InvalidArgument("top_logprobs must be between 0 and 100 (-1: none)");
  }
  WEFT_RETURN_IF_ERROR(CheckChunks(options.prompt_chunks));
  WEFT_RETURN_IF_ERROR(CheckMarks(*parts_.model, options));
  return ValidateSampling(options.sampling, n_vocab);
}

Status TurnScheduler::CheckSize(const Session& session, const TurnOptions& options) const {
  if (options.prediction.size() > kMaxPredictionTokens) {
    return InvalidArgument("the prediction has ", options.prediction.size(), " tokens, at most ",
                           kMaxPredictionTokens, " are taken");
  }
  const int64_t row_width = parts_.model->row_width();
  int64_t total = options.PromptSize(row_width), n_rows = options.PromptRows(row_width);
  if (!options.tokens_are_whole_context) {
    total += session.n_tokens();
    n_rows += std::ssize(session.tokens.rows());
  }
  if (total == 0) return InvalidArgument("empty prompt: there is no token to start from");
  const int64_t context = parts_.model->context_tokens();
  const int64_t needed = total + (options.max_tokens == 0 ? 0 : 1);
  if (needed > context) {
    // Clients recognise this wording and shorten their conversation.
    const char* const too_large = options.vector ? "is too large: it " : "";  // likewise
    return OutOfRange("the prompt of ", total, " tokens ", too_large,
                      "exceeds the available context size of ", context, " tokens",
                      total == context ? ": there is no room to generate" : "");
  }
  WEFT_RETURN_IF_ERROR(CheckWholeText(*parts_.model, total, parts_.options->max_step_tokens));
  WEFT_RETURN_IF_ERROR(CheckSessionRows(*parts_.model, *parts_.options, options, n_rows));
  const int64_t budget = parts_.memory->budget_bytes();
  const int64_t least = parts_.memory->MinBytes(total) + RowTable::BytesOf(n_rows, row_width);
  if (least > budget) {
    return ResourceExhausted("the state of ", total, " tokens needs ",
                             HumanBytes(static_cast<uint64_t>(least)),
                             ", more than the memory for all sessions, ",
                             HumanBytes(static_cast<uint64_t>(budget)), "; increase --memory");
  }
  return OkStatus();
}

Status TurnScheduler::CheckQueue(std::string_view tenant) {
  if (!accepting_) return Unavailable("the engine is shutting down");
  Status room = places_.CheckQueue(tenant);
  if (!room.ok()) ++refused_;
  return room;
}

StatusOr<SubmittedTurn> TurnScheduler::SubmitOnce(std::string_view domain, TurnOptions options) {
  WEFT_ASSIGN_OR_RETURN(Session* const session, parts_.sessions->CreateForTurn(domain));
  auto submitted = Submit(session, std::move(options), /*closes_session=*/true);
  if (!submitted.ok()) parts_.sessions->Destroy(session);
  return submitted;
}

StatusOr<SubmittedTurn> TurnScheduler::Submit(Session* session, TurnOptions options,
                                              bool closes_session) {
  if (!accepting_) return Unavailable("the engine is shutting down");
  WEFT_RETURN_IF_ERROR(parts_.model->CheckFile());
  WEFT_RETURN_IF_ERROR(Validate(*session, options));
  WEFT_ASSIGN_OR_RETURN(const AdapterMixRef adapters, parts_.adapters->Of(options.adapters));
  WEFT_RETURN_IF_ERROR(CheckMix(*session, options, adapters));
  const EngineOptions& limits = *parts_.options;
  if (options.tenant.empty()) options.tenant = session->domain;
  WEFT_RETURN_IF_ERROR(CheckQueue(options.tenant));
  const int64_t row_width = parts_.model->row_width();
  if (const int64_t n_rows = options.PromptRows(row_width); n_rows > 0) {
    WEFT_RETURN_IF_ERROR(
        parts_.files->MakeRoomForRows(RowTable::BytesOf(n_rows, row_width), session));
  }
  auto turn = std::make_unique<ActiveTurn>();
  turn->adapters = adapters;
  TakeAdapters(adapters, parts_.memory, session);
  turn->serial = next_serial_++;
  turn->prompt = MovePrompt(*parts_.model, &options, parts_.memory->rows());
  turn->options = std::move(options);
  std::sort(turn->options.stop_tokens.begin(), turn->options.stop_tokens.end());
  turn->pools_all_rows = PoolsAllRows(*parts_.model, turn->options);
  turn->session = session;
  turn->closes_session = closes_session;
  turn->submitted_us = NowMicros();
  // Below 2^53, so that JSON readers that only know doubles can return it unchanged.
  turn->seed = turn->options.sampling.seed.value_or(
      MixBits(static_cast<uint64_t>(turn->submitted_us) ^ (turn->serial << 40)) >> 11);
  turn->queue = std::make_shared<TurnQueue>(static_cast<size_t>(limits.max_pending_events),
                                            turn->options.n_choices, wake_);
  turn->cancelled = std::make_shared<std::atomic<bool>>(false);
  session->has_turn = true;
  session->tenant = turn->options.tenant;
  const bool is_parked = session->stage == SessionStage::kParked;
  session->stage.Become(is_parked ? SessionStage::kAwaited : SessionStage::kQueued);
  parts_.files->RestoreForTurn(session);
  parts_.publisher->Touch(session);
  SubmittedTurn submitted{.session = session->id,
                          .queue = turn->queue,
                          .cancelled = turn->cancelled,
                          .domain = session->DomainOf(0),
                          .serial = turn->serial};
  places_.Join(turn.get());
  queued_.push_back(std::move(turn));
  return submitted;
}

Status TurnScheduler::CheckAdapters(const Session& session, const TurnOptions& options) const {
  WEFT_ASSIGN_OR_RETURN(const AdapterMixRef adapters, parts_.adapters->Of(options.adapters));
  return CheckMix(session, options, adapters);
}

int64_t TurnScheduler::waiting() const {
  return static_cast<int>(running_.size()) < parts_.options->max_running
             ? 0
             : static_cast<int64_t>(queued_.size());
}

// --- admission --------------------------------------------------------------------------

void TurnScheduler::Admit() {
  const auto start = [this](ActiveTurn* turn) {
    Start(turn);
    parts_.publisher->SetDue();  // its step may take long
  };
  places_.Share(start, [this](ActiveTurn* turn, Lane* lane) { Resume(turn, lane); });
}

void TurnScheduler::Start(ActiveTurn* turn) {
  Session* const session = turn->session;
  const TurnOptions& options = turn->options;
  // A session that was parked when the turn was submitted may hold rows.
  if (const Status fits = CheckRowsOf(*turn); !fits.ok()) {
    return turn->End(FinishReason::kError, fits);
  }
  if (const Status fits = CheckMix(*session, options, turn->adapters); !fits.ok()) {
    return turn->End(FinishReason::kError, fits);
  }
  TakeAdapters(turn->adapters, parts_.memory, session);
  turn->stage.Become(TurnStage::kReading);
  session->stage.Become(SessionStage::kRunning);
  TakePrompt(turn);
  auto lane = std::make_unique<Lane>(0, session, options.sampling, ChoiceSeed(turn->seed, 0),
                                     parts_.model->tokenizer(), options);
  lane->last_row_us = NowMicros();
  if (options.token_mask) lane->mask = options.token_mask(0);
  turn->lanes.push_back(std::move(lane));
  if (parts_.memory->keeps_prefixes()) prompts_.Add(turn, *session);
  parts_.publisher->Touch(session);
  turn->started.seed = turn->seed;
  turn->started.prompt_tokens = static_cast<int64_t>(session->tokens.size());
  turn->usage.prompt_tokens = turn->started.prompt_tokens;
}

// Meanwhile its state may have been taken, or others may have computed more of its prompt.
void TurnScheduler::Resume(ActiveTurn* turn, Lane* lane) {
  Session* const session = lane->session;
  // Then it finds what is computed once there is room for it.
  const bool was_taken = session->computed() == 0 && turn->first_row_us > 0;
  if (was_taken) return lane->stage.Become(LaneStage::kPreempted);
  lane->stage.Become(LaneStage::kReady);
  if (turn->stage == TurnStage::kReading && !turn->wants_prompt_rows()) ReuseComputed(session);
}

Status TurnScheduler::CheckRowsOf(const ActiveTurn& turn) const {
  int64_t n_rows = std::ssize(turn.prompt.rows());
  if (!turn.options.tokens_are_whole_context) {
    n_rows += std::ssize(turn.session->tokens.rows());
    WEFT_RETURN_IF_ERROR(CheckRuns(turn.session->tokens, parts_.options->max_step_tokens));
  }
  return CheckSessionRows(*parts_.model, *parts_.options, turn.options, n_rows);
}

// The session's tokens become the prompt, with the state of whatever is computed of it.
void TurnScheduler::TakePrompt(ActiveTurn* turn) {
  Session* const session = turn->session;
  const TurnOptions& options = turn->options;
  History& tokens = session->tokens;
  if (options.tokens_are_whole_context) {
    const int64_t shared = CommonLength(tokens, turn->prompt);
    turn->replaced = tokens.From(shared);
    parts_.memory->Truncate(session, shared);
    tokens.Cut(shared);
    if (shared < session->taken_tokens) session->taken_tokens = 0;
  }
  turn->tokens_before = std::ssize(tokens);
  tokens.Append(turn->prompt, options.tokens_are_whole_context ? turn->tokens_before : 0);
  FindInvocation(parts_.memory, session);
  parts_.memory->BeginTurn(session);
  TouchParents(*session);
  // The last token is always computed: its logits choose the first new one.
  const int64_t reusable = static_cast<int64_t>(tokens.size()) - 1;
  if (turn->wants_prompt_rows()) {
    parts_.memory->Drop(session);
  } else {
    parts_.memory->Truncate(session, reusable);
    ReuseComputed(session);
  }
  PlanCheckpoints(*turn);
}

// Takes the longest computed prefix of the session's tokens, without the last one: from the prefix
// index, or from a running session, which alone has the positions after its last whole page.
void TurnScheduler::ReuseComputed(Session* session) {
  const int64_t limit = static_cast<int64_t>(session->tokens.size()) - 1;
  parts_.memory->Reuse(session, limit);
  // Whoever goes on with another token than this session has nothing to add, which one comparison
  // tells.
  const auto goes_on_alike = [&](const Session& other) {
    const auto next = static_cast<size_t>(session->computed());
    return other.computed() > session->computed() && other.tokens[next] == session->tokens[next];
  };
  for (const auto& turn : running_) {
    for (const auto& lane : turn->lanes) {
      const Session& other = *lane->session;
      if (session->computed() >= limit) return;
      if (!goes_on_alike(other) || other.stage == SessionStage::kPoisoned) continue;
      const int64_t most = std::min(
          limit, SharedPositions(other, *session, parts_.options->share_prefixes_across_domains));
      if (most <= session->computed()) continue;
      const int64_t common = std::min(CommonLength(other.tokens, session->tokens), most);
      parts_.memory->ReuseFrom(other, common, session);
    }
  }
}

void TurnScheduler::PlanCheckpoints(const ActiveTurn& turn) {
  if (parts_.memory->blocks_stand_alone()) return;  // any position is as good as another
  const Tokenizer& tokenizer = *parts_.model->tokenizer();
  Session* const session = turn.session;
  const std::vector<int64_t> marks = MessageStarts(session->tokens, [&tokenizer](TokenId token) {
    return !IsRow(token) && tokenizer.IsControl(token);
  });
  parts_.memory->PlanCheckpoints(session, marks);
  for (const PrefixMark& mark : turn.options.prefix_marks) {
    parts_.memory->WantCheckpoint(session, turn.first_token() + mark.n_tokens);
  }
}

// --- waits ------------------------------------------------------------------------------

void TurnScheduler::RefreshWaits() {
  for (const auto& turn : running_) {
    if (turn->stage == TurnStage::kReading) {
      RefreshSiblingWait(turn.get());
    } else {
      prompts_.Remove(turn.get());
    }
  }
  for (const auto& turn : running_) {
    parts_.disk->LookFor(turn.get(), [this](SessionId id) { TakeLoaded(id); });
  }
}

// What a turn waited for is read from disk.
void TurnScheduler::TakeLoaded(SessionId id) {
  ActiveTurn* const turn = FindOn(id);
  if (turn == nullptr || turn->lanes.empty()) return;
  Lane& lane = *turn->lanes[0];
  if (lane.stage != LaneStage::kWaitsForDisk) return;
  lane.stage.Become(LaneStage::kReady);
  // Others may have computed more of it meanwhile.
  ReuseComputed(lane.session);
  PlanCheckpoints(*turn);
}

void TurnScheduler::RefreshSiblingWait(ActiveTurn* turn) {
  Lane& lane = *turn->lanes[0];
  const bool waited = lane.stage == LaneStage::kWaitsForSibling;
  if (!waited && !lane.is_ready()) return;
  const bool waits = WaitsForSibling(turn);
  if (waits == waited) return;
  lane.stage.Become(waits ? LaneStage::kWaitsForSibling : LaneStage::kReady);
  if (!waits) ReuseComputed(lane.session);
}

// True if an earlier turn is computing whole pages that this one needs too. In that case it also
// makes that turn leave a checkpoint there, if the model needs one.
bool TurnScheduler::WaitsForSibling(ActiveTurn* turn) const {
  const StateMemory& memory = *parts_.memory;
  if (!memory.keeps_prefixes() || turn->wants_prompt_rows()) return false;
  const Session& session = *turn->lanes[0]->session;
  const int64_t page = memory.page_tokens();
  return prompts_.AnyEarlier(turn, [&](ActiveTurn* earlier, int64_t in_common) {
    if (earlier->stage != TurnStage::kReading) return false;
    const bool stands =
        earlier->lanes[0]->stage.IsAnyOf(LaneStage::kWaitsForSibling, LaneStage::kWaitsForPlace);
    if (stands) return false;
    Session* const leader = earlier->lanes[0]->session;
    const int64_t common =
        memory.HandOverAt(std::min(in_common, static_cast<int64_t>(session.tokens.size()) - 1));
    // Less than a page is not worth a wait.
    if (common / page * page <= session.computed() || leader->computed() >= common) return false;
    memory.WantCheckpoint(leader, common);
    turn->sibling = {.serial = earlier->serial, .n_tokens = common};
    return true;
  });
}

// --- ends -------------------------------------------------------------------------------

int64_t TurnScheduler::StallPatienceUs() const {
  auto patience = parts_.options->stalled_consumer_timeout;
  if (waiting() > 0) patience = std::min(patience, parts_.options->stalled_while_others_wait);
  return patience.count() * 1000;
}

void TurnScheduler::EndUnwanted() {
  for (TurnList* list : {&queued_, &running_}) {
    for (const auto& turn : *list) EndIfUnwanted(turn.get());
  }
}

void TurnScheduler::EndIfUnwanted(ActiveTurn* turn) {
  if (turn->has_ended()) return;
  const int64_t now_us = NowMicros();
  if (turn->cancelled->load()) {
    turn->End(FinishReason::kCancelled, OkStatus());
  } else if (turn->options.deadline &&
             *turn->options.deadline <= std::chrono::steady_clock::now()) {
    turn->End(FinishReason::kError, DeadlineExceeded("the turn's deadline passed"));
  } else if (const Status& error = turn->session->restore_error; !error.ok()) {
    turn->End(FinishReason::kError, error);
  } else if (!turn->queue->Full()) {
    turn->stalled_since_us = 0;
  } else if (!turn->is_stalled()) {
    turn->stalled_since_us = now_us;
  } else if (const int64_t patience_us = StallPatienceUs();
             now_us - turn->stalled_since_us > patience_us) {
    turn->End(FinishReason::kError,
              ResourceExhausted("the turn was cut off: its consumer did not read for ",
                                patience_us / 1000, " ms"));
  }
}

ActiveTurn* TurnScheduler::FindOn(SessionId session) const {
  const auto runs = [&](const auto& lane) { return lane->session->id == session; };
  for (const TurnList* list : {&queued_, &running_}) {
    for (const auto& turn : *list) {
      if (turn->session->id == session || std::ranges::any_of(turn->lanes, runs)) return turn.get();
    }
  }
  return nullptr;
}

void TurnScheduler::EndAll(const Status& status) {
  for (TurnList* list : {&queued_, &running_}) {
    for (auto& turn : *list) turn->End(FinishReason::kError, status);
  }
}

bool TurnScheduler::RetireEnded() {
  bool retired = false;
  for (TurnList* list : {&queued_, &running_}) {
    for (auto it = list->begin(); it != list->end();) {
      ActiveTurn* const turn = it->get();
      if (turn->has_ended() && !turn->in_step()) {
        Retire(turn);
        it = list->erase(it);
        retired = true;
      } else {
        ++it;
      }
    }
  }
  return retired;
}

// If its prompt was not completed, leaves the session as it was.
void TurnScheduler::RollBackPrompt(ActiveTurn* turn) {
  Session* const session = turn->session;
  if (turn->lanes.empty() || turn->is_prompt_computed()) return;
  if (session->stage == SessionStage::kPoisoned) return;
  parts_.memory->Truncate(session, std::min(session->computed(), turn->tokens_before));
  session->tokens.Cut(turn->tokens_before);
  session->tokens.Append(turn->replaced);
}

void TurnScheduler::Retire(ActiveTurn* turn) {
  Session* const session = turn->session;
  prompts_.Remove(turn);
  places_.Leave(turn);
  parts_.files->AbandonLoad(session);
  for (const auto& lane : turn->lanes) {
    if (lane->session->stage != SessionStage::kPoisoned) parts_.memory->KeepTail(lane->session);
  }
  RollBackPrompt(turn);
  ClaimPrefixes(*turn);
  for (size_t i = 1; i < turn->lanes.size(); ++i) parts_.sessions->Destroy(turn->lanes[i]->session);
  session->has_turn = false;
  session->restore_error = OkStatus();
  session->last_used_us = NowMicros();
  if (session->stage == SessionStage::kAwaited) session->stage.Become(SessionStage::kParked);
  if (session->stage.IsAnyOf(SessionStage::kQueued, SessionStage::kRunning)) {
    session->stage.Become(SessionStage::kReady);
  }
  parts_.publisher->Touch(session);
  auto last = std::make_shared<LastEvent>(turn->queue);
  const auto tell = [publisher = parts_.publisher, last = std::move(last)](const Status& kept) {
    publisher->AfterPublish([last, kept] { last->Send(kept); });
  };
  parts_.disk->KeepAfter(*turn, tell);
  if (turn->closes_session) parts_.sessions->Destroy(session);
  Count(turn->fate);
  parts_.memory->ReturnFreed();
}

void TurnScheduler::Count(TurnFate fate) {
  if (fate == TurnFate::kFinished) ++finished_;
  if (fate == TurnFate::kCancelled) ++cancelled_;
  if (fate == TurnFate::kFailed) ++failed_;
}

// --- what others see --------------------------------------------------------------------

std::chrono::steady_clock::time_point TurnScheduler::NextWake(
    std::chrono::steady_clock::time_point latest) const {
  for (const TurnList* list : {&queued_, &running_}) {
    for (const auto& turn : *list) {
      if (turn->options.deadline) latest = std::min(latest, *turn->options.deadline);
      if (turn->is_stalled()) {
        const auto left = std::chrono::microseconds(turn->stalled_since_us - NowMicros()) +
                          std::chrono::microseconds(StallPatienceUs());
        latest = std::min(latest, std::chrono::steady_clock::now() + left);
      }
    }
  }
  return latest;
}

std::vector<TurnInfo> TurnScheduler::Describe() const {
  std::vector<TurnInfo> infos;
  infos.reserve(running_.size() + queued_.size());
  for (const auto& turn : running_) infos.push_back(turn->Info());
  for (const auto& turn : queued_) infos.push_back(turn->Info());
  return infos;
}

std::vector<Session*> TurnScheduler::RunningSessions() const {
  std::vector<Session*> sessions;
  for (const auto& turn : running_) {
    for (const auto& lane : turn->lanes) sessions.push_back(lane->session);
  }
  return sessions;
}

void TurnScheduler::FillStats(EngineStats* stats) const {
  stats->turns_queued = static_cast<int64_t>(queued_.size());
  stats->turns_running = static_cast<int64_t>(running_.size());
  stats->turns_finished = finished_;
  stats->turns_cancelled = cancelled_;
  stats->turns_failed = failed_;
  stats->turns_refused = refused_;
}

}  // namespace weft
