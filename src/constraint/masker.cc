#include "constraint/masker.h"

#include <algorithm>
#include <array>

namespace weft::constraint {
namespace {

// A terminal with fewer first bytes allows few tokens.
constexpr int kWideBytes = 64;
// A walk that keeps more automaton states than this for one position asks for no slice.
constexpr size_t kMostFrontier = 64;

void SetBit(std::span<uint32_t> mask, TokenId id) {
  mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
}

}  // namespace

// How many characters of the slice's kind the terminal takes, whichever they are, without
// coming to its end: at most kSliceLength.
int Masker::SliceRoom(RegexId regex, const TokenTable::Slice& slice) {
  RegexPool& pool = machine_.pool();
  std::vector<RegexId> frontier{regex}, seen{regex};
  for (int length = 0; length < TokenTable::kSliceLength; ++length) {
    std::vector<RegexId> next;
    bool fits = true;
    const auto take = [&](RegexId from, int first, int last, std::vector<RegexId>* out,
                          bool whole) {
      const ByteSet edges = pool.Edges(from);
      for (int byte = first; fits && byte <= last; ++byte) {
        if (byte != first && !edges.Has(byte) && (byte >= 0x80 || slice.bytes.Has(byte - 1)))
          continue;
        if (byte < 0x80 && !slice.bytes.Has(byte)) continue;
        const RegexId to = pool.Derive(from, static_cast<uint8_t>(byte));
        fits = to != kNothing && !(whole && pool.AcceptsEmpty(to)) && to != kEmpty;
        if (fits && std::ranges::find(*out, to) == out->end()) out->push_back(to);
      }
    };
    for (const RegexId from : frontier) {
      take(from, 0, 0x7F, &next, true);
      if (!slice.utf8) continue;
      // Leading bytes that are followed alike, and their first continuation.
      struct Lead {
        int first, last, low, high, more;
      };
      constexpr Lead kLeads[] = {{0xC2, 0xDF, 0x80, 0xBF, 0}, {0xE0, 0xE0, 0xA0, 0xBF, 1},
                                 {0xE1, 0xEC, 0x80, 0xBF, 1}, {0xED, 0xED, 0x80, 0x9F, 1},
                                 {0xEE, 0xEF, 0x80, 0xBF, 1}, {0xF0, 0xF0, 0x90, 0xBF, 2},
                                 {0xF1, 0xF3, 0x80, 0xBF, 2}, {0xF4, 0xF4, 0x80, 0x8F, 2}};
      for (const Lead& lead : kLeads) {
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

// The tokens of a trie that stay inside of the terminal or end with it.
void Masker::WalkTerminal(RegexId regex, uint32_t trie_index, Wide* wide) {
  RegexPool& pool = machine_.pool();
  const TokenTrie& trie = tokens_.trie(trie_index);
  regexes_.resize(TokenTable::kMostTokenBytes + 1);
  regexes_[0] = regex;
  const auto end = static_cast<int32_t>(trie.size());
  for (int32_t at = 0; at < end;) {
    const TrieNode& node = trie[static_cast<size_t>(at)];
    const RegexId next = pool.Derive(regexes_[node.depth - 1u], node.byte);
    if (next == kNothing) {
      at = node.next;
      continue;
    }
    regexes_[node.depth] = next;
    for (TokenId id = node.token; id != kNoToken; id = tokens_.NextTwin(id)) SetBit(wide->mask, id);
    const bool leaf = node.next == at + 1;
    if (!leaf && pool.AcceptsEmpty(next)) wide->crossings.push_back({trie_index, at});
    at = next == kEmpty ? node.next : at + 1;
  }
}

const Masker::Wide& Masker::WideOf(RegexId regex) {
  const auto [it, added] = wides_.try_emplace(regex);
  Wide& wide = it->second;
  bytes_ += 64;
  if (!added) return wide;
  if (machine_.pool().FirstBytes(regex).Count() < kWideBytes) return wide;
  std::array<int, 8> room{};
  const auto& slices = tokens_.slices();
  // A later slice contains the earlier ones' characters.
  for (size_t s = slices.size(); s-- > 0;) {
    room[s] = SliceRoom(regex, slices[s]);
    wide.usable |= room[s] > 0;
    if (room[s] == TokenTable::kSliceLength) {
      std::fill_n(room.begin(), s, TokenTable::kSliceLength);
      break;
    }
  }
  if (!wide.usable) return wide;
  wide.mask.assign(tokens_.mask_words(), 0);
  for (size_t s = 0; s < slices.size(); ++s) {
    const auto& mask = slices[s].masks[static_cast<size_t>(room[s])];
    for (size_t w = 0; w < mask.size(); ++w) wide.mask[w] |= mask[w];
    if (room[s] < TokenTable::kSliceLength) WalkTerminal(regex, static_cast<uint32_t>(s), &wide);
  }
  WalkTerminal(regex, static_cast<uint32_t>(slices.size()), &wide);
  bytes_ += static_cast<int64_t>(wide.mask.size() * 4 + wide.crossings.size() * sizeof(Crossing));
  return wide;
}

// The tokens whose bytes from `base` on lead from `state` to a state that is not dead, among
// the nodes [first, end) of a trie.
template <typename Found>
void Masker::WalkState(StateId state, const TokenTrie& trie, int32_t first, int32_t end, int base,
                       const Found& found) {
  states_.resize(TokenTable::kMostTokenBytes + 1);
  states_[static_cast<size_t>(base)] = state;
  for (int32_t at = first; at < end;) {
    const TrieNode& node = trie[static_cast<size_t>(at)];
    const StateId next = machine_.Step(states_[node.depth - 1u], node.byte);
    if (next == kDeadState) {
      at = node.next;
      continue;
    }
    states_[node.depth] = next;
    for (TokenId id = node.token; id != kNoToken; id = tokens_.NextTwin(id)) found(id);
    ++at;
  }
}

int32_t Masker::ListBehind(RegexId regex, StateId after) {
  const uint64_t key = static_cast<uint64_t>(regex) << 32 | static_cast<uint32_t>(after);
  const auto [it, added] = behind_.try_emplace(key, static_cast<int32_t>(lists_.size()));
  if (!added) return it->second;
  std::vector<TokenId> list;
  for (const Crossing& crossing : WideOf(regex).crossings) {
    const TokenTrie& trie = tokens_.trie(crossing.trie);
    const TrieNode& node = trie[static_cast<size_t>(crossing.node)];
    WalkState(after, trie, crossing.node + 1, node.next, node.depth,
              [&](TokenId id) { list.push_back(id); });
  }
  bytes_ += 64 + static_cast<int64_t>(list.size() * sizeof(TokenId));
  lists_.push_back(std::move(list));
  return static_cast<int32_t>(lists_.size()) - 1;
}

int32_t Masker::ListOf(StateId state) {
  std::vector<TokenId> list;
  const TokenTrie& trie = tokens_.all();
  WalkState(state, trie, 0, static_cast<int32_t>(trie.size()), 0,
            [&](TokenId id) { list.push_back(id); });
  bytes_ += 64 + static_cast<int64_t>(list.size() * sizeof(TokenId));
  lists_.push_back(std::move(list));
  return static_cast<int32_t>(lists_.size()) - 1;
}

const Masker::Plan& Masker::PlanOf(StateId state) {
  if (const auto it = plans_.find(state); it != plans_.end()) return it->second;
  Plan plan;
  std::vector<ParserThread> narrow;
  const auto span = machine_.Threads(state);
  const std::vector<ParserThread> threads(span.begin(), span.end());
  for (const ParserThread& thread : threads) {
    if (WideOf(thread.regex).usable) {
      plan.wide.emplace_back(thread.regex, ListBehind(thread.regex, machine_.After(thread)));
    } else {
      narrow.push_back(thread);
    }
  }
  if (!narrow.empty()) plan.narrow = ListOf(machine_.WithThreads(std::move(narrow), false));
  bytes_ += 96;
  return plans_.emplace(state, std::move(plan)).first->second;
}

void Masker::Fill(StateId state, std::span<uint32_t> out) {
  const Plan& plan = PlanOf(state);
  bool filled = false;
  for (const auto& [regex, list] : plan.wide) {
    const std::vector<uint32_t>& mask = wides_.at(regex).mask;
    if (!filled) {
      std::ranges::copy(mask, out.begin());
    } else {
      for (size_t w = 0; w < mask.size(); ++w) out[w] |= mask[w];
    }
    filled = true;
    for (const TokenId id : lists_[static_cast<size_t>(list)]) SetBit(out, id);
  }
  if (!filled) std::ranges::fill(out, 0u);
  if (plan.narrow >= 0) {
    for (const TokenId id : lists_[static_cast<size_t>(plan.narrow)]) SetBit(out, id);
  }
  if (machine_.Accepts(state)) {
    for (const TokenId id : tokens_.ends()) SetBit(out, id);
  }
}

}  // namespace weft::constraint
