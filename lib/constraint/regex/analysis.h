// Properties of an expression that follow from its form, without walking its automaton.
//
// A view of a pool, see view.h. One thread at a time.
#ifndef WEFT_CONSTRAINT_REGEX_ANALYSIS_H_
#define WEFT_CONSTRAINT_REGEX_ANALYSIS_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "constraint/regex/byte_set.h"
#include "constraint/regex/view.h"

namespace weft::constraint {

class RegexAnalysis : private RegexView {
 public:
  explicit RegexAnalysis(RegexPool* pool) : RegexView(pool) {}

  // An expression that no text of at most kNear[near] bytes can tell from `id`: both accept the
  // same such texts, and can continue after the same ones. Maximum counts that such a text cannot
  // reach are removed, and minimum counts are lowered to what it can reach. States that differ
  // only in their counts become one.
  static constexpr std::array<int32_t, 2> kNear = regex::kNear;
  RegexId Relaxed(RegexId id, size_t near) {
    const RegexId known = node(id).relaxed[near];
    return known >= 0 ? known : Relax(id, near);
  }
  // An expression that accepts everything `id` accepts and, among texts of at most kLooseBytes
  // bytes, nothing else. Counts are dropped as in Relaxed, but complements and parts that cannot be
  // analysed stay as they are. Whether a text can continue is reliable only if WayToEnd of the rest
  // is short enough.
  static constexpr int kLooseBytes = regex::kLooseBytes;
  RegexId Loosened(RegexId id) {
    const RegexId known = node(id).loosened;
    return known >= 0 ? known : Loosen(id);
  }
  // The length of some accepted text in bytes; kManyBytes if none is known. Known for expressions
  // that RegexWalk::IsLive has found alive.
  static constexpr int32_t kManyBytes = regex::kManyBytes;
  int32_t WayToEnd(RegexId id) const { return std::min(node(id).way, node(id).way_found); }
  // Whether any text of the characters that the swallowing expression repeats may come (see
  // RegexPool::Swallow). May be false if it is not known.
  bool TakesAllText(RegexId id);
  // Whether it contains intersections or complements.
  bool HasBoolean(RegexId id) const { return node(id).has_boolean; }
  // A superset of the bytes that its texts may contain, and of those that may end them.
  struct ByteUse {
    ByteSet any, last;
  };
  ByteUse BytesUsed(RegexId id, int depth = 0) const;
  // The least common multiple of all Multiples in the expression, in the smallest of their decimal
  // units and capped at 10^12. 1 if there are fewer than two.
  int64_t CommonMultiple(RegexId id) const;

 private:
  RegexId Relax(RegexId id, size_t near);
  RegexId RelaxPlain(RegexId id, size_t near);
  RegexId RelaxBoth(RegexId id, size_t near);
  RegexId RepeatNear(const Form& repeat, RegexId part, int32_t bytes);
  RegexId Loosen(RegexId id);
  RegexId TextCore(RegexId id, int depth);
  int64_t CharactersLeft(RegexId id) const;
};

inline RegexAnalysis RegexPool::analysis() { return RegexAnalysis(this); }

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_REGEX_ANALYSIS_H_
