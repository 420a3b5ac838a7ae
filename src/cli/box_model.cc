#include "cli/box_model.h"

// The assembler takes the file as it is; an array in C++ would take the compiler a minute.
asm(".pushsection .rodata\n"
    ".balign 64\n"
    ".local weft_box_model_begin, weft_box_model_end\n"
    "weft_box_model_begin:\n"
    ".incbin \"" WEFT_BOX_MODEL_PATH
    "\"\n"
    "weft_box_model_end:\n"
    ".byte 0\n"
    ".popsection\n");

// Hidden: code for AArch64 would else read their addresses from a table (the GOT), where linkers
// have one entry for all that is local to a section, and the model would end where it begins.
extern "C" {
[[gnu::visibility("hidden")]] extern const std::byte weft_box_model_begin[];
[[gnu::visibility("hidden")]] extern const std::byte weft_box_model_end[];
}

namespace weft::cli {

std::span<const std::byte> BoxModelBytes() { return {weft_box_model_begin, weft_box_model_end}; }

StatusOr<std::shared_ptr<const ModelFile>> OpenBoxModel() {
  return ModelFile::FromBytes(kBoxModelName, BoxModelBytes());
}

}  // namespace weft::cli
