// How answers are laid out, and what compiling and walking a constraint may take.
#ifndef WEFT_CONSTRAINT_SCHEMA_OPTIONS_H_
#define WEFT_CONSTRAINT_SCHEMA_OPTIONS_H_

#include <cstdint>

namespace weft::constraint {

enum class PropertyOrder : uint8_t {
  kSchema,  // as the schema lists them; those it does not name come last
  kAny,
};

enum class WhiteSpace : uint8_t {
  kOptionalSpace,  // a space, or none, behind each comma and colon
  kCompact,        // none
  kSpaced,         // a space behind each comma and colon
  kAny,            // up to 40 blanks, tabs and line ends between any two parts
};

struct ConstraintOptions {
  PropertyOrder property_order = PropertyOrder::kSchema;
  WhiteSpace white_space = WhiteSpace::kOptionalSpace;
  // Whether `format` restricts strings, as far as the format is known.
  bool formats = true;
  // Steps of work (a few dozen nanoseconds each) and memory that compiling may take.
  int64_t most_work = 300'000;
  int64_t most_bytes = 64 << 20;
  // Memory of the automata while they are walked.
  int64_t most_walk_bytes = 64 << 20;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_SCHEMA_OPTIONS_H_
