// Which blocks of computed state a directory has, which of them a prompt can use, and which go
// first when there is no room. Accounting only: the files are block_files.h's.
//
// A block is the state of one page of positions, after a prefix that is known to the last
// token, or the recurrent state after exactly some number of tokens. Its key is a hash of all
// of its prefix and of whose it is (the root of a domain), so equal prefixes have equal keys:
// sessions, their forks and prompts that begin alike share their blocks without asking each
// other, and a prompt finds what it can use by hashing its tokens page by page.
//
// A page's block may hold fewer tokens than a page; it goes when a longer one with the same
// beginning comes. Any block serves as far as its tokens agree with the prompt's, since the
// state of a position depends on none after it.
//
// Bytes never exceed the budget: room is made before a block is added. What is least useful
// goes first, from the ends of prefixes: what was not used for long, of few uses, quick to be
// computed again. Files of other models count and go by the time of their last use.
//
// Threads: belongs to one at a time.
#ifndef WEFT_STATE_BLOCK_CATALOG_H_
#define WEFT_STATE_BLOCK_CATALOG_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/tokens.h"
#include "state/session_file.h"

namespace weft {

struct BlockInfo {
  enum class Kind : uint32_t { kPage = 1, kSlot = 2 };
  Kind kind = Kind::kPage;
  Fingerprint key;
  Fingerprint parent;       // of the whole page before, or the domain's root
  int64_t first_token = 0;  // a multiple of page_tokens
  // From there on. Of a page 1 to page_tokens; of a slot, which is the state after the last of
  // them, 0 to page_tokens - 1.
  std::vector<TokenId> tokens;
  uint64_t groups = 0;   // bit g: the page of layer group g is in it
  int64_t bytes = 0;     // that its file takes of the budget
  bool session = false;  // a named session's, not only a prompt's
  // Seconds since 1970, and how often it was found.
  int64_t used_s = 0;
  int64_t uses = 0;

  int64_t end_token() const { return first_token + static_cast<int64_t>(tokens.size()); }
};

// The root of a domain's prefixes, and the keys of what comes after a parent.
Fingerprint BlockRoot(std::string_view domain);
Fingerprint PageBlockKey(const Fingerprint& parent, std::span<const TokenId> tokens);
Fingerprint SlotBlockKey(const Fingerprint& parent, std::span<const TokenId> tokens);

// What of a prompt can be read.
struct BlockMatch {
  int64_t n_tokens = 0;            // 0: nothing
  std::vector<Fingerprint> pages;  // one per page of these tokens; of the last maybe a part
  std::optional<Fingerprint> slot;
};

class BlockCatalog {
 public:
  struct Options {
    int page_tokens = 0;
    std::vector<int64_t> windows;  // per layer group; 0: all positions are seen. At most 64.
    bool slots = false;            // the model has recurrent state
    int64_t budget_bytes = 0;
    std::string folder;  // of this model's files, below the directory of all models'
  };
  // Files to be removed, by their path below the directory of all models'. They are out of the
  // accounts already: remove them before anything that was added since is written.
  using Victims = std::vector<std::string>;

  explicit BlockCatalog(Options options);
  ~BlockCatalog();

  // What the directory has at the start. Unordered; victims where it is over the budget.
  struct ForeignFile {
    std::string path;
    int64_t bytes = 0;
    int64_t used_s = 0;
  };
  Victims Load(std::vector<BlockInfo> own, std::vector<ForeignFile> foreign);

  // Makes room for the block and adds it, not yet written: nobody finds it. False: there is no
  // room beside what is more useful. The parent stays whatever happens.
  // One of its key that holds the pages of fewer groups is replaced.
  // REQUIRES: no other is there, and none that is being written.
  bool Add(BlockInfo info, Victims* victims);
  // From now on prompts find it. Partial blocks that it makes superfluous go.
  void SetWritten(const Fingerprint& key, Victims* victims);
  // Whatever was found out about it: it is no longer there.
  void Remove(const Fingerprint& key);

