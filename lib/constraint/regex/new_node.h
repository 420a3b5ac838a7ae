// What follows from the form of a node, found once when a RegexPool makes it.
#ifndef WEFT_CONSTRAINT_REGEX_NEW_NODE_H_
#define WEFT_CONSTRAINT_REGEX_NEW_NODE_H_

#include <cstdint>
#include <optional>
#include <span>

#include "constraint/regex/byte_set.h"
#include "constraint/regex/regex.h"

namespace weft::constraint {

// For a node that is not stored yet; `list` are its parts if it has a list of them.
class RegexPool::NewNode {
 public:
  NewNode(RegexPool* pool, Node* node, std::span<const int32_t> list)
      : pool_(*pool), n_(*node), list_(list) {}

  void Complete();

 private:
  using Life = regex::Life;
  using Opening = regex::Opening;

  const Node& Of(RegexId part) const { return pool_.node(part); }
  const ByteSet& MayBegin() const { return pool_.Set(n_.first); }

  void SetOpening();
  Opening Open();
  void OpenPart(RegexId part, Opening* opening);
  void OpenParts(Opening* opening);
  void OpenTexts(Opening* opening);
  void OpenWritten(Opening* opening);
  bool IsAliveByForm() const;
  uint8_t Height() const;
  void EstimateMin(const ByteSet& first);
  int64_t EstimateParts(const ByteSet& first);
  std::optional<int32_t> AwayFrom(const ByteSet& first) const;
  int32_t Farthest() const;
  int32_t Way() const;

  RegexPool& pool_;
  Node& n_;
  const std::span<const int32_t> list_;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_REGEX_NEW_NODE_H_
