// Whether there is a way to the end.
#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "constraint/regex/regex.h"

namespace weft::constraint {
namespace {

// Up to here, it is looked through which states a search has reached.
constexpr size_t kFew = 24;
// A search that reaches more takes long.
constexpr size_t kTrouble = 6;
// Ways that are kept for searches to come, and the bytes of one.
constexpr size_t kMostWays = 8, kLongestWay = 256;

}  // namespace

// Goes on from what may be nearest to the end, and first the likeliest way on, so that one is found
// before a large automaton is built. Where that takes long, the ways that were found lately are
// tried: states that differ in what was counted, or in what a word has come to, often have the same
// way to the end, though it is a long one.
class RegexPool::LifeSearch {
 public:
  LifeSearch(RegexPool* pool, RegexId start) : pool_(*pool), begin_(pool->work_) {
    Reach(start, 0, 0, 0);
  }

  bool Run() {
    // Where one was of use, the next will be.
    const size_t patience = std::exchange(pool_.trusts_ways_, false) ? 0 : kTrouble;
    bool tried = false;
    while (!open_.empty()) {
      if (!tried && reached_.size() > patience) {
        tried = true;
        if (TryKnownWays()) return true;
        if (gave_up_) return false;
      }
      std::ranges::pop_heap(open_);
      const size_t at = std::get<2>(open_.back());
      open_.pop_back();
      if (Expand(at)) {
        if (reached_.size() > kTrouble) Remember();
        return true;
      }
      if (gave_up_) return false;
    }
    if (pool_.exhausted_) return false;
    for (const Reached& one : reached_) SetLife(one.id, Life::kDead);
    return false;
  }

 private:
  struct Reached {
    RegexId id = kNothing;
    size_t from = 0;     // who led there
    int64_t bytes = 0;   // and after how many
    uint8_t by = 0;      // of these the last
    bool again = false;  // its likeliest way on has been taken
  };

  void SetLife(RegexId id, Life life) { pool_.nodes_[static_cast<size_t>(id)].life = life; }

  void Push(size_t at) {
    const Reached& one = reached_[at];
    const int64_t whole = one.bytes + pool_.node(one.id).least + (one.again ? 1 : 0);
    open_.emplace_back(-whole, one.bytes, at);
    std::ranges::push_heap(open_);
  }

  // Whether it was not seen before.
  bool See(RegexId id) {
    const auto at = static_cast<size_t>(id);
    if (at >= seen_.size()) seen_.resize(at + at / 2 + 64);
    const bool fresh = !seen_[at];
    seen_[at] = true;
    return fresh;
  }

  void Reach(RegexId id, size_t from, int64_t bytes, uint8_t by) {
    if (reached_.size() < kFew) {
      if (std::ranges::find(reached_, id, &Reached::id) != reached_.end()) return;
    } else {
      // Most searches end before.
      if (reached_.size() == kFew) {
        for (const Reached& one : reached_) See(one.id);
      }
      if (!See(id)) return;
    }
    reached_.push_back({.id = id, .from = from, .bytes = bytes, .by = by});
    Push(reached_.size() - 1);
  }

  // Takes the ways on that are to be taken next. Whether one leads to the end.
  bool Expand(size_t at) {
    const RegexId id = reached_[at].id;
    const ByteSet edges = pool_.Edges(id), first = pool_.MayBegin(id);
    const int32_t hint = pool_.node(id).hint;
    if (!std::exchange(reached_[at].again, true) && hint >= 0 && first.Has(hint)) {
      if (Follow(at, hint)) return true;
      if (!gave_up_) Push(at);
      return false;
    }
    for (int byte = 0; byte < 256; ++byte) {
      // The first of a range is first here, or its whole range is not.
      if (edges.Has(byte) && first.Has(byte) && Follow(at, byte)) return true;
      if (gave_up_) return false;
    }
    return false;
  }

  // Takes a way on. Whether it leads to the end.
  bool Follow(size_t at, int byte) {
    RegexId next = kNothing;
    if (!Derive(reached_[at].id, byte, &next)) return false;
    const Life life = pool_.node(next).life;
    if (life == Life::kUnknown) {
      Reach(next, at, reached_[at].bytes + 1, static_cast<uint8_t>(byte));
    }
    if (life != Life::kAlive) return false;
    way_.clear();
    for (;; at = reached_[at].from) {
      way_.emplace_back(reached_[at].id, static_cast<uint8_t>(byte));
      if (at == 0) break;
      byte = reached_[at].by;
    }
    std::ranges::reverse(way_);
    Enliven(next);
    return true;
  }

