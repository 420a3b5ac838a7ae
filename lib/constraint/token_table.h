// The bytes of a vocabulary's tokens, arranged for fast masks.
//
// Most tokens are plain text, and most of the time plain text is either allowed completely (inside
// a string) or not at all. So tokens are divided into slices, one for each kind of text. If a
// terminal accepts any text of that kind, the slice contributes a precomputed mask, selected by
// length. Slices that a terminal accepts only partly, and tokens in no slice, are walked byte by
// byte as tries.
//
// Tokens in no slice contain text before something else (a quotation mark, a line end, a part of a
// character), or are long. A terminal that only counts characters treats all texts of one length
// alike. For such terminals these tokens are stored a second time, as tails, by the number of
// characters before the tail.
//
// Control tokens represent no text. Here each gets a byte sequence that no text can contain, so it
// is allowed exactly where a constraint names it.
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
#include "constraint/regex/analysis.h"
#include "constraint/regex/byte_set.h"
#include "constraint/regex/regex.h"

namespace weft::constraint {

struct TrieNode {
  int32_t next = 0;    // first node after this subtree
  int32_t tokens = 0;  // start of its own tokens; those of its subtree follow
  uint16_t depth = 0;  // bytes from the root, including this one
  uint8_t byte = 0;
  uint8_t height = 0;  // length of the longest text below; 255 also stands for more
};

// Nodes and tokens are in depth-first order, so the tokens of a subtree are contiguous.
class TokenTrie {
 public:
  TokenTrie() : nodes_(1) {}

  int32_t size() const { return static_cast<int32_t>(nodes_.size()) - 1; }
  const TrieNode& operator[](int32_t at) const { return nodes_[static_cast<size_t>(at)]; }
  // The tokens of the nodes [from, to).
  std::span<const TokenId> Tokens(int32_t from, int32_t to) const {
    const auto begin = static_cast<size_t>((*this)[from].tokens);
    return {tokens_.data() + begin, static_cast<size_t>((*this)[to].tokens) - begin};
  }
  // REQUIRES: `text` is not less than any text added before.
  void Add(std::string_view text, TokenId token);
  // Call after the last Add.
  void Finish() { Close(0); }

 private:
  void Close(size_t depth);

  std::vector<TrieNode> nodes_;  // with one extra node as the end
  std::vector<TokenId> tokens_;
  std::vector<int32_t> path_;  // nodes of the text added last
};

// A set of character kinds, one bit each. Every ASCII letter is its own kind, and all digits are
// one. Other characters are classified by their first byte, or by two bytes where spaces are among
// them.
struct TextKinds {
  uint64_t ascii = 0, others = 0;

  TextKinds operator|(const TextKinds& o) const { return {ascii | o.ascii, others | o.others}; }
  // Whether these kinds are a subset of `o`.
  bool AreIn(const TextKinds& o) const { return ((ascii & ~o.ascii) | (others & ~o.others)) == 0; }
  void Remove(const TextKinds& o) { ascii &= ~o.ascii, others &= ~o.others; }
};
// REQUIRES: bytes of text. `second` is ignored for a one-byte character.
TextKinds KindOf(uint8_t first, uint8_t second = 0);
// Summarizes the subtree of a node in a trie of texts.
struct TextBelow {
  TextKinds kinds;  // kinds of the characters that start in the subtree
  int missing = 0;  // bytes that complete a character started at or above the node
};

// The bytes that represent control token `id` within a constraint: they are not valid UTF-8.
// REQUIRES: 0 <= id < 2^24.
std::string ControlBytes(TokenId id);
inline constexpr char kControlLead = '\xFF';
inline constexpr size_t kControlSize = 5;
// The control token at the start of `bytes`, or kNoToken if they start with text.
TokenId ControlAt(std::string_view bytes);

class TokenTable {
 public:
  // Longer tokens are never allowed.
  static constexpr size_t kMaxTokenBytes = 1024;
  static constexpr int kSliceLength = 16;
  // Tokens with more leading characters of text have no tail.
  static constexpr int kMaxLead = 32;
  // The trie beyond(near) has the tokens longer than kNear[near] bytes.
  static constexpr auto kNear = RegexAnalysis::kNear;

  struct Slice {
    // A token of the slice consists of these bytes and, if `utf8`, of complete non-ASCII
    // characters.
    ByteSet bytes;
    bool utf8 = false;
    // masks[n] has the tokens of at most n characters; no token of a slice exceeds kSliceLength.
    std::vector<std::vector<uint32_t>> masks;
  };
  struct LongText {
    int characters = 0;
    TokenId id = kNoToken;
  };

  // `bytes[id]` is the text of token `id`; an empty one is never allowed. `ends` are the tokens
  // that end an answer. `controls` are the other control tokens with their names in text; their own
  // `bytes` are ignored.
  TokenTable(std::vector<std::string> bytes, std::vector<TokenId> ends,
             const std::vector<std::pair<TokenId, std::string>>& controls = {});

  int size() const { return static_cast<int>(bytes_.size()); }
  size_t mask_words() const { return (bytes_.size() + 31) / 32; }
  std::string_view Bytes(TokenId id) const { return bytes_[static_cast<size_t>(id)]; }
  std::span<const TokenId> ends() const { return ends_; }
  bool IsEnd(TokenId id) const;
  // Empty for tokens that end answers and for tokens that are not control tokens.
  std::string_view ControlText(TokenId id) const;

  const TokenTrie& all() const { return all_; }
  // Each slice's characters include those of the slices before it; the last slice is all text.
  const std::vector<Slice>& slices() const { return slices_; }
  const Slice& text() const { return slices_.back(); }
  // Tokens of at most n characters, from all slices.
  const std::vector<uint32_t>& TextMask(int n) const { return texts_[static_cast<size_t>(n)]; }
  // All tokens that consist of text only.
  const std::vector<uint32_t>& AllText() const { return all_text_; }
  // Texts of kSliceLength + 1 to kMaxLead characters, shortest first.
  const std::vector<LongText>& long_texts() const { return long_texts_; }

  // All tries by number: one for each slice, then longer texts, then everything that is not text.
  // After these the tokens are repeated: the tails, by the number of leading characters; the tokens
  // that have no tail and are not in long_texts(); and the tokens longer than kNear[i] bytes, for
  // each i.
  const TokenTrie& trie(size_t i) const { return tries_[i]; }
  // For each node of a slice's trie or of longer(), a summary of its subtree. Empty for other
  // tries.
  std::span<const TextBelow> Below(size_t i) const {
    return i < below_.size() ? std::span<const TextBelow>(below_[i]) : std::span<const TextBelow>();
  }
  size_t longer() const { return slices_.size(); }
  size_t rest() const { return slices_.size() + 1; }
  size_t tails(int lead) const { return slices_.size() + 2 + static_cast<size_t>(lead); }
  size_t far() const { return tails(kMaxLead) + 1; }
  size_t beyond(size_t near) const { return far() + 1 + near; }
  // The tokens of the trie beyond(near), as a mask.
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
