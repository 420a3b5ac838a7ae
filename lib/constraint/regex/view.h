// What the views of a pool share: RegexWalk and RegexAnalysis.
//
// As cheap as a reference; it owns nothing. One thread at a time.
#ifndef WEFT_CONSTRAINT_REGEX_VIEW_H_
#define WEFT_CONSTRAINT_REGEX_VIEW_H_

#include "constraint/regex/regex.h"

namespace weft::constraint {

class RegexView {
 protected:
  using Kind = regex::Kind;
  using Form = regex::Form;
  using Node = regex::Node;

  explicit RegexView(RegexPool* pool) : pool_(*pool) {}

  const Node& node(RegexId id) const { return pool_.node(id); }
  Node& At(RegexId id) { return pool_.nodes_[static_cast<size_t>(id)]; }
  RegexBudget& budget() { return pool_.budget_; }

  RegexPool& pool_;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_REGEX_VIEW_H_
