// A persistent map from (domain, name) to session, in that order. Copying costs a pointer, and
// changing a copy leaves the original unchanged. Lookups and changes take logarithmic time.
//
// Thread-compatible like any value: data shared by copies never changes.
#ifndef WEFT_ENGINE_SESSIONS_SESSION_NAMES_H_
#define WEFT_ENGINE_SESSIONS_SESSION_NAMES_H_

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
  // In name order.
  void ForEachOf(std::string_view domain, FunctionRef<void(SessionId)> visit) const;
  // Replaces the session that has the name, if any.
  void Set(std::string_view domain, std::string_view name, SessionId id);
  // Does nothing if the name is unused.
  void Remove(std::string_view domain, std::string_view name);

 private:
  struct Key;
  // A treap: ordered by key from left to right and by random weight from the top.
  struct Node;
  using Tree = std::shared_ptr<const Node>;
  struct Halves {
    Tree before, after;
  };

  static Tree With(const Tree& tree, Tree left, Tree right);
  // Excludes the key itself.
  static Halves Split(const Tree& tree, const Key& key);
  static Tree Join(const Tree& before, const Tree& after);
  static void Visit(const Tree& tree, std::string_view domain, FunctionRef<void(SessionId)> visit);

  Tree root_;
  uint64_t n_set_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_SESSIONS_SESSION_NAMES_H_
