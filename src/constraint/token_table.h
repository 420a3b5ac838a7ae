// The bytes of a vocabulary's tokens, arranged so that masks are quick.
//
// Most tokens are plain text, and most of the time plain text is either wholly allowed (inside
// of a string) or not at all. So the tokens are cut into slices of one kind of text each: when a
// terminal takes any text of the kind, a slice is one precomputed mask, by length. What is in
// no slice is walked as a trie, byte by byte, and so is a slice that a terminal takes in part.
//
// Immutable; any thread.
#ifndef WEFT_CONSTRAINT_TOKEN_TABLE_H_
#define WEFT_CONSTRAINT_TOKEN_TABLE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tokens.h"
#include "constraint/byte_set.h"

namespace weft::constraint {

// Nodes in the order of a walk that goes down first.
struct TrieNode {
  int32_t next = 0;          // behind everything below this node
  TokenId token = kNoToken;  // the first that ends here
  uint16_t depth = 0;        // bytes from the root, this one included
  uint8_t byte = 0;
};
using TokenTrie = std::vector<TrieNode>;

class TokenTable {
 public:
  // Longer tokens are never allowed.
  static constexpr size_t kMostTokenBytes = 1024;
  static constexpr int kSliceLength = 16;

  struct Slice {
    // A token of the slice is made of these bytes and, where `utf8`, whole other characters.
    ByteSet bytes;
    bool utf8 = false;
    // [n]: tokens of at most n characters; nothing is longer than kSliceLength.
    std::vector<std::vector<uint32_t>> masks;
    TokenTrie trie;
  };

  // `bytes[id]` is what token `id` stands for; empty for one that no text may contain, such as
  // a control token. `ends` are the tokens that end an answer.
  TokenTable(std::vector<std::string> bytes, std::vector<TokenId> ends);

  int size() const { return static_cast<int>(bytes_.size()); }
  size_t mask_words() const { return (bytes_.size() + 31) / 32; }
  std::string_view Bytes(TokenId id) const { return bytes_[static_cast<size_t>(id)]; }
  // Another token of the same bytes, kNoToken behind the last.
  TokenId NextTwin(TokenId id) const { return twins_[static_cast<size_t>(id)]; }
  std::span<const TokenId> ends() const { return ends_; }
  bool IsEnd(TokenId id) const;

  const TokenTrie& all() const { return all_; }
  const std::vector<Slice>& slices() const { return slices_; }
  const TokenTrie& rest() const { return rest_; }
  // Tries by number: the slices', then the rest's.
  const TokenTrie& trie(size_t i) const { return i < slices_.size() ? slices_[i].trie : rest_; }

 private:
  TokenTrie MakeTrie(std::span<const TokenId> sorted);

  std::vector<std::string> bytes_;
  std::vector<TokenId> ends_;
  std::vector<TokenId> twins_;
  TokenTrie all_;
  std::vector<Slice> slices_;
  TokenTrie rest_;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_TOKEN_TABLE_H_
