// The step: which rows, room for them, the forward pass, and what follows from it.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "engine/engine_core.h"
#include "engine/random.h"

namespace weft {
namespace {

// Prompt rows whose logits are wanted are computed in smaller chunks, because a row
// of logits of a large vocabulary takes half a megabyte.
constexpr int64_t kLogitChunk = 32;

int64_t Pending(const Lane& lane) {
  return static_cast<int64_t>(lane.session->tokens.size()) - lane.session->computed;
}

// A long step that nobody interrupts looks up this often, for deadlines.
constexpr int64_t kLongestSliceUs = 250000;

// Whether nothing that the model says may end the turn with the next token.
bool EndsTooEarly(const TurnOptions& options, const Lane& lane) {
  return static_cast<int64_t>(lane.generated.size()) < options.min_tokens;
}

void Ban(std::span<const TokenId> tokens, std::span<float> logits) {
  for (const TokenId token : tokens) logits[static_cast<size_t>(token)] = -INFINITY;
}

}  // namespace

// A short step when one is due, or a piece of the long one.
bool EngineCore::RunOnce(FunctionRef<bool()> interrupted) {
  SweepTurns();
  Admit();
  RefreshSiblingWaits();
  LookOnDisk();
  const bool kept = PumpDisk();
  if (long_step_ == nullptr) {
    const Candidates lanes = ReadyLanes();
    BeginLongStep(TakeRows(lanes, planner_.PlanLong(lanes.views)));
  }
  std::vector<StepPart> parts;
  if (long_step_ == nullptr || NowMicros() >= slice_end_us_) {
    parts = PlanShortStep();
    PrepareParts(&parts);
  }
  bool resumed = ResumePreempted(/*nobody_runs=*/parts.empty() && long_step_ == nullptr);
  if (parts.empty() && long_step_ == nullptr) {
    // Those that were planned wait for memory of others that were not. The first in line
    // can have it of all that come after. Also when somebody was resumed just now: it
    // might be set back by the same plan, and so on forever.
    parts = PlanFirstLane();
    PrepareParts(&parts);
    resumed = ResumePreempted(/*nobody_runs=*/parts.empty()) || resumed;
  }
  PublishIfDue();  // who was admitted is seen while the step runs
  if (!parts.empty()) {
    RunShortStep(std::move(parts));
  } else if (long_step_ != nullptr) {
    AdvanceLongStep(interrupted);
  } else {
    const bool retired = SweepTurns();
    memory_->ReturnFreed();
    return resumed || retired || kept;
  }
  SweepTurns();
  return true;
}

// --- plan ----------------------------------------------------------------------------

LaneView EngineCore::ViewOf(const ActiveTurn& turn, const Lane& lane) const {
  const int64_t now_us = NowMicros();
  LaneView view;
  view.pending = Pending(lane);
  view.depth = lane.session->computed;
  view.max_chunk = memory_->RowsToCheckpoint(*lane.session);
  view.decoding = lane.decoding && view.pending == 1;
  view.priority = turn.options.priority;
  view.waited_us = now_us - lane.last_row_us;
  view.age_us = now_us - turn.submitted_us;
  if (turn.prompt_done) return view;
  const auto& chunks = turn.options.prompt_chunks;
  if (!chunks.empty()) {
    view.max_chunk = std::min(view.max_chunk, chunks[turn.next_chunk % chunks.size()]);
  } else if (turn.wants_prompt_rows()) {
    view.max_chunk = std::min(view.max_chunk, kLogitChunk);
  }
  return view;
}

// In order of admission.
EngineCore::Candidates EngineCore::ReadyLanes() const {
  Candidates candidates;
  for (const auto& turn : running_) {
    if (turn->stalled_since_us > 0 || turn->queue->Full()) continue;
    for (const auto& lane : turn->lanes) {
      if (lane->done || lane->waits_for_sibling || lane->waits_for_disk || lane->preempted ||
          lane->session->in_step) {
        continue;
      }
      candidates.views.push_back(ViewOf(*turn, *lane));
      candidates.parts.push_back({.turn = turn.get(), .lane = lane.get()});
    }
  }
  return candidates;
}

std::vector<EngineCore::StepPart> EngineCore::TakeRows(const Candidates& candidates,
                                                       const std::vector<int64_t>& rows) {
  std::vector<StepPart> parts;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == 0) continue;
    StepPart part = candidates.parts[i];
    part.rows = rows[i];
    part.first_row = part.lane->session->computed;
    part.ends_prompt = rows[i] == candidates.views[i].pending;
    if (part.lane->decoding) {
      part.n_logits = part.ends_prompt ? 1 : 0;
    } else if (part.turn->wants_prompt_rows()) {
      part.n_logits = part.rows;
    } else if (part.ends_prompt && part.turn->options.max_tokens != 0) {
      part.n_logits = 1;
    }
    parts.push_back(part);
  }
  return parts;
}

