#include "constraint/machine.h"
#include "constraint/regex/walk.h"

#include <algorithm>
#include <climits>
#include <utility>

namespace weft::constraint {
namespace {

constexpr size_t kMaxThreads = 20000;
constexpr size_t kMaxVisited = 20'000;
// Cheaper steps by one byte are not metered.
constexpr int64_t kDearStep = 256;
constexpr int32_t kManySeen = INT_MAX;
constexpr uint32_t kLengthBits = 21;

uint64_t HashSpot(uint64_t hash, const Spot& spot) {
  return MixHash(hash,
                 static_cast<uint64_t>(static_cast<uint32_t>(spot.place)) << 32 | spot.progress);
}

// Packs an array's progress: its length and the number of wanted elements found. 0 stands for the
// position before the opening bracket.
uint32_t PackLength(const ArraySpec& array, int64_t length, int64_t found) {
  if (array.most == kUnlimited) {
    const auto far = std::max<int64_t>({static_cast<int64_t>(array.prefix.size()), array.least, 1});
    length = std::min(length, far);
  }
  if (array.allow == kUnlimited) found = std::min<int64_t>(found, array.need);
  return static_cast<uint32_t>(found << kLengthBits | (length + 1));
}

}  // namespace

Machine::Machine(const Grammar* grammar, int64_t max_bytes, const MachineLimits& limits)
    : grammar_(*grammar), pool_(grammar->pool()), limits_(limits), max_bytes_(max_bytes) {
  pool_.budget().SetLimits(INT64_MAX, max_bytes);
  pool_.walk().BeginAnswers(limits.derivative, limits.search);
  states_.push_back({});
  Spend(states_.bytes());
  continuations_.push_back({.bottom = true});
  Building building;
  Enter({grammar_.start_place(), 0}, 0, &building);
  start_ = Intern(&building);
}

ContinuationId Machine::InternContinuation(std::vector<Frame> frames, bool bottom) {
  uint64_t hash = bottom ? 5 : 6;
  for (const Frame& frame : frames) {
    hash = MixHash(HashSpot(hash, frame.to), static_cast<uint64_t>(frame.then));
  }
  const int32_t found = continuation_index_.Find(hash, [&](int32_t id) {
    const Continuation& c = continuations_[static_cast<size_t>(id)];
    return c.bottom == bottom &&
           std::ranges::equal(std::span(frames_.data() + c.first, static_cast<size_t>(c.count)),
                              frames);
  });
  if (found >= 0) return found;
  const auto id = static_cast<ContinuationId>(continuations_.size());
  continuations_.push_back(
      {static_cast<int64_t>(frames_.size()), static_cast<int32_t>(frames.size()), bottom});
  frames_.insert(frames_.end(), frames.begin(), frames.end());
  continuation_index_.Add(hash, id);
  Spend(sizeof(Continuation) + 32 + frames.size() * sizeof(Frame));
  return id;
}

ContinuationId Machine::Push(Spot to, ContinuationId then) {
  return InternContinuation({Frame{to, then}}, false);
}

uint32_t Machine::InternProgress(const ObjectProgress& progress) {
  uint64_t hash =
      MixHash(static_cast<uint64_t>(progress.count), static_cast<uint64_t>(progress.last));
  for (const uint64_t word : progress.seen) hash = MixHash(hash, word);
  const int32_t found = progress_index_.Find(
      hash, [&](int32_t id) { return progresses_[static_cast<size_t>(id)] == progress; });
  if (found >= 0) return static_cast<uint32_t>(found) + 1;
  const auto id = static_cast<int32_t>(progresses_.size());
  progresses_.push_back(progress);
  progress_prints_.push_back(hash);
  progress_index_.Add(hash, id);
  Spend(sizeof(ObjectProgress) + 40 + 8 * progress.seen.size());
  return static_cast<uint32_t>(id) + 1;
}

void Machine::AddThread(RegexId regex, Spot behind, ContinuationId then, Building* out) {
  if (regex == kNothing) return;
  if (pool_.AcceptsEmpty(regex)) Enter(behind, then, out);
  if (regex != kEmpty) out->threads.push_back({regex, behind, then});
}

bool Machine::Building::Visit(Spot spot, ContinuationId then) {
  const uint64_t hash = MixHash(HashSpot(11, spot), static_cast<uint64_t>(then));
  const auto same = [&](int32_t i) {
    return visited[static_cast<size_t>(i)] == std::pair(spot, then);
  };
  if (visited_index.Find(hash, same) >= 0) return false;
  visited_index.Add(hash, static_cast<int32_t>(visited.size()));
  visited.emplace_back(spot, then);
  return true;
}

void Machine::Enter(Spot spot, ContinuationId then, Building* out) {
  if (exhausted() || !out->Visit(spot, then)) return;
  if (++out->depth > kMaxCallDepth || out->threads.size() > kMaxThreads ||
      out->visited.size() > kMaxVisited) {
    exhausted_ = true;
  }
  const Symbol symbol = grammar_.At(spot.place);
  const Spot next{spot.place + 1, 0};
  switch (symbol.kind) {
    case Symbol::Kind::kEnd:
      Return(then, out);
      break;
    case Symbol::Kind::kTerminal:
      AddThread(symbol.index, next, then, out);
      break;
    case Symbol::Kind::kRule:
      EnterRule(symbol.index, next, then, out);
      break;
    case Symbol::Kind::kRepeat:
      EnterRepeat(spot, grammar_.repeat(symbol.index), then, out);
      break;
    case Symbol::Kind::kObject:
      EnterObject(spot, grammar_.object(symbol.index), then, out);
      break;
    case Symbol::Kind::kProperty:
      EnterProperty(spot, symbol, then, out);
      break;
    case Symbol::Kind::kArray:
      EnterArray(spot, grammar_.array(symbol.index), then, out);
      break;
    case Symbol::Kind::kElement:
      EnterElement(spot, grammar_.array(symbol.index), then, out);
      break;
    case Symbol::Kind::kDistinct:
      EnterDistinct(spot, grammar_.distinct(symbol.index), then, out);
      break;
    case Symbol::Kind::kTaken:
      EnterTaken(spot, grammar_.distinct(symbol.index), then, out);
      break;
  }
  --out->depth;
}

void Machine::Return(ContinuationId then, Building* out) {
  const Continuation c = continuations_[static_cast<size_t>(then)];
  out->accepts |= c.bottom;
  for (int64_t i = c.first; i < c.first + c.count; ++i) {
    const Frame frame = frames_[static_cast<size_t>(i)];
    Enter(frame.to, frame.then, out);
  }
}

void Machine::EnterRepeat(Spot spot, const RepeatSpec& repeat, ContinuationId then, Building* out) {
  const auto count = static_cast<int64_t>(spot.progress);
  if (count >= repeat.least) Enter({spot.place + 1, 0}, then, out);
  if (repeat.most != kUnlimited && count >= repeat.most) return;
  const int64_t more =
      repeat.most == kUnlimited ? std::min<int64_t>(count + 1, repeat.least) : count + 1;
  EnterRule(repeat.rule, {spot.place, static_cast<uint32_t>(more)}, then, out);
}

void Machine::EnterRule(RuleId rule, Spot back, ContinuationId then, Building* out) {
  // A tail call needs no return address, so lists need no stack.
  if (grammar_.At(back.place).kind != Symbol::Kind::kEnd) then = Push(back, then);
  for (const int32_t place : grammar_.AlternativesOf(rule)) Enter({place, 0}, then, out);
}

void Machine::EnterObject(Spot spot, const ObjectSpec& object, ContinuationId then, Building* out) {
  if (spot.progress == 0) {
    ObjectProgress none;
    none.seen.resize((static_cast<size_t>(object.named) + 63) / 64);
    AddThread(grammar_.object_open(), {spot.place, InternProgress(none)}, then, out);
    return;
  }
  const ObjectProgress progress = progresses_[spot.progress - 1];
  const auto seen = [&](size_t i) { return (progress.seen[i / 64] >> (i % 64) & 1) != 0; };
  int64_t needed = 0;
  bool any_many = false;
  for (size_t i = 0; i < object.properties.size(); ++i) {
    const PropertySpec& property = grammar_.property(object.properties[i]);
    needed += property.required && !seen(i);
    any_many |= property.many && property.key != kNothing;
  }
  const bool first = progress.count == 0;
  if (needed == 0 && progress.count >= object.least) {
    AddThread(first ? grammar_.object_close_empty() : grammar_.object_close(), {spot.place + 1, 0},
              then, out);
  }
  int64_t still_needed = needed;  // required and missing, from i on
  int64_t possible = 0;           // named properties that can still come, from i on
  for (size_t i = 0; i < static_cast<size_t>(object.named); ++i) {
    possible += grammar_.property(object.properties[i]).key != kNothing;
  }
  for (size_t i = 0; i < object.properties.size(); ++i) {
    const PropertySpec& property = grammar_.property(object.properties[i]);
    if (property.key == kNothing) continue;
    const bool in_turn = still_needed == needed;  // no required property is missing before it
    if (!property.many) {
      --possible;
      const bool open = !seen(i);
      still_needed -= open && property.required;
      if (!open) continue;
    }
    const int64_t count = progress.count + 1;
    if (object.most != kUnlimited && count + needed - (property.required ? 1 : 0) > object.most)
      continue;
    if (object.in_order) {
      if (property.many ? needed > 0 : static_cast<int64_t>(i) <= progress.last || !in_turn)
        continue;
      if (!any_many && count + possible < object.least) continue;
    }
    AddThread(first ? property.first : property.next,
              {spot.place + 2 + static_cast<int32_t>(i), spot.progress}, then, out);
  }
}

void Machine::EnterProperty(Spot spot, const Symbol& symbol, ContinuationId then, Building* out) {
  const PropertySpec& property = grammar_.property(symbol.index);
  const ObjectSpec& object = grammar_.object(property.object);
  ObjectProgress progress = progresses_[spot.progress - 1];
  ++progress.count;
  if (object.most == kUnlimited)
    progress.count = std::min(progress.count, std::max(object.least, 1));
  if (!property.many) {
    progress.seen[static_cast<size_t>(property.slot) / 64] |= 1ull << (property.slot % 64);
  }
  if (object.in_order) progress.last = property.many ? kManySeen : property.slot;
  EnterRule(property.value, {object.place, InternProgress(progress)}, then, out);
}

void Machine::EnterArray(Spot spot, const ArraySpec& array, ContinuationId then, Building* out) {
  if (spot.progress == 0) {
    AddThread(grammar_.array_open(), {spot.place, PackLength(array, 0, 0)}, then, out);
    return;
  }
  const int64_t length = (spot.progress & ((1u << kLengthBits) - 1)) - 1;
  const int64_t found = spot.progress >> kLengthBits;
  if (length >= array.least && found >= array.need) {
    AddThread(length == 0 ? grammar_.array_close_empty() : grammar_.array_close(),
              {spot.place + 1, 0}, then, out);
  }
  const bool plain = Grammar::PlainElement(array, length) != kNoRule &&
                     Grammar::ArrayCanEnd(array, length + 1, found);
  const bool wanted = Grammar::WantedElement(array, length) != kNoRule &&
                      Grammar::ArrayCanEnd(array, length + 1, found + 1);
  if (!plain && !wanted) return;
  const Spot element{spot.place + 2, spot.progress};
  AddThread(length == 0 ? grammar_.before_first() : grammar_.separator(), element, then, out);
}

void Machine::EnterElement(Spot spot, const ArraySpec& array, ContinuationId then, Building* out) {
  const int64_t length = (spot.progress & ((1u << kLengthBits) - 1)) - 1;
  const int64_t found = spot.progress >> kLengthBits;
  const RuleId plain = Grammar::PlainElement(array, length);
  if (plain != kNoRule && Grammar::ArrayCanEnd(array, length + 1, found)) {
    EnterRule(plain, {array.place, PackLength(array, length + 1, found)}, then, out);
  }
  const RuleId wanted = Grammar::WantedElement(array, length);
  if (wanted != kNoRule && Grammar::ArrayCanEnd(array, length + 1, found + 1)) {
    EnterRule(wanted, {array.place, PackLength(array, length + 1, found + 1)}, then, out);
  }
}

void Machine::EnterDistinct(Spot spot, const DistinctSpec& distinct, ContinuationId then,
                            Building* out) {
  if (spot.progress == 0) {
    ObjectProgress none;
    none.seen.resize((distinct.values.size() + 63) / 64);
    AddThread(grammar_.array_open(), {spot.place, InternProgress(none)}, then, out);
    return;
  }
  const ObjectProgress progress = progresses_[spot.progress - 1];
  const bool first = progress.count == 0;
  if (progress.count >= distinct.least) {
    AddThread(first ? grammar_.array_close_empty() : grammar_.array_close(), {spot.place + 1, 0},
              then, out);
  }
  if (distinct.most != kUnlimited && progress.count >= distinct.most) return;
  for (size_t i = 0; i < distinct.values.size(); ++i) {
    if (progress.seen[i / 64] >> (i % 64) & 1) continue;
    AddThread(first ? distinct.first[i] : distinct.next[i],
              {spot.place + 2 + static_cast<int32_t>(i), spot.progress}, then, out);
  }
}

void Machine::EnterTaken(Spot spot, const DistinctSpec& distinct, ContinuationId then,
                         Building* out) {
  ObjectProgress progress = progresses_[spot.progress - 1];
  const auto value = static_cast<size_t>(spot.place - distinct.place - 2);
  progress.seen[value / 64] |= 1ull << (value % 64);
  ++progress.count;
  Enter({distinct.place, InternProgress(progress)}, then, out);
}

// Interns the collected state. Sets join_steps_ to the cost of merging stacks.
StateId Machine::Intern(Building* building) {
  join_steps_ = 0;
  std::vector<ParserThread>& threads = building->threads;
  if (exhausted() || (threads.empty() && !building->accepts)) return kDeadState;
  SortThreads(&threads);
  size_t kept = 0;
  for (size_t i = 0; i < threads.size(); ++kept) {
    const ParserThread one = threads[i];
    std::vector<ContinuationId> behind;
    for (; i < threads.size() && threads[i].regex == one.regex && threads[i].behind == one.behind;
         ++i) {
      behind.push_back(threads[i].then);
    }
    threads[kept] = one;
    if (behind.size() > 1) threads[kept].then = Join(std::move(behind));
  }
  threads.resize(kept);
  uint64_t hash = building->accepts ? 13 : 17;
  for (const ParserThread& thread : threads) {
    hash = MixHash(HashSpot(MixHash(hash, static_cast<uint64_t>(thread.regex)), thread.behind),
                   static_cast<uint64_t>(thread.then));
  }
  const int32_t found = state_index_.Find(hash, [&](int32_t id) {
    return Accepts(id) == building->accepts && std::ranges::equal(Threads(id), threads);
  });
  if (found >= 0) return found;
  const auto id = static_cast<StateId>(states_.size());
  const size_t before = states_.bytes() + threads_.bytes();
  states_.push_back({.first = static_cast<int64_t>(threads_.AddRun(threads)),
                     .count = static_cast<int32_t>(threads.size()),
                     .accepts = building->accepts});
  state_index_.Add(hash, id);
  Spend(states_.bytes() + threads_.bytes() - before + 32);
  return id;
}

StateId Machine::StepMissing(StateId state, uint8_t byte) {
  if (state == kDeadState || IsOver()) return kDeadState;
  const State from = states_[static_cast<size_t>(state)];
  Building building;
  pool_.budget().meter().BeginAside();
  ByteSet edges, may_come;
  edges.Add(0);
  for (const ParserThread& thread : ThreadsOf(from)) {
    edges = edges | pool_.walk().Edges(thread.regex);
    const ByteSet& first = pool_.walk().MayBegin(thread.regex);
    may_come = may_come | first;
    if (!first.Has(byte)) continue;
    AddThread(pool_.walk().Derive(thread.regex, byte), thread.behind, thread.then, &building);
    if (IsTooMuch(pool_.budget().meter().aside())) break;
  }
  pool_.budget().meter().EndAside();
  StepMeter::Cost cost = pool_.budget().meter().aside();
  cost.step += from.count + static_cast<int64_t>(building.visited.size() + building.threads.size());
  if (IsTooMuch(cost)) {
    cost.step = StepMeter::kTooMuch;
    building = {};
  }
  const StateId next = Intern(&building);
  cost.search += join_steps_;
  if (exhausted()) return kDeadState;
  int first = byte, end = byte + 1;
  while (!edges.Has(first)) --first;
  while (end < 256 && !edges.Has(end)) ++end;
  State& s = states_[static_cast<size_t>(state)];
  if (cost.Sum() > kDearStep) {
    Spend(48);
    s.dear = meter_.Learn(s.dear, first, end - 1, cost);
  }
  const bool is_only = s.only_first > s.only_last;
  if (!s.row.exists() && is_only && may_come.Has(byte)) {
    s.only_first = static_cast<uint8_t>(first);
    s.only_last = static_cast<uint8_t>(end - 1);
    s.only = next;
    return next;
  }
  if (!s.row.exists()) AddRow(&s);
  // If the step is too expensive for one byte, it is so for all bytes that the threads before the
  // limit do not distinguish.
  for (int b = first; b < end; ++b) rows_.Set(s.row, static_cast<uint8_t>(b), next);
  return next;
}

void Machine::AddRow(State* state) {
  ByteSet edges = ByteSet::Of(0), may_come;
  for (const ParserThread& thread : ThreadsOf(*state)) {
    edges = edges | pool_.walk().Edges(thread.regex);
    may_come = may_come | pool_.walk().MayBegin(thread.regex);
  }
  const size_t before = rows_.bytes();
  state->row = rows_.Add(edges, [&](int b) { return may_come.Has(b) ? -1 : kDeadState; });
  if (state->only_first <= state->only_last) {
    for (int b = state->only_first; b <= state->only_last; ++b)
      rows_.Set(state->row, static_cast<uint8_t>(b), state->only);
  }
  Spend(rows_.bytes() - before);
}

StateId Machine::InternCounted(Building* building) {
  const StateId state = Intern(building);
  Count(join_steps_);
  return state;
}

StateId Machine::WithThreads(std::vector<ParserThread> threads, bool accepts) {
  Building building{.threads = std::move(threads), .accepts = accepts};
  Count(static_cast<int64_t>(building.threads.size()));
  return InternCounted(&building);
}

StateId Machine::After(const ParserThread& thread) {
  Building building;
  Enter(thread.behind, thread.then, &building);
  Count(static_cast<int64_t>(building.visited.size() + building.threads.size()));
  return InternCounted(&building);
}

ByteSet Machine::FirstBytes(StateId state) {
  ByteSet first;
  for (const ParserThread& thread : Threads(state))
    first = first | pool_.walk().FirstBytes(thread.regex);
  return first;
}

}  // namespace weft::constraint
