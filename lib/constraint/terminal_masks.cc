// Masks of terminals, independent of their context.
#include <algorithm>
#include <utility>

#include "constraint/masker.h"
#include "constraint/regex/analysis.h"
#include "constraint/regex/walk.h"

namespace weft::constraint {
namespace {

// FillByLikeness: at least this many one-byte characters must lead to the same state.
constexpr int kLikeBytes = 48;
// The walk gives up after this many trie entries.
constexpr int64_t kMaxUnlike = 24'000;
// The walk gives up if more tokens than this differ.
constexpr size_t kMaxOwn = 4096;
// This many entries that are only marked cost as much as one that is walked.
constexpr int kMarkedOfEntry = 8;
// For smaller subtrees, or longer texts, finding the characters that keep the state would cost more
// than walking.
constexpr int32_t kFewEntries = 8;
// The cost of one search over the bytes of a state, in steps.
constexpr int64_t kSearch = 64;

bool Includes(const std::vector<uint32_t>& mask, const std::vector<uint32_t>& part) {
  if (mask.empty()) return false;
  for (size_t w = 0; w < part.size(); ++w) {
    if ((part[w] & ~mask[w]) != 0) return false;
  }
  return true;
}

}  // namespace

RegexId Masker::FindBehindText(RegexId regex, bool is_last) {
  RegexPool& pool = machine_.pool();
  const ByteSet& text = tokens_.text().bytes;
  // Derives `from` by all text bytes of the range; false if they lead to different states or
  // nowhere.
  const auto follow = [&](RegexId from, int first, int last, RegexId* target) {
    const ByteSet edges = pool.walk().Edges(from);
    for (int byte = first; byte <= last; ++byte) {
      const bool taken = byte >= 0x80 || text.Has(byte);
      const bool fresh = byte == first || edges.Has(byte) || (byte < 0x80 && !text.Has(byte - 1));
      if (!taken || !fresh) continue;
      const RegexId to = pool.walk().Derive(from, static_cast<uint8_t>(byte));
      if (to == kNothing || (*target != kNothing && to != *target)) return false;
      *target = to;
    }
    return true;
  };
  RegexId behind = kNothing;
  if (!follow(regex, 0, 0x7F, &behind)) return kNothing;
  for (const LeadRange& lead : kLeadRanges) {
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
  const int32_t key = Terminal{regex, is_last}.index();
  if (const auto it = behind_text_.find(key); it != behind_text_.end()) {
    RecallPart(it->second.second);
    return it->second.first;
  }
  Part part(this);
  machine_.Count(kSearch);
  RegexId behind = FindBehindText(regex, is_last);
  if (IsTooMuch()) behind = kNothing;
  behind_text_[key] = {behind, part.Close()};
  bytes_ += 40;
  return behind;
}

// The state after at least kLikeBytes of the one-byte characters, if there is one.
RegexId Masker::MostlyBehindText(RegexId regex) {
  RegexPool& pool = machine_.pool();
  const ByteSet edges = pool.walk().Edges(regex);
  std::vector<std::pair<RegexId, int>> counts;
  RegexId to = kNothing;
  for (int byte = 0x20; byte < 0x7F; ++byte) {
    if (byte == 0x20 || edges.Has(byte)) to = pool.walk().Derive(regex, static_cast<uint8_t>(byte));
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

void Masker::Mark(const TokenTrie& trie, int32_t from, int32_t to, bool allowed, Wide* wide) {
  const std::span<uint32_t> mask = wide->mask;
  if (allowed) {
    for (const TokenId id : trie.Tokens(from, to)) SetBit(mask, id);
  } else {
    for (const TokenId id : trie.Tokens(from, to)) ClearBit(mask, id);
  }
}

// Whether everything below a node is allowed, as far as the state alone tells.
bool Masker::IsKnown(Place* place, const TrieNode& node, int32_t at, const TextBelow& below,
                     const Walk& walk, TextWays* ways) {
  const bool asks = node.next - at > kFewEntries && node.height <= RegexAnalysis::kNear.back();
  if (below.missing != 0) {
    if (!asks) return false;
    const RegexId behind = ways->BehindCharacter(place->id, node.byte, below.missing, node.height);
    if (behind == kNothing) return false;
    if (walk.rooms != nullptr && node.height <= TextWays::RoomOf(*walk.rooms, behind)) return true;
    return ways->Contains(ways->LoopsOf(behind), below.kinds);
  }
  if (walk.rooms != nullptr) {
    if (place->room < 0) place->room = TextWays::RoomOf(*walk.rooms, place->id);
    if (node.height <= place->room) return true;
  }
  if (!asks) return false;
  if (place->loops == nullptr) place->loops = ways->LoopsOf(place->id);
  return ways->Contains(place->loops, below.kinds);
}

// Marks the tokens of a trie that stay inside the terminal or end with it, and collects the
// crossings. False if it reached a state that is not sure.
bool Masker::WalkTerminal(RegexId regex, const Walk& walk, TextWays* ways, Wide* wide) {
  RegexPool& pool = machine_.pool();
  const TokenTrie& trie = tokens_.trie(walk.trie);
  const std::span<const TextBelow> below = tokens_.Below(walk.trie);
  places_.resize(TokenTable::kMaxTokenBytes + 1);
  places_[0] = {.id = regex, .row = pool.walk().PlainRow(regex)};
  size_t fresh = 1;  // entries from this depth on are left over from other walks
  int64_t entries = 0, marked = 0;
  int32_t from = 0, to = 0;  // contiguous nodes that wait to be marked
  const auto mark = [&](int32_t first, int32_t end, bool allowed) {
    if (allowed == walk.supposed) return;
    if (first != to) {
      Mark(trie, from, to, !walk.supposed, wide);
      from = first;
    }
    to = end;
    marked += end - first;
  };
  for (int32_t at = 0; at < trie.size();) {
    const TrieNode& node = trie[at];
    ++entries;
    if (node.depth + node.height <= walk.room) {
      at = node.next;
      continue;
    }
    Place& above = places_[node.depth - 1u];
    RegexId next = Derive(&above, node.byte);
    if (next == kNothing) {
      mark(at, node.next, false);
      at = node.next;
      continue;
    }
    if (!ways->IsSure(next)) return false;
    mark(at, at + 1, true);
    if (node.next == at + 1) {
      entries += next == above.id ? 0 : kLeafEntries;
      ++at;
      continue;
    }
    next = ways->Near(next, node.height);
    Place& place = places_[node.depth];
    if (next == above.id) {
      place = above;
    } else if (node.depth >= fresh || next != place.id) {
      if (!Visit(pool.walk().Mark(next, part_))) return true;
      place = {.id = next, .row = pool.walk().PlainRow(next)};
    }  // Otherwise the node before this one led to the same state, and its entry is still valid.
    fresh = std::max<size_t>(fresh, node.depth + 1u);
    if (pool.AcceptsEmpty(next)) wide->crossings.push_back({walk.trie, at});
    const bool over = next == kEmpty;
    const auto index = static_cast<size_t>(at);
    const bool known = !below.empty() && IsKnown(&place, node, at, below[index], walk, ways);
    if (over || known) mark(at + 1, node.next, !over);
    at = over || known ? node.next : at + 1;
  }
  Mark(trie, from, to, !walk.supposed, wide);
  machine_.Count((entries + marked / kMarkedOfEntry) / kEntriesOfStep);
  return true;
}

// Walks the tokens for which the terminal and `wide->like` lead to different states, and decides
// them one by one. False if the crossings could differ, or if there are too many such tokens.
bool Masker::WalkUnlike(RegexId regex, bool is_last, size_t trie_index, int64_t* all_entries,
                        Wide* wide) {
  RegexPool& pool = machine_.pool();
  const TokenTrie& trie = tokens_.trie(trie_index);
  places_.resize(TokenTable::kMaxTokenBytes + 1);
  others_.resize(TokenTable::kMaxTokenBytes + 1);
  places_[0] = {.id = regex, .row = pool.walk().PlainRow(regex)};
  others_[0] = {.id = wide->like, .row = pool.walk().PlainRow(wide->like)};
  const auto own = [&](int32_t from, int32_t to, bool allowed) {
    const std::span<const TokenId> ids = trie.Tokens(from, to);
    wide->own.insert(wide->own.end(), ids.begin(), ids.end());
    Mark(trie, from, to, allowed, wide);
    return wide->own.size() <= kMaxOwn;
  };
  int64_t entries = 0;
  for (int32_t at = 0; at < trie.size();) {
    const TrieNode& node = trie[at];
    if (++entries + *all_entries > kMaxUnlike) return false;
    const RegexId next = Derive(&places_[node.depth - 1u], node.byte);
    const RegexId other = Derive(&others_[node.depth - 1u], node.byte);
    if (next == other) {
      at = node.next;
      continue;
    }
    if (!Visit(pool.walk().Mark(next, part_)) || !Visit(pool.walk().Mark(other, part_)))
      return true;
    if (!own(at, at + 1, next != kNothing)) return false;
    if (next == kNothing || next == kEmpty || other == kEmpty) {
      // The result for `like` does not hold below: start with nothing allowed there.
      if (!own(at + 1, node.next, false)) return false;
      const bool leaf = node.next == at + 1;
      if (!leaf && pool.AcceptsEmpty(next)) wide->crossings.push_back({trie_index, at});
    } else if (!is_last && (pool.AcceptsEmpty(next) || pool.AcceptsEmpty(other))) {
      return false;
    }
    places_[node.depth] = {.id = next, .row = pool.walk().PlainRow(next)};
    const RegexId behind = other == kEmpty ? kNothing : other;
    others_[node.depth] = {.id = behind, .row = pool.walk().PlainRow(behind)};
    at = next == kNothing || next == kEmpty ? node.next : at + 1;
  }
  machine_.Count(entries / kEntriesOfStep);
  *all_entries += entries;
  return true;
}

bool Masker::FillByCounting(RegexId regex, bool is_last, Wide* wide) {
  std::vector<RegexId> chain{regex};  // [n]: after n characters
  while (chain.size() <= TokenTable::kMaxLead) {
    const RegexId next = BehindText(chain.back(), is_last);
    if (next == kNothing || IsTooMuch()) break;
    chain.push_back(next);
  }
  const auto room = static_cast<int>(chain.size()) - 1;
  if (room == 0) return false;
  if (room < TokenTable::kMaxLead) {
    // The chain ended before kMaxLead: then no character of text may come at its end.
    const ByteSet text = tokens_.text().bytes | ByteSet::Range(0x80, 0xFF);
    if (!(machine_.pool().walk().FirstBytes(chain.back()) & text).IsEmpty()) return false;
  }
  wide->mask = tokens_.TextMask(std::min(room, TokenTable::kSliceLength));
  for (const TokenTable::LongText& text : tokens_.long_texts()) {
    if (text.characters > room) break;
    SetBit(wide->mask, text.id);
  }
  TextWays ways(&machine_, max_steps_, is_last);
  for (int n = 0; n <= room; ++n) {
    WalkTerminal(chain[static_cast<size_t>(n)], {.trie = tokens_.tails(n)}, &ways, wide);
  }
  if (room == TokenTable::kMaxLead) WalkTerminal(regex, {.trie = tokens_.far()}, &ways, wide);
  return true;
}

bool Masker::FillByLikeness(RegexId regex, bool is_last, Wide* wide) {
  const RegexId like = MostlyBehindText(regex);
  if (like == kNothing || like == regex || MostlyBehindText(like) != like) return false;
  const Wide& model = WideOf({like, is_last});
  if (!model.usable || model.like != kNothing) return false;
  wide->like = like;
  wide->mask = model.mask;
  int64_t entries = 0;
  for (size_t trie = 0; trie <= tokens_.rest(); ++trie) {
    if (!WalkUnlike(regex, is_last, trie, &entries, wide)) {
      *wide = Wide{};
      return false;
    }
  }
  std::ranges::sort(wide->own);
  wide->own.erase(std::unique(wide->own.begin(), wide->own.end()), wide->own.end());
  return true;
}

bool Masker::FillByRelaxing(RegexId regex, bool is_last, Wide* wide) {
  for (size_t near = TokenTable::kNear.size(); near-- > 0;) {
    const RegexId like = machine_.pool().analysis().Relaxed(regex, near);
    if (like == regex || !WideOf({like, is_last}).usable) continue;
    wide->like = like;
    wide->beyond = static_cast<int>(near);
    wide->mask = wides_.at(Terminal{like, is_last}.index()).mask;
    const std::vector<uint32_t>& beyond = tokens_.BeyondMask(near);
    for (size_t w = 0; w < beyond.size(); ++w) wide->mask[w] &= ~beyond[w];
    TextWays ways(&machine_, max_steps_, is_last);
    WalkTerminal(regex, {.trie = tokens_.beyond(near)}, &ways, wide);
    return true;
  }
  return false;
}

bool Masker::IsOwn(const Wide& wide, TokenId id) const {
  if (wide.beyond < 0) return std::ranges::binary_search(wide.own, id);
  const auto word = static_cast<size_t>(id) / 32;
  return (tokens_.BeyondMask(static_cast<size_t>(wide.beyond))[word] >> (id % 32) & 1) != 0;
}

bool Masker::FillBySlices(RegexId regex, TextWays* ways, Wide* wide) {
  const auto& slices = tokens_.slices();
  const bool all_text = machine_.pool().analysis().TakesAllText(regex);
  const bool most = !all_text && ways->TakesMost(regex);
  if (ways->loosens() && !all_text && !most) return false;
  // Most tokens are words. So start with all tokens set only if a word may come.
  const bool supposed = most && ways->TakesWord(regex);
  // Loosened expressions have too many states for a look ahead.
  const bool explores = !all_text && !ways->loosens();
  std::vector<int> room(slices.size(), all_text || explores ? TokenTable::kSliceLength : 0);
  std::vector<TextWays::Rooms> rooms(slices.size());
  bool usable = !explores;
  for (size_t s = explores ? slices.size() : 0; s-- > 0;) {
    room[s] = ways->Explore(regex, slices[s], &rooms[s]);
    usable |= room[s] > 0;
    if (room[s] == TokenTable::kSliceLength) break;
  }
  if (!usable) return true;
  wide->mask.assign(tokens_.mask_words(), 0);
  for (size_t s = 0; s < slices.size(); ++s) {
    const bool whole = room[s] == TokenTable::kSliceLength;
    const int taken = supposed ? TokenTable::kSliceLength : room[s];
    const auto& mask = slices[s].masks[static_cast<size_t>(taken)];
    for (size_t w = 0; w < mask.size(); ++w) wide->mask[w] |= mask[w];
    const Walk walk{.trie = s, .room = room[s], .supposed = supposed, .rooms = &rooms[s]};
    if (!whole && !WalkTerminal(regex, walk, ways, wide)) return false;
  }
  if (all_text) {
    // All long texts are allowed, whatever their length.
    for (const TokenTable::LongText& text : tokens_.long_texts()) SetBit(wide->mask, text.id);
  }
  const size_t longer = all_text ? tokens_.far() : tokens_.longer();
  return WalkTerminal(regex, {.trie = longer}, ways, wide) &&
         WalkTerminal(regex, {.trie = tokens_.rest()}, ways, wide);
}

const Masker::Wide& Masker::WideOf(const Terminal& terminal) {
  const auto [it, added] = wides_.try_emplace(terminal.index());
  Wide& wide = it->second;
  if (!added) {
    RecallPart(0);
    return wide;
  }
  const auto [regex, is_last, without_texts] = terminal;
  bytes_ += 64;
  Part part(this);
  machine_.Count(kSearch);
  TextWays plain(&machine_, max_steps_, is_last);
  if (without_texts) {
    wide.mask.assign(tokens_.mask_words(), 0);
    WalkTerminal(regex, {.trie = tokens_.rest()}, &plain, &wide);
  } else if (!FillByCounting(regex, is_last, &wide) && !FillByLikeness(regex, is_last, &wide) &&
             !FillByRelaxing(regex, is_last, &wide)) {
    TextWays loose(&machine_, max_steps_, is_last, TextWays::Loosens(&machine_.pool(), regex));
    if (!FillBySlices(regex, &loose, &wide)) {
      wide = Wide{};
      FillBySlices(regex, &plain, &wide);
    }
  }
  // Results after the limit cannot be trusted.
  if (IsTooMuch()) wide = Wide{};
  if (is_last) wide.crossings.clear();
  wide.usable = !wide.mask.empty();
  wide.takes_texts = !without_texts && Includes(wide.mask, tokens_.AllText());
  bytes_ += static_cast<int64_t>(wide.mask.size() * 4 + wide.crossings.size() * sizeof(Crossing) +
                                 wide.own.size() * sizeof(TokenId));
  wide.steps = part.Close(/*count=*/false);
  return wide;
}

}  // namespace weft::constraint