std::vector<EngineCore::StepPart> EngineCore::PlanShortStep() const {
  const Candidates lanes = ReadyLanes();
  if (lanes.parts.empty()) return {};
  if (long_step_ == nullptr) return TakeRows(lanes, planner_.PlanShort(lanes.views, nullptr));
  // Whoever has less left than the longest of its prompts need not wait for it.
  LaneView paused;
  for (const StepPart& part : long_step_->parts) {
    const LaneView view = ViewOf(*part.turn, *part.lane);
    if (view.pending > paused.pending) paused = view;
  }
  return TakeRows(lanes, planner_.PlanShort(lanes.views, &paused));
}

// The lane that was admitted before all others, alone.
std::vector<EngineCore::StepPart> EngineCore::PlanFirstLane() const {
  Candidates lanes = ReadyLanes();
  if (lanes.parts.empty()) return {};
  lanes.parts.resize(1);
  lanes.views.resize(1);
  std::vector<int64_t> rows = planner_.PlanLong(lanes.views);
  if (rows[0] == 0) rows = planner_.PlanShort(lanes.views, nullptr);
  return TakeRows(lanes, rows);
}

// --- room ----------------------------------------------------------------------------

// Gives every part its pages and slot, in order of admission. A part for which there is no room
// is left out of the step; its turn fails when nobody can ever give it room.
void EngineCore::PrepareParts(std::vector<StepPart>* parts) {
  std::vector<StepPart> prepared;
  for (StepPart& part : *parts) {
    if (part.lane->preempted) continue;  // an earlier part took its pages just now
    Status status = MakeRoomFor(part, prepared);
    // Fewer rows need less at a time: what falls behind a window comes back after each step.
    while (status.code() == StatusCode::kResourceExhausted && part.rows > 1 &&
           !OthersWillFreeMemory(part.lane)) {
      part.rows /= 2;
      part.ends_prompt = false;
      part.n_logits = part.n_logits > 1 ? part.rows : 0;
      status = MakeRoomFor(part, prepared);
    }
    if (status.ok()) {
      prepared.push_back(part);
      continue;
    }
    // Whoever else holds pages will give them back one day.
    if (status.code() != StatusCode::kResourceExhausted || !OthersWillFreeMemory(part.lane)) {
      EndTurn(part.turn, FinishReason::kError, status);
    }
  }
  *parts = std::move(prepared);
}

bool EngineCore::OthersWillFreeMemory(const Lane* self) {
  for (const auto& turn : running_) {
    for (const auto& lane : turn->lanes) {
      if (lane.get() != self && !lane->done && memory_->BytesOf(*lane->session) > 0) return true;
    }
  }
  return idle_->AnyWithStateAtWork();
}

