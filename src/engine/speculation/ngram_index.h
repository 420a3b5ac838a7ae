// N-gram lookup: finds the latest tokens of a text earlier in it, or in another text.
//
// The index does not hold the text, only positions in it: 16 bytes per token. A lookup tries a few
// of the latest positions where the tokens occur, and takes microseconds, however long the text.
// One thread.
#ifndef WEFT_ENGINE_SPECULATION_NGRAM_INDEX_H_
#define WEFT_ENGINE_SPECULATION_NGRAM_INDEX_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/tokens.h"

namespace weft {

class NgramIndex {
 public:
  // Longer matches count as this long.
  static constexpr int64_t kLongestMatch = 32;
  static constexpr int64_t kShortestMatch = 3;

  struct Match {
    int64_t next = -1;   // position of the token that followed; -1: no match
    int64_t length = 0;  // number of matching tokens before it
  };

  // Indexes up to `most` further positions of the text. REQUIRES: the text extends that of the
  // previous call.
  void Extend(std::span<const TokenId> text, int64_t most);
  // Finds the last tokens of `context` in `text`, the indexed text; `context` may be the same text.
  // The longest match wins; among equals, the most frequent next token; then the latest position.
  Match Find(std::span<const TokenId> text, std::span<const TokenId> context) const;
  void Clear();
  // Memory in use.
  int64_t memory_bytes() const;

 private:
  // The n-grams of one length: the latest position by hash, and for each position the previous one.
  struct Grams {
    int64_t n = 0;
    std::vector<int32_t> latest = {};
    std::vector<int32_t> former = {};
  };

  static void Add(std::span<const TokenId> text, int64_t at, Grams* grams);
  static Match FindAmong(const Grams& grams, std::span<const TokenId> text,
                         std::span<const TokenId> context);
  void MakeRoom(std::span<const TokenId> text);

  std::array<Grams, 2> grams_ = {Grams{.n = 8}, Grams{.n = kShortestMatch}};
  int64_t size_ = 0;  // positions indexed
};

}  // namespace weft

#endif  // WEFT_ENGINE_SPECULATION_NGRAM_INDEX_H_
