// --mmproj: the projector with which a model sees pictures.
#ifndef WEFT_CLI_FLAGS_PICTURE_FLAGS_H_
#define WEFT_CLI_FLAGS_PICTURE_FLAGS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "cli/flags/model_flags.h"
#include "engine/vision/encoder.h"
#include "weft/model.h"

namespace weft::cli {

void AddPictureFlags(CLI::App* app, ModelFlags* flags);

// The encoder of the flag's projector. Without the flag, that of a projector next to the model's
// file (mmproj*.gguf) that belongs to the model; null if there is none.
StatusOr<std::shared_ptr<const vision::PictureEncoder>> LoadFlaggedEncoder(const ModelFlags& flags,
                                                                           const Model& model);

// Bytes of the largest file that LoadFlaggedEncoder may load for the model; 0: there is none.
int64_t FlaggedProjectorBytes(const ModelFlags& flags, const std::string& model_path);

}  // namespace weft::cli

#endif  // WEFT_CLI_FLAGS_PICTURE_FLAGS_H_