// Whoever was preempted comes back once there is room for all of its tokens, and must
// when nobody else runs.
bool EngineCore::ResumePreempted(bool nobody_runs) {
  bool resumed = false;
  for (const auto& turn : running_) {
    for (const auto& lane : turn->lanes) {
      if (!lane->preempted || lane->done) continue;
      if (!nobody_runs && !memory_->EvictFor(*lane->session, Pending(*lane) + 1).ok()) continue;
      lane->preempted = false;
      if (!turn->wants_prompt_rows() || lane->decoding) {
        memory_->Reuse(lane->session, lane->session->n_tokens() - 1);
      }
      resumed = true;
      if (nobody_runs) return true;
    }
  }
  return resumed;
}

Status EngineCore::MakeRoomFor(const StepPart& part, const std::vector<StepPart>& prepared) {
  while (true) {
    const Status status = memory_->Prepare(part.lane->session, part.rows);
    if (status.code() != StatusCode::kResourceExhausted) return status;
    if (GiveUpIdleState()) continue;
    if (PreemptFor(part, prepared)) continue;
    return status;
  }
}

// First what only waits for the disk.
bool EngineCore::GiveUpIdleState() {
  return (keeper_ != nullptr && keeper_->ReleaseMemory()) || TakeIdleSession();
}

// Takes the state of the session that was not used for longest and is not running: to
// its file when it can have one, else its tokens stay and its next turn computes them
// again. A session whose turn waits in the queue is not running yet.
bool EngineCore::TakeIdleSession() {
  Session* const oldest = idle_->OldestWithState();
  if (oldest == nullptr) return false;
  if (CheckSavable(*oldest).ok()) {
    if (keeper_->IsKept(*oldest)) {
      BecomeParked(oldest);
      return true;
    }
    // Where too much is being written already its tokens alone are kept: waiting would hold up
    // those who run.
    if (saves_.empty() && SaveHasRoom(*oldest)) {
      StartSave(oldest, /*park=*/true, /*free_now=*/true, [](const Status&) {});
    }
  }
  memory_->Drop(oldest);
  Touch(oldest);
  ++stats_.sessions_dropped;
  return true;
}

// Takes the pages of a lane that is not in the step yet: the last of those that come
// after the part's own, or that do not advance now. Its tokens stay: it starts over when
// there is room, and what it says does not change by that.
bool EngineCore::PreemptFor(const StepPart& part, const std::vector<StepPart>& prepared) {
  bool after = true;
  for (auto it = running_.rbegin(); it != running_.rend(); ++it) {
    const bool paused = (*it)->stalled_since_us > 0 || (*it)->queue->Full();
    for (auto lane = (*it)->lanes.rbegin(); lane != (*it)->lanes.rend(); ++lane) {
      if (lane->get() == part.lane) {
        after = false;
        continue;
      }
      if ((*lane)->session->in_step || (!after && !paused && !(*lane)->done)) continue;
      const bool in_step = std::any_of(prepared.begin(), prepared.end(),
                                       [&](const StepPart& p) { return p.lane == lane->get(); });
      if (in_step || memory_->BytesOf(*(*lane)->session) == 0) continue;
      memory_->Drop((*lane)->session);
      (*lane)->preempted = !(*lane)->done;
      ++stats_.preemptions;
      return true;
    }
  }
  return false;
}

// --- compute ----------------------------------------------------------------------------

StepSequence EngineCore::SequenceOf(const Session& session, int64_t first, int64_t n) {
  StepSequence sequence;
  sequence.tokens =
      std::span(session.tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(n));
  sequence.position = first;
  for (const PageTable& table : session.tables) sequence.page_tables.push_back(table.pages());
  sequence.slot = session.slot.id();
  return sequence;
}

