#include "engine/turns/active_turn.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace weft {

bool ActiveTurn::in_step() const {
  return std::any_of(lanes.begin(), lanes.end(), [](const auto& lane) { return lane->in_step(); });
}

void ActiveTurn::Finish(FinishReason reason) {
  if (reason == FinishReason::kError) fate = TurnFate::kFailed;
  if (reason == FinishReason::kCancelled) fate = std::max(fate, TurnFate::kCancelled);
}

void ActiveTurn::EndLane(Lane* lane, FinishReason reason, const Status& status,
                         const std::string& stop_string) {
  if (lane->done()) return;
  lane->stage.Become(LaneStage::kDone);
  Finish(reason);
  DoneEvent done;
  done.choice = lane->choice;
  done.reason = reason;
  done.status = status;
  done.stop_string = stop_string;
  if (reason == FinishReason::kStop && !lane->generated.empty()) {
    done.stop_token = lane->generated.back();
  }
  if (reason != FinishReason::kStopString) done.text = lane->text.Finish();
  done.usage = usage;
  done.usage.completion_tokens = static_cast<int64_t>(lane->generated.size());
  if (lane->guesses != nullptr) {
    done.usage.guessed_tokens = lane->guesses->computed();
    done.usage.accepted_guesses = lane->guesses->accepted();
    const int64_t n_predicted = std::ssize(options.prediction);
    done.usage.kept_prediction = std::min(lane->guesses->predicted(), n_predicted);
    done.usage.lost_prediction = n_predicted - done.usage.kept_prediction;
  }
  if (first_token_us > 0) done.usage.decode_us = NowMicros() - first_token_us;
  queue->Push(std::move(done));
  const auto is_done = [](const auto& any) { return any->done(); };
  if (std::all_of(lanes.begin(), lanes.end(), is_done)) stage.Become(TurnStage::kEnded);
}

void ActiveTurn::End(FinishReason reason, const Status& status) {
  if (stage == TurnStage::kEnded) return;
  Finish(reason);
  const int n_lanes = static_cast<int>(lanes.size());
  if (n_lanes == 0) stage.Become(TurnStage::kEnded);
  for (auto& lane : lanes) EndLane(lane.get(), reason, status);
  // Choices that have no lane yet end with the others.
  for (int choice = n_lanes; choice < options.n_choices; ++choice) {
    DoneEvent done;
    done.choice = choice;
    done.reason = reason;
    done.status = status;
    done.usage = usage;
    queue->Push(std::move(done));
  }
}

Guesses::Given ActiveTurn::GivenGuess(int64_t n_vocab, Lane* lane) const {
  Guesses::Given given;
  if (options.guess) {
    given = {GuessSource::kCaller, options.guess(lane->choice, lane->generated)};
    const auto is_none = [n_vocab](TokenId token) { return token < 0 || token >= n_vocab; };
    given.tokens.erase(std::find_if(given.tokens.begin(), given.tokens.end(), is_none),
                       given.tokens.end());
  }
  if (given.tokens.empty() && lane->mask != nullptr && options.top_logprobs >= 0) {
    given = {GuessSource::kGrammar, lane->mask->Forced(lane->generated)};
  }
  return given;
}

TurnInfo ActiveTurn::Info() const {
  TurnInfo info;
  info.id = serial;
  info.session = session->id;
  info.session_name = session->name;
  info.domain = session->domain;
  info.label = options.label;
  info.max_tokens = options.max_tokens;
  info.queued_us = usage.queued_us;
  info.waits_behind_tokens = waits_behind_tokens;
  if (lanes.empty()) {
    info.prompt_tokens = std::ssize(prompt);
    if (!options.tokens_are_whole_context) info.prompt_tokens += session->n_tokens();
    return info;
  }
  const Lane& first = *lanes[0];
  info.prompt_tokens = usage.prompt_tokens;
  info.cached_tokens = usage.cached_tokens;
  if (is_prompt_computed()) {
    info.stage = TurnInfo::Stage::kWriting;
    info.done_tokens = info.prompt_tokens;
    info.prompt_us = usage.prompt_us;
    for (const auto& lane : lanes) {
      info.generated_tokens += static_cast<int64_t>(lane->generated.size());
    }
    return info;
  }
  const bool waits = waits_behind_tokens > 0 ||
                     first.stage.IsAnyOf(LaneStage::kWaitsForSibling, LaneStage::kWaitsForDisk,
                                         LaneStage::kPreempted, LaneStage::kWaitsForPlace);
  info.stage = waits ? TurnInfo::Stage::kWaiting : TurnInfo::Stage::kReading;
  info.done_tokens = first.session->computed();
  if (first_row_us > 0) {
    info.prompt_us = first.last_row_us - first_row_us;
  } else {
    info.cached_tokens = info.done_tokens;
  }
  return info;
}

}  // namespace weft
