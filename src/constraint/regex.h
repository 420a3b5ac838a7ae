// Regular languages over bytes, closed under union, intersection and complement.
//
// A RegexPool owns expressions; equal ones have one id. The derivative of an expression by a
// byte is the expression of what may follow that byte, so an id is also the state of a
// deterministic automaton that is built as far as it is walked, and no further. A state from
// which nothing can be accepted any more is always kNothing, complements and intersections
// included: whoever holds another id knows that there is a way to the end.
//
// A pool can be copied; ids mean the same in the copy. One thread at a time. Work and memory are
// counted; past the limits every operation gives kNothing and `exhausted()` is true: check it
// before believing a result.
#ifndef WEFT_CONSTRAINT_REGEX_H_
#define WEFT_CONSTRAINT_REGEX_H_

#include <array>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "constraint/byte_set.h"
#include "constraint/hash_index.h"

namespace weft::constraint {

using RegexId = int32_t;
inline constexpr RegexId kNothing = 0;  // accepts no text
inline constexpr RegexId kEmpty = 1;    // accepts the empty text only
inline constexpr int32_t kUnlimited = -1;

// The decimal numbers, without a sign, that are multiples of modulus / 10^decimals.
struct Multiple {
  int64_t modulus = 1;
  int32_t decimals = 0;
};

class RegexPool {
 public:
  RegexPool();

  RegexId Anything();  // every text
  RegexId Bytes(const ByteSet& set);
  RegexId Byte(uint8_t byte) { return Bytes(ByteSet::Of(byte)); }
  RegexId Literal(std::string_view text);
  RegexId Concat(RegexId first, RegexId second);
  RegexId Concat(std::initializer_list<RegexId> parts);
  RegexId Or(std::vector<RegexId> parts);
  RegexId And(const std::vector<RegexId>& parts);
  RegexId Not(RegexId part);
  RegexId AndNot(RegexId part, RegexId without) { return And({part, Not(without)}); }
  // REQUIRES: 0 <= least, and least <= most or most == kUnlimited.
  RegexId Repeat(RegexId part, int32_t least, int32_t most);
  RegexId Optional(RegexId part) { return Or({part, kEmpty}); }
  RegexId Multiples(const Multiple& multiple);

  // What may follow `byte`; kNothing where nothing can be accepted after it.
  RegexId Derive(RegexId id, uint8_t byte) {
    const int32_t row = nodes_[static_cast<size_t>(id)].row;
    if (row >= 0) {
      const RegexId known = rows_[static_cast<size_t>(row)][byte];
      if (known >= 0) return known;
    }
    return DeriveMissing(id, byte);
  }
  bool AcceptsEmpty(RegexId id) const { return nodes_[static_cast<size_t>(id)].nullable; }
  // Whether any text is accepted.
  bool IsLive(RegexId id);
  bool Accepts(RegexId id, std::string_view text);
  // The bytes that may come first.
  ByteSet FirstBytes(RegexId id);
  // The bytes at which a range begins whose members all have one derivative.
  ByteSet Edges(RegexId id) const;

  // Work that was done for the sake of these languages elsewhere, in steps.
  void Charge(int64_t work) { Spend(work, 0); }
  void SetLimits(int64_t most_work, int64_t most_bytes) {
    most_work_ = most_work;
    most_bytes_ = most_bytes;
  }
  bool exhausted() const { return exhausted_; }
  int64_t work() const { return work_; }
  int64_t bytes() const { return bytes_; }

 private:
  enum class Kind : uint8_t {
    kNothing,
    kEmpty,
    kBytes,
    kLiteral,
    kConcat,
    kOr,
    kAnd,
    kNot,
    kRepeat,
    kMultiple
  };
  enum class Life : uint8_t { kUnknown, kAlive, kDead };
  struct Node {
    Kind kind = Kind::kNothing;
    bool nullable = false;
    bool has_boolean = false;  // intersections or complements inside: it may be dead unseen
    Life life = Life::kUnknown;
    // kBytes: a set. kLiteral: offset and length in texts_. kConcat: two parts. kOr, kAnd:
    // offset and count in lists_. kNot: a part. kRepeat: part, least, most. kMultiple: index in
    // multiples_, remainder (two halves), digits after the point or -1 before it.
    int32_t a = 0, b = 0, c = 0, d = 0;
    int32_t edges = -1;  // in sets_
    int32_t row = -1;    // in rows_
  };

  RegexId Intern(const Node& node, uint64_t hash, std::span<const int32_t> list = {});
  int32_t InternSet(const ByteSet& set);
  RegexId InternParts(Kind kind, std::vector<RegexId> parts);
  bool SameNode(const Node& node, const Node& other, std::span<const int32_t> list) const;
  void Complete(Node* node, std::span<const int32_t> list);
  RegexId DeriveMissing(RegexId id, uint8_t byte);
  RegexId RawDerive(RegexId id, uint8_t byte);
  RegexId DeriveMultiple(const Node& node, uint8_t byte);
  RegexId MultipleState(int32_t multiple, int64_t remainder, int32_t digits);
  bool SearchLife(RegexId id);
  void Spend(int64_t work, int64_t bytes);
  const Node& node(RegexId id) const { return nodes_[static_cast<size_t>(id)]; }
  std::span<const int32_t> Parts(const Node& n) const {
    return {lists_.data() + n.a, static_cast<size_t>(n.b)};
  }

  std::vector<Node> nodes_;
  std::vector<int32_t> lists_;
  std::string texts_;
  std::vector<ByteSet> sets_;
  std::deque<std::array<int32_t, 256>> rows_;
  std::vector<Multiple> multiples_;
  HashIndex node_index_, set_index_;
  int64_t work_ = 0, bytes_ = 0;
  int64_t most_work_ = INT64_MAX, most_bytes_ = INT64_MAX;
  bool exhausted_ = false;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_REGEX_H_
