#include "constraint/masker.h"
#include "constraint/regex/analysis.h"
#include "constraint/regex/walk.h"

#include <algorithm>
#include <tuple>
#include <unordered_set>
#include <utility>

namespace weft::constraint {
namespace {

// A terminal with fewer possible first bytes allows few tokens.
constexpr int kWideBytes = 64;
// The cost of one entry of a plan, in steps.
constexpr int64_t kEntry = 64;

}  // namespace

// Walks the nodes [first, end) of a trie from `state`, which is the state at depth `base`, and
// reports the tokens that do not lead to the dead state.
template <typename Found>
void Masker::WalkState(StateId state, const TokenTrie& trie, int32_t first, int32_t end, int base,
                       const Found& found) {
  states_.resize(TokenTable::kMaxTokenBytes + 1);
  states_[static_cast<size_t>(base)] = state;
  int64_t entries = 0;
  for (int32_t at = first; at < end;) {
    const TrieNode& node = trie[at];
    ++entries;
    const StateId next = machine_.Step(states_[node.depth - 1u], node.byte);
    if (next == kDeadState) {
      at = node.next;
      continue;
    }
    if (node.next == at + 1) {
      entries += kLeafEntries;
    } else if (!Visit(machine_.Mark(next, part_))) {
      return;
    }
    states_[node.depth] = next;
    for (const TokenId id : trie.Tokens(at, at + 1)) found(id);
    ++at;
  }
  machine_.Count(entries / kEntriesOfStep);
}

int32_t Masker::Keep(std::vector<TokenId> list, int64_t steps) {
  bytes_ += 64 + static_cast<int64_t>(list.size() * sizeof(TokenId));
  lists_.push_back({std::move(list), steps});
  return static_cast<int32_t>(lists_.size()) - 1;
}

int32_t Masker::ListBehind(const Terminal& terminal, StateId after) {
  const uint64_t key = static_cast<uint64_t>(terminal.index()) << 32 | static_cast<uint32_t>(after);
  if (const auto it = behind_.find(key); it != behind_.end()) {
    RecallPart(lists_[static_cast<size_t>(it->second)].steps);
    return it->second;
  }
  Part part(this);
  const Wide& wide = wides_.at(terminal.index());
  std::vector<TokenId> list;
  if (wide.like != kNothing) {
    const auto model = static_cast<size_t>(ListBehind({wide.like, terminal.is_last}, after));
    for (const TokenId id : lists_[model].tokens) {
      if (!IsOwn(wide, id)) list.push_back(id);
    }
  }
  for (const Crossing& crossing : wide.crossings) {
    const TokenTrie& trie = tokens_.trie(crossing.trie);
    const TrieNode& node = trie[crossing.node];
    WalkState(after, trie, crossing.node + 1, node.next, node.depth,
              [&](TokenId id) { list.push_back(id); });
  }
  machine_.Count(static_cast<int64_t>(list.size()) / 8);
  return behind_[key] = Keep(std::move(list), part.Close());
}

int32_t Masker::ListOf(StateId state) {
  Part part(this);
  std::vector<TokenId> list;
  const TokenTrie& trie = tokens_.all();
  WalkState(state, trie, 0, trie.size(), 0, [&](TokenId id) { list.push_back(id); });
  return Keep(std::move(list), part.Close());
}

// Puts the threads first that accept any text, then those to which most characters lead back: their
// masks also serve the states after this one. The order is the same in all states, because after
// the first thread that accepts all texts the others are asked for less.
void Masker::Rank(std::vector<ParserThread>* wide) {
  RegexPool& pool = machine_.pool();
  std::vector<std::tuple<int, uint64_t, ParserThread>> ranked;
  for (const ParserThread& thread : *wide) {
    const bool leads_back = MostlyBehindText(thread.regex) == thread.regex;
    const int kind = pool.analysis().TakesAllText(thread.regex) ? 0 : leads_back ? 1 : 2;
    ranked.emplace_back(kind, pool.Print(thread.regex), thread);
  }
  std::ranges::stable_sort(
      ranked, {}, [](const auto& one) { return std::pair(std::get<0>(one), std::get<1>(one)); });
  std::ranges::transform(ranked, wide->begin(), [](const auto& one) { return std::get<2>(one); });
}

const Masker::Plan& Masker::PlanOf(StateId state) {
  if (const auto it = plans_.find(state); it != plans_.end()) return it->second;
  Plan plan;
  Part part(this);
  std::vector<ParserThread> narrow;
  std::unordered_set<int32_t> counted;
  std::vector<ParserThread> wide;
  for (const ParserThread& thread : machine_.Threads(state)) {
    machine_.Count(kEntry);
    if (IsTooMuch()) break;
    const bool many = machine_.pool().walk().HasFirstBytes(thread.regex, kWideBytes);
    (many ? wide : narrow).push_back(thread);
  }
  if (wide.size() > 1) Rank(&wide);
  bool texts = false;  // a thread before accepts all of them
  for (const ParserThread& thread : wide) {
    machine_.Count(kEntry);
    if (IsTooMuch()) break;
    const StateId after = machine_.After(thread);
    // A dead state also has no threads, but it does not mean that nothing follows.
    const bool is_last = after != kDeadState && machine_.Threads(after).empty();
    const Terminal terminal{thread.regex, is_last, texts};
    const bool usable = WideOf(terminal).usable;
    // Count each terminal once, and likewise the one it is derived from.
    for (Terminal one = terminal; one.regex != kNothing && counted.insert(one.index()).second;) {
      const Wide& known = wides_.at(one.index());
      machine_.Count(known.steps);
      one = {known.like, is_last};
    }
    if (IsTooMuch()) break;
    texts |= wides_.at(terminal.index()).takes_texts;
    if (usable) {
      plan.wide.emplace_back(terminal.index(), ListBehind(terminal, after));
    } else {
      narrow.push_back(thread);
    }
  }
  if (!narrow.empty()) plan.narrow = ListOf(machine_.WithThreads(std::move(narrow), false));
  plan.steps = part.Close();
  bytes_ += 104;
  return plans_.emplace(state, std::move(plan)).first->second;
}

bool Masker::Fill(StateId state, std::span<uint32_t> out) {
  machine_.BeginCount(max_steps_);
  const Plan& plan = PlanOf(state);
  if (plan.steps > max_steps_) {
    std::ranges::fill(out, 0u);
    return false;
  }
  bool filled = false;
  for (const auto& [wide, list] : plan.wide) {
    const std::vector<uint32_t>& mask = wides_.at(wide).mask;
    if (!filled) {
      std::ranges::copy(mask, out.begin());
    } else {
      for (size_t w = 0; w < mask.size(); ++w) out[w] |= mask[w];
    }
    filled = true;
    for (const TokenId id : lists_[static_cast<size_t>(list)].tokens) SetBit(out, id);
  }
  if (!filled) std::ranges::fill(out, 0u);
  if (plan.narrow >= 0) {
    for (const TokenId id : lists_[static_cast<size_t>(plan.narrow)].tokens) SetBit(out, id);
  }
  if (machine_.Accepts(state)) {
    for (const TokenId id : tokens_.ends()) SetBit(out, id);
  }
  // Results after a limit cannot be trusted.
  if (machine_.exhausted()) std::ranges::fill(out, 0u);
  return true;
}

}  // namespace weft::constraint
