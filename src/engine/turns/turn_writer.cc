#include "engine/turns/turn_writer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "engine/sampling/random.h"

namespace weft {
namespace {

// Whether the next token is still before min_tokens, so that it may not end the turn.
bool EndsTooEarly(const TurnOptions& options, const Lane& lane) {
  return static_cast<int64_t>(lane.generated.size()) < options.min_tokens;
}

}  // namespace

std::vector<TokenId> TurnWriter::BannedAfter(const TurnOptions& options,
                                             int64_t n_generated) const {
  std::vector<TokenId> banned;
  const bool too_early = n_generated < options.min_tokens;
  if (options.ignore_eos || too_early) banned = model_.tokenizer()->EndsOfGeneration();
  if (too_early) {
    banned.insert(banned.end(), options.stop_tokens.begin(), options.stop_tokens.end());
  }
  return banned;
}

void TurnWriter::Ask(StepPart* part) const {
  const ActiveTurn& turn = *part->turn;
  // Not of rows that the prompt's readers want.
  if (part->n_logits == 0 || (!part->lane->is_decoding() && turn.wants_prompt_rows())) return;
  const BackendCapabilities& backend = model_.backend().capabilities();
  if (backend.changes_rows) return AskForChanges(part);
  const int64_t n_best = BestNeeded(turn, *part->lane);
  if (n_best <= backend.max_best) part->n_best = n_best;
}

// Whole rows of logits are needed for probabilities, and for masks of rows whose tokens the mask
// has not seen yet: after draft tokens, and the first ones of several choices.
void TurnWriter::AskForChanges(StepPart* part) const {
  Lane* const lane = part->lane;
  const TurnOptions& options = part->turn->options;
  if (options.top_logprobs >= 0) return;
  const bool forks = !lane->is_decoding() && options.n_choices > 1;
  if (options.token_mask && (part->n_logits > 1 || forks)) return;
  const Sampler::Needed needed = lane->sampler.NeededOfChanged(model_.n_vocab());
  if (needed.n_best > model_.backend().capabilities().max_best) return;
  part->n_best = needed.n_best;
  part->temperature = needed.temperature;
  if (lane->mask) ApplyMask(options, lane);
  const std::span<const TokenId> guesses =
      std::span(part->tokens).last(static_cast<size_t>(part->guesses));
  part->changed_logits.resize(static_cast<size_t>(part->n_logits));
  part->changes.clear();
  const auto n_generated = std::ssize(lane->generated);
  const std::vector<TokenId>& tokens = lane->session->tokens;
  for (int64_t i = 0; i < part->n_logits; ++i) {
    auto& changes = part->changed_logits[static_cast<size_t>(i)];
    lane->sampler.ChangesFor(tokens, guesses.first(static_cast<size_t>(i)),
                             BannedAfter(options, n_generated + i), &changes);
    part->changes.push_back({.logits = changes});
    if (lane->mask) part->changes.back().allowed = lane->allowed;
  }
}

int64_t TurnWriter::BestNeeded(const ActiveTurn& turn, const Lane& lane) const {
  const TurnOptions& options = turn.options;
  if (options.token_mask || options.top_logprobs >= 0) return 0;
  int64_t n = lane.sampler.BestNeeded(model_.n_vocab());
  if (n == 0) return 0;
  const bool too_early = EndsTooEarly(options, lane);
  if (options.ignore_eos || too_early) n += std::ssize(model_.tokenizer()->EndsOfGeneration());
  if (too_early) n += std::ssize(options.stop_tokens);
  return n < model_.n_vocab() ? n : 0;
}

TurnWriter::Row TurnWriter::RowAt(const StepPart& part, int64_t i) const {
  const auto n_best = static_cast<size_t>(part.n_best);
  if (n_best > 0) {
    return {.best = part.best.subspan(static_cast<size_t>(i) * n_best, n_best),
            .is_changed = !part.changes.empty(),
            .weight = part.weights.empty() ? 0 : part.weights[static_cast<size_t>(i)],
            .run = part.run,
            .of_step = part.first_of_step + i};
  }
  const auto n_vocab = static_cast<size_t>(model_.n_vocab());
  return {.logits = part.logits.subspan(static_cast<size_t>(i) * n_vocab, n_vocab)};
}

bool TurnWriter::IsSound(const Row& row) {
  return row.best.empty() ? weft::IsSound(row.logits) : !std::isnan(row.best[0].logit);
}

void TurnWriter::Take(StepPart* part) {
  if (part->lane->is_decoding() && part->n_logits > 0) return TakeDecoded(part);
  Lane* const lane = part->lane;
  // Before the state counts as computed and others find it in the prefix index.
  if ((part->n_logits > 0 && !IsSound(LastRow(*part))) ||
      (part->n_vectors > 0 && !part->shows_hidden && !weft::IsSound(part->vectors))) {
    Fail(*part, Internal("the model computed values that are not finite"));
    return;
  }
  memory_->Commit(lane->session);
  if (lane->done()) return;
  // A lane that was preempted computes many rows before it samples again.
  if (lane->is_decoding()) return;
  ++part->turn->next_chunk;
  TurnUsage& usage = part->turn->usage;
  // Excludes what a preempted turn recomputes.
  usage.computed_tokens =
      std::max(usage.computed_tokens, part->first_row + part->rows - usage.cached_tokens);
  ReportProgress(*part, part->first_row + part->rows);
  if (part->turn->options.vector) {
    PoolRows(part);
  } else if (part->turn->wants_prompt_logits()) {
    TakePromptRows(part);
  }
  if (part->ends_prompt) FinishPrompt(part);
}

// Rows count as computed only up to the last one after which a token was sampled, so that the
// session holds the same state as without speculation.
void TurnWriter::TakeDecoded(StepPart* part) {
  Lane* const lane = part->lane;
  const std::vector<TokenId>& tokens = lane->session->tokens;
  const int64_t first = part->rows - part->n_logits;  // the first row with logits
  if (lane->guesses != nullptr) lane->guesses->CountStep(part->guesses);
  guessed_tokens_ += part->guesses;
  if (part->guesses > 0) ++guesses_;
  int64_t row = first;
  for (int64_t next = first; next < part->rows;) {
    const Row drawn_from = RowAt(*part, next - first);
    if (!IsSound(drawn_from)) {
      if (next == first) {
        return Fail(*part, Internal("the model computed logits that are not finite"));
      }
      break;  // the next step computes the row again, and finds the same
    }
    if (next > first) lane->guesses->CountAccepted(next - row);
    row = next;
    // Before others find it in the prefix index.
    if (row + 1 == part->rows) memory_->Commit(lane->session);
    if (lane->done()) break;
    SampleNext(part->turn, lane, drawn_from);
    // Forced tokens may be draft tokens too.
    next = std::ssize(tokens) - 1 - part->first_row;
    const bool guessed = part->guesses > 0 && !lane->done() && next < part->rows &&
                         std::equal(tokens.begin() + part->first_row + row, tokens.end(),
                                    part->tokens.begin() + row);
    if (!guessed) break;
  }
  CountAccepted(row - first);
  if (row + 1 < part->rows) memory_->CommitFirst(lane->session, row + 1);
  part->kept_rows = row + 1;
  const int64_t last = part->first_row + part->kept_rows;
  const bool behind = lane->session->computed() < last && std::ssize(tokens) == last + 1;
  lane->goes_back_to = behind ? lane->session->computed() : -1;
}

void TurnWriter::CountAccepted(int64_t accepted) {
  if (accepted > std::ssize(accepted_at_)) accepted_at_.resize(static_cast<size_t>(accepted));
  for (size_t i = 0; i < static_cast<size_t>(accepted); ++i) ++accepted_at_[i];
}

void TurnWriter::Fail(const StepPart& part, const Status& status) {
  Session* const session = part.session();
  memory_->Truncate(session, part.first_row);
  session->sound_tokens = part.first_row;
  session->stage.Become(SessionStage::kPoisoned);
  part.turn->End(FinishReason::kError, status);
}

// A preempted turn recomputes what has already been reported.
void TurnWriter::ReportProgress(const StepPart& part, int64_t done_tokens) {
  ActiveTurn* const turn = part.turn;
  if (!turn->options.report_progress || done_tokens <= turn->reported_tokens) return;
  turn->reported_tokens = done_tokens;
  turn->reported_us = NowMicros();
  turn->queue->Push(ProgressEvent{.prompt_tokens = part.lane->session->n_tokens(),
                                  .cached_tokens = turn->usage.cached_tokens,
                                  .done_tokens = done_tokens,
                                  .elapsed_us = turn->reported_us - turn->first_row_us});
}

void TurnWriter::PoolRows(StepPart* part) {
  ActiveTurn* const turn = part->turn;
  const TextHead& head = *model_.text_head();
  const auto width = static_cast<size_t>(model_.spec().d_model);
  for (int64_t i = 0; i < part->n_vectors; ++i) {
    const int64_t position = part->first_row + part->rows - part->n_vectors + i;
    if (position < turn->prompt_rows_taken) continue;  // taken before it was preempted
    turn->prompt_rows_taken = position + 1;
    turn->pooler.Add(head.pooling(), part->vectors.subspan(static_cast<size_t>(i) * width, width));
  }
  if (part->ends_prompt) turn->started.vectors = turn->pooler.Finish(head);
}

void TurnWriter::TakePromptRows(StepPart* part) {
  ActiveTurn* const turn = part->turn;
  const TurnOptions& options = turn->options;
  const std::vector<TokenId>& tokens = part->lane->session->tokens;
  const size_t n_vocab = static_cast<size_t>(model_.n_vocab());
  auto& out = turn->started.prompt_logprobs;
  if (options.prompt_logprobs && out.empty()) {
    out.push_back({.token = {.token = tokens[0], .logprob = 0}});
  }
  for (int64_t i = 0; i < part->rows; ++i) {
    const std::span<const float> row =
        part->logits.subspan(static_cast<size_t>(i) * n_vocab, n_vocab);
    const int64_t position = part->first_row + i;
    if (position < turn->prompt_rows_taken) continue;  // delivered before it was preempted
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

void TurnWriter::FinishPrompt(StepPart* part) {
  ActiveTurn* const turn = part->turn;
  const int64_t now_us = NowMicros();
  turn->stage.Become(TurnStage::kWriting);
  turn->first_token_us = now_us;
  turn->usage.prompt_us = now_us - turn->first_row_us;
  turn->queue->Push(std::move(turn->started));
  turn->started = StartedEvent();
  if (turn->options.max_tokens == 0) {
    turn->End(FinishReason::kLength, OkStatus());
    return;
  }
  const Row row = LastRow(*part);
  if (turn->options.n_choices > 1) {
    ForkChoices(turn, row);
    return;
  }
  SampleNext(turn, part->lane, row);
}

// Every further choice is a fork of the session at the end of the prompt and samples its first
// token from the same row.
void TurnWriter::ForkChoices(ActiveTurn* turn, const Row& row) {
  Session* const session = turn->session;
  for (int choice = 1; choice < turn->options.n_choices; ++choice) {
    auto fork = sessions_->CreateForTurn(session->domain);
    if (!fork.ok()) {
      turn->End(FinishReason::kError, fork.status());
      return;
    }
    (*fork)->SetAdapters(session->adapters, session->invoked_at);
    (*fork)->tokens = session->tokens;
    (*fork)->stage.Become(SessionStage::kRunning);
    (*fork)->has_turn = true;
    memory_->Share(*session, session->computed(), *fork);
    auto lane =
        std::make_unique<Lane>(choice, *fork, turn->options.sampling,
                               ChoiceSeed(turn->seed, choice), model_.tokenizer(), turn->options);
    if (turn->options.token_mask) lane->mask = turn->options.token_mask(choice);
    lane->last_row_us = NowMicros();
    turn->lanes.push_back(std::move(lane));
  }
  std::vector<float> logits;
  for (auto& lane : turn->lanes) {
    logits.assign(row.logits.begin(), row.logits.end());
    Row its = row;
    its.logits = logits;
    SampleNext(turn, lane.get(), its);
  }
}

void TurnWriter::SampleNext(ActiveTurn* turn, Lane* lane, const Row& row) {
  const TurnOptions& options = turn->options;
  TokenEvent event;
  event.choice = lane->choice;
  const bool of_draw = options.top_logprobs >= 0 && options.logprobs_of_draw;
  double log_sum = 0;
  std::vector<float> raw;
  if (options.top_logprobs >= 0 && !of_draw) {
    log_sum = LogSumExp(row.logits);
    event.alternatives = TopLogprobs(row.logits, log_sum, options.top_logprobs);
    raw.assign(row.logits.begin(), row.logits.end());
  }
  const StatusOr<TokenId> chosen = Choose(options, lane, row);
  if (!chosen.ok() || *chosen == kNoToken) {
    turn->EndLane(lane, FinishReason::kError,
                  chosen.ok() ? NothingMayCome(*lane) : chosen.status());
    return;
  }
  const TokenId token = *chosen;
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
  if (lane->mask != nullptr && options.top_logprobs < 0) TakeForced(turn, lane);
}

// The request is at fault, whatever else is going on: sent again, it would fail again.
Status TurnWriter::NothingMayCome(const Lane& lane) {
  if (lane.mask != nullptr) WEFT_RETURN_IF_ERROR(lane.mask->Problem());
  return InvalidArgument("no token may come next: all are banned or masked");
}

// kNoToken if all are banned or masked. Changes the logits.
StatusOr<TokenId> TurnWriter::Choose(const TurnOptions& options, Lane* lane, const Row& row) {
  if (row.is_changed) return ChooseChanged(lane, row);
  const std::vector<TokenId>& tokens = lane->session->tokens;
  const auto position = static_cast<int64_t>(tokens.size());
  const bool too_early = EndsTooEarly(options, *lane);
  if (!row.best.empty()) {
    return lane->sampler.SampleBest(row.best, position, [&](TokenId token) {
      const bool ends = model_.tokenizer()->IsEndOfGeneration(token);
      const auto& stops = options.stop_tokens;
      return (ends && (options.ignore_eos || too_early)) ||
             (too_early && std::binary_search(stops.begin(), stops.end(), token));
    });
  }
  for (const TokenId token : BannedAfter(options, std::ssize(lane->generated))) {
    row.logits[static_cast<size_t>(token)] = -INFINITY;
  }
  if (lane->mask) ApplyMask(options, lane);
  return lane->sampler.Sample(row.logits, tokens, position, lane->allowed);
}

StatusOr<TokenId> TurnWriter::ChooseChanged(Lane* lane, const Row& row) {
  const int64_t position = lane->session->n_tokens();
  const int64_t n_vocab = model_.n_vocab();
  const std::optional<TokenId> token =
      lane->sampler.SampleChanged(row.best, row.weight, n_vocab, position);
  if (token) return *token;
  row_.resize(static_cast<size_t>(n_vocab));
  WEFT_RETURN_IF_ERROR(row.run->ReadRow(row.of_step, row_));
  return lane->sampler.SampleChanged(row_, position);
}

void TurnWriter::ApplyMask(const TurnOptions& options, Lane* lane) const {
  lane->allowed.assign((static_cast<size_t>(model_.n_vocab()) + 31) / 32, ~uint32_t{0});
  lane->mask->Apply(lane->generated, lane->allowed);
  AllowOtherEnds(options, lane);
}

// Where the mask allows the model's own end tokens, it also allows the turn's stop tokens.
void TurnWriter::AllowOtherEnds(const TurnOptions& options, Lane* lane) const {
  const auto bit = [](TokenId token) { return uint32_t{1} << (token % 32); };
  const auto word = [lane](TokenId token) -> uint32_t& {
    return lane->allowed[static_cast<size_t>(token) / 32];
  };
  const std::vector<TokenId>& ends = model_.tokenizer()->EndsOfGeneration();
  const bool may_end = std::any_of(ends.begin(), ends.end(),
                                   [&](TokenId token) { return (word(token) & bit(token)) != 0; });
  if (!may_end) return;
  for (const TokenId token : options.stop_tokens) word(token) |= bit(token);
}

// Forced tokens are computed together with the token before them, in one step. They are not
// sampled, so they are not taken when the client wants each token's probability.
void TurnWriter::TakeForced(ActiveTurn* turn, Lane* lane) {
  if (lane->done()) return;
  for (const TokenId token : lane->mask->Forced(lane->generated)) {
    const bool ends_too_early = EndsTooEarly(turn->options, *lane) && IsStopToken(*turn, token);
    if (ends_too_early || lane->sampler.Bans(token)) return;
    TokenEvent event;
    event.choice = lane->choice;
    event.token = token;
    ApplyToken(turn, lane, token, std::move(event));
    if (lane->done()) return;
  }
}

bool TurnWriter::IsStopToken(const ActiveTurn& turn, TokenId token) const {
  const std::vector<TokenId>& stops = turn.options.stop_tokens;
  if (std::binary_search(stops.begin(), stops.end(), token)) return true;
  return !turn.options.ignore_eos && model_.tokenizer()->IsEndOfGeneration(token);
}

void TurnWriter::ApplyToken(ActiveTurn* turn, Lane* lane, TokenId token, TokenEvent event) {
  const bool too_early = EndsTooEarly(turn->options, *lane);
  lane->session->tokens.push_back(token);
  lane->generated.push_back(token);
  if (lane->guesses != nullptr) lane->guesses->Push(lane->session->tokens);
  ++generated_tokens_;
  if (IsStopToken(*turn, token)) {
    turn->queue->Push(std::move(event));
    turn->EndLane(lane, FinishReason::kStop, OkStatus());
    return;
  }
  TextStream::Result text = lane->text.Push(token, /*may_stop=*/!too_early);
  event.text = std::move(text.text);
  turn->queue->Push(std::move(event));
  if (text.stopped) {
    turn->EndLane(lane, FinishReason::kStopString, OkStatus(), *text.stopped);
    return;
  }
  const int64_t limit = turn->options.max_tokens;
  if (limit > 0 && static_cast<int64_t>(lane->generated.size()) >= limit) {
    turn->EndLane(lane, FinishReason::kLength, OkStatus());
    return;
  }
  if (static_cast<int64_t>(lane->session->tokens.size()) >= model_.context_tokens()) {
    turn->EndLane(lane, FinishReason::kContext, OkStatus());
    return;
  }
  const bool may_loop = !turn->options.end_loops || turn->options.ignore_eos || too_early;
  if (!may_loop && lane->loop_watch.EndsInLoop(lane->generated)) {
    turn->EndLane(lane, FinishReason::kLoop, OkStatus());
  }
}

void TurnWriter::FillStats(EngineStats* stats) const {
  stats->generated_tokens = generated_tokens_;
  stats->guessed_tokens = guessed_tokens_;
  stats->accepted_guesses = std::accumulate(accepted_at_.begin(), accepted_at_.end(), int64_t{0});
  stats->guesses = guesses_;
  stats->accepted_guesses_at = accepted_at_;
}

}  // namespace weft
