// How a SentencePiece vocabulary normalises characters: a map from byte strings to others, as the
// key tokenizer.ggml.precompiled_charsmap holds it.
//
// The bytes are the size of a trie (u32), the trie, and texts that end in zeros. The trie is a
// double array of u32: a node's children lie at its base ^ byte. A node has the byte that leads to
// it in bits 0-7, whether it has a value in bit 8, and its base in bits 10-30, times 256 where bit
// 9 is set. The value of a node is at its base: where its text begins.
//
// Immutable; any thread.
#ifndef WEFT_MODEL_TOKENIZER_CHARS_MAP_H_
#define WEFT_MODEL_TOKENIZER_CHARS_MAP_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weft {

class CharsMap {
 public:
  // A map of nothing.
  CharsMap() = default;
  // What a trie says of nodes beyond its end counts as nothing.
  static StatusOr<CharsMap> Parse(std::string_view bytes);

  struct Match {
    size_t bytes = 0;  // of the text that are replaced; 0: none
    std::string_view by = {};
  };
  // The longest key that `text` begins with.
  Match LongestPrefix(std::string_view text) const;

 private:
  uint32_t Node(size_t index) const { return index < nodes_.size() ? nodes_[index] : 0; }

  std::vector<uint32_t> nodes_;
  std::string texts_;  // ends in a zero
};

}  // namespace weft

#endif  // WEFT_MODEL_TOKENIZER_CHARS_MAP_H_
