#include "constraint/regex/regex.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "constraint/regex/characters.h"

namespace weft::constraint {
namespace {

// How many recent derivatives are kept.
constexpr size_t kRecent = 4096;
constexpr int32_t kMostEscapeBytes = 6;
// Unions of more parts are looked up by byte, from the time on that this is worth it.
constexpr int32_t kLargeUnion = 48;
constexpr int kAskedOften = 8;
// Derivatives that take fewer steps are not metered.
constexpr int64_t kDearDerivative = 64;
// Of a union, no more rows of parts that may be left out are looked through for others' tails.
constexpr size_t kMostRows = 16;
// What may stand behind a backslash within quotes, and what it means.
constexpr std::string_view kEscapes = "ntrbf\\'\"", kMeanings = "\n\t\r\b\f\\'\"";

// How a byte of a text is written between quotation marks.
std::string SpellingOf(char c, RegexPool::Escapes escapes) {
  if (escapes == RegexPool::Escapes::kJson) return Spell({&c, 1}, Spelling::kJson);
  const size_t at = c == '\'' ? std::string_view::npos : kMeanings.find(c);
  return at == std::string_view::npos ? std::string(1, c) : std::string{'\\', kEscapes[at]};
}

const ByteSet& EscapedBytes(RegexPool::Escapes escapes) {
  const auto escaped = [](RegexPool::Escapes how) {
    ByteSet set;
    for (int byte = 0; byte < 0x80; ++byte) {
      if (SpellingOf(static_cast<char>(byte), how).size() > 1) set.Add(byte);
    }
    return set;
  };
  static const ByteSet json = escaped(RegexPool::Escapes::kJson);
  static const ByteSet python = escaped(RegexPool::Escapes::kPython);
  return escapes == RegexPool::Escapes::kJson ? json : python;
}

}  // namespace

int32_t StepMeter::Learn(int32_t known, int first, int last, int64_t steps) {
  const auto id = static_cast<int32_t>(dear_.size());
  dear_.push_back({static_cast<uint8_t>(first), static_cast<uint8_t>(last), steps, 0, known});
  Pass(id, static_cast<uint8_t>(first));
  return id;
}

void StepMeter::Pass(int32_t known, uint8_t byte) {
  for (int32_t i = known; i >= 0; i = dear_[static_cast<size_t>(i)].next) {
    Dear& dear = dear_[static_cast<size_t>(i)];
    if (byte < dear.first || byte > dear.last) continue;
    if (aside_ >= 0 || std::exchange(dear.passed, resets_) != resets_) Spend(dear.steps);
    return;
  }
}

RegexPool::RegexPool() {
  Intern({.kind = Kind::kNothing, .life = Life::kDead}, 1);
  Intern({.kind = Kind::kEmpty, .nullable = true, .life = Life::kAlive}, 2);
}

void RegexPool::Spend(int64_t work, int64_t bytes) {
  work_ += work;
  bytes_ += bytes;
  if (work_ > most_work_ || bytes_ > most_bytes_) exhausted_ = true;
}

int32_t RegexPool::InternSet(const ByteSet& set) {
  uint64_t hash = 7;
  for (const uint64_t word : set.words) hash = MixHash(hash, word);
  const int32_t found =
      set_index_.Find(hash, [&](int32_t id) { return sets_[static_cast<size_t>(id)] == set; });
  if (found >= 0) return found;
  const auto id = static_cast<int32_t>(sets_.size());
  sets_.push_back(set);
  set_index_.Add(hash, id);
  Spend(1, sizeof(ByteSet) + 32);
  return id;
}

bool RegexPool::SameNode(const Node& n, const Node& other, std::span<const int32_t> list) const {
  if (n.kind != other.kind) return false;
  if (IsList(n.kind)) {
    return std::ranges::equal(Parts(n), list);
  }
  if (n.kind == Kind::kLiteral) {
    return n.b == other.b &&
           std::memcmp(texts_.data() + n.a, texts_.data() + other.a, static_cast<size_t>(n.b)) == 0;
  }
  return n.a == other.a && n.b == other.b && n.c == other.c && n.d == other.d;
}

// What follows from a node's parts.
void RegexPool::Complete(Node* n, std::span<const int32_t> list) {
  ByteSet edges, first;
  edges.Add(0);
  const auto take = [&](RegexId part) {
    n->has_boolean |= node(part).has_boolean;
    n->exact &= node(part).exact;
    edges = edges | Edges(part);
    first = first | MayBegin(part);
  };
  switch (n->kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
      break;
    case Kind::kBytes:
      first = sets_[static_cast<size_t>(n->a)];
      edges = first.Edges();
      break;
    case Kind::kLiteral:
      first = ByteSet::Of(static_cast<uint8_t>(texts_[static_cast<size_t>(n->a)]));
      edges = first.Edges();
      break;
    case Kind::kConcat:
      take(n->a);
      if (node(n->a).nullable) take(n->b);
      n->has_boolean |= node(n->b).has_boolean;
      n->nullable = node(n->a).nullable && node(n->b).nullable;
      break;
    case Kind::kOr:
    case Kind::kAnd:
      n->nullable = n->kind == Kind::kAnd;
      for (const RegexId part : list) {
        take(part);
        const bool empty = node(part).nullable;
        n->nullable = n->kind == Kind::kAnd ? n->nullable && empty : n->nullable || empty;
      }
      if (n->kind == Kind::kAnd) {
        n->has_boolean = true;
        for (const RegexId part : list) first = first & MayBegin(part);
      }
      break;
    case Kind::kOnlyOne: {
      int nullable = 0;
      for (const RegexId part : list) {
        take(part);
        nullable += node(part).nullable ? 1 : 0;
      }
      n->nullable = nullable == 1;
      n->has_boolean = true;
      break;
    }
    case Kind::kNot:
      take(n->a);
      n->nullable = !node(n->a).nullable;
      n->has_boolean = true;
      first = ByteSet::All();
      break;
    case Kind::kRepeat:
      take(n->a);
      n->nullable = n->b == 0 || node(n->a).nullable;
      break;
    case Kind::kMultiple:
      edges = edges | ByteSet::Range('.', ':');
      first = ByteSet::Range('0', '9') | ByteSet::Of('.');
      n->exact = false;
      n->nullable = IsMultiple(*n);
      break;
    case Kind::kRespelled:
      take(n->a);
      n->has_boolean = true;  // there may be no way to its end
      first = ByteSet::All();
      for (int byte = 0; byte <= 0x20; ++byte) edges.Add(byte);
      for (const char c : kEscapes) {
        edges.Add(c);
        edges.Add(c + 1);
      }
      break;
    case Kind::kSpelled: {
      const ByteSet& escaped = EscapedBytes(static_cast<Escapes>(n->b));
      take(n->a);
      if (!(first & escaped).IsEmpty()) first = (first & ~escaped) | ByteSet::Of('\\');
      edges = edges | escaped.Edges() | ByteSet::Of('\\') | ByteSet::Of('\\' + 1);
      n->nullable = node(n->a).nullable;
      break;
    }
  }
  if (n->kind == Kind::kConcat && node(n->a).nullable) LinkOptions(n);
  if (n->life == Life::kUnknown && (n->nullable || !n->has_boolean)) n->life = Life::kAlive;
  if (n->life == Life::kUnknown) {
    const auto alive = [&](RegexId part) { return node(part).life == Life::kAlive; };
    const bool known = n->kind == Kind::kOr       ? std::ranges::any_of(list, alive)
                       : n->kind == Kind::kConcat ? alive(n->a) && alive(n->b)
                                                  : n->kind == Kind::kRepeat && alive(n->a);
    if (known) n->life = Life::kAlive;
  }
  n->exact &= !n->has_boolean;
  if (!n->nullable) EstimateLeast(n, list);
  n->farthest = FarthestOf(*n, list);
  n->way = WayOf(*n, list);
  n->edges = InternSet(edges);
  n->first = InternSet(first);
}

// Of a sequence whose first part may be left out.
void RegexPool::LinkOptions(Node* n) {
  Options made{.length = 1, .end = n->b, .jump = n->b};
  const bool plain = IsPlainOption(n->a);
  if (plain) made.plain_end = n->b;
  if (const int32_t behind = node(n->b).options; behind >= 0) {
    const Options rest = options_[static_cast<size_t>(behind)];
    made.length = rest.length + 1;
    made.end = rest.end;
    if (plain && rest.plain_end != kNothing) made.plain_end = rest.plain_end;
    // As in a skip list: from any of them, every other can be reached in few jumps.
    const int32_t far = OptionsOf(rest.jump);
    if (far > 0) {
      const RegexId farther = options_[static_cast<size_t>(node(rest.jump).options)].jump;
      if (rest.length - far == far - OptionsOf(farther)) made.jump = farther;
    }
  }
  n->options = static_cast<int32_t>(options_.size());
  options_.push_back(made);
  Spend(0, sizeof(Options));
}

// Whether what may follow any byte of it may be left out, and is a part of it.
bool RegexPool::IsPlainOption(RegexId id) const {
  const Node& n = node(id);
  if (n.kind == Kind::kRepeat) return n.b == 0 && node(n.a).kind == Kind::kBytes;
  if (n.kind != Kind::kOr || n.b != 2) return false;
  const auto parts = Parts(n);
  return parts[0] == kEmpty && node(parts[1]).kind == Kind::kBytes;
}

// Whether `tail` is what is left of `row` where its first parts are left out.
bool RegexPool::IsTailOf(RegexId row, RegexId tail) const {
  const int32_t length = OptionsOf(tail);
  while (OptionsOf(row) > length) {
    const RegexId jump = options_[static_cast<size_t>(node(row).options)].jump;
    row = OptionsOf(jump) >= length ? jump : node(row).b;
  }
  return row == tail;
}

// Leaves out of a union what is a part of another.
void RegexPool::DropTails(std::vector<RegexId>* parts) const {
  struct Row {
    int32_t length;
    RegexId end, id;
  };
  const auto row_of = [&](RegexId id) {
    const int32_t at = node(id).options;
    if (at < 0) return Row{0, id, id};
    const Options& options = options_[static_cast<size_t>(at)];
    return Row{options.length, options.end, id};
  };
  // The longest ones, where there are too many.
  std::array<Row, kMostRows> longest;
  size_t count = 0;
  for (const RegexId part : *parts) {
    if (node(part).options < 0) continue;
    const Row row = row_of(part);
    if (count < kMostRows) {
      longest[count++] = row;
    } else if (Row* least = &*std::ranges::min_element(longest, {}, &Row::length);
               least->length < row.length) {
      *least = row;
    }
  }
  if (count == 0 || parts->size() == 1) return;
  const std::span rows(longest.data(), count);
  std::erase_if(*parts, [&](RegexId part) {
    const Row tail = row_of(part);
    return std::ranges::any_of(rows, [&](const Row& row) {
      return row.length > tail.length && row.end == tail.end && IsTailOf(row.id, part);
    });
  });
}

// Leaves out of a union what may come no more often than in another part: of x{0,3}y and x{0,5}y
// the first.
void RegexPool::DropFewer(std::vector<RegexId>* parts) const {
  struct Counted {
    RegexId what, behind;
    int32_t most;
    RegexId id;
    auto operator<=>(const Counted&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  std::vector<Counted> counted;
  for (const RegexId part : *parts) {
    const Node& n = node(part);
    if (n.kind != Kind::kConcat || node(n.a).kind != Kind::kRepeat || node(n.a).b != 0) continue;
    const int32_t most = node(n.a).c;
    counted.push_back({node(n.a).a, n.b, most == kUnlimited ? INT32_MAX : most, part});
  }
  if (counted.size() < 2) return;
  std::ranges::sort(counted);
  std::vector<RegexId> dropped;
  for (size_t i = 0; i + 1 < counted.size(); ++i) {
    const Counted &one = counted[i], &next = counted[i + 1];
    if (one.what == next.what && one.behind == next.behind && one.id != next.id)
      dropped.push_back(one.id);
  }
  if (dropped.empty()) return;
  std::ranges::sort(dropped);
  std::erase_if(*parts, [&](RegexId part) { return std::ranges::binary_search(dropped, part); });
}

// Of an intersection: a byte behind which one of its complements holds whatever comes.
std::optional<int32_t> RegexPool::AwayFrom(std::span<const int32_t> parts) const {
  ByteSet away, first = ByteSet::All();
  for (const RegexId part : parts) {
    if (node(part).kind == Kind::kNot) away = away | ~MayBegin(node(part).a);
    first = first & MayBegin(part);
  }
  away = away & first;
  for (size_t word = 0; word < away.words.size(); ++word) {
    if (away.words[word] == 0) continue;
    return static_cast<int32_t>(64 * word) + std::countr_zero(away.words[word]);
  }
  return std::nullopt;
}

// Of a node that does not accept the empty text.
void RegexPool::EstimateLeast(Node* n, std::span<const int32_t> list) const {
  int64_t least = 1;
  switch (n->kind) {
    case Kind::kBytes:
      n->hint = 0;
      while (!sets_[static_cast<size_t>(n->a)].Has(n->hint)) ++n->hint;
      break;
    case Kind::kLiteral:
      least = n->b;
      n->hint = static_cast<uint8_t>(texts_[static_cast<size_t>(n->a)]);
      break;
    case Kind::kConcat:
      least = int64_t{node(n->a).least} + node(n->b).least;
      n->hint = node(node(n->a).nullable ? n->b : n->a).hint;
      break;
    case Kind::kOr:
    case Kind::kOnlyOne:
    case Kind::kAnd: {
      const bool all = n->kind == Kind::kAnd;
      RegexId decides = list[0];
      for (const RegexId part : list) {
        const int32_t a = node(part).least, b = node(decides).least;
        if (all ? a > b : a < b) decides = part;
      }
      least = node(decides).least;
      n->hint = node(decides).hint;
      if (all) n->hint = AwayFrom(list).value_or(n->hint);
      break;
    }
    case Kind::kRepeat:
      least = int64_t{node(n->a).least} * n->b;
      n->hint = node(n->a).hint;
      break;
    case Kind::kRespelled: {
      // An escape of JSON may stand for one byte.
      const int32_t json = node(n->a).least - 1;
      least = json / kMostEscapeBytes + (n->b != 0 ? 1 : 0);
      n->hint = json == 0 && n->b != 0 ? n->b : node(n->a).hint;
      break;
    }
    case Kind::kMultiple:
      least = EstimateMultiple(n);
      break;
    case Kind::kSpelled: {
      least = node(n->a).least;
      const int32_t hint = node(n->a).hint;
      const bool escaped = hint >= 0 && EscapedBytes(static_cast<Escapes>(n->b)).Has(hint);
      n->hint = escaped ? '\\' : hint;
      break;
    }
    default:
      break;
  }
  n->least = static_cast<int32_t>(std::clamp<int64_t>(least, 1, kManyBytes));
}

RegexId RegexPool::Intern(const Node& wanted, uint64_t hash, std::span<const int32_t> list) {
  hash = MixHash(hash, static_cast<uint64_t>(wanted.kind));
  const int32_t found = node_index_.Find(
      hash, [&](int32_t id) { return SameNode(nodes_[static_cast<size_t>(id)], wanted, list); });
  if (found >= 0) return found;
  if (exhausted_ && nodes_.size() > 2) return kNothing;
  Node made = wanted;
  Complete(&made, list);
  if (IsList(made.kind)) {
    made.a = static_cast<int32_t>(lists_.size());
    made.b = static_cast<int32_t>(list.size());
    lists_.insert(lists_.end(), list.begin(), list.end());
  }
  const auto id = static_cast<RegexId>(nodes_.size());
  nodes_.push_back(made);
  node_index_.Add(hash, id);
  Spend(1 + static_cast<int64_t>(list.size()) / 4,
        static_cast<int64_t>(sizeof(Node) + 32 + 4 * list.size()));
  return id;
}

RegexId RegexPool::Anything() { return Not(kNothing); }

RegexId RegexPool::Bytes(const ByteSet& set) {
  if (set.IsEmpty()) return kNothing;
  Node n{.kind = Kind::kBytes, .a = InternSet(set)};
  return Intern(n, static_cast<uint64_t>(n.a));
}

RegexId RegexPool::Literal(std::string_view text) {
  if (text.empty()) return kEmpty;
  if (text.size() == 1) return Byte(static_cast<uint8_t>(text[0]));
  // A literal that came from texts_ itself is a suffix of a known one.
  const bool own = text.data() >= texts_.data() && text.data() < texts_.data() + texts_.size();
  const auto offset = own ? static_cast<size_t>(text.data() - texts_.data()) : texts_.size();
  if (!own) {
    texts_.append(text);
    Spend(0, static_cast<int64_t>(text.size()));
  }
  const Node n{.kind = Kind::kLiteral,
               .a = static_cast<int32_t>(offset),
               .b = static_cast<int32_t>(text.size())};
  return Intern(
      n, std::hash<std::string_view>{}(std::string_view(texts_).substr(offset, text.size())));
}

RegexId RegexPool::AnyOf(std::vector<std::string> texts) {
  std::ranges::sort(texts);
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return AnyOfSorted(texts, 0);
}

// Of different texts that have the first `from` bytes in common: what follows these.
RegexId RegexPool::AnyOfSorted(std::span<const std::string> texts, size_t from) {
  if (texts.empty() || exhausted_) return kNothing;
  const std::string& front = texts.front();
  if (texts.size() == 1) return Literal(std::string_view(front).substr(from));
  const size_t common =
      static_cast<size_t>(std::ranges::mismatch(front, texts.back()).in1 - front.begin());
  std::vector<RegexId> parts;
  size_t first = 0;
  if (front.size() == common) {
    parts.push_back(kEmpty);
    first = 1;
  }
  while (first < texts.size()) {
    const char next = texts[first][common];
    size_t end = first + 1;
    while (end < texts.size() && texts[end][common] == next) ++end;
    parts.push_back(AnyOfSorted(texts.subspan(first, end - first), common));
    first = end;
  }
  return Concat(Literal(std::string_view(front).substr(from, common - from)), Or(std::move(parts)));
}

RegexId RegexPool::Concat(RegexId first, RegexId second) {
  if (first == kNothing || second == kNothing) return kNothing;
  if (first == kEmpty) return second;
  if (second == kEmpty) return first;
  if (node(first).kind != Kind::kConcat) return InternConcat(first, second);
  std::vector<RegexId> heads;
  for (; node(first).kind == Kind::kConcat; first = node(first).b) heads.push_back(node(first).a);
  Spend(static_cast<int64_t>(heads.size()) / 4, 0);
  RegexId all = InternConcat(first, second);
  for (; !heads.empty() && all != kNothing; heads.pop_back()) all = InternConcat(heads.back(), all);
  return all;
}

RegexId RegexPool::InternConcat(RegexId head, RegexId tail) {
  const Node n{.kind = Kind::kConcat, .a = head, .b = tail};
  return Intern(n, MixHash(static_cast<uint64_t>(head), static_cast<uint64_t>(tail)));
}

RegexId RegexPool::Concat(std::initializer_list<RegexId> parts) {
  RegexId all = kEmpty;
  for (auto it = std::rbegin(parts); it != std::rend(parts); ++it) all = Concat(*it, all);
  return all;
}

RegexId RegexPool::InternParts(Kind kind, std::vector<RegexId> parts) {
  std::ranges::sort(parts);
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  // A part and its complement leave nothing, or everything.
  for (const RegexId part : parts) {
    if (kind != Kind::kOnlyOne && node(part).kind == Kind::kNot &&
        std::ranges::binary_search(parts, node(part).a)) {
      return kind == Kind::kAnd ? kNothing : Anything();
    }
  }
  if (parts.size() == 1) return parts[0];
  uint64_t hash = 3;
  for (const RegexId part : parts) hash = MixHash(hash, static_cast<uint64_t>(part));
  return Intern({.kind = kind}, hash, parts);
}

RegexId RegexPool::Or(std::vector<RegexId> parts) {
  std::vector<RegexId> flat;
  ByteSet bytes;
  const RegexId anything = Anything();
  for (size_t i = 0; i < parts.size(); ++i) {
    const RegexId part = parts[i];
    if (part == anything) return anything;
    const Node& n = node(part);
    if (n.kind == Kind::kOr) {
      for (const RegexId inner : Parts(n)) {
        if (node(inner).kind == Kind::kBytes) {
          bytes = bytes | sets_[static_cast<size_t>(node(inner).a)];
        } else {
          flat.push_back(inner);
        }
      }
    } else if (n.kind == Kind::kBytes) {
      bytes = bytes | sets_[static_cast<size_t>(n.a)];
    } else if (part != kNothing) {
      flat.push_back(part);
    }
  }
  if (!bytes.IsEmpty()) flat.push_back(Bytes(bytes));
  if (flat.empty()) return kNothing;
  if (swallowing_ != kNothing && std::ranges::find(flat, swallowing_) != flat.end()) {
    std::erase_if(flat, [&](RegexId part) {
      return part != swallowing_ && part != kEmpty && !node(part).has_boolean;
    });
  }
  DropFewer(&flat);
  DropTails(&flat);
  return InternParts(Kind::kOr, std::move(flat));
}

RegexId RegexPool::And(const std::vector<RegexId>& parts) {
  std::vector<RegexId> flat;
  const RegexId anything = Anything();
  for (const RegexId part : parts) {
    if (part == kNothing) return kNothing;
    const Node& n = node(part);
    if (n.kind == Kind::kAnd) {
      const auto inner = Parts(n);
      flat.insert(flat.end(), inner.begin(), inner.end());
    } else if (part != anything) {
      flat.push_back(part);
    }
  }
  if (flat.empty()) return anything;
  if (std::ranges::find(flat, kEmpty) != flat.end()) {
    const bool all = std::ranges::all_of(flat, [&](RegexId part) { return node(part).nullable; });
    return all ? kEmpty : kNothing;
  }
  if (IsBesideAll(flat)) return kNothing;
  return InternParts(Kind::kAnd, std::move(flat));
}

// Of an intersection: one part is beside all, another within it.
bool RegexPool::IsBesideAll(const std::vector<RegexId>& parts) const {
  if (swallowing_ == kNothing) return false;
  const auto beside = [&](RegexId id) {
    return node(id).kind == Kind::kNot && node(id).a == swallowing_;
  };
  const auto within = [&](RegexId id) { return !node(id).has_boolean && !node(id).nullable; };
  return std::ranges::any_of(parts, beside) && std::ranges::any_of(parts, within);
}

RegexId RegexPool::OnlyOne(std::vector<RegexId> parts) {
  std::ranges::sort(parts);
  std::vector<RegexId> once, more;
  for (size_t i = 0; i < parts.size();) {
    size_t end = i + 1;
    while (end < parts.size() && parts[end] == parts[i]) ++end;
    if (parts[i] != kNothing) (end == i + 1 ? once : more).push_back(parts[i]);
    i = end;
  }
  // What is a part of `swallowing_` is in that, too.
  const auto swallows = [&](const std::vector<RegexId>& list) {
    return swallowing_ != kNothing && std::ranges::find(list, swallowing_) != list.end();
  };
  if (swallows(once) || swallows(more)) {
    const auto [first, end] = std::ranges::stable_partition(once, [&](RegexId part) {
      return part == swallowing_ || part == kEmpty || node(part).has_boolean;
    });
    more.insert(more.end(), first, end);
    once.erase(first, end);
  }
  if (once.empty()) return kNothing;
  const RegexId one = once.size() == 1 ? once[0] : InternParts(Kind::kOnlyOne, std::move(once));
  return more.empty() ? one : AndNot(one, Or(std::move(more)));
}

RegexId RegexPool::Not(RegexId part) {
  if (node(part).kind == Kind::kNot) return node(part).a;
  return Intern({.kind = Kind::kNot, .a = part}, static_cast<uint64_t>(part));
}

RegexId RegexPool::Repeat(RegexId part, int32_t least, int32_t most) {
  if (most == 0 || part == kEmpty) return kEmpty;
  if (part == kNothing) return least == 0 ? kEmpty : kNothing;
  if (node(part).nullable) least = 0;
  if (least == 1 && most == 1) return part;
  const Node& n = node(part);
  if (n.kind == Kind::kRepeat) {
    // (x{a,b}){c,d} is x{ac,bd} where no number between these is left out.
    const int64_t a = n.b, b = n.c, c = least, d = most;
    const bool unlimited = b == kUnlimited || d == kUnlimited;
    const bool whole = c == 0 ? a <= 1 : b == kUnlimited || a * (c + 1) <= b * c + 1;
    if (whole && a * c <= INT32_MAX && (unlimited || b * d <= INT32_MAX)) {
      return Repeat(n.a, static_cast<int32_t>(a * c),
                    unlimited ? kUnlimited : static_cast<int32_t>(b * d));
    }
  }
  return Intern({.kind = Kind::kRepeat, .a = part, .b = least, .c = most},
                MixHash(MixHash(static_cast<uint64_t>(part), static_cast<uint64_t>(least)),
                        static_cast<uint64_t>(most)));
}

// Of a union: those that may begin with the byte.
std::vector<RegexId> RegexPool::PartsWith(RegexId id, uint8_t byte) {
  const std::span<const int32_t> all = Parts(node(id));
  if (all.size() > kLargeUnion) {
    LargeUnion& large = large_unions_[id];
    if (large.by_byte == nullptr && ++large.asked > kAskedOften) {
      auto made = std::make_shared<PartsByByte>();
      int64_t size = 0;
      for (const RegexId part : all) {
        const ByteSet& first = MayBegin(part);
        for (size_t word = 0; word < first.words.size(); ++word) {
          for (uint64_t left = first.words[word]; left != 0; left &= left - 1, ++size) {
            (*made)[64 * word + static_cast<size_t>(std::countr_zero(left))].push_back(part);
          }
        }
      }
      large.by_byte = std::move(made);
      unmetered_ += size;
      Spend(size, static_cast<int64_t>(sizeof(PartsByByte)) + 8 * size);
    }
    if (large.by_byte != nullptr) return (*large.by_byte)[byte];
    const auto looked_through = static_cast<int64_t>(all.size()) / 8;
    unmetered_ += looked_through;
    Spend(looked_through, 0);
  }
  std::vector<RegexId> some;
  for (const RegexId part : all) {
    if (MayBegin(part).Has(byte)) some.push_back(part);
  }
  return some;
}

RegexId RegexPool::Unquoted(RegexId json) { return Respelled(RawDerive(json, '"'), 0, false); }

RegexId RegexPool::Requoted(RegexId json, char quote) {
  return Concat(Byte(static_cast<uint8_t>(quote)), Respelled(RawDerive(json, '"'), quote, false));
}

RegexId RegexPool::Respelled(RegexId json_rest, int32_t quote, bool escaped) {
  if (json_rest == kNothing) return kNothing;
  const bool nullable = quote == 0 && AcceptsEmpty(RawDerive(json_rest, '"'));
  const Node n{.kind = Kind::kRespelled,
               .nullable = nullable,
               .a = json_rest,
               .b = quote,
               .c = escaped ? 1 : 0};
  return Intern(n, MixHash(static_cast<uint64_t>(json_rest),
                           static_cast<uint64_t>(quote) * 2 + (escaped ? 1 : 0)));
}

RegexId RegexPool::DeriveRespelled(const Node& n, uint8_t byte) {
  char meaning = static_cast<char>(byte);
  if (n.c != 0) {
    const size_t known = kEscapes.find(meaning);
    if (known == std::string_view::npos) return kNothing;
    meaning = kMeanings[known];
  } else if (n.b != 0 && byte == n.b) {
    return AcceptsEmpty(RawDerive(n.a, '"')) ? kEmpty : kNothing;
  } else if (n.b != 0 && byte == '\\') {
    return Respelled(n.a, n.b, true);
  }
  RegexId rest = n.a;
  for (const char c : Spell({&meaning, 1}, Spelling::kJson)) {
    rest = RawDerive(rest, static_cast<uint8_t>(c));
  }
  return Respelled(rest, n.b, false);
}

RegexId RegexPool::Spelled(RegexId texts, Escapes escapes) {
  if (texts == kNothing || texts == kEmpty) return texts;
  const Node n{.kind = Kind::kSpelled, .a = texts, .b = static_cast<int32_t>(escapes)};
  return Intern(n, MixHash(static_cast<uint64_t>(texts), static_cast<uint64_t>(escapes)));
}

RegexId RegexPool::DeriveSpelled(const Node& n, uint8_t byte) {
  const auto escapes = static_cast<Escapes>(n.b);
  const ByteSet escaped = EscapedBytes(escapes);
  if (byte != '\\') {
    return escaped.Has(byte) ? kNothing : Spelled(RawDerive(n.a, byte), escapes);
  }
  std::vector<RegexId> parts;
  for (int meant = 0; meant < 0x80; ++meant) {
    if (!escaped.Has(meant) || !MayBegin(n.a).Has(meant)) continue;
    const std::string spelling = SpellingOf(static_cast<char>(meant), escapes);
    parts.push_back(Concat(Literal(std::string_view(spelling).substr(1)),
                           Spelled(RawDerive(n.a, static_cast<uint8_t>(meant)), escapes)));
  }
  return Or(std::move(parts));
}

RegexId RegexPool::RawDerive(RegexId id, uint8_t byte) {
  Spend(1, 0);
  if (exhausted_ || work_ > step_end_ || !MayBegin(id).Has(byte)) return kNothing;
  const Node& n = node(id);
  const bool is_dear = IsList(n.kind) || (n.kind == Kind::kConcat && node(n.a).nullable);
  if (!is_dear) return RawDeriveAnew(id, byte);
  if (recent_.entries.empty()) {
    recent_.entries.resize(kRecent);
    Spend(0, static_cast<int64_t>(kRecent * sizeof(Recent::Entry)));
  }
  const uint64_t hash = MixHash(0, static_cast<uint64_t>(id) << 8 | byte);
  const size_t slot = static_cast<size_t>(hash >> 40) % kRecent;
  if (const Recent::Entry& known = recent_.entries[slot]; known.id == id && known.byte == byte) {
    Spend(known.steps, 0);
    return exhausted_ || work_ > step_end_ ? kNothing : known.to;
  }
  const int64_t before = work_ - unmetered_;
  const RegexId to = RawDeriveAnew(id, byte);
  if (!exhausted_ && work_ <= step_end_) {
    const auto steps = static_cast<int32_t>(work_ - unmetered_ - before);
    recent_.entries[slot] = {.id = id, .to = to, .steps = steps, .byte = byte};
  }
  return to;
}

RegexId RegexPool::RawDeriveAnew(RegexId id, uint8_t byte) {
  const Node n = node(id);
  switch (n.kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
      return kNothing;
    case Kind::kBytes:
      return sets_[static_cast<size_t>(n.a)].Has(byte) ? kEmpty : kNothing;
    case Kind::kLiteral:
      if (static_cast<uint8_t>(texts_[static_cast<size_t>(n.a)]) != byte) return kNothing;
      return Literal(std::string_view(texts_).substr(static_cast<size_t>(n.a) + 1,
                                                     static_cast<size_t>(n.b) - 1));
    case Kind::kConcat:
      return node(n.a).nullable ? DeriveOptions(id, byte) : Concat(RawDerive(n.a, byte), n.b);
    case Kind::kOr:
    case Kind::kAnd: {
      std::vector<RegexId> parts;
      if (n.kind == Kind::kOr) {
        parts = PartsWith(id, byte);
      } else {
        parts.assign(Parts(n).begin(), Parts(n).end());
      }
      Spend(static_cast<int64_t>(parts.size()) / 2, 0);
      for (RegexId& part : parts) {
        part = RawDerive(part, byte);
        if (part == kNothing && n.kind == Kind::kAnd) return kNothing;
      }
      return n.kind == Kind::kOr ? Or(std::move(parts)) : And(parts);
    }
    case Kind::kOnlyOne: {
      std::vector<RegexId> parts(Parts(n).begin(), Parts(n).end());
      Spend(static_cast<int64_t>(parts.size()) / 2, 0);
      for (RegexId& part : parts) part = RawDerive(part, byte);
      return OnlyOne(std::move(parts));
    }
    case Kind::kNot:
      return Not(RawDerive(n.a, byte));
    case Kind::kRepeat: {
      const RegexId rest =
          Repeat(n.a, std::max(n.b - 1, 0), n.c == kUnlimited ? kUnlimited : n.c - 1);
      return Concat(RawDerive(n.a, byte), rest);
    }
    case Kind::kMultiple:
      return DeriveMultiple(n, byte);
    case Kind::kRespelled:
      return DeriveRespelled(n, byte);
    case Kind::kSpelled:
      return DeriveSpelled(n, byte);
  }
  return kNothing;
}

// Of a sequence whose first part, and perhaps others behind it, may be left out.
RegexId RegexPool::DeriveOptions(RegexId id, uint8_t byte) {
  std::vector<RegexId> parts;
  int64_t passed = 0;
  while (node(id).options >= 0 && MayBegin(id).Has(byte)) {
    const Node n = node(id);
    ++passed;
    if (!MayBegin(n.a).Has(byte)) {
      id = n.b;
      continue;
    }
    parts.push_back(Concat(RawDerive(n.a, byte), n.b));
    // What is left behind any later one of them is a part of what is left behind this one.
    const RegexId plain_end = options_[static_cast<size_t>(n.options)].plain_end;
    id = plain_end != kNothing ? plain_end : n.b;
    if (exhausted_) return kNothing;
  }
  Spend(passed / 4, 0);
  parts.push_back(RawDerive(id, byte));
  return Or(std::move(parts));
}

// False where it takes too many steps.
bool RegexPool::TryDerive(RegexId id, uint8_t byte, RegexId* next) {
  step_end_ = most_step_ == INT64_MAX ? INT64_MAX : work_ + most_step_;
  // The state's own row keeps it.
  Spend(1, 0);
  *next = exhausted_ || !MayBegin(id).Has(byte) ? kNothing : RawDeriveAnew(id, byte);
  return work_ <= std::exchange(step_end_, INT64_MAX);
}

RegexId RegexPool::DeriveMissing(RegexId id, uint8_t byte) {
  if (id == kNothing || id == kEmpty) return kNothing;
  RegexId next = kNothing;
  int64_t steps = unmetered_ - work_;
  if (TryDerive(id, byte, &next)) {
    steps += work_ - unmetered_;
  } else {
    next = kNothing;
    steps = StepMeter::kTooMuch;
  }
  if (!IsLive(next)) next = kNothing;
  if (exhausted_) return kNothing;
  Node& n = nodes_[static_cast<size_t>(id)];
  const ByteSet& edges = sets_[static_cast<size_t>(n.edges)];
  int first = byte, end = byte + 1;
  while (!edges.Has(first)) --first;
  while (end < 256 && !edges.Has(end)) ++end;
  if (steps > kDearDerivative) {
    Spend(0, 40);
    n.dear = meter_.Learn(n.dear, first, end - 1, steps);
  }
  const bool is_only = n.only_first > n.only_last;
  if (n.row < 0 && is_only && MayBegin(id).Has(byte)) {
    n.only_first = static_cast<uint8_t>(first);
    n.only_last = static_cast<uint8_t>(end - 1);
    n.only = next;
    return next;
  }
  if (n.row < 0) {
    n.row = static_cast<int32_t>(rows_.size());
    std::array<int32_t, 256>& fresh = rows_.emplace_back();
    const ByteSet& may_come = MayBegin(id);
    for (int b = 0; b < 256; ++b) fresh[static_cast<size_t>(b)] = may_come.Has(b) ? -1 : kNothing;
    if (!is_only) std::fill(fresh.begin() + n.only_first, fresh.begin() + n.only_last + 1, n.only);
    Spend(1, 1024);
  }
  int32_t* row = rows_[static_cast<size_t>(n.row)].data();
  std::fill(row + first, row + end, next);
  return next;
}

bool RegexPool::Accepts(RegexId id, std::string_view text) {
  for (const char c : text) {
    id = Derive(id, static_cast<uint8_t>(c));
    if (id == kNothing) return false;
  }
  return AcceptsEmpty(id);
}

ByteSet RegexPool::Edges(RegexId id) const { return sets_[static_cast<size_t>(node(id).edges)]; }

ByteSet RegexPool::FirstBytes(RegexId id) {
  if (node(id).exact) return MayBegin(id);
  const ByteSet edges = Edges(id);
  ByteSet first;
  bool live = false;
  for (int byte = 0; byte < 256; ++byte) {
    if (edges.Has(byte)) live = Derive(id, static_cast<uint8_t>(byte)) != kNothing;
    if (live) first.Add(byte);
  }
  return first;
}

}  // namespace weft::constraint
