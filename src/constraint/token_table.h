// The bytes of a vocabulary's tokens, arranged so that masks are quick.
//
// Most tokens are plain text, and most of the time plain text is either wholly allowed (inside
// of a string) or not at all. So the tokens are cut into slices of one kind of text each: when a
// terminal takes any text of the kind, a slice is one precomputed mask, by length. What is in
// no slice is walked as a trie, byte by byte, and so is a slice that a terminal takes in part.
//
// What is in no slice has text before something else (a quotation mark, a line end, a piece of
// a character) or is long. To a terminal that only counts characters of text, all texts of a length
// are one: so these tokens are there a second time, as tails, by how many characters lead to them.
//
// Control tokens stand for no text. Each has bytes of its own here that no text can contain, so
// that it is allowed exactly where a constraint names it.
//
// Immutable; any thread.
#ifndef WEFT_CONSTRAINT_TOKEN_TABLE_H_
#define WEFT_CONSTRAINT_TOKEN_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/tokens.h"
#include "constraint/regex/byte_set.h"
#include "constraint/regex/regex.h"

namespace weft::constraint {

struct TrieNode {
  int32_t next = 0;    // behind everything below this node
  int32_t tokens = 0;  // where its tokens begin, those of the nodes below behind its own
  uint16_t depth = 0;  // bytes from the root, this one included
  uint8_t byte = 0;
  uint8_t height = 0;  // bytes of the longest text below; 255 stands for more, too
};

// Nodes in the order of a walk that goes down first, and so are the tokens: all that are at a node
// and below it stand in a row.
class TokenTrie {
 public:
  TokenTrie() : nodes_(1) {}

  int32_t size() const { return static_cast<int32_t>(nodes_.size()) - 1; }
  const TrieNode& operator[](int32_t at) const { return nodes_[static_cast<size_t>(at)]; }
  // Of the nodes [from, to).
  std::span<const TokenId> Tokens(int32_t from, int32_t to) const {
    const auto begin = static_cast<size_t>((*this)[from].tokens);
    return {tokens_.data() + begin, static_cast<size_t>((*this)[to].tokens) - begin};
  }
  // REQUIRES: no text before was greater.
  void Add(std::string_view text, TokenId token);
  // After the last one.
  void Finish() { Close(0); }

 private:
  void Close(size_t depth);

  std::vector<TrieNode> nodes_;  // and one behind the last
  std::vector<TokenId> tokens_;
  std::vector<int32_t> path_;  // the nodes of the text that was added last
};

// Kinds of characters of text, a bit each: every letter is a kind of its own, all digits are one;
// what is not ASCII is of a kind by its first byte, and where there are spaces, by its second one.
struct TextKinds {
  uint64_t ascii = 0, others = 0;

  TextKinds operator|(const TextKinds& o) const { return {ascii | o.ascii, others | o.others}; }
  // Whether all of these are among the others.
  bool AreIn(const TextKinds& o) const { return ((ascii & ~o.ascii) | (others & ~o.others)) == 0; }
  void Remove(const TextKinds& o) { ascii &= ~o.ascii, others &= ~o.others; }
};
// REQUIRES: bytes of text; of a character of one byte, `second` does not matter.
TextKinds KindOf(uint8_t first, uint8_t second = 0);
// What is below a node of a trie of texts.
struct TextBelow {
  TextKinds kinds;  // of the characters that begin below
  int missing = 0;  // bytes of a character that began at the node, or above
};

// What control token `id` is in the bytes that a constraint reads: no part of UTF-8.
// REQUIRES: 0 <= id < 2^24.
std::string ControlBytes(TokenId id);
inline constexpr char kControlLead = '\xFF';
inline constexpr size_t kControlSize = 5;
// The token that `bytes` begins with; kNoToken where that is text.
TokenId ControlAt(std::string_view bytes);

class TokenTable {
 public:
  // Longer tokens are never allowed.
  static constexpr size_t kMostTokenBytes = 1024;
  static constexpr int kSliceLength = 16;
  // Tokens that begin with more characters of text have no tail.
  static constexpr int kMostLead = 32;
  // Tokens of more bytes are those of trie beyond(near).
  static constexpr auto kNear = RegexPool::kNear;

