// Nodes of a tree of token prefixes that have the same parent, in lexicographic order of their
// tokens: those with a common beginning are adjacent, and a prefix comes before its extensions. So
// whatever has most in common with a text is next to where the text would be inserted, and a
// look-up costs the logarithm of the number of siblings.
//
// The prefix cache keeps the pages in memory in such a tree, the catalogue of blocks those on disk.
#ifndef WEFT_ENGINE_STATE_SIBLINGS_H_
#define WEFT_ENGINE_STATE_SIBLINGS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <span>

#include "base/tokens.h"

namespace weft {

// The at most `n` tokens from `first` on.
inline std::span<const TokenId> PartOf(std::span<const TokenId> tokens, int64_t first, int64_t n) {
  const auto begin = std::min(tokens.size(), static_cast<size_t>(std::max<int64_t>(first, 0)));
  return tokens.subspan(
      begin, std::min(tokens.size() - begin, static_cast<size_t>(std::max<int64_t>(n, 0))));
}

// `Node` has `tokens`, which no sibling equals and which stay as they are while it is here.
template <typename Node>
class Siblings {
 public:
  using Tokens = std::span<const TokenId>;

  // `compared` counts compared tokens, as a measure of cost.
  explicit Siblings(int64_t* compared) : compared_(compared), nodes_(Less{compared}) {}

  bool empty() const { return nodes_.empty(); }
  size_t size() const { return nodes_.size(); }
  auto begin() const { return nodes_.begin(); }
  auto end() const { return nodes_.end(); }

  // REQUIRES: !empty()
  Node* Last() const { return *nodes_.rbegin(); }

  void Insert(Node* node) { nodes_.insert(node); }
  void Erase(Node* node) { nodes_.erase(node); }
  // The node of exactly these tokens, or null.
  Node* Find(Tokens tokens) const {
    const auto found = nodes_.find(tokens);
    return found != nodes_.end() ? *found : nullptr;
  }

  // Calls visit(node) for nodes whose tokens are a prefix of `tokens`, the longest first, until it
  // returns true.
  template <typename Visit>
  void ForEachBeginning(Tokens tokens, Visit visit) const {
    while (true) {
      const auto after = nodes_.upper_bound(tokens);
      if (after == nodes_.begin()) return;
      Node* const node = *std::prev(after);
      // A sibling that shares more of the tokens would sort after the node.
      int64_t common = Common(node, tokens);
      if (common == std::ssize(node->tokens)) {
        if (visit(node) || common == 0) return;
        --common;
      }
      tokens = tokens.first(static_cast<size_t>(common));
    }
  }

  // The same for nodes whose tokens begin with all of `tokens`, the shortest or smallest first.
  template <typename Visit>
  void ForEachLonger(Tokens tokens, Visit visit) const {
    for (auto it = nodes_.lower_bound(tokens); it != nodes_.end(); ++it) {
      if (Common(*it, tokens) < std::ssize(tokens) || visit(*it)) return;
    }
  }

  // Calls visit(node, common) for nodes with a beginning in common with `tokens`, the most first,
  // until it returns true. Tries at most kMaxTried of them.
  template <typename Visit>
  void ForEachAlike(Tokens tokens, Visit visit) const {
    auto right = nodes_.lower_bound(tokens);
    auto left = right;
    const auto left_common = [&] {
      return left != nodes_.begin() ? Common(*std::prev(left), tokens) : 0;
    };
    const auto right_common = [&] { return right != nodes_.end() ? Common(*right, tokens) : 0; };
    int64_t before = left_common(), after = right_common();
    for (int i = 0; i < kMaxTried && std::max(before, after) > 0; ++i) {
      const bool takes_right = after >= before;
      if (visit(takes_right ? *right : *std::prev(left), std::max(before, after))) return;
      if (takes_right) {
        ++right;
        after = right_common();
      } else {
        --left;
        before = left_common();
      }
    }
  }
  static constexpr int kMaxTried = 32;

  int64_t Common(const Node* node, Tokens tokens) const {
    const int64_t common = CommonLength(node->tokens, tokens);
    *compared_ += common + 1;
    return common;
  }

 private:
  struct Less {
    using is_transparent = void;
    static Tokens Of(const Node* node) { return node->tokens; }
    static Tokens Of(Tokens tokens) { return tokens; }
    template <typename A, typename B>
    bool operator()(const A& left, const B& right) const {
      const Tokens a = Of(left), b = Of(right);
      const auto common = static_cast<size_t>(CommonLength(a, b));
      *compared += static_cast<int64_t>(common) + 1;
      if (common == b.size()) return false;
      return common == a.size() || a[common] < b[common];
    }
    int64_t* compared;
  };

  int64_t* const compared_;
  std::set<Node*, Less> nodes_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_STATE_SIBLINGS_H_
