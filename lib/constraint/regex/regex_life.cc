// The search for a way to the end, which decides whether an expression is alive.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "constraint/regex/walk.h"

namespace weft::constraint {
namespace {

// Up to this many states, the visited ones are found by linear search.
constexpr size_t kFew = 24;
// A search that reaches more states than this counts as long.
constexpr size_t kTrouble = 6;
// How many known ways are kept, and their maximum length in bytes.
constexpr size_t kMaxWays = 8, kLongestWay = 256;
// Limits for a way by the likeliest bytes: how many bytes longer than the minimum it may be, and
// how often it may turn. A way that goes back and forth does not approach the end.
constexpr int64_t kMaxDetour = 256;
constexpr int32_t kMaxTurns = 3;
// The maximum length of a short way, and how many of its first bytes may be skipped: those that
// open a value.
constexpr size_t kShortWay = 32, kMaxSkipped = 3;
// How many of the likeliest bytes may be taken before a short way.
constexpr size_t kMaxTaken = 3;
// A search by the likeliest bytes alone is not metered if it is cheaper: it runs only once as long
// as its result is kept.
constexpr int64_t kDearWay = 768;

}  // namespace

// Continues from the state that may be nearest to the end, with the likeliest byte first, so that a
// way is found before a large automaton is built. If that takes long, it tries ways that were found
// before: states that differ in a count, or in a partly read word, often have the same way to the
// end, though it is long.
//
// Before the first answer, all results of a search are facts that other searches rely on. After
// that, a search behaves as if no other had run: its result and its cost depend only on its start
// and on the facts. It then first follows the likeliest bytes alone. Mostly that leads to the end.
// The remaining way and its cost are kept for all states on it: a later search that reaches one of
// them stops there, but counts the full cost.
class RegexWalk::LifeSearch {
 public:
  LifeSearch(RegexWalk* walk, RegexId start) : walk_(*walk), state_(walk->state_), start_(start) {}

  void Run() {
    const bool straight = !state_.is_learning && FollowHints();
    const bool known = !straight && !state_.is_learning && TryShortWays();
    const bool is_alive = straight || known || Search();
    // Results after a limit cannot be trusted.
    if (walk_.budget().exhausted()) return;
    if (!is_alive && !gave_up_) return KeepDead();
    Node& start = walk_.At(start_);
    start.life = is_alive ? Life::kAlive : Life::kDead;
    start.straight = straight;
    start.search = state_.is_learning ? 0 : static_cast<int32_t>(std::min(cost_, kMaxCost));
  }

 private:
  struct Reached {
    RegexId id = kNothing;
    size_t from = 0;     // index of the previous state
    int64_t bytes = 0;   // distance from the start in bytes
    uint8_t by = 0;      // last of these bytes
    bool again = false;  // its likeliest byte has been followed
  };
  static constexpr int64_t kMaxCost = INT32_MAX;
  // Following a known step costs this much, in addition to the cost of finding it.
  static constexpr int64_t kTaking = 1;

  Life Fact(RegexId id) const { return walk_.node(id).fact; }

  // All reached states are dead. A search from any of them would have found the same within the
  // limit, because the start's search covered all of it. So the result does not depend on the order
  // of questions. It costs nothing: the work is done once while the results are kept.
  void KeepDead() {
    for (const Reached& one : reached_) {
      Node& n = walk_.At(one.id);
      n.life = Life::kDead;
      if (state_.is_learning) n.fact = Life::kDead;
    }
  }

