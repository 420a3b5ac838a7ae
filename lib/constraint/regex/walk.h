// The automaton of a pool's expressions: an id is a state, built when it is reached.
//
// The derivative of an expression by a byte is the expression of everything that may follow that
// byte. A state from which nothing can be accepted is always kNothing, even with complements and
// intersections: any other id has a way to the end.
//
// A view of a pool, see view.h. One thread at a time.
#ifndef WEFT_CONSTRAINT_REGEX_WALK_H_
#define WEFT_CONSTRAINT_REGEX_WALK_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "constraint/regex/byte_rows.h"
#include "constraint/regex/byte_set.h"
#include "constraint/regex/view.h"

namespace weft::constraint {

class RegexWalk : private RegexView {
 public:
  explicit RegexWalk(RegexPool* pool) : RegexView(pool), state_(pool->walked_) {}

  // The expression of everything that may follow `byte`; kNothing if nothing can be accepted after
  // it.
  RegexId Derive(RegexId id, uint8_t byte) {
    const Node& n = node(id);
    RegexId known = -1;
    if (n.row.exists()) {
      known = state_.rows.Get(n.row, byte);
    } else if (byte >= n.only_first && byte <= n.only_last) {
      known = n.only;
    }
    if (known < 0) return DeriveMissing(id, byte);
    if (n.dear >= 0) budget().meter().Pass(n.dear, byte);
    return known;
  }
  // The row of its derivatives; none if there is no row yet, or if some derivatives are metered.
  ByteRows::Row PlainRow(RegexId id) const {
    const Node& n = node(id);
    return n.dear >= 0 ? ByteRows::Row() : n.row;
  }
  // The derivative in such a row; negative if unknown.
  RegexId InRow(const ByteRows::Row& row, uint8_t byte) const { return state_.rows.Get(row, byte); }
  // Whether any text is accepted. Costly searches are metered even if the result is known.
  bool IsLive(RegexId id);
  // Builds the whole automaton, so that all its states are known to be alive or dead. False if that
  // exceeds a limit.
  bool Settle(RegexId id, size_t max_states, int64_t max_work);
  bool Accepts(RegexId id, std::string_view text);
  // The bytes that may come first; it may stop after the lowest `enough` of them.
  ByteSet FirstBytes(RegexId id, int enough = 256);
  // Whether at least `least` bytes may come first.
  bool HasFirstBytes(RegexId id, int least);
  // A superset of the first bytes, available without any work.
  const ByteSet& MayBegin(RegexId id) const { return pool_.Set(node(id).first); }
  // The first byte of each range of bytes that share a derivative.
  ByteSet Edges(RegexId id) const { return pool_.Set(node(id).edges); }

  // For a language of JSON strings that spells each text in one way (see characters.h): the texts
  // without quotes and escapes.
  RegexId Unquoted(RegexId json) { return Respelled(RawDerive(json, '"'), 0, false); }
  // The same between `quote`s, with the escapes that JSON and Python share, and \'.
  RegexId Requoted(RegexId json, char quote);

  // From now on, results depend only on the expressions that exist now and on the expression asked
  // about, not on earlier questions. A derivative that takes more than `max_step` steps is
  // kNothing, and a search for a way to the end that takes more than `max_search` steps finds
  // none.
  void BeginAnswers(int64_t max_step, int64_t max_search) {
    state_.is_learning = false;
    state_.max_step = max_step;
    state_.max_search = max_search;
  }
  // After more than `most` metered steps, unknown derivatives are kNothing: results must then be
  // discarded.
  void SetMostSpent(int64_t most) { state_.max_spent = most; }
  // Marks the expression. Returns true if its mark was a different one.
  bool Mark(RegexId id, uint32_t mark) {
    uint32_t& known = At(id).mark;
    if (known == mark) return false;
    known = mark;
    return true;
  }

 private:
  class LifeSearch;
  using Life = regex::Life;
  using Ahead = regex::Ahead;
  using Derivative = regex::Derivative;

  RegexId DeriveMissing(RegexId id, uint8_t byte);
  RegexId RawDerive(RegexId id, uint8_t byte);
  RegexId RawDeriveAnew(RegexId id, uint8_t byte);
  Derivative TryDerive(RegexId id, uint8_t byte);
  std::vector<RegexId> PartsWith(RegexId id, uint8_t byte);
  RegexId DeriveOptions(RegexId id, uint8_t byte);
  RegexId DeriveRespelled(const Form& n, uint8_t byte);
  RegexId Respelled(RegexId json_rest, int32_t quote, bool escaped);
  RegexId DeriveSpelled(const Form& n, uint8_t byte);
  Life FindLife(RegexId id);
  int64_t SearchBehind(RegexId id, RegexId next);

  regex::WalkState& state_;
};

inline RegexWalk RegexPool::walk() { return RegexWalk(this); }

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_REGEX_WALK_H_
