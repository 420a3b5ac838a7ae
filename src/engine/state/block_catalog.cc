#include "engine/state/block_catalog.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "engine/state/block_catalog_block.h"
#include "engine/state/fields.h"

namespace weft {
namespace {

// How many seconds of disuse a block of a short prompt used once is worth.
constexpr int64_t kWorthSeconds = 3600;
// Attention to this many positions costs about as much as the rest of a token's work.
constexpr int64_t kCostlyDepth = 8192;
constexpr int64_t kMaxDepthFactor = 4;

Fingerprint HashAfter(const Fingerprint& parent, BlockInfo::Kind kind,
                      std::span<const TokenId> tokens) {
  FieldWriter out;
  for (const uint64_t number :
       {parent.low, parent.high, static_cast<uint64_t>(kind), uint64_t{tokens.size()}}) {
    out.Put(number);
  }
  for (const TokenId token : tokens) out.Put(token);
  return FingerprintOf(out.bytes());
}

}  // namespace

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

bool BlockCatalog::Children::has_end() const {
  return !slots.empty() && !slots.Last()->tokens.empty();
}

// --- the tree ---------------------------------------------------------------------------

BlockCatalog::Block* BlockCatalog::BlockOf(const Fingerprint& key) const {
  const auto found = blocks_.find(key);
  return found != blocks_.end() ? found->second.get() : nullptr;
}

const BlockCatalog::Children* BlockCatalog::ChildrenOf(const Fingerprint& parent) const {
  const auto found = children_.find(parent);
  return found != children_.end() ? &found->second : nullptr;
}

BlockCatalog::Block* BlockCatalog::Insert(BlockInfo info) {
  auto owned = std::make_unique<Block>();
  Block* const block = owned.get();
  static_cast<BlockInfo&>(*block) = std::move(info);
  block->serial = next_serial_++;
  bytes_ += block->bytes;
  children_.try_emplace(block->parent, &compared_tokens_)
      .first->second.of(block->kind)
      .Insert(block);
  blocks_.emplace(block->key, std::move(owned));
  return block;
}

void BlockCatalog::Erase(const Fingerprint& key) {
  const auto found = blocks_.find(key);
  if (found == blocks_.end()) return;
  NoteRemoval(key);
  const std::unique_ptr<Block> block = std::move(found->second);
  blocks_.erase(found);
  Unplace(block.get());
  bytes_ -= block->bytes;
  const auto siblings = children_.find(block->parent);
  Children& children = siblings->second;
  const bool had_end = children.has_end();
  children.of(block->kind).Erase(block.get());
  if (children.pages.empty() && children.slots.empty()) {
    children_.erase(siblings);
  } else if (had_end && !children.has_end()) {
    // Its sibling pages may have become useless.
    for (Block* const page : children.pages) {
      Unplace(page);
      Place(page);
    }
  }
  Place(BlockOf(block->parent));
}

// --- eviction order ---------------------------------------------------------------------

int64_t BlockCatalog::KeepUntil(const BlockInfo& info) const {
  const Children* const siblings = ChildrenOf(info.parent);
  const bool is_lost = info.first_token > 0 && BlockOf(info.parent) == nullptr;
  // For models with recurrent state the last pages are useless without a slot after them.
  const bool is_endless = options_.slots && info.kind == BlockInfo::Kind::kPage &&
                          (siblings == nullptr || !siblings->has_end());
  if (is_lost || is_endless) return info.used_s;
  const int64_t uses = std::bit_width(static_cast<uint64_t>(info.uses) + 1);
  const int64_t depth = std::min(info.first_token, (kMaxDepthFactor - 1) * kCostlyDepth);
  const int64_t worth = kWorthSeconds * uses * (kCostlyDepth + depth) / kCostlyDepth;
  return info.used_s + (info.session ? 2 * worth : worth);
}

bool BlockCatalog::IsLeaf(const Block& block) const { return ChildrenOf(block.key) == nullptr; }

void BlockCatalog::Place(Block* block) {
  if (block == nullptr || block->place.has_value() || !block->written || !IsLeaf(*block)) return;
  block->place.emplace(KeepUntil(*block), block->serial);
  order_[*block->place].block = block;
}

void BlockCatalog::Unplace(Block* block) {
  if (block == nullptr || !block->place.has_value()) return;
  order_.erase(*block->place);
  block->place.reset();
}

bool BlockCatalog::MakeRoom(int64_t bytes, int64_t worth_until, const Fingerprint& parent,
                            Victims* victims) {
  if (bytes > std::max<int64_t>(0, room())) return false;
  for (auto least = order_.begin(); bytes_ + bytes > room();) {
    if (least == order_.end() || least->first.first > worth_until) return false;
    const auto& [block, foreign] = least->second;
    if (block == nullptr) {
      bytes_ -= foreign.bytes;
      victims->push_back(foreign.path);
      order_.erase(least);
    } else if (block->key == parent) {
      ++least;
      continue;
    } else {
      victims->push_back(PathOf(block->key));
      Erase(block->key);
    }
    ++evicted_;
    least = order_.begin();  // a parent may be the next
  }
  return true;
}

void BlockCatalog::SetOtherBytes(int64_t bytes, Victims* victims) {
  other_bytes_ = bytes;
  (void)MakeRoom(0, INT64_MAX, {}, victims);
}

bool BlockCatalog::MakeRoomForOthers(int64_t bytes, Victims* victims) {
  return MakeRoom(bytes, INT64_MAX, {}, victims);
}

// --- contents ---------------------------------------------------------------------------

BlockCatalog::Victims BlockCatalog::Load(std::vector<BlockInfo> own,
                                         std::vector<ForeignFile> foreign) {
  for (BlockInfo& info : own) Insert(std::move(info))->written = true;
  for (auto& [key, block] : blocks_) Place(block.get());
  for (ForeignFile& file : foreign) {
    bytes_ += file.bytes;
    const OrderKey place = {file.used_s, next_serial_++};
    order_[place].foreign = std::move(file);
  }
  Victims victims;
  (void)MakeRoom(0, INT64_MAX, {}, &victims);
  return victims;
}

bool BlockCatalog::Add(BlockInfo info, Victims* victims) {
  if (const Block* const known = BlockOf(info.key); known != nullptr) {
    WEFT_CHECK(known->written && (known->groups & ~info.groups) == 0,
               "a block is replaced by one that holds more");
    info.uses = known->uses;
  }
  // As if it had its slot already.
  const int64_t worth_until =
      std::max(info.used_s + (info.session ? 2 : 1) * kWorthSeconds, KeepUntil(info));
  // A previous block counts until the new one has replaced its file.
  if (!MakeRoom(info.bytes, worth_until, info.parent, victims)) return false;
  Erase(info.key);
  Unplace(BlockOf(info.parent));
  Insert(std::move(info));
  return true;
}

void BlockCatalog::SetWritten(const Fingerprint& key, Victims* victims) {
  Block* const block = BlockOf(key);
  if (block == nullptr) return;
  block->written = true;
  Place(block);
  NoteWritten(*block);
  if (block->kind != BlockInfo::Kind::kPage) return;
  std::vector<Fingerprint> superfluous;
  children_.at(block->parent).pages.ForEachBeginning(block->tokens, [&](const Block* other) {
    const bool adds = (other->groups & ~block->groups) != 0;
    if (other != block && other->written && !adds) superfluous.push_back(other->key);
    return false;
  });
  for (const Fingerprint& shorter : superfluous) {
    victims->push_back(PathOf(shorter));
    Erase(shorter);
  }
}

void BlockCatalog::Remove(const Fingerprint& key) { Erase(key); }

const BlockInfo* BlockCatalog::Find(const Fingerprint& key) const { return BlockOf(key); }

bool BlockCatalog::IsWritten(const Fingerprint& key) const {
  const Block* const block = BlockOf(key);
  return block != nullptr && block->written;
}

bool BlockCatalog::Covers(const Fingerprint& parent, std::span<const TokenId> tokens,
                          uint64_t groups) const {
  bool covered = false;
  if (const Children* const children = ChildrenOf(parent)) {
    children->pages.ForEachLonger(tokens, [&](const Block* longer) {
      covered = (groups & ~longer->groups) == 0;
      return covered;
    });
  }
  return covered;
}

void BlockCatalog::NoteUse(const Fingerprint& key, int64_t now_s, int64_t n_uses, bool session) {
  Block* const block = BlockOf(key);
  if (block == nullptr) return;
  Unplace(block);
  block->used_s = std::max(block->used_s, now_s);
  block->uses += n_uses;
  block->session = block->session || session;
  Place(block);
}

void BlockCatalog::Use(const BlockMatch& match, int64_t now_s, int64_t n_uses) {
  for (const Fingerprint& key : match.pages) NoteUse(key, now_s, n_uses, /*session=*/false);
  if (match.slot.has_value()) NoteUse(*match.slot, now_s, n_uses, /*session=*/false);
}

void BlockCatalog::UseForSession(const Fingerprint& key, int64_t now_s) {
  NoteUse(key, now_s, 0, /*session=*/true);
}

// --- matching a prompt ------------------------------------------------------------------

// Whether the pages include everything that the token at `n_tokens` sees.
bool BlockCatalog::SeesEnough(const std::vector<const Block*>& pages, int64_t n_tokens) const {
  const int64_t end = (n_tokens + options_.page_tokens - 1) / options_.page_tokens;
  for (size_t g = 0; g < options_.windows.size(); ++g) {
    const int64_t window = options_.windows[g];
    const int64_t from = window > 0 && n_tokens >= window ? n_tokens - window + 1 : 0;
    for (int64_t i = from / options_.page_tokens; i < end; ++i) {
      if ((pages[static_cast<size_t>(i)]->groups >> g & 1) == 0) return false;
    }
  }
  return true;
}

BlockMatch BlockCatalog::MatchAfter(const Fingerprint& parent, std::vector<const Block*>* pages,
                                    std::span<const TokenId> rest) const {
  const int64_t n_whole = std::ssize(*pages) * options_.page_tokens;
  BlockMatch match;
  const auto ends = [&](const Block* tail, int64_t n) {
    if (n_whole + n == 0) return false;
    if (tail != nullptr) pages->push_back(tail);
    if (SeesEnough(*pages, n_whole + n)) {
      match.n_tokens = n_whole + n;
      for (const Block* const page : *pages) match.pages.push_back(page->key);
    }
    if (tail != nullptr) pages->pop_back();
    return match.n_tokens > 0;
  };
  const Children* const children = ChildrenOf(parent);
  std::vector<std::pair<const Block*, int64_t>> tails;
  if (children != nullptr) {
    children->pages.ForEachAlike(rest, [&](const Block* page, int64_t common) {
      if (page->written) tails.emplace_back(page, common);
      return false;
    });
  }
  tails.emplace_back(nullptr, 0);  // the end of a whole page needs none
  if (!options_.slots) {
    (void)std::ranges::any_of(tails,
                              [&](const auto& tail) { return ends(tail.first, tail.second); });
  } else if (children != nullptr) {
    children->slots.ForEachBeginning(rest, [&](const Block* slot) {
      const int64_t n = std::ssize(slot->tokens);
      const bool found =
          slot->written && std::ranges::any_of(tails, [&](const auto& tail) {
            return tail.second >= n && (n > 0) == (tail.first != nullptr) && ends(tail.first, n);
          });
      if (found) match.slot = slot->key;
      return found;
    });
  }
  return match;
}

BlockMatch BlockCatalog::Match(std::string_view domain, std::span<const TokenId> tokens,
                               int64_t max_tokens) const {
  tokens = PartOf(tokens, 0, max_tokens);
  const Fingerprint root = BlockRoot(domain);
  std::vector<const Block*> pages;
  const auto parent = [&] { return pages.empty() ? root : pages.back()->key; };
  const auto rest = [&] {
    const int64_t at = std::ssize(pages) * options_.page_tokens;
    return PartOf(tokens, at, options_.page_tokens);
  };
  while (std::ssize(rest()) == options_.page_tokens) {
    const Children* const children = ChildrenOf(parent());
    const Block* const whole = children != nullptr ? children->pages.Find(rest()) : nullptr;
    if (whole == nullptr || !whole->written) break;
    pages.push_back(whole);
  }
  // From the longest prefix backwards, to the first at which a session can resume.
  while (true) {
    BlockMatch match = MatchAfter(parent(), &pages, rest());
    if (match.n_tokens > 0 || pages.empty()) return match;
    pages.pop_back();
  }
}

// --- the catalogue as a whole -----------------------------------------------------------

std::string BlockCatalog::PathOf(const Fingerprint& key) const {
  return StrCat(options_.folder, "/", key.ToHex());
}

std::vector<BlockInfo> BlockCatalog::Blocks() const {
  std::vector<BlockInfo> infos;
  for (const auto& [key, block] : blocks_) {
    if (block->written) infos.push_back(*block);
  }
  return infos;
}

Status BlockCatalog::CheckIntegrity() const {
  int64_t bytes = 0;
  size_t n_children = 0, n_blocks_placed = 0;
  for (const auto& [parent, children] : children_) {
    n_children += children.pages.size() + children.slots.size();
  }
  if (n_children != blocks_.size()) return Internal("the catalog lost a child of a block");
  for (const auto& [key, block] : blocks_) {
    bytes += block->bytes;
    const bool is_evictable = block->written && IsLeaf(*block);
    n_blocks_placed += is_evictable ? 1 : 0;
    if (is_evictable != block->place.has_value() ||
        (is_evictable && !order_.contains(*block->place))) {
      return Internal("a block of the catalog is not where it belongs in the order");
    }
  }
  for (const auto& [place, evictable] : order_) {
    if (evictable.block == nullptr) bytes += evictable.foreign.bytes;
    n_blocks_placed -= evictable.block != nullptr ? 1 : 0;
  }
  if (n_blocks_placed != 0) return Internal("the catalog's order has a stranger");
  if (bytes != bytes_) return Internal("the catalog's bytes do not add up");
  if (bytes_ > options_.budget_bytes) return Internal("the catalog is over its budget");
  return OkStatus();
}

}  // namespace weft
