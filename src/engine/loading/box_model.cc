#include "engine/loading/box_model.h"

#include <utility>

#include "weft/model.h"

// The assembler embeds the file directly; as a C++ array it would take a minute to compile.
asm(".pushsection .rodata\n"
    ".balign 64\n"
    ".local weft_box_model_begin, weft_box_model_end\n"
    "weft_box_model_begin:\n"
    ".incbin \"" WEFT_BOX_MODEL_PATH
    "\"\n"
    "weft_box_model_end:\n"
    ".byte 0\n"
    ".popsection\n");

// Hidden visibility: otherwise code for AArch64 would read both addresses from the GOT, where
// linkers merge all symbols local to a section into one entry, and the model would end where it
// begins.
extern "C" {
[[gnu::visibility("hidden")]] extern const std::byte weft_box_model_begin[];
[[gnu::visibility("hidden")]] extern const std::byte weft_box_model_end[];
}

namespace weft {

std::span<const std::byte> BoxModelBytes() { return {weft_box_model_begin, weft_box_model_end}; }

StatusOr<std::shared_ptr<const ModelFile>> OpenBoxModel() {
  return ModelFile::FromBytes(kBoxModelName, BoxModelBytes());
}

absl::StatusOr<std::shared_ptr<const Model>> Model::LoadBuiltIn(const ModelOptions& options) {
  WEFT_ASSIGN_OR_RETURN(auto file, OpenBoxModel());
  return FromFile(std::move(file), options);
}

}  // namespace weft
