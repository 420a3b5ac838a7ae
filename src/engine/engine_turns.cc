// Turns, from submission through admission to the end.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "engine/engine_core.h"
#include "engine/sampling/random.h"
#include "engine/sessions/message_starts.h"

namespace weft {

namespace {

Status ValidateTokens(const std::vector<TokenId>& tokens, int64_t n_vocab, const char* kind) {
  for (const TokenId token : tokens) {
    if (token < 0 || token >= n_vocab) {
      return InvalidArgument(kind, " ", token, " is outside the vocabulary of ", n_vocab);
    }
  }
  return OkStatus();
}

// Checks the options that decide when a turn ends.
Status ValidateEnds(const TurnOptions& options, int64_t n_vocab) {
  if (options.max_tokens < -1) return InvalidArgument("max_tokens must be >= -1");
  if (options.min_tokens < 0) return InvalidArgument("min_tokens must be >= 0");
  if (options.max_tokens >= 0 && options.min_tokens > options.max_tokens) {
    return InvalidArgument("min_tokens of ", options.min_tokens, " is more than max_tokens of ",
                           options.max_tokens);
  }
  if (options.stop_tokens.size() > kMaxStopTokens) {
    return InvalidArgument("too many stop tokens: ", options.stop_tokens.size(), ", at most ",
                           kMaxStopTokens);
  }
  WEFT_RETURN_IF_ERROR(ValidateTokens(options.stop_tokens, n_vocab, "stop token"));
  return ValidateStopStrings(options.stop_strings);
}

Status ValidateChunks(const std::vector<int64_t>& chunks) {
  if (chunks.size() > kMaxPromptChunks) {
    return InvalidArgument("too many prompt chunks: ", chunks.size(), ", at most ",
                           kMaxPromptChunks);
  }
  for (const int64_t chunk : chunks) {
    if (chunk < 1) return InvalidArgument("a prompt chunk must hold at least 1 token");
  }
  return OkStatus();
}

}  // namespace

Status EngineCore::RefuseBusy(const Session& session) {
  if (session.turn == nullptr) return OkStatus();
  return FailedPrecondition("a turn of this session is running; wait for it or cancel it");
}

// All other sessions wait meanwhile, so anything too long is refused before it is scanned.
Status EngineCore::ValidateTurn(const Session& session, const TurnOptions& options) const {
  WEFT_RETURN_IF_ERROR(RefuseBusy(session));
  WEFT_RETURN_IF_ERROR(RefusePoisoned(session));
  const int64_t n_vocab = model_->n_vocab();
  int64_t total = static_cast<int64_t>(options.tokens.size());
  if (!options.tokens_are_whole_context) total += session.n_tokens();
  if (total == 0) return InvalidArgument("empty prompt: there is no token to start from");
  const int64_t context = model_->context_tokens();
  const int64_t needed = total + (options.max_tokens == 0 ? 0 : 1);
  if (needed > context) {
    // Clients recognise this wording and shorten their conversation.
    return OutOfRange("the prompt of ", total, " tokens exceeds the available context size of ",
                      context, " tokens", total == context ? ": there is no room to generate" : "");
  }
  if (const int64_t least = memory_->LeastBytes(total); least > memory_->budget_bytes()) {
    return ResourceExhausted(
        "the state of ", total, " tokens needs ", HumanBytes(static_cast<uint64_t>(least)),
        ", more than the memory for all sessions, ",
        HumanBytes(static_cast<uint64_t>(memory_->budget_bytes())), "; increase --memory");
  }
  WEFT_RETURN_IF_ERROR(ValidateTokens(options.tokens, n_vocab, "token"));
  WEFT_RETURN_IF_ERROR(ValidateEnds(options, n_vocab));
  if (options.n_choices < 1 || options.n_choices > options_.max_running) {
    return InvalidArgument("n must be between 1 and ", options_.max_running);
  }
  if (options.top_logprobs < -1 || options.top_logprobs > 100) {
    return InvalidArgument("top_logprobs must be between 0 and 100 (-1: none)");
  }
  WEFT_RETURN_IF_ERROR(ValidateChunks(options.prompt_chunks));
  return ValidateSampling(options.sampling, n_vocab);
}

StatusOr<EngineCore::Submitted> EngineCore::Submit(SessionId id, const TurnOptions& options) {
  WEFT_ASSIGN_OR_RETURN(Session* const session, sessions_.Get(id));
  return Enqueue(session, options, /*closes_session=*/false);
}

StatusOr<EngineCore::Submitted> EngineCore::SubmitOnce(std::string_view domain,
                                                       const TurnOptions& options) {
  WEFT_ASSIGN_OR_RETURN(Session* const session, sessions_.CreateForTurn(domain));
  auto submitted = Enqueue(session, options, /*closes_session=*/true);
  if (!submitted.ok()) DestroySession(session);
  return submitted;
}

StatusOr<EngineCore::Submitted> EngineCore::Enqueue(Session* session, const TurnOptions& options,
                                                    bool closes_session) {
  if (!admitting_) return Unavailable("the engine is shutting down");
  WEFT_RETURN_IF_ERROR(model_->CheckFile());
  WEFT_RETURN_IF_ERROR(ValidateTurn(*session, options));
  const int64_t waiting = static_cast<int64_t>(queued_.size());
  const int64_t places = options_.max_running - static_cast<int64_t>(running_.size());
  if (waiting >= options_.max_queued + std::max<int64_t>(0, places)) {
    ++stats_.turns_refused;
    return ResourceExhausted("the queue is full: ", running_.size(), " turns run and ", waiting,
                             " wait; try again later");
  }
  auto turn = std::make_unique<ActiveTurn>();
  turn->serial = next_serial_++;
  turn->options = options;
  std::sort(turn->options.stop_tokens.begin(), turn->options.stop_tokens.end());
  turn->session = session;
  turn->closes_session = closes_session;
  turn->submitted_us = NowMicros();
  // Below 2^53, so that JSON readers that only know doubles can return it unchanged.
  turn->seed = options.sampling.seed.value_or(
      MixBits(static_cast<uint64_t>(turn->submitted_us) ^ (turn->serial << 40)) >> 11);
  turn->queue = std::make_shared<TurnQueue>(static_cast<size_t>(options_.max_pending_events),
                                            options.n_choices,
                                            [post_back = post_back_] { post_back([] {}); });
  turn->cancelled = std::make_shared<std::atomic<bool>>(false);
  session->turn = turn.get();
  const bool is_parked = session->stage == SessionStage::kParked;
  session->stage.Become(is_parked ? SessionStage::kAwaited : SessionStage::kQueued);
  RestoreForTurn(session);
  Touch(session);
  Submitted submitted{.session = session->id, .queue = turn->queue, .cancelled = turn->cancelled};
  queued_.push_back(std::move(turn));
  return submitted;
}

int64_t EngineCore::turns_waiting() const {
  return static_cast<int>(running_.size()) < options_.max_running
             ? 0
             : static_cast<int64_t>(queued_.size());
}

int64_t EngineCore::StallPatienceUs() const {
  auto patience = options_.stalled_consumer_timeout;
  if (turns_waiting() > 0) patience = std::min(patience, options_.stalled_while_others_wait);
  return patience.count() * 1000;
}

void EngineCore::EndUnwanted(ActiveTurn* turn) {
  if (turn->has_ended()) return;
  const int64_t now_us = NowMicros();
  if (turn->cancelled->load()) {
    turn->End(FinishReason::kCancelled, OkStatus());
  } else if (turn->options.deadline &&
             *turn->options.deadline <= std::chrono::steady_clock::now()) {
    turn->End(FinishReason::kError, DeadlineExceeded("the turn's deadline passed"));
  } else if (!turn->queue->Full()) {
    turn->stalled_since_us = 0;
  } else if (turn->stalled_since_us == 0) {
    turn->stalled_since_us = now_us;
  } else if (const int64_t patience_us = StallPatienceUs();
             now_us - turn->stalled_since_us > patience_us) {
    turn->End(FinishReason::kError,
              ResourceExhausted("the turn was cut off: its consumer did not read for ",
                                patience_us / 1000, " ms"));
  }
}

// Ends turns that were cancelled, timed out or abandoned by their consumer, and retires finished
// ones. True if there were any.
bool EngineCore::SweepTurns() {
  bool retired = false;
  for (TurnList* list : {&queued_, &running_}) {
    for (const auto& turn : *list) EndUnwanted(turn.get());
  }
  if (LongStepIsUnwanted()) AbandonLongStep();
  for (TurnList* list : {&queued_, &running_}) {
    for (auto it = list->begin(); it != list->end();) {
      ActiveTurn* const turn = it->get();
      // The long step ends first: others may be in it.
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

// Moves turns from the queue to the running list: higher priority first, then in submission order.
// Preempted turns resume first, or newcomers would take the memory they wait for.
void EngineCore::Admit() {
  for (const auto& turn : running_) {
    if (turn->is_stalled()) continue;
    for (const auto& lane : turn->lanes) {
      if (lane->stage == LaneStage::kPreempted) return;
    }
  }
  while (!queued_.empty() && static_cast<int>(running_.size()) < options_.max_running) {
    auto best = queued_.end();
    for (auto it = queued_.begin(); it != queued_.end(); ++it) {
      if ((*it)->session->stage != SessionStage::kQueued || (*it)->session->is_at_work()) continue;
      if (best == queued_.end() || (*it)->options.priority > (*best)->options.priority) best = it;
    }
    if (best == queued_.end()) return;
    running_.splice(running_.end(), queued_, best);
    StartTurn(running_.back().get());
    published_us_ = 0;  // forces a publication: its step may take long
  }
}

void EngineCore::StartTurn(ActiveTurn* turn) {
  Session* const session = turn->session;
  const TurnOptions& options = turn->options;
  turn->stage.Become(TurnStage::kReading);
  session->stage.Become(SessionStage::kRunning);
  std::vector<TokenId>& tokens = session->tokens;
  if (options.tokens_are_whole_context) {
    const int64_t shared = CommonLength(tokens, options.tokens);
    turn->replaced.assign(tokens.begin() + shared, tokens.end());
    memory_->Truncate(session, shared);
    tokens.resize(static_cast<size_t>(shared));
  }
  turn->tokens_before = static_cast<int64_t>(tokens.size());
  const size_t from = options.tokens_are_whole_context ? tokens.size() : 0;
  tokens.insert(tokens.end(), options.tokens.begin() + static_cast<ptrdiff_t>(from),
                options.tokens.end());
  // The last token is always computed: its logits choose the first new one.
  const int64_t reusable = static_cast<int64_t>(tokens.size()) - 1;
  if (turn->wants_prompt_rows()) {
    memory_->Drop(session);
  } else {
    memory_->Truncate(session, reusable);
    ReuseComputed(session);
  }
  PlanCheckpoints(session);
  auto lane = std::make_unique<Lane>(0, session, options.sampling, ChoiceSeed(turn->seed, 0),
                                     model_->tokenizer(), options);
  lane->last_row_us = NowMicros();
  if (options.token_mask) lane->mask = options.token_mask(0);
  turn->lanes.push_back(std::move(lane));
  Touch(session);
  turn->started.seed = turn->seed;
  turn->started.prompt_tokens = static_cast<int64_t>(tokens.size());
  turn->usage.prompt_tokens = turn->started.prompt_tokens;
}

bool EngineCore::SharesPrefixes(const Session& a, const Session& b) const {
  return a.domain == b.domain || options_.share_prefixes_across_domains;
}

// Takes the longest computed prefix of the session's tokens, without the last one: from the prefix
// index, or from a running session, which alone has the positions after its last whole page.
void EngineCore::ReuseComputed(Session* session) {
  const int64_t limit = static_cast<int64_t>(session->tokens.size()) - 1;
  memory_->Reuse(session, limit);
  for (const auto& turn : running_) {
    for (const auto& lane : turn->lanes) {
      const Session& other = *lane->session;
      if (other.computed <= session->computed || other.stage == SessionStage::kPoisoned ||
          !SharesPrefixes(other, *session)) {
        continue;
      }
      const int64_t common = std::min(CommonLength(other.tokens, session->tokens), limit);
      memory_->ReuseFrom(other, common, session);
    }
  }
}

void EngineCore::PlanCheckpoints(Session* session) {
  if (memory_->blocks_stand_alone()) return;  // any position is as good as another
  const Tokenizer& tokenizer = *model_->tokenizer();
  const std::vector<int64_t> marks = MessageStarts(
      session->tokens, [&tokenizer](TokenId token) { return tokenizer.IsControl(token); });
  memory_->PlanCheckpoints(session, marks);
}

// Length of the common prefix of two prompts. REQUIRES: both are being computed, so that their
// tokens do not change.
int64_t EngineCore::CommonPrompt(ActiveTurn* turn, const ActiveTurn& other) {
  const auto [common, is_new] = turn->common_with.try_emplace(other.serial, 0);
  if (is_new) {
    common->second = CommonLength(other.lanes[0]->session->tokens, turn->lanes[0]->session->tokens);
  }
  return common->second;
}

// True if an earlier turn is computing whole pages that this one needs too. In that case it also
// makes that turn leave a checkpoint there, if the model needs one.
bool EngineCore::WaitsForSibling(ActiveTurn* turn, TurnList::const_iterator self) const {
  if (!memory_->keeps_prefixes() || turn->wants_prompt_rows()) return false;
  const Session& session = *turn->lanes[0]->session;
  const int64_t page = memory_->page_tokens();
  for (auto it = running_.begin(); it != self; ++it) {
    const ActiveTurn& other = **it;
    if (other.stage != TurnStage::kReading) continue;
    if (other.lanes[0]->stage == LaneStage::kWaitsForSibling) continue;
    Session& leader = *other.lanes[0]->session;
    if (!SharesPrefixes(leader, session)) continue;
    const int64_t common = memory_->HandOverAt(
        std::min(CommonPrompt(turn, other), static_cast<int64_t>(session.tokens.size()) - 1));
    // Less than a page is not worth a wait.
    if (common / page * page <= session.computed || leader.computed >= common) continue;
    memory_->WantCheckpoint(&leader, common);
    return true;
  }
  return false;
}

void EngineCore::RefreshSiblingWaits() {
  for (auto it = running_.begin(); it != running_.end(); ++it) {
    ActiveTurn& turn = **it;
    if (turn.stage != TurnStage::kReading || turn.in_step()) continue;
    Lane& lane = *turn.lanes[0];
    const bool waited = lane.stage == LaneStage::kWaitsForSibling;
    if (!waited && lane.stage != LaneStage::kReady) continue;
    const bool waits = WaitsForSibling(&turn, it);
    if (waits == waited) continue;
    lane.stage.Become(waits ? LaneStage::kWaitsForSibling : LaneStage::kReady);
    if (!waits) ReuseComputed(lane.session);
  }
}

// --- ends ----------------------------------------------------------------------------

// If its prompt was not completed, leaves the session as it was.
void EngineCore::RollBackPrompt(ActiveTurn* turn) {
  Session* const session = turn->session;
  if (session->stage == SessionStage::kPoisoned) return;
  memory_->Truncate(session, std::min(session->computed, turn->tokens_before));
  session->tokens.resize(static_cast<size_t>(turn->tokens_before));
  session->tokens.insert(session->tokens.end(), turn->replaced.begin(), turn->replaced.end());
}

void EngineCore::Retire(ActiveTurn* turn) {
  AbandonLoad(turn->session);
  for (const auto& lane : turn->lanes) {
    if (lane->session->stage != SessionStage::kPoisoned) memory_->KeepTail(lane->session);
  }
  if (!turn->lanes.empty() && !turn->is_prompt_computed()) RollBackPrompt(turn);
  for (size_t i = 1; i < turn->lanes.size(); ++i) DestroySession(turn->lanes[i]->session);
  Session* const session = turn->session;
  session->turn = nullptr;
  session->last_used_us = NowMicros();
  if (session->stage == SessionStage::kAwaited) session->stage.Become(SessionStage::kParked);
  if (session->stage.IsAnyOf(SessionStage::kQueued, SessionStage::kRunning)) {
    session->stage.Become(SessionStage::kReady);
  }
  Touch(session);
  KeepAfterTurn(*turn);
  if (turn->closes_session) DestroySession(session);
  switch (turn->fate) {
    case TurnFate::kFinished:
      ++stats_.turns_finished;
      break;
    case TurnFate::kCancelled:
      ++stats_.turns_cancelled;
      break;
    case TurnFate::kFailed:
      ++stats_.turns_failed;
      break;
  }
  memory_->ReturnFreed();
  AfterPublish([queue = turn->queue] { queue->Finish(); });
}

void EngineCore::CutAll(const Status& status) {
  for (TurnList* list : {&queued_, &running_}) {
    for (auto& turn : *list) turn->End(FinishReason::kError, status);
  }
  SweepTurns();
}

}  // namespace weft
