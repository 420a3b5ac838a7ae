#include "engine/turns/step_planner.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <utility>

namespace weft {
namespace {

// Rows come in attention tiles and activation panels; the fewest prompt rows in a long step, and
// next to decoding rows.
constexpr int64_t kTileRows = 16;
constexpr int64_t kMinLongRows = 32;
constexpr int64_t kMinBesideRows = 4;
// Used before anything is measured.
constexpr int64_t kUnmeasuredRows = 64;
constexpr double kUnmeasuredRowUs = 100;
// A step of whole texts is full with this many: models that take them decode nothing.
constexpr int64_t kFullWholeRows = 256;
// A long step is full when it takes this many decode steps: reading the weights once more then
// costs little.
constexpr double kFullSteps = 4;
// The share of the allowance that plans use. Steps sometimes exceed their average, above all while
// a long step evicts their data from the CPU caches, and gaps should stay within the bound even
// then. With the full allowance they do not; a share learned from measured gaps gained nothing.
constexpr double kMargin = 0.65;
// The share of the allowance that a paused step keeps even when shorter prompts want all of it.
constexpr double kPausedShare = 0.25;
// Prompts of a tenant that is further ahead of one that decodes get that share too. A few short
// prompts are not slowed.
constexpr double kMaxLeadUs = 100'000;
constexpr double kSmoothing = 0.2;
// Smaller steps measure a step's fixed cost rather than the cost per row.
constexpr int64_t kMeasurableRows = 32;
constexpr int64_t kMeasurableAttended = 8192;

void Smooth(double* average, double sample) {
  *average = *average == 0 ? sample : *average + kSmoothing * (sample - *average);
}

// The clock above which a tenant is ahead of one that decodes.
double MaxClockUs(std::span<const LaneView> lanes) {
  double max_us = std::numeric_limits<double>::infinity();
  for (const LaneView& lane : lanes) {
    if (!lane.decoding || lane.tenant == nullptr) continue;
    max_us = std::min(max_us, lane.tenant->clock_us + kMaxLeadUs);
  }
  return max_us;
}

bool IsAbove(const LaneView& lane, double clock_us) {
  return lane.tenant != nullptr && lane.tenant->clock_us > clock_us;
}

int64_t Chunk(const LaneView& lane, int64_t room) {
  if (lane.whole) return lane.pending <= room ? lane.pending : 0;
  int64_t rows = std::min(lane.pending, room);
  if (lane.max_chunk > 0) rows = std::min(rows, lane.max_chunk);
  if (lane.runs.empty()) return rows;
  rows = WithoutCut(lane.runs, rows);
  // Of a run that comes first there is no smaller part.
  return rows == 0 && lane.runs[0].end <= room ? lane.runs[0].end : rows;
}

// Up to the end of the first run, if that is more.
int64_t WithFirstRun(const LaneView& lane, int64_t rows) {
  if (lane.runs.empty() || lane.runs[0].begin >= rows) return rows;
  return std::max(rows, lane.runs[0].end);
}

}  // namespace

// The time available between two decode steps.
int64_t StepPlanner::AllowanceUs() const {
  double bound_us = static_cast<double>(options_.step_us);
  if (decode_step_us_ > 0) {
    const double stretch = std::max(1.0, options_.decode_stretch) - 1.0;
    bound_us = std::min(stretch * decode_step_us_, decode_step_us_ + bound_us);
  }
  return static_cast<int64_t>(kMargin * bound_us);
}

double StepPlanner::CostUs(int64_t rows, int64_t depth) const {
  const double row_us = prompt_row_us_ > 0 ? prompt_row_us_ : kUnmeasuredRowUs;
  const double n = static_cast<double>(rows);
  return n * (row_us + attended_row_us_ * (static_cast<double>(depth) + n / 2));
}

// The most rows after `depth` that take no longer than `us`.
int64_t StepPlanner::RowsFor(double us, int64_t depth) const {
  if (prompt_row_us_ == 0) return kUnmeasuredRows;
  // a n^2 + b n = us
  const double a = attended_row_us_ / 2;
  const double b = prompt_row_us_ + attended_row_us_ * static_cast<double>(depth);
  const double rows = 2 * us / (b + std::sqrt(b * b + 4 * a * us));
  return static_cast<int64_t>(std::min(rows, 1e9));
}

// The number of rows that keeps the time between pauses within `step_us`, or a share of it if other
// engines wait, and, next to decoding, within a quarter of the allowance: some parts take twice as
// long as others.
int64_t StepPlanner::LongRows(int64_t depth, bool beside_decoding) const {
  const int64_t most = options_.max_step_tokens;
  const bool others_wait = beside_decoding || n_others_ > 0;
  if (prompt_row_us_ == 0) return others_wait ? std::min(kUnmeasuredRows, most) : most;
  double part_us = static_cast<double>(options_.step_us) / std::max(n_others_, 1);
  if (beside_decoding) part_us = std::min(part_us, static_cast<double>(AllowanceUs()) / 4);
  const int64_t rows = RowsFor(part_us * (options_.pause_points + 1), depth);
  return std::min(std::max(rows / kTileRows * kTileRows, kMinLongRows), most);
}

// Within one tenant: decoding lanes by waiting time, prompts by when they would have ended had they
// never waited. That is least remaining work first, less the time already waited.
bool StepPlanner::GoesBefore(const LaneView& a, const LaneView& b) const {
  if (a.priority != b.priority) return a.priority > b.priority;
  const auto distance = [this](const LaneView& lane) {
    if (lane.decoding) return -static_cast<double>(lane.waited_us);
    return CostUs(lane.pending + lane.done, lane.depth - lane.done) -
           static_cast<double>(lane.age_us);
  };
  return distance(a) < distance(b);
}

std::vector<size_t> StepPlanner::InOrder(std::span<const LaneView> lanes, bool decoding) const {
  std::vector<size_t> order;
  bool is_shared = false;
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (lanes[i].decoding != decoding) continue;
    is_shared = is_shared || (!order.empty() && lanes[i].tenant != lanes[order[0]].tenant);
    order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return GoesBefore(lanes[a], lanes[b]); });
  return is_shared ? TenantsInTurn(lanes, std::move(order)) : order;
}

