// Prediction heads in files of their own, for example Gemma 4's assistants. Such a head has no
// KV cache of its own: it reads that of the model that it drafts for. It runs only with that model,
// over its state.
//
// For a token that the model has not computed yet, a step of the head has the position before it,
// the last one in the cache, and its ropes add 1. It continues its own draft at the same position.
// The input of a row is in ModelSpec::hidden_input.
//
// Pure functions; any thread.
#ifndef WEFT_MODEL_HEAD_SPEC_H_
#define WEFT_MODEL_HEAD_SPEC_H_

#include "base/status.h"
#include "model/formats/model_file.h"
#include "model/model_spec.h"

namespace weft {

bool IsHeadFile(const ModelFile& file);
// The head's spec. Its KV layers are those of `model`, and its windows end one position earlier.
// REQUIRES: IsHeadFile(file). INVALID_ARGUMENT if it is a head of another model.
StatusOr<ModelSpec> BuildHeadSpec(const ModelFile& file, const ModelSpec& model);

}  // namespace weft

#endif  // WEFT_MODEL_HEAD_SPEC_H_
