#include "engine/storage/shared_blocks.h"

#include <algorithm>

#include "base/clock.h"
#include "engine/state/session_trouble.h"

namespace weft {
namespace {

// Fewer missing tokens are computed rather than asked for: most prompts are new at their end.
constexpr int64_t kMinWantedTokens = 256;
constexpr int64_t kFirstAnswerMicros = 500'000;
constexpr int64_t kMaxLate = 8;
constexpr int64_t kStoreRestMicros = 10 * int64_t{1'000'000};
// Keys to remember; without them a block is sent again at most.
constexpr size_t kMaxKnown = 1 << 20;

}  // namespace

SharedBlocks::SharedBlocks(std::shared_ptr<ObjectStore> objects, std::string folder,
                           int64_t page_tokens, DiskTier* disk, PostBack post_back)
    : objects_(std::move(objects)),
      folder_(std::move(folder)),
      page_tokens_(page_tokens),
      disk_(disk),
      post_back_(std::move(post_back)) {}

std::string SharedBlocks::NameOf(const Fingerprint& key) const {
  return StrCat("blocks/", folder_, "/", key.ToHex());
}

bool SharedBlocks::rests() const { return NowMicros() < rests_until_us_; }

// --- to the store -----------------------------------------------------------------------

void SharedBlocks::Offer(const Fingerprint& key) {
  if (abandoned_) return;
  if (known_.size() >= kMaxKnown) known_.clear();
  if (!known_.insert({key.low, key.high}).second) return;
  ++pending_;
  writer_.Post([this, key] {
    bool is_there = false;
    if (!abandoned_ && !rests()) {
      const auto bytes = disk_->files()->ReadFile(key);  // it may be evicted by now
      const auto put = bytes.ok()
                           ? objects_->Put(NameOf(key), *bytes, ObjectStore::Condition::Absent())
                           : StatusOr<std::string>(bytes.status());
      is_there = put.ok() || put.status().code() == StatusCode::kFailedPrecondition;
      if (bytes.ok() && !is_there) rests_until_us_ = NowMicros() + kStoreRestMicros;
    }
    post_back_([this, key, is_there] {
      --pending_;
      if (!is_there) known_.erase({key.low, key.high});
    });
  });
}

void SharedBlocks::AfterUploads(std::function<void()> then) {
  writer_.Post([this, then = std::move(then)] { post_back_(then); });
}

// --- from the store ---------------------------------------------------------------------

std::vector<SharedBlocks::Expected> SharedBlocks::ListBlocks(const Wish& wish) const {
  std::vector<Expected> blocks;
  const std::span<const TokenId> tokens(wish.tokens);
  Fingerprint parent = disk_->Root(wish.domain);
  int64_t first = 0;
  for (; first + page_tokens_ <= std::ssize(tokens); first += page_tokens_) {
    parent = PageBlockKey(
        parent, tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(page_tokens_)));
    if (first >= wish.n_pages * page_tokens_) {
      blocks.push_back({parent, BlockInfo::Kind::kPage, first});
    }
  }
  const auto tail = tokens.subspan(static_cast<size_t>(first));
  if (wish.ends_here && !tail.empty()) {
    blocks.push_back({PageBlockKey(parent, tail), BlockInfo::Kind::kPage, first});
  }
  // Without it nothing else is of use.
  if (wish.needs_slot) {
    blocks.insert(blocks.begin(), {SlotBlockKey(parent, tail), BlockInfo::Kind::kSlot, first});
  }
  std::erase_if(blocks, [this](const Expected& block) { return disk_->Has(block.key, 0); });
  return blocks;
}