// The step's sequences and logits, from its parts; begins its run.
Status EngineCore::Begin(OpenStep* step) {
  const size_t n_vocab = static_cast<size_t>(model_->n_vocab());
  size_t n_logits = 0;
  for (const StepPart& part : step->parts) {
    StepSequence sequence = SequenceOf(*part.lane->session, part.first_row, part.rows);
    sequence.n_logits = part.n_logits;
    step->sequences.push_back(std::move(sequence));
    n_logits += static_cast<size_t>(part.n_logits);
    // A lane that starts over after it was preempted computes as a prompt does.
    if (part.lane->decoding && part.rows == 1) {
      ++step->cost.decode_rows;
    } else {
      step->cost.prompt_rows += part.rows;
      step->cost.attended_rows += part.rows * (part.first_row + part.rows / 2);
    }
  }
  if (step->logits.size() < n_logits * n_vocab) step->logits.resize(n_logits * n_vocab);
  const std::span<float> logits = std::span(step->logits).first(n_logits * n_vocab);
  size_t at = 0;
  for (StepPart& part : step->parts) {
    const size_t n = static_cast<size_t>(part.n_logits) * n_vocab;
    part.logits = logits.subspan(at, n);
    at += n;
  }
  const int64_t begin_us = NowMicros();
  for (StepPart& part : step->parts) {
    if (part.turn->first_row_us == 0) {
      part.turn->first_row_us = begin_us;
      part.turn->usage.queued_us = begin_us - part.turn->submitted_us;
      part.turn->started.cached_tokens = part.first_row;
      part.turn->usage.cached_tokens = part.first_row;
      TellDiskTokens(part.turn, part.lane->session);
      stats_.cached_tokens += part.first_row;
      ReportProgress(part, part.first_row);
    }
  }
  WEFT_ASSIGN_OR_RETURN(step->run, executor_->Begin(Step{.sequences = step->sequences}, logits));
  return OkStatus();
}

StatusOr<bool> EngineCore::Advance(OpenStep* step, FunctionRef<bool()> pause) {
  const int64_t begin_us = NowMicros();
  const int64_t attention_ns = executor_->stage_stats().attention_ns;
  const StatusOr<bool> done = step->run->Advance(pause);
  // What was computed from a file that has changed meanwhile is not to be used.
  WEFT_RETURN_IF_ERROR(model_->CheckFile());
  WEFT_RETURN_IF_ERROR(done.status());
  const int64_t took_us = NowMicros() - begin_us;
  step->cost.total_us += took_us;
  step->cost.attention_us += (executor_->stage_stats().attention_ns - attention_ns) / 1000;
  stats_.step_us += took_us;
  return done;
}

// The step is computed: what follows from it.
void EngineCore::Land(OpenStep* step) {
  const int64_t now_us = NowMicros();
  planner_.Observe(step->cost);
  ++stats_.steps;
  stats_.prompt_tokens += step->cost.prompt_rows;
  step->run.reset();
  for (StepPart& part : step->parts) part.lane->last_row_us = now_us;
  for (StepPart& part : step->parts) Consume(&part);
}

void EngineCore::RunShortStep(std::vector<StepPart> parts) {
  const int64_t begin_us = NowMicros();
  OpenStep step{.parts = std::move(parts), .logits = std::move(logits_)};
  Status status = Begin(&step);
  if (status.ok()) status = Advance(&step, [] { return false; }).status();
  if (status.ok()) {
    Land(&step);
  } else {
    step.run.reset();
    Poison(step.parts, status);
  }
  logits_ = std::move(step.logits);
  const int64_t now_us = NowMicros();
  slice_end_us_ =
      now_us + planner_.SliceAfter(now_us - begin_us, step.cost.decode_rows, step.cost.prompt_rows);
}

// --- the long step -----------------------------------------------------------------------

void EngineCore::BeginLongStep(std::vector<StepPart> parts) {
  PrepareParts(&parts);
  if (parts.empty()) return;
  long_step_ = std::make_unique<OpenStep>(OpenStep{.parts = std::move(parts)});
  for (const StepPart& part : long_step_->parts) part.lane->session->in_step = true;
  const Status status = Begin(long_step_.get());
  if (!status.ok()) Poison(CloseLongStep()->parts, status);
}

