// The layout of JSON texts, and the limits for compiling and walking a constraint.
#ifndef WEFT_CONSTRAINT_SCHEMA_OPTIONS_H_
#define WEFT_CONSTRAINT_SCHEMA_OPTIONS_H_

#include <cstdint>

namespace weft::constraint {

enum class PropertyOrder : uint8_t {
  kSchema,  // as listed in the schema; others come last
  kAny,
};

enum class WhiteSpace : uint8_t {
  kOptionalSpace,  // an optional space after each comma and colon
  kCompact,        // none
  kSpaced,         // a space after each comma and colon
  kAny,            // up to 40 spaces, tabs and line ends between any two parts
};

struct ConstraintOptions {
  PropertyOrder property_order = PropertyOrder::kSchema;
  WhiteSpace white_space = WhiteSpace::kOptionalSpace;
  // Whether `format` restricts strings, if the format is known.
  bool formats = true;
  // Limits for compiling: steps of work (a few dozen nanoseconds each) and memory.
  int64_t max_work = 300'000;
  int64_t max_bytes = 64 << 20;
  // Limit for the memory of the automata, which grow as answers are walked.
  int64_t max_walk_bytes = 64 << 20;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_SCHEMA_OPTIONS_H_