// Each tenant's lanes stay in order. As if each were computed when it is reached.
std::vector<size_t> StepPlanner::TenantsInTurn(std::span<const LaneView> lanes,
                                               std::vector<size_t> order) const {
  struct Own {
    double clock_us = 0;
    std::deque<size_t> lanes;
  };
  std::map<uint64_t, Own> tenants;
  for (const size_t i : order) {
    Own& own = tenants[lanes[i].tenant->id];
    own.clock_us = lanes[i].tenant->clock_us;
    own.lanes.push_back(i);
  }
  std::vector<size_t> in_turn;
  while (!tenants.empty()) {
    const auto next = std::min_element(
        tenants.begin(), tenants.end(),
        [](const auto& a, const auto& b) { return a.second.clock_us < b.second.clock_us; });
    Own& own = next->second;
    const LaneView& lane = lanes[own.lanes.front()];
    own.clock_us += CostUs(lane.decoding ? 1 : lane.pending, lane.depth) / lane.tenant->weight;
    in_turn.push_back(own.lanes.front());
    own.lanes.pop_front();
    if (own.lanes.empty()) tenants.erase(next);
  }
  return in_turn;
}

// Whether the prompt does not wait for the paused step.
bool StepPlanner::IsSooner(const LaneView& lane, const LaneView& paused) const {
  if (lane.tenant != paused.tenant) return lane.tenant->clock_us < paused.tenant->clock_us;
  if (lane.priority != paused.priority) return lane.priority > paused.priority;
  return CostUs(lane.pending, lane.depth) < CostUs(paused.pending, paused.depth);
}

double StepPlanner::DecodeStepUs() const {
  return decode_step_us_ > 0 ? decode_step_us_ : kUnmeasuredRowUs;
}

double StepPlanner::DecodeWork(int64_t rows) const {
  const double step_us = guess_planner_.StepUs(rows);
  return step_us > 0 ? step_us : kUnmeasuredRowUs;
}