  // The states of way_, behind the last of which there is `next`, lead to the end.
  void Enliven(RegexId next) {
    int32_t bytes = pool_.WayToEnd(next);
    for (size_t i = way_.size(); i-- > 0;) {
      Node& n = pool_.nodes_[static_cast<size_t>(way_[i].first)];
      n.life = Life::kAlive;
      n.way = bytes = std::min(n.way, bytes + 1);
      n.onward = way_[i].second;
    }
    last_ = next;
  }

  // False, and nothing is looked for any more, where that takes too long.
  bool Derive(RegexId id, int byte, RegexId* next) {
    const int64_t before = pool_.work_;
    pool_.Spend(1, 0);
    const bool found = pool_.TryDerive(id, static_cast<uint8_t>(byte), next);
    if (pool_.search_left_ != INT64_MAX) pool_.search_left_ -= pool_.work_ - before;
    if (pool_.search_left_ < 0) pool_.exhausted_ = true;
    const bool too_long = !found || pool_.work_ - begin_ > pool_.most_search_;
    if (too_long) SetLife(reached_[0].id, Life::kDead);
    gave_up_ = pool_.exhausted_ || too_long;
    return !gave_up_;
  }

  bool TryKnownWays() {
    std::vector<std::string>& ways = pool_.ways_;
    for (size_t i = 0; i < ways.size() && !gave_up_; ++i) {
      if (!TryWay(ways[i])) continue;
      std::rotate(ways.begin(), ways.begin() + static_cast<ptrdiff_t>(i),
                  ways.begin() + static_cast<ptrdiff_t>(i) + 1);
      pool_.trusts_ways_ = true;
      return true;
    }
    return false;
  }

  bool TryWay(const std::string& way) {
    way_.clear();
    RegexId id = reached_[0].id;
    for (const char c : way) {
      const auto byte = static_cast<uint8_t>(c);
      RegexId next = kNothing;
      if (!pool_.MayBegin(id).Has(byte) || !Derive(id, byte, &next)) return false;
      way_.emplace_back(id, byte);
      const Life life = pool_.node(next).life;
      if (life == Life::kAlive) {
        Enliven(next);
        return true;
      }
      if (life == Life::kDead) return false;
      id = next;
    }
    return false;
  }

  // Keeps the way that was found, if it can be followed to the very end.
  void Remember() {
    std::string way;
    for (const auto& [id, byte] : way_) way.push_back(static_cast<char>(byte));
    RegexId id = last_;
    while (!pool_.AcceptsEmpty(id)) {
      const Node& n = pool_.node(id);
      const int32_t byte = n.onward != 0 ? n.onward : n.hint;
      RegexId next = kNothing;
      if (byte < 0 || way.size() >= kLongestWay) return;
      if (!pool_.TryDerive(id, static_cast<uint8_t>(byte), &next) || next == kNothing) return;
      way.push_back(static_cast<char>(byte));
      id = next;
    }
    std::vector<std::string>& ways = pool_.ways_;
    if (ways.size() == kMostWays) ways.pop_back();
    ways.insert(ways.begin(), std::move(way));
  }

  RegexPool& pool_;
  const int64_t begin_;
  bool gave_up_ = false;
  std::vector<Reached> reached_;
  std::vector<bool> seen_;
  // How long a text by this way may be, with a minus; of equal ones, the longest way first.
  std::vector<std::tuple<int64_t, int64_t, size_t>> open_;
  // The way that was found: its states, and what follows each; and where it came to.
  std::vector<std::pair<RegexId, uint8_t>> way_;
  RegexId last_ = kNothing;
};

bool RegexPool::IsLive(RegexId id) {
  const Life life = node(id).life;
  return life == Life::kUnknown ? LifeSearch(this, id).Run() : life == Life::kAlive;
}

bool RegexPool::Settle(RegexId id, size_t most_states, int64_t most_work) {
  const int64_t end = work_ + most_work;
  std::unordered_set<RegexId> seen{id};
  for (std::vector<RegexId> todo{id}; !todo.empty();) {
    const RegexId from = todo.back();
    todo.pop_back();
    const ByteSet edges = Edges(from), first = MayBegin(from);
    bool fresh = true;
    for (int byte = 0; byte < 256; ++byte) {
      fresh |= edges.Has(byte);
      if (!fresh || !first.Has(byte)) continue;
      fresh = false;
      const RegexId to = Derive(from, static_cast<uint8_t>(byte));
      if (exhausted_ || work_ > end) return false;
      if (to == kNothing || !seen.insert(to).second) continue;
      if (seen.size() > most_states) return false;
      todo.push_back(to);
    }
  }
  return true;
}

}  // namespace weft::constraint
