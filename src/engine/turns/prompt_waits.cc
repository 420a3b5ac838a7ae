#include "engine/turns/prompt_waits.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace weft {
namespace {

constexpr int64_t kTellEveryUs = 1'000'000;

}  // namespace

void PromptWaits::Look(int64_t now_us) const {
  MeasureQueued(MeasureRunning());
  for (const TurnList* list : {&turns_.running(), &turns_.queued()}) {
    for (const auto& turn : *list) Tell(turn.get(), now_us);
  }
}

int64_t PromptWaits::MeasureRunning() const {
  std::vector<ActiveTurn*> owners;
  std::vector<LaneView> views;
  int64_t left = 0;
  for (const auto& turn : turns_.running()) {
    turn->waits_behind_tokens = 0;
    if (turn->has_ended()) continue;
    for (const auto& lane : turn->lanes) {
      const bool waits_for_consumer = turn->is_held_up() && !lane->in_step();
      if (lane->done() || lane->needs_only_next() || waits_for_consumer) continue;
      owners.push_back(turn.get());
      views.push_back(steps_.ViewOf(*turn, *lane));
    }
  }
  for (size_t i = 0; i < owners.size(); ++i) {
    const ActiveTurn& turn = *owners[i];
    if (turn.lanes[0]->stage == LaneStage::kWaitsForSibling) {
      const auto is_sibling = [&](const ActiveTurn* other) {
        return other->serial == turn.sibling.serial;
      };
      const auto sibling = std::find_if(owners.begin(), owners.end(), is_sibling);
      if (sibling != owners.end()) views[i].after = sibling - owners.begin();
      views[i].pending = std::max<int64_t>(views[i].pending - turn.RowsOfSibling(), 1);
    }
    left += views[i].pending;
  }
  const std::vector<int64_t> before = steps_.planner().RowsBefore(views);
  for (size_t i = 0; i < owners.size(); ++i) {
    ActiveTurn* const turn = owners[i];
    if (turn->is_prompt_computed()) continue;  // a choice that starts over is no prompt
    const int64_t after = views[i].after;
    turn->waits_behind_tokens =
        after < 0 ? before[i] : before[static_cast<size_t>(after)] + turn->RowsOfSibling();
  }
  return left;
}

// In the order in which they will be admitted.
void PromptWaits::MeasureQueued(int64_t before) const {
  std::vector<ActiveTurn*> queued;
  for (const auto& turn : turns_.queued()) {
    turn->waits_behind_tokens = 0;
    if (!turn->has_ended()) queued.push_back(turn.get());
  }
  std::stable_sort(queued.begin(), queued.end(), [](const ActiveTurn* a, const ActiveTurn* b) {
    return a->options.priority > b->options.priority;
  });
  // The places that its tenant then has, which the next one goes to the fewest of.
  std::map<const Tenant*, int64_t> n_before;
  std::vector<std::pair<double, ActiveTurn*>> ranked;
  ranked.reserve(queued.size());
  for (ActiveTurn* const turn : queued) {
    ranked.emplace_back(turn->tenant->RankOfPlace(turn->tenant->held + ++n_before[turn->tenant]),
                        turn);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [rank, turn] : ranked) {
    turn->waits_behind_tokens = before;
    before += ExpectedRows(turn);
  }
}

// The rows that a queued turn will have to compute, judged by the prefix cache at the first call.
int64_t PromptWaits::ExpectedRows(ActiveTurn* turn) const {
  if (turn->expected_rows < 0) {
    const int64_t n_tokens = std::ssize(turn->prompt);
    int64_t known = 0;
    if (turn->options.tokens_are_whole_context && !turn->wants_prompt_rows()) {
      known = memory_.Reusable(turn->session->DomainOf(0), turn->prompt, n_tokens - 1);
    }
    turn->expected_rows = n_tokens - known;
  }
  return turn->expected_rows;
}

// To whoever has not read the last event yet, another says nothing more.
void PromptWaits::Tell(ActiveTurn* turn, int64_t now_us) {
  const int64_t behind = turn->waits_behind_tokens;
  if (behind == 0 || behind == turn->told_wait_tokens || !turn->options.report_progress) return;
  if (now_us - std::max(turn->reported_us, turn->submitted_us) < kTellEveryUs) return;
  if (!turn->queue->Empty()) return;
  turn->told_wait_tokens = behind;
  turn->reported_us = now_us;
  const TurnInfo info = turn->Info();
  const bool begun = turn->first_row_us > 0;
  turn->queue->Push(ProgressEvent{
      .prompt_tokens = info.prompt_tokens,
      .cached_tokens = info.cached_tokens,
      // One that was preempted has less than it had.
      .done_tokens = std::max(info.done_tokens, turn->reported_tokens),
      .elapsed_us = begun ? now_us - turn->first_row_us : 0,
      .waits_behind_tokens = behind,
  });
}

}  // namespace weft