std::vector<int64_t> StepPlanner::PlanLong(std::span<const LaneView> lanes) const {
  std::vector<int64_t> rows(lanes.size(), 0);
  std::vector<size_t> prompts = InOrder(lanes, /*decoding=*/false);
  if (prompts.empty()) return rows;
  const bool beside_decoding = prompts.size() < lanes.size();
  const auto is_held_back = [&lanes, max_us = MaxClockUs(lanes)](size_t i) {
    return IsAbove(lanes[i], max_us);
  };
  if (!std::all_of(prompts.begin(), prompts.end(), is_held_back)) {
    std::erase_if(prompts, is_held_back);
  }
  double work_us = 0;
  int64_t pending = 0;
  for (const size_t i : prompts) {
    work_us += CostUs(lanes[i].pending, lanes[i].depth);
    pending += lanes[i].pending;
  }
  const bool fits = pending <= kMinBesideRows || work_us <= static_cast<double>(AllowanceUs());
  const bool divides =
      std::ranges::all_of(prompts, [&lanes](size_t i) { return lanes[i].runs.empty(); });
  if (beside_decoding && fits && divides) return rows;

  int64_t full = lanes[prompts[0]].whole ? kFullWholeRows : kUnmeasuredRows;
  if (prompt_row_us_ > 0 && decode_step_us_ > 0) {
    full = static_cast<int64_t>(std::min(kFullSteps * decode_step_us_ / prompt_row_us_, 1e9));
    full = std::max(full, kMinLongRows);
  }
  int64_t taken = 0;
  for (const size_t i : prompts) {
    // The first prompt need not wait for more rows of others than fill the step.
    int64_t most = LongRows(lanes[i].depth, beside_decoding);
    if (taken > 0) most = std::min(most, full);
    // Nothing comes of a part of a text.
    if (taken == 0 && lanes[i].whole) most = options_.max_step_tokens;
    if (taken == 0) most = std::min(WithFirstRun(lanes[i], most), options_.max_step_tokens);
    const int64_t room = most - taken;
    if (room <= 0) break;
    rows[i] = Chunk(lanes[i], room);
    taken += rows[i];
  }
  return rows;
}

std::vector<int64_t> StepPlanner::PlanShort(std::span<const LaneView> lanes,
                                            const LaneView* paused) const {
  std::vector<int64_t> rows(lanes.size(), 0);
  int64_t room = paused != nullptr ? options_.max_beside_tokens : options_.max_step_tokens;
  const std::vector<size_t> decoding = InOrder(lanes, /*decoding=*/true);
  const std::vector<size_t> prompts = InOrder(lanes, /*decoding=*/false);
  // One row is reserved for prompts, whatever decodes.
  const int64_t kept = prompts.empty() || room == 1 ? 0 : 1;
  for (const size_t i : decoding) {
    if (room <= kept) break;
    rows[i] = std::min(lanes[i].pending, room - kept);
    room -= rows[i];
  }
  if (decoding.empty() && paused == nullptr) return rows;

  const bool decodes = !decoding.empty();
  const auto allowance_us = decodes ? static_cast<double>(AllowanceUs()) : 1e18;
  double budget_us = allowance_us * (decodes && paused != nullptr ? 1 - kPausedShare : 1);
  double held_back_us = allowance_us * (decodes ? kPausedShare : 1);  // part of budget_us
  const double max_clock_us = MaxClockUs(lanes);
  bool first = true;
  for (const size_t i : prompts) {
    const LaneView& lane = lanes[i];
    if (paused != nullptr && !IsSooner(lane, *paused)) continue;
    const bool is_held_back = IsAbove(lane, max_clock_us);
    const double own_us = is_held_back ? std::min(budget_us, held_back_us) : budget_us;
    const int64_t affordable = std::max(RowsFor(own_us, lane.depth), first ? kMinBesideRows : 0);
    rows[i] = Chunk(lane, std::min(room, affordable));
    if (rows[i] == 0 && affordable > 0 && !lane.runs.empty()) continue;
    if (rows[i] == 0) break;
    room -= rows[i];
    const double cost_us = CostUs(rows[i], lane.depth);
    budget_us = std::max(0.0, budget_us - cost_us);
    if (is_held_back) held_back_us = std::max(0.0, held_back_us - cost_us);
    first = false;
  }
  AddGuesses(lanes, room, /*only_sure=*/paused != nullptr || !prompts.empty(), &rows);
  return rows;
}

