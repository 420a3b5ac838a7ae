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
#define WEFT_ARCHITECTURE(name, function, model_type, class_name) {name, function},
#include "model/arch/architectures.inc"
#undef WEFT_ARCHITECTURE
};

}  // namespace

std::vector<std::string> KnownArchitectures() {
  std::vector<std::string> names;
  for (const Architecture& architecture : kArchitectures) names.emplace_back(architecture.name);
  return names;
}

const Path* LastToWriteState(const ModelSpec& spec) {
  constexpr auto writes = [](const auto& op) {
    using T = std::decay_t<decltype(op)>;
    if constexpr (std::is_same_v<T, Attention>) return op.writes_kv;
    return !std::is_same_v<T, DenseFfn> && !std::is_same_v<T, MixtureOfExperts> &&
           !std::is_same_v<T, PerLayerGate>;
  };
  const Path* last = nullptr;
  for (const Layer& layer : spec.layers) {
    for (const Block& block : layer.blocks) {
      for (const Path& path : block.paths) {
        if (std::visit(writes, path.op)) last = &path;
      }
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