  // Whether the likeliest bytes lead to the end, and soon.
  bool FollowHints() {
    RegexId at = start_;
    const int64_t most = walk_.node(at).least + kMaxDetour;
    int32_t turns = 0;
    way_.clear();
    Ahead rest;  // the rest of the way after `at`
    for (;;) {
      const Node& n = walk_.node(at);
      const auto bytes = static_cast<int64_t>(way_.size());
      if (n.fact == Life::kAlive) {
        rest = {.bytes = 0, .way = n.way};
        break;
      }
      if (n.fact == Life::kDead || bytes + n.least > most) return false;
      rest = LookAhead(at);
      if (bytes > 0 && IsTurn(way_.back().first, at)) ++turns;
      if (turns > kMaxTurns) return false;
      const bool is_short = rest.bytes >= 0 && bytes + rest.bytes <= most;
      const bool is_even = turns + rest.turns <= kMaxTurns;
      if (is_short && is_even && cost_ + rest.cost <= state_.max_search) break;
      cost_ += rest.choice;
      if (walk_.budget().exhausted() || cost_ > state_.max_search) return false;
      way_.emplace_back(at, rest.byte);
      at = rest.made.to;
    }
    KeepAhead(rest);
    cost_ += rest.cost;
    return true;
  }

  Ahead LookAhead(RegexId id) {
    if (const int32_t known = walk_.node(id).ahead; known >= 0) {
      return state_.ahead[static_cast<size_t>(known)];
    }
    const ByteSet edges = walk_.Edges(id), first = walk_.MayBegin(id);
    const int32_t hint = walk_.node(id).hint;
    Ahead ahead;
    const auto take = [&](int byte) {
      ahead.byte = static_cast<uint8_t>(byte);
      ahead.made = walk_.TryDerive(id, ahead.byte);
      ahead.choice += kTaking + ahead.made.steps;
      return Fact(ahead.made.to) != Life::kDead;
    };
    bool found = hint >= 0 && first.Has(hint) && take(hint);
    const auto ends = [&](int byte) {
      found = ahead.choice <= state_.max_search && take(byte);
      return found || ahead.choice > state_.max_search;
    };
    if (!found) (edges & first).Any(ends);
    if (!found) ahead.made = {};
    if (walk_.budget().exhausted()) return ahead;
    walk_.At(id).ahead = static_cast<int32_t>(state_.ahead.size());
    state_.ahead.push_back(ahead);
    walk_.budget().Spend(0, sizeof(Ahead));
    return ahead;
  }

  // Whether the likeliest bytes of two successive states differ although the second is no nearer to
  // the end.
  bool IsTurn(RegexId from, RegexId to) const {
    const Node &one = walk_.node(from), &next = walk_.node(to);
    if (one.ahead < 0 || next.ahead < 0 || next.least < one.least) return false;
    return state_.ahead[static_cast<size_t>(one.ahead)].byte !=
           state_.ahead[static_cast<size_t>(next.ahead)].byte;
  }

  // Stores for the states of way_ how they lead to the end; `rest` describes the way after the last
  // one.
  void KeepAhead(Ahead rest) {
    for (size_t i = way_.size(); i-- > 0;) {
      const Node& n = walk_.node(way_[i].first);
      Ahead& ahead = state_.ahead[static_cast<size_t>(n.ahead)];
      if (rest.bytes > 0 && IsTurn(way_[i].first, ahead.made.to)) ++rest.turns;
      ahead.bytes = rest.bytes + 1;
      ahead.turns = rest.turns;
      ahead.cost = rest.cost + ahead.choice;
      ahead.way = std::min(n.way, rest.way + 1);
      rest = ahead;
    }
    Node& start = walk_.At(start_);
    start.way_found = rest.way;
  }

  bool Search() {
    if (gave_up_ || walk_.budget().exhausted()) return false;
    Reach(start_, 0, 0, 0);
    max_cost_ = std::min(cost_ + state_.max_search, StepMeter::kTooMuch);
    // If a known way helped last time, try known ways at once.
    const bool trusts = state_.is_learning && std::exchange(state_.trusts_ways, false);
    const size_t patience = trusts ? 0 : kTrouble;
    bool tried = false;
    while (!open_.empty() && !gave_up_) {
      if (!tried && reached_.size() > patience) {
        tried = true;
        const int64_t before = cost_, most = std::exchange(max_cost_, INT64_MAX);
        if (TryKnownWays()) return true;
        if (gave_up_) return false;
        max_cost_ = most + cost_ - before;
      }
      std::ranges::pop_heap(open_);
      const size_t at = std::get<2>(open_.back());
      open_.pop_back();
      if (Expand(at)) {
        if (reached_.size() > kTrouble && state_.is_learning) Remember();
        return true;
      }
    }
    return false;
  }

