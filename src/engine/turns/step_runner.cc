#include "engine/turns/step_runner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "engine/turns/step_sequence.h"
#include "engine/turns/step_tenants.h"

namespace weft {
namespace {

// Prompt rows whose logits are wanted are computed in smaller chunks, because one row of logits of
// a large vocabulary takes half a megabyte.
constexpr int64_t kLogitChunk = 32;

// An uninterrupted long step pauses this often to check deadlines.
constexpr int64_t kLongestSliceUs = 250000;

}  // namespace

bool StepRunner::Plan() {
  short_is_due_ = ShortStepIsDue();
  Candidates lanes;
  if (short_is_due_) lanes = ReadyLanes();
  if (long_step_ == nullptr) {
    BeginLong(TakeRows(lanes, planner_.PlanLong(lanes.views)));
    short_is_due_ = ShortStepIsDue();
  }
  short_parts_.clear();
  if (short_is_due_) {
    short_parts_ = PlanShort(std::move(lanes));
    parts_.room->Prepare(&short_parts_);
  }
  bool resumed = parts_.room->ResumePreempted(/*nobody_runs=*/HasNothingToRun());
  if (HasNothingToRun()) {
    short_parts_ = PlanFirstLane();
    parts_.room->Prepare(&short_parts_);
    resumed = parts_.room->ResumePreempted(/*nobody_runs=*/HasNothingToRun()) || resumed;
  }
  return resumed;
}

bool StepRunner::Run(FunctionRef<bool()> interrupted) {
  if (HasNothingToRun()) return false;
  last_was_short_ = !short_parts_.empty();
  long_is_owed_ = false;
  if (last_was_short_) {
    RunShort();
  } else {
    // If no short step waits for it, the slice continues.
    AdvanceLong(short_is_due_ ? NowMicros() + kLongestSliceUs : slice_end_us_, interrupted);
  }
  return true;
}

// --- plan ----------------------------------------------------------------------------

bool StepRunner::ShortStepIsDue() const {
  return long_step_ == nullptr || (!long_is_owed_ && NowMicros() >= slice_end_us_);
}

LaneView StepRunner::ViewOf(const ActiveTurn& turn, const Lane& lane) const {
  const int64_t now_us = NowMicros();
  LaneView view;
  view.pending = lane.pending();
  if (lane.in_step()) view.in_step = lane.session->state.prepared() - lane.session->computed();
  view.depth = lane.session->computed();
  view.max_chunk = parts_.memory->RowsToCheckpoint(*lane.session);
  view.decoding = lane.needs_only_next();
  view.priority = turn.options.priority;
  view.tenant = turn.tenant;
  view.whole = needs_whole_texts_;
  view.runs = lane.session->tokens.MutualIn(view.depth, view.pending);
  view.waited_us = now_us - lane.last_row_us;
  view.age_us = now_us - turn.submitted_us;
  if (turn.is_prompt_computed()) return view;
  if (turn.first_row_us > 0) {
    view.done = std::max<int64_t>(0, view.depth - turn.usage.cached_tokens);
  }
  const auto& chunks = turn.options.prompt_chunks;
  if (!chunks.empty()) {
    view.max_chunk = std::min(view.max_chunk, chunks[turn.next_chunk % chunks.size()]);
  } else if (turn.wants_prompt_logits()) {
    view.max_chunk = std::min(view.max_chunk, kLogitChunk);
  }
  return view;
}

// Offers as many draft tokens as the step could accept and the session keep.
void StepRunner::OfferGuesses(const ActiveTurn& turn, Lane* lane, LaneView* view) const {
  Speculator* const speculator = parts_.speculator;
  if (speculator->most() == 0 || !view->decoding) return;
  const Session& session = *lane->session;
  const int64_t n_tokens = std::ssize(session.tokens);
  const int64_t n_said = std::ssize(lane->generated);
  int64_t most = std::min(speculator->most(), parts_.model->context_tokens() - 1 - n_tokens);
  most = std::min(most, parts_.memory->RowsToGuess(session) - view->pending);
  if (turn.options.max_tokens > 0) most = std::min(most, turn.options.max_tokens - 1 - n_said);
  if (lane->guesses == nullptr) {
    // Further choices have the first one's prompt.
    const int64_t known = lane->choice == 0 ? turn.usage.cached_tokens : n_tokens;
    lane->guesses = speculator->Begin(session.domain, session.tokens, known, n_said, turn.options);
  }
  lane->guesses->Offer(session.tokens, most,
                       [&] { return turn.GivenGuess(parts_.model->n_vocab(), lane); });
  view->guesses = {.gains = lane->guesses->gains(), .pace = lane->guesses->pace()};
}

// In order of admission.
StepRunner::Candidates StepRunner::ReadyLanes() const {
  Candidates candidates;
  for (const auto& turn : *parts_.running) {
    if (turn->is_held_up()) continue;
    for (const auto& lane : turn->lanes) {
      if (!lane->is_ready()) continue;
      candidates.views.push_back(ViewOf(*turn, *lane));
      OfferGuesses(*turn, lane.get(), &candidates.views.back());
      candidates.parts.push_back({.turn = turn.get(), .lane = lane.get()});
    }
  }
  DraftGuesses(&candidates);
  return candidates;
}

// Prompts need not wait for drafts.
void StepRunner::DraftGuesses(Candidates* candidates) const {
  AnswerDrafts* const drafts = parts_.drafts;
  if (drafts == nullptr || !drafts->usable() || parts_.speculator->most() == 0) return;
  drafts->NoteLanes(std::ssize(candidates->parts), parts_.speculator->most(),
                    planner_.guess_planner());
  std::vector<AnswerDrafts::Answer> answers;
  for (size_t i = 0; i < candidates->parts.size(); ++i) {
    if (!candidates->views[i].decoding) continue;
    const StepPart& part = candidates->parts[i];
    const int64_t left = parts_.speculator->ExpectMore(std::ssize(part.lane->generated),
                                                       part.turn->options.max_tokens);
    answers.push_back({.lane = part.lane, .left = left});
  }
  const bool reads = long_step_ != nullptr || answers.size() < candidates->parts.size();
  if (answers.empty() || (reads && !drafts->at_any_cost())) return;
  drafts->Draft(answers, planner_.guess_planner());
  for (size_t i = 0; i < candidates->parts.size(); ++i) {
    if (!candidates->views[i].decoding) continue;
    candidates->views[i].guesses.gains = candidates->parts[i].lane->guesses->gains();
  }
}

std::vector<StepPart> StepRunner::TakeRows(const Candidates& candidates,
                                           const std::vector<int64_t>& rows) const {
  const AnswerDrafts* const drafts = parts_.speculator->most() > 0 ? parts_.drafts : nullptr;
  std::vector<StepPart> parts;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == 0) continue;
    StepPart part = candidates.parts[i];
    const LaneView& view = candidates.views[i];
    part.rows = rows[i];
    part.first_row = part.lane->session->computed();
    part.ends_prompt = rows[i] >= view.pending;
    part.is_decoding = view.decoding;
    if (rows[i] > view.pending) {
      part.TakeGuesses(rows[i] - view.pending);
    } else if (part.lane->is_decoding()) {
      part.n_logits = part.ends_prompt ? 1 : 0;
    } else if (part.turn->options.vector) {
      part.n_vectors = part.turn->pools_all_rows ? part.rows : part.ends_prompt ? 1 : 0;
    } else if (part.turn->wants_prompt_logits()) {
      part.n_logits = part.rows;
    } else if (part.ends_prompt && part.turn->options.max_tokens != 0) {
      part.n_logits = 1;
    }
    part.shows_hidden = drafts != nullptr && drafts->WantsHidden(*part.turn);
    parts.push_back(part);
  }
  return parts;
}

