// A tree of the prompts in prefill, by their tokens; the prefix cache holds finished ones. Through
// it a turn finds those that compute the beginning of its own prompt, without comparing tokens
// again. Engine thread only.
//
// A node stands for a run of tokens and knows the prompts that pass through it. Adding a prompt
// compares its tokens once, along one path; a look-up climbs that path and compares none.
#ifndef WEFT_ENGINE_TURNS_PROMPTS_UNDER_WAY_H_
#define WEFT_ENGINE_TURNS_PROMPTS_UNDER_WAY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/function_ref.h"
#include "base/tokens.h"

namespace weft {

struct ActiveTurn;

class PromptsUnderWay {
 public:
  // Domains share a tree only if they may share prefixes.
  explicit PromptsUnderWay(bool share_across_domains);
  ~PromptsUnderWay();
  PromptsUnderWay(const PromptsUnderWay&) = delete;
  PromptsUnderWay& operator=(const PromptsUnderWay&) = delete;

  // REQUIRES: the turn is not there.
  void Add(ActiveTurn* turn, std::string_view domain, std::span<const TokenId> tokens);
  // Does nothing if it is not there.
  void Remove(const ActiveTurn* turn);

  // Visits the turns added before this one whose prompts begin as its own does, with the number of
  // tokens in common: the most first, and of equals the first added. Ends when `visit` returns
  // true; returns whether it did. REQUIRES: the turn is there; `visit` changes nothing here.
  bool AnyEarlier(const ActiveTurn* turn,
                  FunctionRef<bool(ActiveTurn* earlier, int64_t common)> visit) const;

  size_t size() const { return leaves_.size(); }
  size_t n_nodes() const { return n_nodes_; }  // the roots aside

 private:
  struct Node;
  struct Place {
    Node* leaf = nullptr;
    uint64_t order = 0;
  };

  // Cuts the node's run after `n` tokens; the rest becomes its only child.
  void Split(Node* node, size_t n);
  Node* AddChild(Node* parent, std::span<const TokenId> tokens);

  const bool share_across_domains_;
  std::map<std::string, std::unique_ptr<Node>, std::less<>> roots_;
  std::unordered_map<const ActiveTurn*, Place> leaves_;
  uint64_t n_added_ = 0;
  size_t n_nodes_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_PROMPTS_UNDER_WAY_H_
