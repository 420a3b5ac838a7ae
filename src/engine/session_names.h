// Sessions by domain and name, in that order: a value of which a copy costs a pointer, and a
// change of the copy leaves the other as it is. Finding and changing take the logarithm of how
// many there are.
//
// Any thread, as any value: what copies share is never changed.
#ifndef WEFT_ENGINE_SESSION_NAMES_H_
#define WEFT_ENGINE_SESSION_NAMES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/function_ref.h"
#include "weft/engine.h"

namespace weft {

class SessionNames {
 public:
  std::optional<SessionId> Find(std::string_view domain, std::string_view name) const;
  // In order of their names.
  void ForEachOf(std::string_view domain, FunctionRef<void(SessionId)> visit) const;
  // In place of the one that has the name.
  void Set(std::string_view domain, std::string_view name, SessionId id);
  // Nothing where nobody has it.
  void Remove(std::string_view domain, std::string_view name);

 private:
  struct Key;
  // A treap: ordered by key from left to right and by weight, which is random, from the top.
  struct Node;
  using Tree = std::shared_ptr<const Node>;
  struct Halves {
    Tree before, after;
  };

  static Tree With(const Tree& tree, Tree left, Tree right);
  // Without the key itself.
  static Halves Split(const Tree& tree, const Key& key);
  static Tree Join(const Tree& before, const Tree& after);
  static void Visit(const Tree& tree, std::string_view domain, FunctionRef<void(SessionId)> visit);

  Tree root_;
  uint64_t n_set_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_SESSION_NAMES_H_
