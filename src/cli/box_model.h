// The model that lies in the program itself, for commands that are given no -m.
//
// Its bytes are part of the executable and live as long as it runs; any thread.
#ifndef WEFT_CLI_BOX_MODEL_H_
#define WEFT_CLI_BOX_MODEL_H_

#include <cstddef>
#include <memory>
#include <span>

#include "base/status.h"
#include "formats/model_file.h"

namespace weft::cli {

// How it is called where a path is shown.
inline constexpr char kBoxModelName[] = "(built-in model)";

// models/box.gguf as it was when the program was built.
std::span<const std::byte> BoxModelBytes();

StatusOr<std::shared_ptr<const ModelFile>> OpenBoxModel();

}  // namespace weft::cli

#endif  // WEFT_CLI_BOX_MODEL_H_