// Uses only lanes that are still ready: a long step begun meanwhile may have taken some.
std::vector<StepPart> StepRunner::PlanShort(Candidates lanes) const {
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
std::vector<StepPart> StepRunner::PlanFirstLane() const {
  Candidates lanes = ReadyLanes();
  if (lanes.parts.empty()) return {};
  lanes.parts.resize(1);
  lanes.views.resize(1);
  std::vector<int64_t> rows = planner_.PlanLong(lanes.views);
  if (rows[0] == 0) rows = planner_.PlanShort(lanes.views, nullptr);
  return TakeRows(lanes, rows);
}

// --- compute ----------------------------------------------------------------------------

// Sets up the step's sequences and logits from its parts, and begins its run.
Status StepRunner::Begin(OpenStep* step) {
  for (StepPart& part : step->parts) {
    parts_.writer->Ask(&part);
    StepSequence sequence = SequenceOf(parts_.model->spec(), *part.session(), part.first_row,
                                       part.rows, &step->places.emplace_back());
    if (part.guesses > 0) sequence.tokens = part.tokens;
    sequence.n_logits = part.n_logits;
    sequence.n_best = part.n_best;
    sequence.changes = part.changes;
    sequence.temperature = part.temperature;
    sequence.n_vectors = part.shows_hidden ? part.rows : part.n_vectors;
    sequence.vectors_before_norm = part.shows_hidden && parts_.drafts->hidden_before_norm();
    step->sequences.push_back(std::move(sequence));
    // A preempted lane that starts over computes like a prompt.
    if (part.is_decoding) {
      ++step->cost.decode_rows;
      step->cost.guessed_rows += part.rows - 1;
    } else {
      step->cost.prompt_rows += part.rows;
      step->cost.attended_rows += part.rows * (part.first_row + part.rows / 2);
    }
  }
  // Before the step has run, so that a tenant's rows count while a long step pauses.
  ChargeTenants(step->parts, planner_);
  PlaceResults(step);
  const int64_t begin_us = NowMicros();
  for (const StepPart& part : step->parts) {
    if (part.turn->first_row_us == 0) NoteFirstRow(part, begin_us);
  }
  const std::span<float> logits = std::span(step->logits).first(step->n_logit_values);
  WEFT_ASSIGN_OR_RETURN(step->run, parts_.executor->Begin(Step{.sequences = step->sequences,
                                                               .logits = logits,
                                                               .best = step->best,
                                                               .weights = step->weights,
                                                               .vectors = step->vectors}));
  for (StepPart& part : step->parts) part.run = step->run.get();
  parts_.room->NoteBegun();
  return OkStatus();
}

void StepRunner::PlaceResults(OpenStep* step) const {
  const auto n_vocab = static_cast<size_t>(parts_.model->spec().n_vocab);
  const auto width = static_cast<size_t>(parts_.model->spec().d_model);
  struct Sizes {
    size_t logits = 0, best = 0, weights = 0, vectors = 0, rows = 0;
    void Add(const Sizes& other) {
      logits += other.logits;
      best += other.best;
      weights += other.weights;
      vectors += other.vectors;
      rows += other.rows;
    }
  };
  const auto sizes_of = [&](size_t i) {
    const StepPart& part = step->parts[i];
    const auto rows = static_cast<size_t>(part.n_logits);
    return Sizes{.logits = part.n_best == 0 ? rows * n_vocab : 0,
                 .best = rows * static_cast<size_t>(part.n_best),
                 .weights = part.temperature != 0 ? rows : 0,
                 .vectors = static_cast<size_t>(step->sequences[i].n_vectors) * width,
                 .rows = rows};
  };
  Sizes all, at;
  for (size_t i = 0; i < step->parts.size(); ++i) all.Add(sizes_of(i));
  if (step->logits.size() < all.logits) step->logits.resize(all.logits);
  step->n_logit_values = all.logits;
  step->best.resize(all.best);
  step->weights.resize(all.weights);
  step->vectors.resize(all.vectors);
  for (size_t i = 0; i < step->parts.size(); ++i) {
    StepPart& part = step->parts[i];
    const Sizes sizes = sizes_of(i);
    part.logits = std::span(step->logits).subspan(at.logits, sizes.logits);
    part.best = std::span(step->best).subspan(at.best, sizes.best);
    part.weights = std::span(step->weights).subspan(at.weights, sizes.weights);
    part.vectors = std::span(step->vectors).subspan(at.vectors, sizes.vectors);
    part.first_of_step = static_cast<int64_t>(at.rows);
    at.Add(sizes);
  }
}

void StepRunner::NoteFirstRow(const StepPart& part, int64_t begin_us) {
  ActiveTurn* const turn = part.turn;
  turn->first_row_us = begin_us;
  turn->usage.queued_us = begin_us - turn->submitted_us;
  turn->started.cached_tokens = part.first_row;
  turn->usage.cached_tokens = part.first_row;
  NoteKnownPrefix(turn);
  parts_.disk->TellDiskTokens(turn);
  cached_tokens_ += part.first_row;
  TurnWriter::ReportProgress(part, part.first_row);
}

void StepRunner::NoteKnownPrefix(ActiveTurn* turn) const {
  StartedEvent& started = turn->started;
  const StateMemory::KnownPrefix known =
      parts_.memory->KnownOf(*turn->lanes[0]->session, started.prompt_tokens - 1);
  started.known_tokens = known.n_tokens;
  started.loss = turn->wants_prompt_rows() ? PrefixLoss::kRecomputed : known.loss;
}

StatusOr<bool> StepRunner::Advance(OpenStep* step, FunctionRef<bool()> pause) {
  const int64_t begin_us = NowMicros();
  const int64_t attention_ns = parts_.executor->stage_stats().attention_ns;
  const StatusOr<bool> done = step->run->Advance(pause);
  // Results computed from a file that has changed must not be used.
  WEFT_RETURN_IF_ERROR(parts_.model->CheckFile());
  WEFT_RETURN_IF_ERROR(done.status());
  const int64_t took_us = NowMicros() - begin_us;
  step->cost.total_us += took_us;
  step->cost.attention_us += (parts_.executor->stage_stats().attention_ns - attention_ns) / 1000;
  step_us_ += took_us;
  return done;
}

// Hands on the results of a step that has ended, or its failure.
void StepRunner::Land(OpenStep* step, const Status& status) {
  if (step->run == nullptr && parts_.room->TakeBack(step->parts, status)) return;
  if (!status.ok()) {
    step->run.reset();
    for (const StepPart& part : step->parts) parts_.writer->Fail(part, status);
    return;
  }
  const int64_t now_us = NowMicros();
  planner_.Observe(step->cost);
  ++steps_;
  prompt_tokens_ += step->cost.prompt_rows;
  for (StepPart& part : step->parts) part.lane->last_row_us = now_us;
  for (StepPart& part : step->parts) parts_.writer->Take(&part);
  step->run.reset();
  for (const StepPart& part : step->parts) {
    if (part.shows_hidden && part.session()->stage != SessionStage::kPoisoned) ShowHidden(part);
    if (part.lane->done()) EndGuesses(part);
  }
}

// Shows the hidden values of the rows that the session keeps.
void StepRunner::ShowHidden(const StepPart& part) {
  const int64_t n = part.kept_rows > 0 ? part.kept_rows : part.rows;
  const auto width = static_cast<size_t>(parts_.model->spec().d_model);
  parts_.drafts->Show(part.lane, part.first_row, part.vectors.first(static_cast<size_t>(n) * width),
                      !part.is_decoding);
}

// The lane has ended. Leaves its session as it would be without speculation, and its answer for the
// n-gram lookup of others.
void StepRunner::EndGuesses(const StepPart& part) {
  Session* const session = part.session();
  if (part.lane->guesses == nullptr || session->stage == SessionStage::kPoisoned) return;
  parts_.speculator->End(session->domain, part.lane->generated, *part.lane->guesses);
  const int64_t n = part.first_row + part.kept_rows - session->computed();
  if (part.guesses == 0 || n <= 0) return;
  // Without memory for it the next turn computes it.
  if (!parts_.memory->Prepare(session, n).ok()) return;
  SequencePlaces places;
  const StepSequence sequence =
      SequenceOf(parts_.model->spec(), *session, session->computed(), n, &places);
  const Status status = parts_.executor->Forward({.sequences = std::span(&sequence, 1)});
  if (status.ok()) {
    parts_.memory->Commit(session);
  } else {
    parts_.writer->Fail(part, status);
  }
}

void StepRunner::RunShort() {
  const int64_t begin_us = NowMicros();
  OpenStep step{.parts = std::exchange(short_parts_, {}), .logits = std::move(logits_)};
  Status status = Begin(&step);
  if (status.ok()) status = Advance(&step, [] { return false; }).status();
  const bool is_ahead = long_step_ != nullptr && IsAhead(long_step_->parts, step.parts);
  Land(&step, status);
  logits_ = std::move(step.logits);
  const int64_t now_us = NowMicros();
  slice_end_us_ = now_us + planner_.SliceAfter(now_us - begin_us, step.cost.decode_rows,
                                               step.cost.prompt_rows, is_ahead);
}

// Computes a row at a time, where texts need not be whole, so that the first real turn meets warm
// caches and a backend that cannot compute is detected now.
Status StepRunner::WarmUp(Session* session) {
  const ModelSpec& spec = parts_.model->spec();
  const int64_t n_rows = needs_whole_texts_ ? std::ssize(session->tokens) : 1;
  std::vector<float> values(static_cast<size_t>(spec.output ? spec.n_vocab : spec.d_model));
  for (int64_t position = 0; position < std::ssize(session->tokens); position += n_rows) {
    WEFT_RETURN_IF_ERROR(parts_.memory->Prepare(session, n_rows));
    SequencePlaces places;
    StepSequence sequence = SequenceOf(spec, *session, position, n_rows, &places);
    Step step{.sequences = std::span(&sequence, 1)};
    (spec.output ? sequence.n_logits : sequence.n_vectors) = 1;
    (spec.output ? step.logits : step.vectors) = values;
    WEFT_RETURN_IF_ERROR(parts_.executor->Forward(step));
    parts_.memory->Commit(session);
    if (!std::isfinite(values[0])) return Internal("the model computes values that are not finite");
  }
  return OkStatus();
}

// --- the long step -----------------------------------------------------------------------

void StepRunner::BeginLong(std::vector<StepPart> parts) {
  parts_.room->Prepare(&parts);
  if (parts.empty()) return;
  long_step_ = std::make_unique<OpenStep>(OpenStep{.parts = std::move(parts)});
  for (const StepPart& part : long_step_->parts) {
    part.session()->stage.Become(SessionStage::kInStep);
  }
  const Status status = Begin(long_step_.get());
  if (!status.ok()) Land(CloseLong().get(), status);
}

// Runs at least one part of the model, and none that would exceed the time: the next part is
// assumed to take as long as the longer of the last two, since attention and feed-forward
// alternate.
void StepRunner::AdvanceLong(int64_t until_us, FunctionRef<bool()> interrupted) {
  int64_t last_us = NowMicros(), former_part_us = 0;
  const StatusOr<bool> done = Advance(long_step_.get(), [&] {
    const int64_t now_us = NowMicros();
    const int64_t part_us = now_us - std::exchange(last_us, now_us);
    const int64_t next_us = std::max(part_us, std::exchange(former_part_us, part_us));
    return interrupted() || now_us + next_us > until_us;
  });
  if (done.ok() && !*done) return;
  Land(CloseLong().get(), done.status());
}

// Releases its sessions.
std::unique_ptr<StepRunner::OpenStep> StepRunner::CloseLong() {
  for (const StepPart& part : long_step_->parts) {
    part.session()->stage.Become(SessionStage::kRunning);
  }
  return std::move(long_step_);
}

void StepRunner::AbandonIfUnwanted() {
  if (long_step_ == nullptr) return;
  const auto is_done = [](const StepPart& part) { return part.lane->done(); };
  if (std::all_of(long_step_->parts.begin(), long_step_->parts.end(), is_done)) AbandonLong();
}

void StepRunner::AbandonFor(const ActiveTurn& turn) {
  if (turn.in_step()) AbandonLong();
}

void StepRunner::AbandonLong() {
  const std::unique_ptr<OpenStep> step = CloseLong();
  step->run.reset();
  for (const StepPart& part : step->parts) {
    parts_.memory->Truncate(part.session(), part.first_row);
  }
}

void StepRunner::FillStats(EngineStats* stats) const {
  stats->steps = steps_;
  stats->step_us = step_us_;
  stats->prompt_tokens = prompt_tokens_;
  stats->cached_tokens = cached_tokens_;
  size_t n_logits = logits_.capacity();
  if (long_step_ != nullptr) n_logits += long_step_->logits.capacity();
  stats->scratch_bytes =
      parts_.executor->scratch_bytes() + static_cast<int64_t>(n_logits * sizeof(float));
  const StageStats stages = parts_.executor->stage_stats();
  stats->compute_us = stages.total_ns / 1000;
  stats->matmul_us = stages.matmul_ns / 1000;
  stats->attention_us = stages.attention_ns / 1000;
  stats->weight_bytes_read = stages.weight_bytes;
  stats->kv_bytes_read = stages.kv_bytes;
  stats->int8_macs = stages.int8_macs;
  stats->float_macs = stages.float_macs;
  stats->attention_macs = stages.attention_macs;
  stats->attention_int8_macs = stages.attention_int8_macs;
}

}  // namespace weft
