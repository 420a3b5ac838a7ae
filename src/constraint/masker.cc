#include "constraint/masker.h"

#include <algorithm>
#include <unordered_set>

namespace weft::constraint {
namespace {

// A terminal with fewer first bytes allows few tokens.
constexpr int kWideBytes = 64;
// A walk that keeps more automaton states than this for one position asks for no slice.
constexpr size_t kMostFrontier = 64;
// What all searches for ways to the end may take in a mask.
constexpr int64_t kMostMaskSearch = 500'000;
// Bytes of a character, at most.
constexpr int kMostUtf8 = 4;
// Fewer characters than this, of one byte each, make no likeness.
constexpr int kLikeBytes = 48;

// A leaf that leads elsewhere counts as so many entries: whether to a fresh state is not looked at.
constexpr int64_t kLeafEntries = 7;
// An entry of a plan, and a search by bytes, count as so many steps.
constexpr int64_t kEntry = 64;

// Leading bytes that are followed alike, their first continuation, and how many more come.
struct LeadRange {
  int first, last, low, high, more;
};
constexpr LeadRange kLeads[] = {{0xC2, 0xDF, 0x80, 0xBF, 0}, {0xE0, 0xE0, 0xA0, 0xBF, 1},
                                {0xE1, 0xEC, 0x80, 0xBF, 1}, {0xED, 0xED, 0x80, 0x9F, 1},
                                {0xEE, 0xEF, 0x80, 0xBF, 1}, {0xF0, 0xF0, 0x90, 0xBF, 2},
                                {0xF1, 0xF3, 0x80, 0xBF, 2}, {0xF4, 0xF4, 0x80, 0x8F, 2}};

int32_t WideIndex(RegexId regex, bool is_last) { return 2 * regex + (is_last ? 1 : 0); }

void SetBit(std::span<uint32_t> mask, TokenId id) {
  mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
}
void ClearBit(std::span<uint32_t> mask, TokenId id) {
  mask[static_cast<size_t>(id) / 32] &= ~(1u << (id % 32));
}

}  // namespace

// How many characters of the slice's kind the terminal takes, whichever they are, without
// coming to its end (which matters only where something follows): at most kSliceLength.
int Masker::SliceRoom(RegexId regex, bool is_last, const TokenTable::Slice& slice) {
  RegexPool& pool = machine_.pool();
  std::vector<RegexId> frontier{regex}, seen{regex};
  for (int length = 0; length < TokenTable::kSliceLength; ++length) {
    std::vector<RegexId> next;
    bool fits = true;
    const int ahead = TokenTable::kSliceLength - length - 1;  // in characters
    const auto take = [&](RegexId from, int first, int last, std::vector<RegexId>* out,
                          bool whole) {
      machine_.Count(kFreshState);
      fits = fits && !IsTooMuch();
      const ByteSet edges = pool.Edges(from);
      for (int byte = first; fits && byte <= last; ++byte) {
        if (byte != first && !edges.Has(byte) && (byte >= 0x80 || slice.bytes.Has(byte - 1)))
          continue;
        if (byte < 0x80 && !slice.bytes.Has(byte)) continue;
        RegexId to = pool.Derive(from, static_cast<uint8_t>(byte));
        if (whole && to != kNothing) to = Near(to, (slice.utf8 ? kMostUtf8 : 1) * ahead);
        fits = to != kNothing && (is_last || !(whole && pool.AcceptsEmpty(to))) && to != kEmpty;
        if (fits && std::ranges::find(*out, to) == out->end()) out->push_back(to);
      }
    };
    for (const RegexId from : frontier) {
      take(from, 0, 0x7F, &next, true);
      if (!slice.utf8) continue;
      for (const LeadRange& lead : kLeads) {
        std::vector<RegexId> at;
        take(from, lead.first, lead.last, &at, false);
        for (int i = 0; i <= lead.more; ++i) {
          std::vector<RegexId> behind;
          std::vector<RegexId>* out = i == lead.more ? &next : &behind;
          for (const RegexId state : at) {
            take(state, i == 0 ? lead.low : 0x80, i == 0 ? lead.high : 0xBF, out, i == lead.more);
          }
          at = std::move(behind);
        }
      }
    }
    if (!fits || next.size() > kMostFrontier || machine_.exhausted()) return length;
    std::ranges::sort(next);
    if (std::ranges::includes(seen, next)) return TokenTable::kSliceLength;
    std::vector<RegexId> all;
    std::ranges::set_union(seen, next, std::back_inserter(all));
    seen = std::move(all);
    frontier = std::move(next);
  }
  return TokenTable::kSliceLength;
}

RegexId Masker::FindBehindText(RegexId regex, bool is_last) {
  RegexPool& pool = machine_.pool();
  const ByteSet& text = tokens_.text().bytes;
  // Follows all bytes of the range to `target`; false where they part.
  const auto follow = [&](RegexId from, int first, int last, RegexId* target) {
    const ByteSet edges = pool.Edges(from);
    for (int byte = first; byte <= last; ++byte) {
      const bool taken = byte >= 0x80 || text.Has(byte);
      const bool fresh = byte == first || edges.Has(byte) || (byte < 0x80 && !text.Has(byte - 1));
      if (!taken || !fresh) continue;
      const RegexId to = pool.Derive(from, static_cast<uint8_t>(byte));
      if (to == kNothing || (*target != kNothing && to != *target)) return false;
      *target = to;
    }
    return true;
  };
  RegexId behind = kNothing;
  if (!follow(regex, 0, 0x7F, &behind)) return kNothing;
  for (const LeadRange& lead : kLeads) {
    RegexId at = kNothing;
    if (!follow(regex, lead.first, lead.last, &at)) return kNothing;
    for (int i = 0; i <= lead.more; ++i) {
      RegexId next = i == lead.more ? behind : kNothing;
      if (!follow(at, i == 0 ? lead.low : 0x80, i == 0 ? lead.high : 0xBF, &next)) return kNothing;
      at = next;
    }
  }
  return !is_last && pool.AcceptsEmpty(behind) ? kNothing : behind;
}

RegexId Masker::BehindText(RegexId regex, bool is_last) {
  const int32_t key = WideIndex(regex, is_last);
  if (const auto it = behind_text_.find(key); it != behind_text_.end()) {
    RecallPart(it->second.second);
    return it->second.first;
  }
  Part part(this);
  machine_.Count(kEntry);
  const RegexId behind = FindBehindText(regex, is_last);
  behind_text_[key] = {behind, part.Close()};
  bytes_ += 40;
  return behind;
}

// What is left behind most characters of one byte.
RegexId Masker::MostlyBehindText(RegexId regex) {
  RegexPool& pool = machine_.pool();
  const ByteSet edges = pool.Edges(regex);
  std::vector<std::pair<RegexId, int>> counts;
  RegexId to = kNothing;
  for (int byte = 0x20; byte < 0x7F; ++byte) {
    if (byte == 0x20 || edges.Has(byte)) to = pool.Derive(regex, static_cast<uint8_t>(byte));
    if (to == kNothing) continue;
    const auto it = std::ranges::find(counts, to, &std::pair<RegexId, int>::first);
    if (it == counts.end()) {
      counts.emplace_back(to, 1);
    } else if (++it->second >= kLikeBytes) {
      return to;
    }
  }
  return kNothing;
}

// The tokens of a trie that stay inside of the terminal or end with it. Those of at most `room`
// characters are known already.
void Masker::WalkTerminal(RegexId regex, size_t trie_index, int room, Wide* wide) {
  RegexPool& pool = machine_.pool();
  const TokenTrie& trie = tokens_.trie(trie_index);
  regexes_.resize(TokenTable::kMostTokenBytes + 1);
  regexes_[0] = regex;
  const auto end = static_cast<int32_t>(trie.size());
  int64_t entries = 0;
  for (int32_t at = 0; at < end;) {
    const TrieNode& node = trie[static_cast<size_t>(at)];
    ++entries;
    if (node.depth + node.height <= room) {
      at = node.next;
      continue;
    }
    RegexId next = pool.Derive(regexes_[node.depth - 1u], node.byte);
    if (next == kNothing) {
      at = node.next;
      continue;
    }
    const bool leaf = node.next == at + 1;
    if (!leaf) next = Near(next, node.height);
    const bool stays = next == regexes_[node.depth - 1u];
    if (leaf) {
      entries += stays ? 0 : kLeafEntries;
    } else if (!stays && !Visit(pool.Mark(next, part_))) {
      return;
    }
    regexes_[node.depth] = next;
    for (TokenId id = node.token; id != kNoToken; id = tokens_.Next(trie_index, id)) {
      SetBit(wide->mask, id);
    }
    if (!leaf && pool.AcceptsEmpty(next)) {
      wide->crossings.push_back({trie_index, at});
    }
    at = next == kEmpty ? node.next : at + 1;
  }
  machine_.Count(entries / kEntriesOfStep);
}

// Where the terminal goes other ways than `wide->like`: what becomes of the tokens there. False
// where that cannot be said.
bool Masker::WalkUnlike(RegexId regex, bool is_last, size_t trie_index, Wide* wide) {
  RegexPool& pool = machine_.pool();
  const TokenTrie& trie = tokens_.trie(trie_index);
  regexes_.resize(TokenTable::kMostTokenBytes + 1);
  other_regexes_.resize(TokenTable::kMostTokenBytes + 1);
  regexes_[0] = regex;
  other_regexes_[0] = wide->like;
  const auto own = [&](int32_t node, bool allowed) {
    for (TokenId id = trie[static_cast<size_t>(node)].token; id != kNoToken;
         id = tokens_.Next(trie_index, id)) {
      wide->own.push_back(id);
      if (allowed) {
        SetBit(wide->mask, id);
      } else {
        ClearBit(wide->mask, id);
      }
    }
  };
  const auto end = static_cast<int32_t>(trie.size());
  int64_t entries = 0;
  for (int32_t at = 0; at < end;) {
    const TrieNode& node = trie[static_cast<size_t>(at)];
    ++entries;
    const RegexId next = pool.Derive(regexes_[node.depth - 1u], node.byte);
    const RegexId other = pool.Derive(other_regexes_[node.depth - 1u], node.byte);
    if (next == other) {
      at = node.next;
      continue;
    }
    if (!Visit(pool.Mark(next, part_)) || !Visit(pool.Mark(other, part_))) return true;
    own(at, next != kNothing);
    const bool leaf = node.next == at + 1;
    if (next == kNothing || next == kEmpty || other == kEmpty) {
      // Below, both say something else, or nothing.
      for (int32_t below = at + 1; below < node.next; ++below) own(below, false);
      if (next == kEmpty && !leaf) wide->crossings.push_back({trie_index, at});
    } else if (!is_last && (pool.AcceptsEmpty(next) || pool.AcceptsEmpty(other))) {
      return false;
    }
    regexes_[node.depth] = next;
    other_regexes_[node.depth] = other == kEmpty ? kNothing : other;
    at = next == kNothing || next == kEmpty ? node.next : at + 1;
  }
  machine_.Count(entries / kEntriesOfStep);
  return true;
}

bool Masker::FillByCounting(RegexId regex, bool is_last, Wide* wide) {
  std::vector<RegexId> chain{regex};  // [n]: behind n characters
  while (chain.size() <= TokenTable::kMostLead) {
    const RegexId next = BehindText(chain.back(), is_last);
    if (next == kNothing) break;
    chain.push_back(next);
  }
  const auto room = static_cast<int>(chain.size()) - 1;
  if (room == 0) return false;
  if (room < TokenTable::kMostLead) {
    // At the end of the chain no character of text may come at all.
    const ByteSet text = tokens_.text().bytes | ByteSet::Range(0x80, 0xFF);
    if (!(machine_.pool().FirstBytes(chain.back()) & text).IsEmpty()) return false;
  }
  wide->mask = tokens_.TextMask(std::min(room, TokenTable::kSliceLength));
  for (const TokenTable::LongText& text : tokens_.long_texts()) {
    if (text.characters > room) break;
    SetBit(wide->mask, text.id);
  }
  for (int n = 0; n <= room; ++n) {
    WalkTerminal(chain[static_cast<size_t>(n)], tokens_.tails(n), 0, wide);
  }
  if (room == TokenTable::kMostLead) WalkTerminal(regex, tokens_.far(), 0, wide);
  return true;
}

bool Masker::FillByLikeness(RegexId regex, bool is_last, Wide* wide) {
  const RegexId like = MostlyBehindText(regex);
  if (like == kNothing || like == regex || BehindText(like, is_last) != like) return false;
  const Wide& model = WideOf(like, is_last);
  if (!model.usable || model.like != kNothing) return false;
  wide->like = like;
  wide->mask = model.mask;
  for (size_t trie = 0; trie <= tokens_.rest(); ++trie) {
    if (!WalkUnlike(regex, is_last, trie, wide)) {
      *wide = Wide{};
      return false;
    }
  }
  std::ranges::sort(wide->own);
  wide->own.erase(std::unique(wide->own.begin(), wide->own.end()), wide->own.end());
  return true;
}

RegexId Masker::Near(RegexId regex, int bytes) {
  constexpr auto kNear = TokenTable::kNear;
  for (size_t near = 0; near < kNear.size(); ++near) {
    if (bytes <= kNear[near]) return machine_.pool().Relaxed(regex, near);
  }
  return regex;
}

bool Masker::FillByRelaxing(RegexId regex, bool is_last, Wide* wide) {
  for (size_t near = TokenTable::kNear.size(); near-- > 0;) {
    const RegexId like = machine_.pool().Relaxed(regex, near);
    if (like == regex || !WideOf(like, is_last).usable) continue;
    wide->like = like;
    wide->beyond = static_cast<int>(near);
    wide->mask = wides_.at(WideIndex(like, is_last)).mask;
    const std::vector<uint32_t>& beyond = tokens_.BeyondMask(near);
    for (size_t w = 0; w < beyond.size(); ++w) wide->mask[w] &= ~beyond[w];
    WalkTerminal(regex, tokens_.beyond(near), 0, wide);
    return true;
  }
  return false;
}

bool Masker::IsOwn(const Wide& wide, TokenId id) const {
  if (wide.beyond < 0) return std::ranges::binary_search(wide.own, id);
  const auto word = static_cast<size_t>(id) / 32;
  return (tokens_.BeyondMask(static_cast<size_t>(wide.beyond))[word] >> (id % 32) & 1) != 0;
}

void Masker::FillBySlices(RegexId regex, bool is_last, Wide* wide) {
  const auto& slices = tokens_.slices();
  const bool all_text = machine_.pool().TakesAllText(regex);
  std::vector<int> room(slices.size(), TokenTable::kSliceLength);
  bool usable = all_text;
  for (size_t s = all_text ? 0 : slices.size(); s-- > 0;) {
    room[s] = SliceRoom(regex, is_last, slices[s]);
    usable |= room[s] > 0;
    if (room[s] == TokenTable::kSliceLength) {
      std::fill_n(room.begin(), s, TokenTable::kSliceLength);
      break;
    }
  }
  if (!usable) return;
  wide->mask.assign(tokens_.mask_words(), 0);
  for (size_t s = 0; s < slices.size(); ++s) {
    const auto& mask = slices[s].masks[static_cast<size_t>(room[s])];
    for (size_t w = 0; w < mask.size(); ++w) wide->mask[w] |= mask[w];
    if (room[s] < TokenTable::kSliceLength) WalkTerminal(regex, s, room[s], wide);
  }
  if (all_text) {
    // Whatever its length.
    for (const TokenTable::LongText& text : tokens_.long_texts()) SetBit(wide->mask, text.id);
    WalkTerminal(regex, tokens_.far(), 0, wide);
  } else {
    WalkTerminal(regex, tokens_.longer(), 0, wide);
  }
  WalkTerminal(regex, tokens_.rest(), 0, wide);
}

const Masker::Wide& Masker::WideOf(RegexId regex, bool is_last) {
  const auto [it, added] = wides_.try_emplace(WideIndex(regex, is_last));
  Wide& wide = it->second;
  if (!added) {
    RecallPart(0);
    return wide;
  }
  bytes_ += 64;
  Part part(this);
  machine_.Count(kEntry);
  if (!FillByCounting(regex, is_last, &wide) && !FillByLikeness(regex, is_last, &wide) &&
      !FillByRelaxing(regex, is_last, &wide)) {
    FillBySlices(regex, is_last, &wide);
  }
  if (is_last) wide.crossings.clear();
  wide.usable = !wide.mask.empty();
  bytes_ += static_cast<int64_t>(wide.mask.size() * 4 + wide.crossings.size() * sizeof(Crossing) +
                                 wide.own.size() * sizeof(TokenId));
  wide.steps = part.Close(/*count=*/false);
  return wide;
}

// The nodes with tokens whose bytes from `base` on lead from `state` to a state that is not dead,
// among the nodes [first, end) of a trie.
template <typename Found>
void Masker::WalkState(StateId state, const TokenTrie& trie, int32_t first, int32_t end, int base,
                       const Found& found) {
  states_.resize(TokenTable::kMostTokenBytes + 1);
  states_[static_cast<size_t>(base)] = state;
  int64_t entries = 0;
  for (int32_t at = first; at < end;) {
    const TrieNode& node = trie[static_cast<size_t>(at)];
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
    if (node.token != kNoToken) found(node.token);
    ++at;
  }
  machine_.Count(entries / kEntriesOfStep);
}

int32_t Masker::Keep(std::vector<TokenId> list, int64_t steps) {
  bytes_ += 64 + static_cast<int64_t>(list.size() * sizeof(TokenId));
  lists_.push_back({std::move(list), steps});
  return static_cast<int32_t>(lists_.size()) - 1;
}

int32_t Masker::ListBehind(RegexId regex, bool is_last, StateId after) {
  const uint64_t key = static_cast<uint64_t>(regex) << 32 | static_cast<uint32_t>(after);
  if (const auto it = behind_.find(key); it != behind_.end()) {
    RecallPart(lists_[static_cast<size_t>(it->second)].steps);
    return it->second;
  }
  Part part(this);
  const Wide& wide = wides_.at(WideIndex(regex, is_last));
  std::vector<TokenId> list;
  if (wide.like != kNothing) {
    const auto model = static_cast<size_t>(ListBehind(wide.like, is_last, after));
    for (const TokenId id : lists_[model].tokens) {
      if (!IsOwn(wide, id)) list.push_back(id);
    }
  }
  for (const Crossing& crossing : wide.crossings) {
    const TokenTrie& trie = tokens_.trie(crossing.trie);
    const TrieNode& node = trie[static_cast<size_t>(crossing.node)];
    WalkState(after, trie, crossing.node + 1, node.next, node.depth, [&](TokenId first) {
      for (TokenId id = first; id != kNoToken; id = tokens_.Next(crossing.trie, id))
        list.push_back(id);
    });
  }
  machine_.Count(static_cast<int64_t>(list.size()) / 8);
  return behind_[key] = Keep(std::move(list), part.Close());
}

int32_t Masker::ListOf(StateId state) {
  Part part(this);
  std::vector<TokenId> list;
  const TokenTrie& trie = tokens_.all();
  WalkState(state, trie, 0, static_cast<int32_t>(trie.size()), 0, [&](TokenId first) {
    for (TokenId id = first; id != kNoToken; id = tokens_.NextTwin(id)) list.push_back(id);
  });
  return Keep(std::move(list), part.Close());
}

const Masker::Plan& Masker::PlanOf(StateId state) {
  if (const auto it = plans_.find(state); it != plans_.end()) return it->second;
  Plan plan;
  Part part(this);
  std::vector<ParserThread> narrow;
  std::unordered_set<int32_t> counted;
  const auto span = machine_.Threads(state);
  const std::vector<ParserThread> threads(span.begin(), span.end());
  for (const ParserThread& thread : threads) {
    machine_.Count(kEntry);
    if (IsTooMuch()) break;
    if (machine_.pool().FirstBytes(thread.regex).Count() < kWideBytes) {
      narrow.push_back(thread);
      continue;
    }
    const StateId after = machine_.After(thread);
    // What cannot be followed any more is not what nothing follows.
    const bool is_last = after != kDeadState && machine_.Threads(after).empty();
    const bool usable = WideOf(thread.regex, is_last).usable;
    // Each counts once, and so does what it is like.
    for (RegexId regex = thread.regex;
         regex != kNothing && counted.insert(WideIndex(regex, is_last)).second;) {
      const Wide& wide = wides_.at(WideIndex(regex, is_last));
      machine_.Count(wide.steps);
      regex = wide.like;
    }
    if (IsTooMuch()) break;
    if (usable) {
      plan.wide.emplace_back(WideIndex(thread.regex, is_last),
                             ListBehind(thread.regex, is_last, after));
    } else {
      narrow.push_back(thread);
    }
  }
  if (!narrow.empty()) plan.narrow = ListOf(machine_.WithThreads(std::move(narrow), false));
  plan.steps = part.Close();
  bytes_ += 104;
  return plans_.emplace(state, std::move(plan)).first->second;
}

void Masker::Fill(StateId state, std::span<uint32_t> out) {
  machine_.BeginCount(kMostMaskSearch);
  const Plan& plan = PlanOf(state);
  if (plan.steps > kMostSteps) {
    std::ranges::fill(out, 0u);
    return;
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
  // What was found behind a limit is not to be believed.
  if (machine_.exhausted()) std::ranges::fill(out, 0u);
}

}  // namespace weft::constraint
