// Merging of stacks, and the order of threads and stacks.
#include <algorithm>
#include <utility>

#include "constraint/machine.h"

namespace weft::constraint {
namespace {

// Limit for the stack merges of one state, in steps.
constexpr int64_t kMaxJoin = 500'000;

uint64_t HashUnion(std::span<const ContinuationId> parts) {
  uint64_t hash = 19;
  for (const ContinuationId part : parts) hash = MixHash(hash, static_cast<uint64_t>(part));
  return hash;
}

}  // namespace

// A hash that is equal for equal positions, whenever they were interned.
uint64_t Machine::PrintOf(const Spot& spot) const {
  const Symbol::Kind kind = grammar_.At(spot.place).kind;
  const bool is_interned = kind == Symbol::Kind::kObject || kind == Symbol::Kind::kProperty ||
                           kind == Symbol::Kind::kDistinct || kind == Symbol::Kind::kTaken;
  const uint64_t progress =
      is_interned && spot.progress > 0 ? progress_prints_[spot.progress - 1] : spot.progress;
  return MixHash(static_cast<uint64_t>(spot.place), progress);
}

int32_t Machine::FindUnion(uint64_t hash, std::span<const ContinuationId> parts) const {
  return union_index_.Find(hash, [&](int32_t i) {
    const Union& known = unions_[static_cast<size_t>(i)];
    return std::ranges::equal(
        std::span(joined_.data() + known.first, static_cast<size_t>(known.count)), parts);
  });
}

// Merges all stacks of `parts`. Adds the full cost to join_steps_ even if the result is known.
ContinuationId Machine::Join(std::vector<ContinuationId> parts) {
  std::ranges::sort(parts);
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  if (parts.size() == 1) return parts[0];
  ++countings_;
  const int64_t before = join_steps_;
  const int32_t known = FindUnion(HashUnion(parts), parts);
  if (known >= 0 && unions_[static_cast<size_t>(known)].steps >= 0) {
    join_steps_ += unions_[static_cast<size_t>(known)].steps;
    return unions_[static_cast<size_t>(known)].all;
  }
  const int32_t made = JoinAnew(parts, 0);
  if (made < 0) return parts[0];
  unions_[static_cast<size_t>(made)].steps = join_steps_ - before;
  return unions_[static_cast<size_t>(made)].all;
}

// Counts each union once on the way and builds the unknown ones. Returns an index in unions_, or a
// negative number after a limit was reached.
int32_t Machine::JoinAnew(std::span<const ContinuationId> parts, int depth) {
  const uint64_t hash = HashUnion(parts);
  int32_t known = FindUnion(hash, parts);
  if (known >= 0 && unions_[static_cast<size_t>(known)].counted == countings_) return known;
  if (depth > kMaxCallDepth || join_steps_ > kMaxJoin) exhausted_ = true;
  if (exhausted()) return -1;
  std::vector<Frame> frames = JoinFrames(parts, depth);
  if (exhausted()) return -1;
  if (known < 0) {
    const bool bottom = std::ranges::any_of(parts, [&](ContinuationId part) {
      return continuations_[static_cast<size_t>(part)].bottom;
    });
    known = static_cast<int32_t>(unions_.size());
    unions_.push_back({.first = static_cast<int64_t>(joined_.size()),
                       .count = static_cast<int32_t>(parts.size()),
                       .all = InternContinuation(std::move(frames), bottom)});
    joined_.insert(joined_.end(), parts.begin(), parts.end());
    union_index_.Add(hash, known);
    Spend(sizeof(Union) + 32 + parts.size() * sizeof(ContinuationId));
  }
  unions_[static_cast<size_t>(known)].counted = countings_;
  return known;
}

// The frames of all parts, with one frame for each return position.
std::vector<Machine::Frame> Machine::JoinFrames(std::span<const ContinuationId> parts, int depth) {
  std::vector<std::pair<uint64_t, Frame>> frames;
  for (const ContinuationId part : parts) {
    const Continuation c = continuations_[static_cast<size_t>(part)];
    for (int64_t i = c.first; i < c.first + c.count; ++i) {
      const Frame& frame = frames_[static_cast<size_t>(i)];
      frames.emplace_back(PrintOf(frame.to), frame);
    }
  }
  join_steps_ += 1 + static_cast<int64_t>(frames.size());
  std::ranges::sort(frames);
  std::vector<Frame> joined;
  for (size_t i = 0; i < frames.size() && !exhausted();) {
    const Spot to = frames[i].second.to;
    std::vector<ContinuationId> behind;
    for (; i < frames.size() && frames[i].second.to == to; ++i) {
      const ContinuationId then = frames[i].second.then;
      if (behind.empty() || behind.back() != then) behind.push_back(then);
    }
    ContinuationId then = behind[0];
    if (behind.size() > 1) {
      const int32_t all = JoinAnew(behind, depth + 1);
      if (all >= 0) then = unions_[static_cast<size_t>(all)].all;
    }
    joined.push_back({to, then});
  }
  return joined;
}

void Machine::SortThreads(std::vector<ParserThread>* threads) const {
  if (threads->size() < 2) return;
  std::vector<std::pair<uint64_t, ParserThread>> keyed;
  keyed.reserve(threads->size());
  for (const ParserThread& thread : *threads) {
    keyed.emplace_back(MixHash(PrintOf(thread.behind), pool_.Print(thread.regex)), thread);
  }
  std::ranges::sort(keyed);
  for (size_t i = 0; i < keyed.size(); ++i) (*threads)[i] = keyed[i].second;
}

}  // namespace weft::constraint