// Until its slice ends, or for a while where no short step waits; in any case one part of the
// model, and none that would not fit: the next takes about as long as the longer of the last
// two, since attention and feed-forward alternate.
void EngineCore::AdvanceLongStep(FunctionRef<bool()> interrupted) {
  const int64_t begin_us = NowMicros();
  const int64_t until_us = slice_end_us_ > begin_us ? slice_end_us_ : begin_us + kLongestSliceUs;
  int64_t last_us = begin_us, former_part_us = 0;
  const StatusOr<bool> done = Advance(long_step_.get(), [&] {
    const int64_t now_us = NowMicros();
    const int64_t part_us = now_us - std::exchange(last_us, now_us);
    const int64_t next_us = std::max(part_us, std::exchange(former_part_us, part_us));
    return interrupted() || now_us + next_us > until_us;
  });
  if (done.ok() && !*done) return;
  const std::unique_ptr<OpenStep> step = CloseLongStep();
  if (done.ok()) {
    Land(step.get());
  } else {
    Poison(step->parts, done.status());
  }
}

// Its sessions are free again.
std::unique_ptr<EngineCore::OpenStep> EngineCore::CloseLongStep() {
  long_step_->run.reset();
  for (const StepPart& part : long_step_->parts) part.lane->session->in_step = false;
  return std::move(long_step_);
}

bool EngineCore::LongStepIsUnwanted() const {
  return long_step_ != nullptr && std::all_of(long_step_->parts.begin(), long_step_->parts.end(),
                                              [](const StepPart& part) { return part.lane->done; });
}

// Its rows are as if they had not been begun.
void EngineCore::AbandonLongStep() {
  const std::unique_ptr<OpenStep> step = CloseLongStep();
  for (const StepPart& part : step->parts) {
    memory_->Truncate(part.lane->session, part.first_row);
  }
}

// A failed forward leaves the state of its sequences undefined from the step on.
void EngineCore::Poison(const std::vector<StepPart>& parts, const Status& status) {
  for (const StepPart& part : parts) {
    Session* const session = part.lane->session;
    memory_->Truncate(session, part.first_row);
    session->sound_tokens = part.first_row;
    session->state = SessionState::kPoisoned;
    EndTurn(part.turn, FinishReason::kError, status);
  }
}

// --- results ------------------------------------------------------------------------------

void EngineCore::Consume(StepPart* part) {
  Lane* const lane = part->lane;
  const size_t n_vocab = static_cast<size_t>(model_->n_vocab());
  // Before the state counts as computed, and others find it in the prefix index.
  if (part->n_logits > 0 && !IsSound(part->logits.last(n_vocab))) {
    Poison({*part}, Internal("the model computed logits that are not finite"));
    return;
  }
  memory_->Commit(lane->session);
  if (lane->done) return;
  if (lane->decoding) {
    // A lane that was preempted computes several rows before it samples again.
    if (part->ends_prompt) SampleNext(part->turn, lane, part->logits);
    return;
  }
  ++part->turn->next_chunk;
  TurnUsage& usage = part->turn->usage;
  // Not what a turn that was preempted computes again.
  usage.computed_tokens =
      std::max(usage.computed_tokens, part->first_row + part->rows - usage.cached_tokens);
  ReportProgress(*part, part->first_row + part->rows);
  if (part->turn->wants_prompt_rows()) TakePromptRows(part);
  if (part->ends_prompt) FinishPrompt(part);
}

// A turn that was preempted computes again what has been reported.
void EngineCore::ReportProgress(const StepPart& part, int64_t done_tokens) {
  ActiveTurn* const turn = part.turn;
  if (!turn->options.report_progress || done_tokens <= turn->reported_tokens) return;
  turn->reported_tokens = done_tokens;
  turn->queue->Push(ProgressEvent{.prompt_tokens = part.lane->session->n_tokens(),
                                  .cached_tokens = turn->usage.cached_tokens,
                                  .done_tokens = done_tokens,
                                  .elapsed_us = NowMicros() - turn->first_row_us});
}

