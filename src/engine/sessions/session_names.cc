#include "engine/sessions/session_names.h"

#include <compare>
#include <string>
#include <utility>

#include "engine/sampling/random.h"

namespace weft {

struct SessionNames::Key {
  std::string_view domain, name;
  auto operator<=>(const Key&) const = default;
};

struct SessionNames::Node {
  struct Entry {
    std::string domain, name;
    SessionId id;
    uint64_t weight;
  };
  std::shared_ptr<const Entry> entry;
  Tree left, right;

  Key key() const { return {entry->domain, entry->name}; }
};

SessionNames::Tree SessionNames::With(const Tree& tree, Tree left, Tree right) {
  return std::make_shared<const Node>(Node{tree->entry, std::move(left), std::move(right)});
}

SessionNames::Halves SessionNames::Split(const Tree& tree, const Key& key) {
  if (tree == nullptr) return {};
  if (tree->key() == key) return {tree->left, tree->right};
  if (tree->key() < key) {
    auto [before, after] = Split(tree->right, key);
    return {With(tree, tree->left, std::move(before)), std::move(after)};
  }
  auto [before, after] = Split(tree->left, key);
  return {std::move(before), With(tree, std::move(after), tree->right)};
}

SessionNames::Tree SessionNames::Join(const Tree& before, const Tree& after) {
  if (before == nullptr) return after;
  if (after == nullptr) return before;
  if (before->entry->weight > after->entry->weight) {
    return With(before, before->left, Join(before->right, after));
  }
  return With(after, Join(before, after->left), after->right);
}

void SessionNames::Set(std::string_view domain, std::string_view name, SessionId id) {
  const auto [before, after] = Split(root_, {domain, name});
  const Node fresh{std::make_shared<const Node::Entry>(
                       Node::Entry{std::string(domain), std::string(name), id, MixBits(++n_set_)}),
                   nullptr, nullptr};
  root_ = Join(Join(before, std::make_shared<const Node>(fresh)), after);
}

void SessionNames::Remove(std::string_view domain, std::string_view name) {
  if (!Find(domain, name).has_value()) return;
  const auto [before, after] = Split(root_, {domain, name});
  root_ = Join(before, after);
}

std::optional<SessionId> SessionNames::Find(std::string_view domain, std::string_view name) const {
  const Key wanted{domain, name};
  const Node* node = root_.get();
  while (node != nullptr) {
    const Key key = node->key();
    if (key == wanted) return node->entry->id;
    node = (key < wanted ? node->right : node->left).get();
  }
  return std::nullopt;
}

void SessionNames::Visit(const Tree& tree, std::string_view domain,
                         FunctionRef<void(SessionId)> visit) {
  if (tree == nullptr) return;
  const std::string_view own = tree->entry->domain;
  if (own >= domain) Visit(tree->left, domain, visit);
  if (own == domain) visit(tree->entry->id);
  if (own <= domain) Visit(tree->right, domain, visit);
}

void SessionNames::ForEachOf(std::string_view domain, FunctionRef<void(SessionId)> visit) const {
  Visit(root_, domain, visit);
}

}  // namespace weft
