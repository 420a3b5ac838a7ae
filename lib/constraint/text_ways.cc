#include "constraint/text_ways.h"
#include "constraint/regex/analysis.h"
#include "constraint/regex/walk.h"

#include <algorithm>
#include <utility>

namespace weft::constraint {
namespace {

// The cost of one look at a state, in steps.
constexpr int64_t kLook = 8;
// The maximum length of a UTF-8 character in bytes.
constexpr int kMaxUtf8 = 4;
// This many of the one-byte characters count as most.
constexpr int kMaxOfAscii = 64;
constexpr int kWordLetters = 8;
constexpr int kFirstText = 0x20, kLastText = 0x7F;
// The longest text of a slice in bytes.
constexpr int kMaxNear = kMaxUtf8 * TokenTable::kSliceLength;

// Characters of one kind with the same first byte; `rest` describes their continuation.
struct KindRange {
  LeadRange rest;
  TextKinds kind;
};

bool AreAlike(const LeadRange& a, const LeadRange& b) {
  return a.low == b.low && a.high == b.high && a.more == b.more;
}

// The ranges of all non-ASCII characters.
const std::vector<KindRange>& KindRanges() {
  static const std::vector<KindRange> ranges = [] {
    std::vector<KindRange> made;
    for (const LeadRange& lead : kLeadRanges) {
      for (int byte = lead.first; byte <= lead.last; ++byte) {
        const size_t begin = made.size();
        for (int second = lead.low; second <= lead.high; ++second) {
          const TextKinds kind = KindOf(static_cast<uint8_t>(byte), static_cast<uint8_t>(second));
          const bool same = made.size() > begin && kind.AreIn(made.back().kind);
          if (!same) made.push_back({{byte, byte, second, second, lead.more}, kind});
          made.back().rest.high = second;
        }
      }
    }
    return made;
  }();
  return ranges;
}

}  // namespace

RegexId TextWays::Near(RegexId regex, int bytes) {
  RegexPool& pool = machine_.pool();
  for (size_t near = 0; near < RegexAnalysis::kNear.size(); ++near) {
    if (bytes > RegexAnalysis::kNear[near]) continue;
    const RegexId relaxed = pool.analysis().Relaxed(regex, near);
    return relaxed == regex && loosens_ && bytes <= kNearBytes ? pool.analysis().Loosened(regex)
                                                               : relaxed;
  }
  return regex;
}

// Adds to `out` the states after the bytes of the range, or after those of them in `only`. `near`:
// the maximum number of bytes that follow, if a character is complete after this byte, or -1. False
// if one of the bytes is not allowed.
bool TextWays::Take(RegexId from, int first, int last, const ByteSet* only, int near,
                    std::vector<RegexId>* out) {
  RegexPool& pool = machine_.pool();
  machine_.Count(kLook);
  if (machine_.spent() > max_steps_) return false;
  const ByteSet edges = pool.walk().Edges(from);
  for (int byte = first; byte <= last; ++byte) {
    const bool taken = only == nullptr || only->Has(byte);
    const bool known =
        byte != first && !edges.Has(byte) && (only == nullptr || only->Has(byte - 1));
    if (!taken || known) continue;
    RegexId to = pool.walk().Derive(from, static_cast<uint8_t>(byte));
    if (to == kNothing || to == kEmpty) return false;
    if (near >= 0) {
      if (!IsSure(to)) return false;
      to = Near(to, near);
      if (!is_last_ && pool.AcceptsEmpty(to)) return false;
    }
    if (std::ranges::find(*out, to) == out->end()) out->push_back(to);
  }
  return true;
}

// Adds to `out` the states after one character of the slice's kind, with at most `ahead` characters
// to follow. False if one of the characters is not allowed.
bool TextWays::Expand(RegexId from, const TokenTable::Slice& slice, int ahead,
                      std::vector<RegexId>* out) {
  const int near = (slice.utf8 ? kMaxUtf8 : 1) * ahead;
  if (!Take(from, 0, 0x7F, &slice.bytes, near, out)) return false;
  if (!slice.utf8) return true;
  for (const LeadRange& lead : kLeadRanges) {
    std::vector<RegexId> at;
    if (!Take(from, lead.first, lead.last, nullptr, -1, &at)) return false;
    if (!TakeMore(std::move(at), lead, near, out)) return false;
  }
  return true;
}

bool TextWays::TakeMore(std::vector<RegexId> from, const LeadRange& lead, int near,
                        std::vector<RegexId>* out) {
  int low = lead.low, high = lead.high;
  for (int i = 0; i <= lead.more; ++i) {
    const bool whole = i == lead.more;
    std::vector<RegexId> behind;
    for (const RegexId state : from) {
      if (!Take(state, low, high, nullptr, whole ? near : -1, whole ? out : &behind)) return false;
    }
    from = std::move(behind);
    low = 0x80, high = 0xBF;
  }
  return true;
}

RegexId TextWays::BehindCharacter(RegexId regex, uint8_t byte, int missing, int height) {
  // Near distinguishes no more heights than these.
  for (const int32_t near : RegexAnalysis::kNear) {
    if (height <= near) {
      height = near;
      break;
    }
  }
  // The possible next bytes depend on the first byte only.
  const bool begins = byte >= 0xC0;
  const uint64_t key = static_cast<uint64_t>(regex) << 32 |
                       static_cast<uint64_t>(begins ? byte : missing) << 16 |
                       static_cast<uint64_t>(height);
  const auto [it, added] = behind_characters_.try_emplace(key, kNothing);
  if (added) it->second = FindBehindCharacter(regex, byte, missing, height);
  return it->second;
}

RegexId TextWays::FindBehindCharacter(RegexId regex, uint8_t byte, int missing, int height) {
  LeadRange rest{.low = 0x80, .high = 0xBF, .more = missing - 1};
  for (const LeadRange& lead : kLeadRanges) {
    if (byte >= lead.first && byte <= lead.last) rest = lead;
  }
  std::vector<RegexId> behind;
  if (!TakeMore({regex}, rest, height, &behind)) return kNothing;
  return behind.size() == 1 ? behind[0] : kNothing;
}

int TextWays::Explore(RegexId start, const TokenTable::Slice& slice, Rooms* rooms) {
  std::vector<Reached> reached{{.id = start}};
  std::unordered_map<RegexId, int32_t> index{{start, 0}};
  size_t begin = 0;
  for (int level = 0; level < TokenTable::kSliceLength && begin < reached.size(); ++level) {
    const size_t end = reached.size();
    bool all = true;
    if (end - begin > kMaxFrontier || end > kMaxStates || machine_.exhausted()) break;
    for (size_t i = begin; i < end; ++i) {
      std::vector<RegexId> next;
      if (!Expand(reached[i].id, slice, TokenTable::kSliceLength - level - 1, &next)) {
        all = false;
        continue;
      }
      // The states found after it are equivalent for texts of this length only (see Near). The loop
      // below lowers the bound.
      reached[i].room = TokenTable::kSliceLength - level;
      for (const RegexId id : next) {
        const auto [it, added] = index.try_emplace(id, static_cast<int32_t>(reached.size()));
        if (added) reached.push_back({.id = id});
        reached[i].next.push_back(it->second);
      }
    }
    if (reached[0].room == 0) return 0;
    if (!all && level < kMinRoom) break;
    begin = end;
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = reached.size(); i-- > 0;) {
      for (const int32_t next : reached[i].next) {
        const int room = reached[static_cast<size_t>(next)].room + 1;
        if (room >= reached[i].room) continue;
        reached[i].room = room;
        changed = true;
      }
    }
  }
  for (const Reached& one : reached) {
    if (one.room > 0) rooms->emplace_back(one.id, one.room);
  }
  std::ranges::sort(*rooms);
  return reached[0].room;
}

