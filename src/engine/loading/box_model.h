// The model embedded in the library, for commands without -m and for Model::LoadBuiltIn. Programs
// that use neither do not link it.
//
// Its bytes are part of the program and live as long as it runs; any thread.
#ifndef WEFT_ENGINE_LOADING_BOX_MODEL_H_
#define WEFT_ENGINE_LOADING_BOX_MODEL_H_

#include <cstddef>
#include <memory>
#include <span>

#include "base/status.h"
#include "model/formats/model_file.h"

namespace weft {

// Shown where a path would be.
inline constexpr char kBoxModelName[] = "(built-in model)";

// models/box.gguf as of when the library was built.
std::span<const std::byte> BoxModelBytes();

StatusOr<std::shared_ptr<const ModelFile>> OpenBoxModel();

}  // namespace weft

#endif  // WEFT_ENGINE_LOADING_BOX_MODEL_H_
