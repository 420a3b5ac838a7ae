// The text that each isolation domain has recently read and written. Other answers of the domain
// may repeat it, as agents do with a file that a sibling has just read.
//
// No domain sees another's text unless they also share prefixes. Memory is bounded: the beginning
// of a long text is dropped first, then the least recently used domain.
// Engine thread only.
#ifndef WEFT_ENGINE_SPECULATION_SHARED_TEXTS_H_
#define WEFT_ENGINE_SPECULATION_SHARED_TEXTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/tokens.h"
#include "engine/speculation/ngram_index.h"

namespace weft {

struct SharedText {
  std::vector<TokenId> tokens;  // passages, each followed by kNoToken
  NgramIndex index;
  int64_t cuts = 0;  // how often its beginning was dropped, which moves all positions
  uint64_t used = 0;
};

class SharedTexts {
 public:
  static constexpr int64_t kMaxTokens = int64_t{1} << 17;  // per domain
  static constexpr int64_t kMaxTokensOfAll = int64_t{1} << 20;
  static constexpr size_t kMaxDomains = 256;

  // The domain's text, which may be empty. It may be read until the next call of Add, even if it is
  // dropped here in the meantime.
  std::shared_ptr<SharedText> Of(std::string_view domain);
  // Adds a passage.
  void Add(std::string_view domain, std::span<const TokenId> passage);
  void Clear();

  int64_t memory_bytes() const;

 private:
  void DropLeastUsed();

  std::unordered_map<std::string, std::shared_ptr<SharedText>> texts_;
  int64_t n_tokens_ = 0;  // in all texts
  uint64_t clock_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_SPECULATION_SHARED_TEXTS_H_