bool SharedBlocks::Fetch(const Wish& wish, std::function<void()> done) {
  const int64_t missing = std::ssize(wish.tokens) - wish.n_pages * page_tokens_;
  const bool is_left_alone = abandoned_ || rests() || NowMicros() < asks_again_us_;
  if (is_left_alone || missing < kMinWantedTokens) return false;
  if (wish.needs_slot && !wish.ends_here) return false;
  const auto fetching = std::make_shared<Fetching>();
  fetching->domain = wish.domain;
  fetching->blocks = ListBlocks(wish);
  if (fetching->blocks.empty()) return false;
  fetching->done = std::move(done);
  fetching->asked_us = NowMicros();
  first_asked_.push_back(fetching);
  Ask(fetching);
  return true;
}

// Computing may be faster than a slow store.
void SharedBlocks::GiveUpLate() {
  const int64_t late_us = NowMicros() - kFirstAnswerMicros;
  std::vector<FetchingRef> late;
  std::erase_if(first_asked_, [&](const FetchingRef& fetching) {
    const bool is_answered = fetching->n_taken > 0 || fetching->is_over;
    const bool is_late = !is_answered && fetching->asked_us < late_us;
    if (is_late) late.push_back(fetching);
    return is_answered || is_late;
  });
  // A few late answers come from a queue of ours. So many in a row mean that the store is slow.
  n_late_ += std::ssize(late);
  if (n_late_ >= kMaxLate) {
    n_late_ = 0;
    asks_again_us_ = NowMicros() + kStoreRestMicros;
  }
  for (const FetchingRef& fetching : late) {
    fetching->is_over = true;
    FinishIfDone(fetching);
  }
}

// Asks for the first block alone, because the store has none of most prompts.
void SharedBlocks::Ask(const FetchingRef& fetching) {
  const size_t window = fetching->n_taken == 0 ? 1 : readers_.size();
  while (!fetching->is_over && fetching->n_asked < fetching->blocks.size() &&
         fetching->n_asked < fetching->n_taken + window) {
    const size_t at = fetching->n_asked++;
    Worker& reader = readers_[next_reader_++ % readers_.size()];
    reader.Post([this, fetching, at, key = fetching->blocks[at].key,
                 tree = disk_->TreeName(fetching->domain)] {
      auto arrived = std::make_shared<Arrived>();
      const auto object = abandoned_ || rests() ? StatusOr<ObjectStore::Object>(Cancelled(""))
                                                : objects_->Get(NameOf(key));
      if (MayPass(object.status())) rests_until_us_ = NowMicros() + kStoreRestMicros;
      if (object.ok()) {
        auto parsed = BlockFiles::Parse(object->body, tree);
        if (parsed.ok()) *arrived = *std::move(parsed);
      }
      post_back_([this, fetching, at, arrived] {
        fetching->arrived[at] = std::move(*arrived);
        Take(fetching);
      });
    });
  }
}

// In order, since a block is of use after the one before it alone.
void SharedBlocks::Take(const FetchingRef& fetching) {
  auto& arrived = fetching->arrived;
  while (!fetching->is_over && !arrived.empty() && arrived.begin()->first == fetching->n_taken) {
    Arrived block = std::move(arrived.begin()->second);
    arrived.erase(arrived.begin());
    const Expected& expected = fetching->blocks[fetching->n_taken++];
    const bool is_it = block.has_value() && block->info.key == expected.key &&
                       block->info.kind == expected.kind &&
                       block->info.first_token == expected.first_token;
    fetching->is_over = !is_it;
    if (!is_it) break;
    n_late_ = 0;
    known_.insert({expected.key.low, expected.key.high});
    ++fetching->being_written;
    const bool adopted = disk_->Adopt(std::move(block->info), fetching->domain,
                                      std::move(block->payload), [this, fetching](bool) {
                                        --fetching->being_written;
                                        FinishIfDone(fetching);
                                      });
    if (!adopted) --fetching->being_written;
    fetching->is_over = !adopted || fetching->n_taken == fetching->blocks.size();
  }
  Ask(fetching);
  FinishIfDone(fetching);
}

void SharedBlocks::FinishIfDone(const FetchingRef& fetching) {
  if (!fetching->is_over || fetching->being_written > 0) return;
  if (const auto done = std::exchange(fetching->done, nullptr)) done();
}

}  // namespace weft
