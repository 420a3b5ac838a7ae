#include "model/model_spec.h"

#include <string_view>
#include <type_traits>
#include <variant>

#include "base/strings.h"
#include "model/arch/architectures.h"
#include "model/spec_builder.h"

namespace weft {
namespace {

struct Architecture {
  std::string_view name;
  void (*build)(SpecBuilder& builder);
};

constexpr Architecture kArchitectures[] = {
#define WEFT_ARCHITECTURE(name, function) {name, function},
#include "model/arch/architectures.inc"
#undef WEFT_ARCHITECTURE
};

}  // namespace

std::vector<std::string> KnownArchitectures() {
  std::vector<std::string> names;
  for (const Architecture& architecture : kArchitectures) names.emplace_back(architecture.name);
  return names;
}

std::optional<OpPlace> LastToWriteState(const ModelSpec& spec) {
  constexpr auto writes = [](const auto& op) {
    using T = std::decay_t<decltype(op)>;
    if constexpr (std::is_same_v<T, Attention>) return op.writes_kv;
    return !std::is_same_v<T, DenseFfn> && !std::is_same_v<T, MixtureOfExperts> &&
           !std::is_same_v<T, PerLayerGate>;
  };
  std::optional<OpPlace> last;
  size_t n_blocks = 0;
  for (const Layer& layer : spec.layers) {
    for (const Block& block : layer.blocks) {
      for (size_t p = 0; p < block.paths.size(); ++p) {
        if (std::visit(writes, block.paths[p].op)) last = {n_blocks, p};
      }
      ++n_blocks;
    }
  }
  return last;
}

StatusOr<ModelSpec> BuildModelSpec(const ModelFile& file, const SpecOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const std::string_view name, file.GetString("general.architecture"));
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name != name) continue;
    SpecBuilder builder(file, options, name);
    architecture.build(builder);
    return builder.Finish();
  }
  return Unimplemented(Printable(file.path(), 300), ": the architecture '", Printable(name),
                       "' is not supported; supported are ", StrJoin(KnownArchitectures(), ", "));
}

}  // namespace weft