  const BlockInfo* Find(const Fingerprint& key) const;  // also one that is being written
  bool IsWritten(const Fingerprint& key) const;
  // Whether a block after `parent` begins with these tokens, being written or there.
  bool Covers(const Fingerprint& parent, std::span<const TokenId> tokens, uint64_t groups) const;
  // Counts as a use, of its prefix too.
  void Use(const BlockMatch& match, int64_t now_s);
  void UseForSession(const Fingerprint& key, int64_t now_s);

  // The longest part of the first `max_tokens` tokens from whose end a session can go on. Where
  // windowed pages are missing it may be a shorter one, because not more than kMostTried blocks
  // that begin alike are tried.
  BlockMatch Match(std::string_view domain, std::span<const TokenId> tokens,
                   int64_t max_tokens) const;

  std::string PathOf(const Fingerprint& key) const;
  std::vector<BlockInfo> Blocks() const;  // those that are written
  int64_t bytes() const { return bytes_; }
  int64_t budget_bytes() const { return options_.budget_bytes; }
  int64_t size() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t evicted() const { return evicted_; }
  // Blocks that were looked at among those after the same one, so far: what that costs.
  int64_t visits() const { return visits_; }
  Status CheckIntegrity() const;

 private:
  struct Block;
  struct KeyHash {
    size_t operator()(const Fingerprint& key) const { return static_cast<size_t>(key.low); }
  };
  // What goes first comes first: until when it is worth keeping, and a number that makes the
  // order total.
  using Order = std::set<std::pair<int64_t, uint64_t>>;

  // What begins alike stands side by side, and what begins another before it.
  struct ByTokens {
    using is_transparent = void;
    bool operator()(const Block* a, const Block* b) const;
    bool operator()(const Block* a, std::span<const TokenId> b) const;
    bool operator()(std::span<const TokenId> a, const Block* b) const;
  };
  using Ordered = std::set<Block*, ByTokens>;
  // The blocks after the same one.
  struct Siblings {
    Ordered pages, slots;
    Ordered& of(BlockInfo::Kind kind) { return kind == BlockInfo::Kind::kPage ? pages : slots; }
  };
  static constexpr size_t kMostTried = 32;

  // Calls visit(block) for those whose tokens are the first of `tokens`, or all of them, the
  // longest first, until it returns true.
  template <typename Visit>
  void ForEachBeginning(const Ordered& blocks, std::span<const TokenId> tokens, Visit visit) const;
  int64_t Common(const Block* block, std::span<const TokenId> tokens) const;
  int64_t KeepUntil(const Block& block) const;
  bool IsEndless(const BlockInfo& info) const;
  bool IsLeaf(const Block& block) const;
  void Place(Block* block);    // into the order, if it is a leaf
  void Unplace(Block* block);  // out of it
  void PlaceByKey(const Fingerprint& key);
  void UnplaceByKey(const Fingerprint& key);
  bool MakeRoom(int64_t bytes, int64_t worth_until, const Fingerprint& parent, Victims* victims);
  void Erase(const Fingerprint& key);
  std::vector<std::pair<const Block*, int64_t>> PagesAfter(const Fingerprint& parent,
                                                           std::span<const TokenId> tokens) const;
  bool SeesEnough(const std::vector<const Block*>& pages, int64_t n_tokens) const;
  static BlockMatch MatchOf(const std::vector<const Block*>& pages, int64_t n_tokens);
  std::optional<BlockMatch> MatchAfter(const Fingerprint& parent, std::vector<const Block*> pages,
                                       std::span<const TokenId> rest) const;
  std::optional<BlockMatch> MatchSlotAfter(const Fingerprint& parent,
                                           std::vector<const Block*> pages,
                                           std::span<const TokenId> rest) const;

  const Options options_;
  std::unordered_map<Fingerprint, std::unique_ptr<Block>, KeyHash> blocks_;
  std::unordered_map<Fingerprint, Siblings, KeyHash> children_;  // by parent
  struct Evictable {
    Block* block = nullptr;  // null: a foreign file
    ForeignFile foreign;
  };
  std::unordered_map<uint64_t, Evictable> evictable_;  // by the number in order_
  Order order_;
  uint64_t next_serial_ = 1;
  int64_t bytes_ = 0;
  int64_t evicted_ = 0;
  mutable int64_t visits_ = 0;
};

}  // namespace weft

#endif  // WEFT_STATE_BLOCK_CATALOG_H_