  void Push(size_t at) {
    const Reached& one = reached_[at];
    const int64_t whole = one.bytes + walk_.node(one.id).least + (one.again ? 1 : 0);
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
      // Most searches end earlier.
      if (reached_.size() == kFew) {
        for (const Reached& one : reached_) See(one.id);
      }
      if (!See(id)) return;
    }
    reached_.push_back({.id = id, .from = from, .bytes = bytes, .by = by});
    Push(reached_.size() - 1);
  }

  // Follows the next bytes of a state: first its likeliest byte, later all others. Whether one
  // leads to the end.
  bool Expand(size_t at) {
    const RegexId id = reached_[at].id;
    const ByteSet edges = walk_.Edges(id), first = walk_.MayBegin(id);
    const int32_t hint = walk_.node(id).hint;
    if (!std::exchange(reached_[at].again, true) && hint >= 0 && first.Has(hint)) {
      if (Follow(at, hint)) return true;
      if (!gave_up_) Push(at);
      return false;
    }
    // The first byte of a range stands for all of it: either all its bytes may come first or none.
    return (edges & first).Any([&](int byte) { return Follow(at, byte) || gave_up_; }) && !gave_up_;
  }

  // Follows one byte. Whether it leads to the end.
  bool Follow(size_t at, int byte) {
    RegexId next = kNothing;
    if (!Derive(reached_[at].id, byte, &next)) return false;
    if (Fact(next) == Life::kUnknown) {
      Reach(next, at, reached_[at].bytes + 1, static_cast<uint8_t>(byte));
    }
    if (Fact(next) != Life::kAlive) return false;
    way_.clear();
    for (;; at = reached_[at].from) {
      way_.emplace_back(reached_[at].id, static_cast<uint8_t>(byte));
      if (at == 0) break;
      byte = reached_[at].by;
    }
    std::ranges::reverse(way_);
    Arrive(next);
    return true;
  }

  // Records that the states of way_ lead to the end; `end` comes after the last one.
  void Arrive(RegexId end) {
    last_ = end;
    int32_t bytes = walk_.node(end).way;
    if (!state_.is_learning) {
      Node& start = walk_.At(start_);
      start.way_found = std::min(start.way_found, bytes + static_cast<int32_t>(way_.size()));
      return;
    }
    for (size_t i = way_.size(); i-- > 0;) {
      Node& n = walk_.At(way_[i].first);
      n.fact = n.life = Life::kAlive;
      n.way = bytes = std::min(n.way, bytes + 1);
      n.onward = way_[i].second;
    }
  }

  // False, and the search gives up, if this takes too long.
  bool Derive(RegexId id, int byte, RegexId* next) {
    const Derivative made = walk_.TryDerive(id, static_cast<uint8_t>(byte));
    *next = made.to;
    cost_ += kTaking + made.steps;
    gave_up_ = walk_.budget().exhausted() || made.steps >= StepMeter::kTooMuch || cost_ > max_cost_;
    return !gave_up_;
  }

  // After some of the likeliest bytes: known ways do not work in the middle of a character or an
  // escape.
  bool TryShortWays() {
    const std::vector<std::pair<RegexId, uint8_t>> likeliest = way_;
    for (size_t taken = 0; taken <= kMaxTaken && taken < likeliest.size(); ++taken) {
      for (const std::string& way : state_.ways) {
        if (way.size() > kShortWay) continue;
        for (size_t from = 0; from <= kMaxSkipped && from < way.size() && !gave_up_; ++from) {
          way_.assign(likeliest.begin(), likeliest.begin() + static_cast<ptrdiff_t>(taken));
          if (TryWay(likeliest[taken].first, std::string_view(way).substr(from))) return true;
        }
      }
    }
    return false;
  }

  bool TryKnownWays() {
    std::vector<std::string>& ways = state_.ways;
    for (size_t i = 0; i < ways.size() && !gave_up_; ++i) {
      way_.clear();
      if (!TryWay(start_, ways[i])) continue;
      if (!state_.is_learning) return true;
      std::rotate(ways.begin(), ways.begin() + static_cast<ptrdiff_t>(i),
                  ways.begin() + static_cast<ptrdiff_t>(i) + 1);
      state_.trusts_ways = true;
      return true;
    }
    return false;
  }

