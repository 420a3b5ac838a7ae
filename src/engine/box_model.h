// The model that lies in the library itself, for commands that are given no -m and for
// Model::LoadBuiltIn. Who uses neither does not link it.
//
// Its bytes are part of the program and live as long as it runs; any thread.
#ifndef WEFT_ENGINE_BOX_MODEL_H_
#define WEFT_ENGINE_BOX_MODEL_H_

#include <cstddef>
#include <memory>
#include <span>

#include "base/status.h"
#include "formats/model_file.h"

namespace weft {

// How it is called where a path is shown.
inline constexpr char kBoxModelName[] = "(built-in model)";

// models/box.gguf as it was when the library was built.
std::span<const std::byte> BoxModelBytes();

StatusOr<std::shared_ptr<const ModelFile>> OpenBoxModel();

}  // namespace weft

#endif  // WEFT_ENGINE_BOX_MODEL_H_
