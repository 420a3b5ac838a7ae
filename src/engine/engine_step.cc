// The step: choosing its rows and running it through the model. Room for the rows is made in
// engine_room.cc; results are handled in engine_results.cc.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "engine/engine_core.h"

namespace weft {
namespace {

// Prompt rows whose logits are wanted are computed in smaller chunks, because one row of logits of
// a large vocabulary takes half a megabyte.
constexpr int64_t kLogitChunk = 32;

// An uninterrupted long step pauses this often to check deadlines.
constexpr int64_t kLongestSliceUs = 250000;

}  // namespace

// Runs a short step if one is due, otherwise a slice of the long one.
bool EngineCore::RunOnce(FunctionRef<bool()> interrupted) {
  SweepTurns();
  Admit();
  RefreshSiblingWaits();
  LookOnDisk();
  const bool kept = PumpDisk();
  const auto short_step_is_due = [this] {
    return long_step_ == nullptr || NowMicros() >= slice_end_us_;
  };
  bool is_due = short_step_is_due();
  Candidates lanes;
  if (is_due) lanes = ReadyLanes();
  if (long_step_ == nullptr) {
    BeginLongStep(TakeRows(lanes, planner_.PlanLong(lanes.views)));
    is_due = short_step_is_due();
  }
  std::vector<StepPart> parts;
  if (is_due) {
    parts = PlanShortStep(std::move(lanes));
    PrepareParts(&parts);
  }
  bool resumed = ResumePreempted(/*nobody_runs=*/parts.empty() && long_step_ == nullptr);
  if (parts.empty() && long_step_ == nullptr) {
    // The planned lanes wait for memory held by lanes that were not planned. The first in line may
    // take it from all that come after. Do this even if a lane was just resumed: the same plan
    // might preempt it again, forever.
    parts = PlanFirstLane();
    PrepareParts(&parts);
    resumed = ResumePreempted(/*nobody_runs=*/parts.empty()) || resumed;
  }
  PublishIfDue();  // admitted turns become visible while the step runs
  if (!parts.empty()) {
    RunShortStep(std::move(parts));
  } else if (long_step_ != nullptr) {
    // If no short step waits for it, the slice continues.
    AdvanceLongStep(is_due ? NowMicros() + kLongestSliceUs : slice_end_us_, interrupted);
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
  view.pending = lane.pending();
  view.depth = lane.session->computed;
  view.max_chunk = memory_->RowsToCheckpoint(*lane.session);
  view.decoding = lane.is_decoding() && view.pending == 1;
  view.priority = turn.options.priority;
  view.waited_us = now_us - lane.last_row_us;
  view.age_us = now_us - turn.submitted_us;
  if (turn.is_prompt_computed()) return view;
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
    if (turn->is_held_up()) continue;
    for (const auto& lane : turn->lanes) {
      if (!lane->is_ready()) continue;
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
    if (part.lane->is_decoding()) {
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

// Uses only lanes that are still ready: a long step begun meanwhile may have taken some.
std::vector<EngineCore::StepPart> EngineCore::PlanShortStep(Candidates lanes) const {
  size_t n = 0;
  for (size_t i = 0; i < lanes.parts.size(); ++i) {
    if (!lanes.parts[i].lane->is_ready()) continue;
    lanes.parts[n] = lanes.parts[i];
    lanes.views[n++] = lanes.views[i];
  }
  lanes.parts.resize(n);
  lanes.views.resize(n);
  if (n == 0) return {};
  if (long_step_ == nullptr) return TakeRows(lanes, planner_.PlanShort(lanes.views, nullptr));
  // Prompts with less work left than the step's longest need not wait for it.
  LaneView paused;
  for (const StepPart& part : long_step_->parts) {
    const LaneView view = ViewOf(*part.turn, *part.lane);
    if (view.pending > paused.pending) paused = view;
  }
  return TakeRows(lanes, planner_.PlanShort(lanes.views, &paused));
}

// Only the lane that was admitted first.
std::vector<EngineCore::StepPart> EngineCore::PlanFirstLane() const {
  Candidates lanes = ReadyLanes();
  if (lanes.parts.empty()) return {};
  lanes.parts.resize(1);
  lanes.views.resize(1);
  std::vector<int64_t> rows = planner_.PlanLong(lanes.views);
  if (rows[0] == 0) rows = planner_.PlanShort(lanes.views, nullptr);
  return TakeRows(lanes, rows);
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

// Sets up the step's sequences and logits from its parts, and begins its run.
Status EngineCore::Begin(OpenStep* step) {
  const size_t n_vocab = static_cast<size_t>(model_->n_vocab());
  size_t n_logits = 0;
  for (const StepPart& part : step->parts) {
    StepSequence sequence = SequenceOf(*part.lane->session, part.first_row, part.rows);
    sequence.n_logits = part.n_logits;
    step->sequences.push_back(std::move(sequence));
    n_logits += static_cast<size_t>(part.n_logits);
    // A preempted lane that starts over computes like a prompt.
    if (part.lane->is_decoding() && part.rows == 1) {
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
  // Results computed from a file that has changed must not be used.
  WEFT_RETURN_IF_ERROR(model_->CheckFile());
  WEFT_RETURN_IF_ERROR(done.status());
  const int64_t took_us = NowMicros() - begin_us;
  step->cost.total_us += took_us;
  step->cost.attention_us += (executor_->stage_stats().attention_ns - attention_ns) / 1000;
  stats_.step_us += took_us;
  return done;
}

// Handles the results of a completed step.
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
  for (const StepPart& part : long_step_->parts) {
    part.lane->session->stage.Become(SessionStage::kInStep);
  }
  const Status status = Begin(long_step_.get());
  if (!status.ok()) Poison(CloseLongStep()->parts, status);
}

// Runs at least one part of the model, and none that would exceed the time: the next part is
// assumed to take as long as the longer of the last two, since attention and feed-forward
// alternate.
void EngineCore::AdvanceLongStep(int64_t until_us, FunctionRef<bool()> interrupted) {
  int64_t last_us = NowMicros(), former_part_us = 0;
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

// Releases its sessions.
std::unique_ptr<EngineCore::OpenStep> EngineCore::CloseLongStep() {
  long_step_->run.reset();
  for (const StepPart& part : long_step_->parts) {
    part.lane->session->stage.Become(SessionStage::kRunning);
  }
  return std::move(long_step_);
}

bool EngineCore::LongStepIsUnwanted() const {
  return long_step_ != nullptr &&
         std::all_of(long_step_->parts.begin(), long_step_->parts.end(),
                     [](const StepPart& part) { return part.lane->done(); });
}

// Its rows count as never begun.
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
    session->stage.Become(SessionStage::kPoisoned);
    part.turn->End(FinishReason::kError, status);
  }
}

}  // namespace weft