  struct Slice {
    // A token of the slice is made of these bytes and, where `utf8`, whole other characters.
    ByteSet bytes;
    bool utf8 = false;
    // [n]: tokens of at most n characters; nothing is longer than kSliceLength.
    std::vector<std::vector<uint32_t>> masks;
  };
  struct LongText {
    int characters = 0;
    TokenId id = kNoToken;
  };

  // `bytes[id]` is what token `id` stands for; empty for one that is never allowed. `ends` are the
  // tokens that end an answer. `controls` are control tokens that are none of these, with what
  // they are called in text: their own `bytes` do not matter.
  TokenTable(std::vector<std::string> bytes, std::vector<TokenId> ends,
             const std::vector<std::pair<TokenId, std::string>>& controls = {});

  int size() const { return static_cast<int>(bytes_.size()); }
  size_t mask_words() const { return (bytes_.size() + 31) / 32; }
  std::string_view Bytes(TokenId id) const { return bytes_[static_cast<size_t>(id)]; }
  std::span<const TokenId> ends() const { return ends_; }
  bool IsEnd(TokenId id) const;
  // Empty for a token that is no control token, or ends answers.
  std::string_view ControlText(TokenId id) const;

  const TokenTrie& all() const { return all_; }
  // Each contains the characters of those before it; the last one is all text.
  const std::vector<Slice>& slices() const { return slices_; }
  const Slice& text() const { return slices_.back(); }
  // The tokens of all slices with at most n characters.
  const std::vector<uint32_t>& TextMask(int n) const { return texts_[static_cast<size_t>(n)]; }
  // All tokens that are nothing but text.
  const std::vector<uint32_t>& AllText() const { return all_text_; }
  // Texts of kSliceLength + 1 to kMostLead characters, shortest first.
  const std::vector<LongText>& long_texts() const { return long_texts_; }

  // Tries by number: one for each slice; of longer texts; of what is no text; then, once more, of
  // tails, by the characters that lead to them, and of tokens that have no tail and are not among
  // long_texts(); then, once more, of all tokens of more than so many bytes.
  const TokenTrie& trie(size_t i) const { return tries_[i]; }
  // Of each node of a slice's trie, or that of longer texts: what is below.
  // Of other tries nothing.
  std::span<const TextBelow> Below(size_t i) const {
    return i < below_.size() ? std::span<const TextBelow>(below_[i]) : std::span<const TextBelow>();
  }
  size_t longer() const { return slices_.size(); }
  size_t rest() const { return slices_.size() + 1; }
  size_t tails(int lead) const { return slices_.size() + 2 + static_cast<size_t>(lead); }
  size_t far() const { return tails(kMostLead) + 1; }
  size_t beyond(size_t near) const { return far() + 1 + near; }
  // The tokens of that trie.
  const std::vector<uint32_t>& BeyondMask(size_t near) const { return beyond_[near]; }

 private:
  struct Entry {
    std::string_view text;
    TokenId id = kNoToken;
  };
  static TokenTrie MakeTrie(std::span<const Entry> sorted);
  void MakeSlices(std::span<const Entry> sorted);
  void MakeTails(std::span<const Entry> longer, std::span<const Entry> rest);
  void MakeBeyond(std::span<const Entry> sorted);

  std::vector<std::string> bytes_;
  std::vector<TokenId> ends_;
  std::map<TokenId, std::string> controls_;
  TokenTrie all_;
  std::vector<Slice> slices_;
  std::vector<std::vector<uint32_t>> texts_;
  std::vector<uint32_t> all_text_;
  std::vector<LongText> long_texts_;
  std::vector<std::vector<uint32_t>> beyond_;
  std::vector<TokenTrie> tries_;
  std::vector<std::vector<TextBelow>> below_;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_TOKEN_TABLE_H_