void EngineCore::TakePromptRows(StepPart* part) {
  ActiveTurn* const turn = part->turn;
  const TurnOptions& options = turn->options;
  const std::vector<TokenId>& tokens = part->lane->session->tokens;
  const size_t n_vocab = static_cast<size_t>(model_->n_vocab());
  auto& out = turn->started.prompt_logprobs;
  if (options.prompt_logprobs && out.empty()) {
    out.push_back({.token = {.token = tokens[0], .logprob = 0}});
  }
  for (int64_t i = 0; i < part->rows; ++i) {
    const std::span<const float> row =
        part->logits.subspan(static_cast<size_t>(i) * n_vocab, n_vocab);
    const int64_t position = part->first_row + i;
    if (position < turn->prompt_rows_taken) continue;  // before it was preempted
    turn->prompt_rows_taken = position + 1;
    if (options.on_prompt_logits) options.on_prompt_logits(position, row);
    const size_t next = static_cast<size_t>(position) + 1;
    if (!options.prompt_logprobs || next >= tokens.size()) continue;
    const double log_sum = LogSumExp(row);
    StartedEvent::PromptToken entry;
    entry.token.token = tokens[next];
    entry.token.logprob =
        static_cast<float>(static_cast<double>(row[static_cast<size_t>(tokens[next])]) - log_sum);
    entry.alternatives = TopLogprobs(row, log_sum, options.top_logprobs);
    entry.is_greedy = ArgMax(row) == tokens[next];
    out.push_back(std::move(entry));
  }
}

void EngineCore::FinishPrompt(StepPart* part) {
  ActiveTurn* const turn = part->turn;
  const int64_t now_us = NowMicros();
  turn->prompt_done = true;
  turn->first_token_us = now_us;
  turn->usage.prompt_us = now_us - turn->first_row_us;
  turn->queue->Push(std::move(turn->started));
  turn->started = StartedEvent();
  if (turn->options.max_tokens == 0) {
    EndTurn(turn, FinishReason::kLength, OkStatus());
    return;
  }
  const std::span<float> row = part->logits.last(static_cast<size_t>(model_->n_vocab()));
  if (turn->options.n_choices > 1) {
    ForkChoices(turn, row);
    return;
  }
  SampleNext(turn, part->lane, row);
}

// Every further choice is a fork of the session at the end of the prompt, and samples
// its first token from the same row.
void EngineCore::ForkChoices(ActiveTurn* turn, std::span<const float> logits) {
  Session* const session = turn->session;
  for (int choice = 1; choice < turn->options.n_choices; ++choice) {
    auto fork = sessions_.CreateForTurn(session->domain);
    if (!fork.ok()) {
      EndTurn(turn, FinishReason::kError, fork.status());
      return;
    }
    (*fork)->tokens = session->tokens;
    (*fork)->state = SessionState::kRunning;
    (*fork)->turn = turn;
    memory_->Share(*session, session->computed, *fork);
    auto lane =
        std::make_unique<Lane>(choice, *fork, turn->options.sampling,
                               ChoiceSeed(turn->seed, choice), model_->tokenizer(), turn->options);
    if (turn->options.token_mask) lane->mask = turn->options.token_mask(choice);
    lane->last_row_us = NowMicros();
    turn->lanes.push_back(std::move(lane));
  }
  std::vector<float> row;
  for (auto& lane : turn->lanes) {
    row.assign(logits.begin(), logits.end());
    SampleNext(turn, lane.get(), row);
  }
}