int TextWays::RoomOf(const Rooms& rooms, RegexId regex) {
  const auto it = std::ranges::lower_bound(rooms, regex, {}, &Rooms::value_type::first);
  return it == rooms.end() || it->first != regex ? 0 : it->second;
}

bool TextWays::TakesMost(RegexId regex) {
  RegexPool& pool = machine_.pool();
  const ByteSet edges = pool.walk().Edges(regex);
  int count = 0;
  bool alive = false;
  for (int byte = kFirstText; byte <= kLastText; ++byte) {
    if (byte == kFirstText || edges.Has(byte))
      alive = pool.walk().Derive(regex, static_cast<uint8_t>(byte)) != kNothing;
    count += alive ? 1 : 0;
  }
  return count >= kMaxOfAscii;
}

bool TextWays::TakesWord(RegexId regex) {
  RegexPool& pool = machine_.pool();
  for (int i = 0; i < kWordLetters && regex != kNothing; ++i)
    regex = pool.walk().Derive(regex, 'e');
  return regex != kNothing;
}

TextWays::Loops* TextWays::LoopsOf(RegexId regex) {
  const auto [it, added] = loops_.try_emplace(regex);
  if (added) it->second = {.regex = regex, .kinds = FindLoops(regex)};
  return &it->second;
}

bool TextWays::Contains(Loops* loops, const TextKinds& kinds) {
  if ((kinds.ascii & ~loops->kinds.ascii) != 0) return false;
  if (kinds.others == 0) return true;
  if (!std::exchange(loops->has_others, true)) AddOtherLoops(loops);
  return (kinds.others & ~loops->kinds.others) == 0;
}

TextKinds TextWays::FindLoops(RegexId regex) {
  RegexPool& pool = machine_.pool();
  if (!is_last_ && pool.AcceptsEmpty(regex)) return {};
  machine_.Count(kLook);
  const ByteSet edges = pool.walk().Edges(regex);
  TextKinds loops{.ascii = ~uint64_t{0}};
  RegexId to = kNothing;
  for (int byte = kFirstText; byte <= kLastText; ++byte) {
    if (byte == kFirstText || edges.Has(byte))
      to = pool.walk().Derive(regex, static_cast<uint8_t>(byte));
    const bool text = byte != '"' && byte != '\\';
    if (text && to != regex) loops.Remove(KindOf(static_cast<uint8_t>(byte)));
  }
  return loops;
}

void TextWays::AddOtherLoops(Loops* loops) {
  RegexPool& pool = machine_.pool();
  const RegexId regex = loops->regex;
  if (!is_last_ && pool.AcceptsEmpty(regex)) return;
  // Most characters continue alike after their first byte, so reuse the previous range's result.
  const KindRange* before = nullptr;
  RegexId to_before = kNothing;
  bool is_loop = false;
  for (const KindRange& range : KindRanges()) {
    const RegexId to = pool.walk().Derive(regex, static_cast<uint8_t>(range.rest.first));
    if (before == nullptr || to != to_before || !AreAlike(range.rest, before->rest)) {
      std::vector<RegexId> behind;
      is_loop = to != kNothing && TakeMore({to}, range.rest, kMaxNear, &behind) &&
                std::ranges::all_of(behind, [&](RegexId id) { return id == regex; });
    }
    if (is_loop) loops->kinds = loops->kinds | range.kind;
    before = &range;
    to_before = to;
  }
}
}  // namespace weft::constraint
