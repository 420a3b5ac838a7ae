#include "engine/turns/prompts_under_way.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace weft {

struct PromptsUnderWay::Node {
  std::string domain;  // roots only
  Node* parent = nullptr;
  int64_t end = 0;  // tokens up to here, from the root on
  std::vector<TokenId> run;
  std::map<TokenId, std::unique_ptr<Node>> children;  // by their first token
  std::map<uint64_t, ActiveTurn*> turns;              // that pass through, in order of addition
};

PromptsUnderWay::PromptsUnderWay(bool share_across_domains)
    : share_across_domains_(share_across_domains) {}

PromptsUnderWay::~PromptsUnderWay() = default;

PromptsUnderWay::Node* PromptsUnderWay::AddChild(Node* parent, std::span<const TokenId> tokens) {
  auto child = std::make_unique<Node>();
  child->parent = parent;
  child->end = parent->end + std::ssize(tokens);
  child->run.assign(tokens.begin(), tokens.end());
  ++n_nodes_;
  return (parent->children[tokens.front()] = std::move(child)).get();
}

void PromptsUnderWay::Split(Node* node, size_t n) {
  std::map<TokenId, std::unique_ptr<Node>> children = std::exchange(node->children, {});
  Node* const rest = AddChild(node, std::span(node->run).subspan(n));
  rest->end = node->end;
  rest->children = std::move(children);
  for (auto& [token, child] : rest->children) child->parent = rest;
  rest->turns = node->turns;
  for (const auto& [order, turn] : rest->turns) {
    Place& place = leaves_.at(turn);
    if (place.leaf == node) place.leaf = rest;
  }
  node->end -= std::ssize(node->run) - static_cast<int64_t>(n);
  node->run.resize(n);
}

void PromptsUnderWay::Add(ActiveTurn* turn, std::string_view domain,
                          std::span<const TokenId> tokens) {
  WEFT_CHECK(!leaves_.contains(turn), "a prompt is added once");
  auto& root = roots_[std::string(share_across_domains_ ? std::string_view() : domain)];
  if (root == nullptr) {
    root = std::make_unique<Node>();
    root->domain = share_across_domains_ ? std::string() : std::string(domain);
  }
  const uint64_t order = ++n_added_;
  Node* node = root.get();
  node->turns[order] = turn;
  while (!tokens.empty()) {
    const auto found = node->children.find(tokens.front());
    if (found == node->children.end()) {
      node = AddChild(node, tokens);
      tokens = {};
    } else {
      node = found->second.get();
      const auto [in_run, in_tokens] = std::ranges::mismatch(node->run, tokens);
      const auto common = static_cast<size_t>(in_run - node->run.begin());
      if (common < node->run.size()) Split(node, common);
      tokens = tokens.subspan(common);
    }
    node->turns[order] = turn;
  }
  leaves_[turn] = {.leaf = node, .order = order};
}

void PromptsUnderWay::Remove(const ActiveTurn* turn) {
  const auto found = leaves_.find(turn);
  if (found == leaves_.end()) return;
  const Place place = found->second;
  leaves_.erase(found);
  for (Node* node = place.leaf; node != nullptr;) {
    node->turns.erase(place.order);
    Node* const parent = node->parent;
    if (node->turns.empty() && parent != nullptr) {
      parent->children.erase(node->run.front());
      --n_nodes_;
    } else if (node->turns.empty()) {
      roots_.erase(roots_.find(node->domain));
      return;
    }
    node = parent;
  }
}

bool PromptsUnderWay::AnyEarlier(
    const ActiveTurn* turn, FunctionRef<bool(ActiveTurn* earlier, int64_t common)> visit) const {
  const Place place = leaves_.at(turn);
  const Node* deeper = nullptr;
  for (const Node* node = place.leaf; node->end > 0; deeper = std::exchange(node, node->parent)) {
    for (const auto& [order, other] : node->turns) {
      if (order >= place.order) break;
      // Prompts that share a deeper node have been visited there, with their longer prefix.
      if (deeper != nullptr && deeper->turns.contains(order)) continue;
      if (visit(other, node->end)) return true;
    }
  }
  return false;
}

}  // namespace weft