void EngineCore::SampleNext(ActiveTurn* turn, Lane* lane, std::span<float> logits) {
  const TurnOptions& options = turn->options;
  const std::vector<TokenId>& tokens = lane->session->tokens;
  TokenEvent event;
  event.choice = lane->choice;
  const bool of_draw = options.top_logprobs >= 0 && options.logprobs_of_draw;
  double log_sum = 0;
  std::vector<float> raw;
  if (options.top_logprobs >= 0 && !of_draw) {
    log_sum = LogSumExp(logits);
    event.alternatives = TopLogprobs(logits, log_sum, options.top_logprobs);
    raw.assign(logits.begin(), logits.end());
  }
  const bool too_early = EndsTooEarly(options, *lane);
  if (options.ignore_eos || too_early) Ban(model_->tokenizer()->EndsOfGeneration(), logits);
  if (too_early) Ban(options.stop_tokens, logits);
  if (lane->mask) {
    lane->allowed.assign(logits.size(), true);
    lane->mask->Apply(lane->generated, &lane->allowed);
    lane->allowed.resize(logits.size(), false);  // whatever the mask did to it
  }
  const TokenId token =
      lane->sampler.Sample(logits, tokens, static_cast<int64_t>(tokens.size()), lane->allowed);
  if (token == kNoToken) {
    EndLane(turn, lane, FinishReason::kError,
            FailedPrecondition("no token may come next: every one is banned or masked"));
    return;
  }
  if (!raw.empty()) {
    event.logprob =
        static_cast<float>(static_cast<double>(raw[static_cast<size_t>(token)]) - log_sum);
  }
  if (of_draw) {
    Sampler::Draws draws = lane->sampler.DrawsOf(token, options.top_logprobs);
    event.logprob = draws.logprob;
    event.alternatives = std::move(draws.best);
  }
  event.token = token;
  ApplyToken(turn, lane, token, std::move(event));
}

bool EngineCore::IsStopToken(const ActiveTurn& turn, TokenId token) const {
  const std::vector<TokenId>& stops = turn.options.stop_tokens;
  if (std::binary_search(stops.begin(), stops.end(), token)) return true;
  return !turn.options.ignore_eos && model_->tokenizer()->IsEndOfGeneration(token);
}

void EngineCore::ApplyToken(ActiveTurn* turn, Lane* lane, TokenId token, TokenEvent event) {
  const bool too_early = EndsTooEarly(turn->options, *lane);
  lane->session->tokens.push_back(token);
  lane->generated.push_back(token);
  lane->decoding = true;
  ++stats_.generated_tokens;
  if (IsStopToken(*turn, token)) {
    turn->queue->Push(std::move(event));
    EndLane(turn, lane, FinishReason::kStop, OkStatus());
    return;
  }
  TextStream::Result text = lane->text.Push(token, /*may_stop=*/!too_early);
  event.text = std::move(text.text);
  turn->queue->Push(std::move(event));
  if (text.stopped) {
    lane->done = true;
    DoneEvent done;
    done.choice = lane->choice;
    done.reason = FinishReason::kStopString;
    done.stop_string = *text.stopped;
    done.usage = turn->usage;
    done.usage.completion_tokens = static_cast<int64_t>(lane->generated.size());
    done.usage.decode_us = NowMicros() - turn->first_token_us;
    turn->queue->Push(std::move(done));
    return;
  }
  const int64_t limit = turn->options.max_tokens;
  const bool full = static_cast<int64_t>(lane->session->tokens.size()) >= model_->context_tokens();
  if (full || (limit > 0 && static_cast<int64_t>(lane->generated.size()) >= limit)) {
    EndLane(turn, lane, FinishReason::kLength, OkStatus());
    return;
  }
  const bool may_loop = !turn->options.end_loops || turn->options.ignore_eos || too_early;
  if (!may_loop && lane->loop_watch.EndsInLoop(lane->generated)) {
    EndLane(turn, lane, FinishReason::kLoop, OkStatus());
  }
}

}  // namespace weft
