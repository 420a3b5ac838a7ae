// The functions that build specs, one per family; see docs/extending.md.
// Each fills `builder.spec()` from metadata and tensors; errors stay in the builder.
#ifndef WEFT_MODEL_ARCH_ARCHITECTURES_H_
#define WEFT_MODEL_ARCH_ARCHITECTURES_H_

#include "model/spec_builder.h"

namespace weft {

#define WEFT_ARCHITECTURE(name, function, model_type, class_name) \
  void function(SpecBuilder& builder);
#include "model/arch/architectures.inc"
#undef WEFT_ARCHITECTURE

// Heads in files of their own (head_spec.h), over the state of `model`.
void BuildGemma4Assistant(SpecBuilder& builder, const ModelSpec& model);

}  // namespace weft

#endif  // WEFT_MODEL_ARCH_ARCHITECTURES_H_
