#include "engine/loading/box_model.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "weft/model.h"

#if defined(__MACH__)
#define WEFT_CONSTANTS "__TEXT,__const"
#define WEFT_SYMBOL "_weft_box_model"
#else
#define WEFT_CONSTANTS ".rodata"
#define WEFT_SYMBOL "weft_box_model"
#endif

// The assembler embeds the file directly; as a C++ array it would take a minute to compile. The
// size comes before the bytes, so that one symbol finds both: linkers may move a second symbol
// elsewhere.
asm(".pushsection " WEFT_CONSTANTS
    "\n"
    ".balign 64\n" WEFT_SYMBOL
    ":\n"
    ".quad 2f - 1f\n"
    ".balign 64\n"
    "1:\n"
    ".incbin \"" WEFT_BOX_MODEL_PATH
    "\"\n"
    "2:\n"
    ".byte 0\n"
    ".popsection\n");

// Hidden: AArch64 would otherwise read the address from the GOT, which linkers fill wrongly for
// symbols that no other file sees.
extern "C" [[gnu::visibility("hidden")]] const std::byte weft_box_model[];

namespace weft {

std::span<const std::byte> BoxModelBytes() {
  constexpr size_t kAlignment = 64;
  uint64_t size;
  std::memcpy(&size, weft_box_model, sizeof(size));
  return {weft_box_model + kAlignment, static_cast<size_t>(size)};
}

StatusOr<std::shared_ptr<const ModelFile>> OpenBoxModel() {
  return ModelFile::FromBytes(kBoxModelName, BoxModelBytes());
}

absl::StatusOr<std::shared_ptr<const Model>> Model::LoadBuiltIn(const ModelOptions& options) {
  WEFT_ASSIGN_OR_RETURN(auto file, OpenBoxModel());
  return FromFile(std::move(file), options);
}

}  // namespace weft
