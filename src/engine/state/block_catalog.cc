#include "engine/state/block_catalog.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "xxhash.h"

namespace weft {
namespace {

// How many seconds of disuse a block of a short prompt used once is worth.
constexpr int64_t kWorthSeconds = 3600;
// Attention to this many positions costs about as much as the rest of a token's work.
constexpr int64_t kCostlyDepth = 8192;
constexpr int64_t kMaxDepthFactor = 4;

Fingerprint HashAfter(const Fingerprint& parent, BlockInfo::Kind kind,
                      std::span<const TokenId> tokens) {
  std::vector<uint64_t> head = {parent.low, parent.high, static_cast<uint64_t>(kind),
                                tokens.size()};
  XXH3_state_t* state = XXH3_createState();
  XXH3_128bits_reset(state);
  XXH3_128bits_update(state, head.data(), head.size() * sizeof(uint64_t));
  XXH3_128bits_update(state, tokens.data(), tokens.size_bytes());
  const XXH128_hash_t digest = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  return {.low = digest.low64, .high = digest.high64};
}

}  // namespace

struct BlockCatalog::Block {
  BlockInfo info;
  uint64_t serial = 0;
  bool written = false;
  std::optional<std::pair<int64_t, uint64_t>> place;  // in the order
};

namespace {

bool Less(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::ranges::lexicographical_compare(a, b);
}

}  // namespace

bool BlockCatalog::ByTokens::operator()(const Block* a, const Block* b) const {
  return Less(a->info.tokens, b->info.tokens);
}

bool BlockCatalog::ByTokens::operator()(const Block* a, std::span<const TokenId> b) const {
  return Less(a->info.tokens, b);
}

bool BlockCatalog::ByTokens::operator()(std::span<const TokenId> a, const Block* b) const {
  return Less(a, b->info.tokens);
}

int64_t BlockCatalog::Common(const Block* block, std::span<const TokenId> tokens) const {
  ++visits_;
  return CommonLength(block->info.tokens, tokens);
}

template <typename Visit>
void BlockCatalog::ForEachBeginning(const Ordered& blocks, std::span<const TokenId> tokens,
                                    Visit visit) const {
  while (true) {
    const auto after = blocks.upper_bound(tokens);
    if (after == blocks.begin()) return;
    Block* const block = *std::prev(after);
    // A sibling that shares more of the tokens would sort after the block.
    int64_t common = Common(block, tokens);
    if (common == std::ssize(block->info.tokens)) {
      if (visit(block) || common == 0) return;
      --common;
    }
    tokens = tokens.first(static_cast<size_t>(common));
  }
}

Fingerprint BlockRoot(std::string_view domain) {
  return FingerprintOf(StrCat("blocks of domain ", domain));
}

Fingerprint PageBlockKey(const Fingerprint& parent, std::span<const TokenId> tokens) {
  return HashAfter(parent, BlockInfo::Kind::kPage, tokens);
}

Fingerprint SlotBlockKey(const Fingerprint& parent, std::span<const TokenId> tokens) {
  return HashAfter(parent, BlockInfo::Kind::kSlot, tokens);
}

BlockCatalog::BlockCatalog(Options options) : options_(std::move(options)) {
  WEFT_CHECK(options_.page_tokens > 0 && options_.windows.size() <= kMaxSessionGroups,
             "a block is a page of up to 64 groups");
}

BlockCatalog::~BlockCatalog() = default;

// --- eviction order ---------------------------------------------------------------------

int64_t BlockCatalog::KeepUntil(const Block& block) const {
  const BlockInfo& info = block.info;
  const bool lost = info.first_token > 0 && !blocks_.contains(info.parent);
  if (lost || IsEndless(info)) return info.used_s;
  const int64_t uses = std::bit_width(static_cast<uint64_t>(info.uses) + 1);
  const int64_t depth = std::min(info.first_token, (kMaxDepthFactor - 1) * kCostlyDepth);
  const int64_t worth = kWorthSeconds * uses * (kCostlyDepth + depth) / kCostlyDepth;
  return info.used_s + (info.session ? 2 * worth : worth);
}

// For models with recurrent state the last pages are useless without a slot after them.
bool BlockCatalog::IsEndless(const BlockInfo& info) const {
  if (!options_.slots || info.kind != BlockInfo::Kind::kPage) return false;
  const auto siblings = children_.find(info.parent);
  if (siblings == children_.end() || siblings->second.slots.empty()) return true;
  return (*siblings->second.slots.rbegin())->info.tokens.empty();
}

bool BlockCatalog::IsLeaf(const Block& block) const { return !children_.contains(block.info.key); }

void BlockCatalog::Place(Block* block) {
  if (block->place.has_value() || !block->written || !IsLeaf(*block)) return;
  block->place.emplace(KeepUntil(*block), block->serial);
  order_.insert(*block->place);
  evictable_[block->serial] = {.block = block, .foreign = {}};
}

void BlockCatalog::Unplace(Block* block) {
  if (!block->place.has_value()) return;
  order_.erase(*block->place);
  evictable_.erase(block->serial);
  block->place.reset();
}

void BlockCatalog::PlaceByKey(const Fingerprint& key) {
  if (const auto found = blocks_.find(key); found != blocks_.end()) Place(found->second.get());
}

void BlockCatalog::UnplaceByKey(const Fingerprint& key) {
  if (const auto found = blocks_.find(key); found != blocks_.end()) Unplace(found->second.get());
}

bool BlockCatalog::MakeRoom(int64_t bytes, int64_t worth_until, const Fingerprint& parent,
                            Victims* victims) {
  if (bytes > std::max<int64_t>(0, room())) return false;
  std::vector<std::pair<int64_t, uint64_t>> spared;
  bool fits = true;
  while (fits && bytes_ + bytes > room()) {
    if (order_.empty() || order_.begin()->first > worth_until) {
      fits = false;
      break;
    }
    const auto first = *order_.begin();
    const Evictable least = evictable_.at(first.second);
    if (least.block == nullptr) {
      order_.erase(order_.begin());
      evictable_.erase(first.second);
      bytes_ -= least.foreign.bytes;
      victims->push_back(least.foreign.path);
    } else if (least.block->info.key == parent) {
      spared.push_back(first);
      order_.erase(order_.begin());
      continue;
    } else {
      victims->push_back(PathOf(least.block->info.key));
      Erase(least.block->info.key);
    }
    ++evicted_;
  }
  for (const auto& place : spared) order_.insert(place);
  return fits;
}

void BlockCatalog::SetOtherBytes(int64_t bytes, Victims* victims) {
  other_bytes_ = bytes;
  (void)MakeRoom(0, INT64_MAX, {}, victims);
}

bool BlockCatalog::MakeRoomForOthers(int64_t bytes, Victims* victims) {
  return MakeRoom(bytes, INT64_MAX, {}, victims);
}

void BlockCatalog::Erase(const Fingerprint& key) {
  const auto found = blocks_.find(key);
  if (found == blocks_.end()) return;
  Block* const block = found->second.get();
  Unplace(block);
  const Fingerprint parent = block->info.parent;
  const auto siblings = children_.find(parent);
  auto& [pages, slots] = siblings->second;
  siblings->second.of(block->info.kind).erase(block);
  const bool was_last_end = block->info.kind == BlockInfo::Kind::kSlot &&
                            !block->info.tokens.empty() &&
                            (slots.empty() || (*slots.rbegin())->info.tokens.empty());
  if (pages.empty() && slots.empty()) {
    children_.erase(siblings);
  } else if (was_last_end) {
    // Its sibling pages may have become useless.
    for (Block* page : pages) {
      Unplace(page);
      Place(page);
    }
  }
  bytes_ -= block->info.bytes;
  blocks_.erase(found);
  PlaceByKey(parent);
}

// --- contents ---------------------------------------------------------------------------

BlockCatalog::Victims BlockCatalog::Load(std::vector<BlockInfo> own,
                                         std::vector<ForeignFile> foreign) {
  for (BlockInfo& info : own) {
    auto block = std::make_unique<Block>();
    block->info = std::move(info);
    block->serial = next_serial_++;
    block->written = true;
    bytes_ += block->info.bytes;
    children_[block->info.parent].of(block->info.kind).insert(block.get());
    blocks_.emplace(block->info.key, std::move(block));
  }
  for (auto& [key, block] : blocks_) Place(block.get());
  for (ForeignFile& file : foreign) {
    const uint64_t serial = next_serial_++;
    bytes_ += file.bytes;
    order_.emplace(file.used_s, serial);
    evictable_[serial] = {.block = nullptr, .foreign = std::move(file)};
  }
  Victims victims;
  (void)MakeRoom(0, INT64_MAX, {}, &victims);
  return victims;
}

bool BlockCatalog::Add(BlockInfo info, Victims* victims) {
  if (const BlockInfo* const known = Find(info.key); known != nullptr) {
    WEFT_CHECK(IsWritten(info.key) && (known->groups & ~info.groups) == 0,
               "a block is replaced by one that holds more");
    info.uses = known->uses;
  }
  auto block = std::make_unique<Block>();
  block->info = std::move(info);
  // As if it had its slot already.
  int64_t worth_until = block->info.used_s + kWorthSeconds;
  if (block->info.session) worth_until += kWorthSeconds;
  worth_until = std::max(worth_until, KeepUntil(*block));
  // A previous block counts until the new one has replaced its file.
  if (!MakeRoom(block->info.bytes, worth_until, block->info.parent, victims)) return false;
  Erase(block->info.key);
  block->serial = next_serial_++;
  bytes_ += block->info.bytes;
  UnplaceByKey(block->info.parent);
  children_[block->info.parent].of(block->info.kind).insert(block.get());
  blocks_.emplace(block->info.key, std::move(block));
  return true;
}

void BlockCatalog::SetWritten(const Fingerprint& key, Victims* victims) {
  const auto found = blocks_.find(key);
  if (found == blocks_.end()) return;
  Block* const block = found->second.get();
  block->written = true;
  Place(block);
  if (block->info.kind != BlockInfo::Kind::kPage) return;
  std::vector<Fingerprint> superfluous;
  ForEachBeginning(children_.at(block->info.parent).pages, block->info.tokens, [&](Block* other) {
    const bool adds = (other->info.groups & ~block->info.groups) != 0;
    if (other != block && other->written && !adds) superfluous.push_back(other->info.key);
    return false;
  });
  for (const Fingerprint& shorter : superfluous) {
    victims->push_back(PathOf(shorter));
    Erase(shorter);
  }
}

void BlockCatalog::Remove(const Fingerprint& key) { Erase(key); }

const BlockInfo* BlockCatalog::Find(const Fingerprint& key) const {
  const auto found = blocks_.find(key);
  return found != blocks_.end() ? &found->second->info : nullptr;
}

bool BlockCatalog::IsWritten(const Fingerprint& key) const {
  const auto found = blocks_.find(key);
  return found != blocks_.end() && found->second->written;
}

bool BlockCatalog::Covers(const Fingerprint& parent, std::span<const TokenId> tokens,
                          uint64_t groups) const {
  const auto found = children_.find(parent);
  if (found == children_.end()) return false;
  const Ordered& pages = found->second.pages;
  for (auto it = pages.lower_bound(tokens); it != pages.end(); ++it) {
    if (Common(*it, tokens) < std::ssize(tokens)) return false;
    if ((groups & ~(*it)->info.groups) == 0) return true;
  }
  return false;
}

void BlockCatalog::Use(const BlockMatch& match, int64_t now_s) { Use(match, now_s, 1); }

void BlockCatalog::Refresh(const BlockMatch& match, int64_t now_s) { Use(match, now_s, 0); }

void BlockCatalog::Use(const BlockMatch& match, int64_t now_s, int64_t n_uses) {
  const auto use = [&](const Fingerprint& key) {
    const auto found = blocks_.find(key);
    if (found == blocks_.end()) return;
    Unplace(found->second.get());
    found->second->info.used_s = std::max(found->second->info.used_s, now_s);
    found->second->info.uses += n_uses;
    Place(found->second.get());
  };
  for (const Fingerprint& key : match.pages) use(key);
  if (match.slot.has_value()) use(*match.slot);
}

void BlockCatalog::UseForSession(const Fingerprint& key, int64_t now_s) {
  const auto found = blocks_.find(key);
  if (found == blocks_.end()) return;
  Unplace(found->second.get());
  found->second->info.used_s = std::max(found->second->info.used_s, now_s);
  found->second->info.session = true;
  Place(found->second.get());
}

// --- matching a prompt ------------------------------------------------------------------

// The page blocks with a common beginning and how far they agree, the longest agreement first; they
// are on both sides of where the tokens would be inserted.
std::vector<std::pair<const BlockCatalog::Block*, int64_t>> BlockCatalog::PagesAfter(
    const Fingerprint& parent, std::span<const TokenId> tokens) const {
  std::vector<std::pair<const Block*, int64_t>> found;
  const auto siblings = children_.find(parent);
  if (siblings == children_.end()) return found;
  const Ordered& pages = siblings->second.pages;
  auto right = pages.lower_bound(tokens);
  auto left = right;
  const auto left_common = [&] {
    return left != pages.begin() ? Common(*std::prev(left), tokens) : 0;
  };
  const auto right_common = [&] { return right != pages.end() ? Common(*right, tokens) : 0; };
  int64_t before = left_common(), behind = right_common();
  for (size_t i = 0; i < kMaxTried && std::max(before, behind) > 0; ++i) {
    const bool takes_right = behind >= before;
    const Block* const block = takes_right ? *right : *std::prev(left);
    if (block->written) found.emplace_back(block, std::max(before, behind));
    if (takes_right) {
      ++right;
      behind = right_common();
    } else {
      --left;
      before = left_common();
    }
  }
  return found;
}

// Whether the pages include everything that the token at `n_tokens` sees.
bool BlockCatalog::SeesEnough(const std::vector<const Block*>& pages, int64_t n_tokens) const {
  const int64_t end = (n_tokens + options_.page_tokens - 1) / options_.page_tokens;
  for (size_t g = 0; g < options_.windows.size(); ++g) {
    const int64_t window = options_.windows[g];
    const int64_t from = window > 0 && n_tokens >= window ? n_tokens - window + 1 : 0;
    for (int64_t i = from / options_.page_tokens; i < end; ++i) {
      if ((pages[static_cast<size_t>(i)]->info.groups >> g & 1) == 0) return false;
    }
  }
  return true;
}

BlockMatch BlockCatalog::MatchOf(const std::vector<const Block*>& pages, int64_t n_tokens) {
  BlockMatch match{.n_tokens = n_tokens, .pages = {}, .slot = std::nullopt};
  for (const Block* block : pages) match.pages.push_back(block->info.key);
  return match;
}

// The longest prefix of `pages`, all complete, plus part of the page after them.
std::optional<BlockMatch> BlockCatalog::MatchAfter(const Fingerprint& parent,
                                                   std::vector<const Block*> pages,
                                                   std::span<const TokenId> rest) const {
  const auto n_whole = static_cast<int64_t>(pages.size()) * options_.page_tokens;
  std::optional<BlockMatch> best;
  if (n_whole > 0 && SeesEnough(pages, n_whole)) best = MatchOf(pages, n_whole);
  for (const auto& [last, n_common] : PagesAfter(parent, rest)) {
    pages.push_back(last);
    const int64_t n_tokens = n_whole + n_common;
    if ((!best.has_value() || best->n_tokens < n_tokens) && SeesEnough(pages, n_tokens)) {
      best = MatchOf(pages, n_tokens);
    }
    pages.pop_back();
  }
  return best;
}

// The longest state that begins with `pages`, all complete, plus less than a page of `rest`.
std::optional<BlockMatch> BlockCatalog::MatchSlotAfter(const Fingerprint& parent,
                                                       std::vector<const Block*> pages,
                                                       std::span<const TokenId> rest) const {
  const auto found = children_.find(parent);
  if (found == children_.end()) return std::nullopt;
  const auto n_whole = static_cast<int64_t>(pages.size()) * options_.page_tokens;
  auto tails = PagesAfter(parent, rest);
  tails.emplace_back(nullptr, 0);  // a slot at the end of a whole page needs none
  std::optional<BlockMatch> match;
  ForEachBeginning(found->second.slots, rest, [&](const Block* slot) {
    const auto n = std::ssize(slot->info.tokens);
    if (!slot->written || n_whole + n == 0) return false;
    for (const auto& [tail, n_common] : tails) {
      if (n_common < n || (n > 0) != (tail != nullptr)) continue;
      if (tail != nullptr) pages.push_back(tail);
      if (SeesEnough(pages, n_whole + n)) {
        match = MatchOf(pages, n_whole + n);
        match->slot = slot->info.key;
      }
      if (tail != nullptr) pages.pop_back();
      if (match.has_value()) return true;
    }
    return false;
  });
  return match;
}

BlockMatch BlockCatalog::Match(std::string_view domain, std::span<const TokenId> tokens,
                               int64_t max_tokens) const {
  tokens =
      tokens.first(std::min(tokens.size(), static_cast<size_t>(std::max<int64_t>(0, max_tokens))));
  const auto page = static_cast<size_t>(options_.page_tokens);
  std::vector<const Block*> pages;
  std::vector<Fingerprint> parents = {BlockRoot(domain)};
  size_t at = 0;
  for (; at + page <= tokens.size(); at += page) {
    const auto whole = tokens.subspan(at, page);
    const auto found = blocks_.find(PageBlockKey(parents.back(), whole));
    if (found == blocks_.end() || !found->second->written ||
        !std::ranges::equal(found->second->info.tokens, whole)) {
      break;
    }
    pages.push_back(found->second.get());
    parents.push_back(found->first);
  }
  // From the longest prefix backwards, to the first at which a session can resume.
  while (true) {
    at = pages.size() * page;
    const auto rest = tokens.subspan(at, std::min(page, tokens.size() - at));
    auto match = options_.slots ? MatchSlotAfter(parents.back(), pages, rest)
                                : MatchAfter(parents.back(), pages, rest);
    if (match.has_value()) return *std::move(match);
    if (pages.empty()) return {};
    pages.pop_back();
    parents.pop_back();
  }
}

// --- the catalogue as a whole -----------------------------------------------------------

std::string BlockCatalog::PathOf(const Fingerprint& key) const {
  return StrCat(options_.folder, "/", key.ToHex());
}

std::vector<BlockInfo> BlockCatalog::Blocks() const {
  std::vector<BlockInfo> infos;
  for (const auto& [key, block] : blocks_) {
    if (block->written) infos.push_back(block->info);
  }
  return infos;
}

Status BlockCatalog::CheckIntegrity() const {
  int64_t bytes = 0;
  size_t n_children = 0;
  for (const auto& [parent, children] : children_) {
    n_children += children.pages.size() + children.slots.size();
  }
  if (n_children != blocks_.size()) return Internal("the catalog lost a child of a block");
  for (const auto& [key, block] : blocks_) {
    bytes += block->info.bytes;
    const bool evictable = block->written && IsLeaf(*block);
    if (evictable != block->place.has_value() || (evictable && !order_.contains(*block->place))) {
      return Internal("a block of the catalog is not where it belongs in the order");
    }
  }
  for (const auto& [serial, evictable] : evictable_) {
    if (evictable.block == nullptr) bytes += evictable.foreign.bytes;
  }
  if (order_.size() != evictable_.size()) return Internal("the catalog's order has a stranger");
  if (bytes != bytes_) return Internal("the catalog's bytes do not add up");
  if (bytes_ > options_.budget_bytes) return Internal("the catalog is over its budget");
  return OkStatus();
}

}  // namespace weft