bool StepPlanner::IsAhead(const Tenant* of_prompt, const Tenant* of_decoding) {
  if (of_prompt == of_decoding || of_prompt == nullptr || of_decoding == nullptr) return false;
  return of_prompt->clock_us > of_decoding->clock_us + kMaxLeadUs;
}

// To the lanes that have all their pending rows in the step.
void StepPlanner::AddGuesses(std::span<const LaneView> lanes, int64_t room, bool only_sure,
                             std::vector<int64_t>* rows) const {
  std::vector<size_t> owners;
  std::vector<GuessOffer> offers;
  bool any = false;
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (!lanes[i].decoding || (*rows)[i] < lanes[i].pending) continue;
    owners.push_back(i);
    offers.push_back(lanes[i].guesses);
    any = any || !offers.back().gains.empty();
  }
  if (!any) return;
  const std::vector<int64_t> taken = guess_planner_.Plan(offers, room, only_sure);
  for (size_t i = 0; i < owners.size(); ++i) (*rows)[owners[i]] += taken[i];
}

// In order, except that those that come after another directly follow it.
std::vector<size_t> StepPlanner::PromptsInTurn(std::span<const LaneView> lanes) const {
  const std::vector<size_t> order = InOrder(lanes, /*decoding=*/false);
  std::vector<bool> placed(lanes.size(), false);
  std::vector<size_t> in_turn, held_back;
  const auto place = [&](size_t i) {
    placed[i] = true;
    in_turn.push_back(i);
  };
  for (const size_t i : order) {
    if (lanes[i].after >= 0 && !placed[static_cast<size_t>(lanes[i].after)]) {
      held_back.push_back(i);
      continue;
    }
    place(i);
    for (const size_t held : held_back) {
      if (lanes[held].after == static_cast<int64_t>(i)) place(held);
    }
  }
  return in_turn;
}

std::vector<int64_t> StepPlanner::RowsBefore(std::span<const LaneView> lanes) const {
  std::vector<int64_t> before(lanes.size(), 0);
  const LaneView* paused = nullptr;
  int64_t rows = 0;         // that come before the next prompt in order
  int64_t sooner_rows = 0;  // the part of them before a prompt that overtakes the open step
  for (const LaneView& lane : lanes) {
    if (lane.in_step == 0) continue;
    if (paused == nullptr || lane.pending > paused->pending) paused = &lane;
    rows += lane.in_step;
  }
  for (const size_t i : PromptsInTurn(lanes)) {
    const LaneView& lane = lanes[i];
    const bool waits = lane.in_step == 0;
    const bool sooner = waits && lane.after < 0 && paused != nullptr && IsSooner(lane, *paused);
    if (waits) before[i] = sooner ? sooner_rows : rows;
    rows += lane.pending - lane.in_step;
    if (sooner) sooner_rows += lane.pending;
  }
  return before;
}

int64_t StepPlanner::SliceAfter(int64_t short_us, int64_t decode_rows, int64_t prompt_rows,
                                bool is_ahead) const {
  double slice_us = static_cast<double>(AllowanceUs());
  if (decode_rows == 0) {
    slice_us = static_cast<double>(short_us) * kPausedShare / (1 - kPausedShare);
  } else if (prompt_rows > 0 || is_ahead) {
    slice_us *= kPausedShare;
  }
  return static_cast<int64_t>(slice_us);
}

void StepPlanner::Observe(const StepCost& cost) {
  if (cost.prompt_rows == 0) {
    if (cost.decode_rows == 0) return;
    guess_planner_.Observe(cost.decode_rows, cost.guessed_rows, cost.total_us);
    if (cost.guessed_rows == 0) Smooth(&decode_step_us_, static_cast<double>(cost.total_us));
    return;
  }
  if (cost.decode_rows > 0 || cost.prompt_rows < kMeasurableRows) return;
  const double rest_us = static_cast<double>(cost.total_us - cost.attention_us);
  Smooth(&prompt_row_us_, std::max(rest_us / static_cast<double>(cost.prompt_rows), 0.01));
  if (cost.attended_rows < kMeasurableAttended) return;
  Smooth(&attended_row_us_,
         static_cast<double>(cost.attention_us) / static_cast<double>(cost.attended_rows));
}

}  // namespace weft