  // Tries a way from `id`, the state after way_.
  bool TryWay(RegexId id, std::string_view way) {
    for (const char c : way) {
      const auto byte = static_cast<uint8_t>(c);
      RegexId next = kNothing;
      if (!walk_.MayBegin(id).Has(byte) || !Derive(id, byte, &next)) return false;
      way_.emplace_back(id, byte);
      if (Fact(next) == Life::kAlive) {
        Arrive(next);
        return true;
      }
      if (Fact(next) == Life::kDead) return false;
      id = next;
    }
    return false;
  }

  // Keeps the way that was found, if it can be followed to the very end.
  void Remember() {
    std::string way;
    for (const auto& [id, byte] : way_) way.push_back(static_cast<char>(byte));
    RegexId id = last_;
    while (!walk_.pool_.AcceptsEmpty(id)) {
      const Node& n = walk_.node(id);
      const int32_t byte = n.onward != 0 ? n.onward : n.hint;
      if (byte < 0 || way.size() >= kLongestWay) return;
      id = walk_.TryDerive(id, static_cast<uint8_t>(byte)).to;
      if (id == kNothing) return;
      way.push_back(static_cast<char>(byte));
    }
    std::vector<std::string>& ways = state_.ways;
    if (ways.size() == kMaxWays) ways.pop_back();
    ways.insert(ways.begin(), std::move(way));
  }

  RegexWalk& walk_;
  regex::WalkState& state_;
  const RegexId start_;
  int64_t cost_ = 0, max_cost_ = INT64_MAX;
  bool gave_up_ = false;
  std::vector<Reached> reached_;
  std::vector<bool> seen_;
  // Minus the minimum length of a text along this way; among equals, the longest way first.
  std::vector<std::tuple<int64_t, int64_t, size_t>> open_;
  // The way that was found: its states, each with its next byte; and the state after it.
  std::vector<std::pair<RegexId, uint8_t>> way_;
  RegexId last_ = kNothing;
};

RegexWalk::Life RegexWalk::FindLife(RegexId id) {
  if (node(id).life == Life::kUnknown) LifeSearch(this, id).Run();
  return node(id).life;
}

// The cost of the search from `next`, a derivative of `id`, if the search from `id` is known: the
// part that both ways share is not counted twice.
int64_t RegexWalk::SearchBehind(RegexId id, RegexId next) {
  const int64_t whole = node(next).search;
  if (whole <= StepMeter::kDearSearch || FindLife(id) != Life::kAlive) return whole;
  if (!node(id).straight || !node(next).straight) return whole;
  if (whole <= kDearWay) return 0;
  const auto ahead = [&](RegexId at) {
    const Node& n = node(at);
    return n.fact == Life::kAlive ? Ahead{.bytes = 0} : state_.ahead[static_cast<size_t>(n.ahead)];
  };
  Ahead one = ahead(id), other = ahead(next);
  for (RegexId at = next; at != id;) {
    const int32_t bytes = one.bytes;
    if (bytes == 0 && other.bytes == 0) return whole;
    if (bytes >= other.bytes) one = ahead(id = one.made.to);
    if (bytes <= other.bytes) other = ahead(at = other.made.to);
  }
  return whole - other.cost;
}

bool RegexWalk::IsLive(RegexId id) {
  const bool is_live = FindLife(id) == Life::kAlive;
  if (node(id).search > StepMeter::kDearSearch) budget().meter().Spend(node(id).search);
  return is_live;
}

bool RegexWalk::Settle(RegexId id, size_t max_states, int64_t max_work) {
  const int64_t end = budget().work() + max_work;
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
      if (budget().exhausted() || budget().work() > end) return false;
      if (to == kNothing || !seen.insert(to).second) continue;
      if (seen.size() > max_states) return false;
      todo.push_back(to);
    }
  }
  return true;
}

}  // namespace weft::constraint
