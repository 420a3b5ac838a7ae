// Specs that users write: NAME.weft.json beside a GGUF file, or --spec FILE.
//
// A spec file says for one architecture which tensors its layers have and which metadata their
// numbers come from, in the words of the functions in arch/. It builds a ModelSpec from the same
// blocks with the same bounds: every tensor is asked for by name and shape, and all of them must be
// used. docs/extending.md shows one, examples/specs has more.
//
// A pure function; any thread.
#ifndef WEFT_MODEL_SPEC_FILE_H_
#define WEFT_MODEL_SPEC_FILE_H_

#include <string_view>

#include "model/spec_builder.h"

namespace weft {

// Reads `file.spec_text()` into the builder, which keeps the first error. Errors name the spec file
// and the field.
void BuildFromSpecFile(const ModelFile& file, SpecBuilder* builder);

}  // namespace weft

#endif  // WEFT_MODEL_SPEC_FILE_H_
