#include "model/hugging_face_names.h"

#include <cstdint>

#include "base/strings.h"

namespace weft {
namespace {

struct Named {
  std::string_view architecture;
  HuggingFaceNames names;
};

constexpr Named kNamed[] = {
#define WEFT_ARCHITECTURE(name, function, model_type, class_name) {name, {model_type, class_name}},
#include "model/arch/architectures.inc"
#undef WEFT_ARCHITECTURE
};

// Architectures that share one name in files; a number in the metadata tells them apart.
struct Variant {
  std::string_view architecture;
  std::string_view key;  // without "<architecture>."
  int64_t least, most;
  HuggingFaceNames names;
};

constexpr int64_t kSigmoidRouting = 2;
constexpr Variant kVariants[] = {
    {"deepseek2",
     "expert_gating_func",
     kSigmoidRouting,
     kSigmoidRouting,
     {"deepseek_v3", "DeepseekV3ForCausalLM"}},
    {"granitemoe",
     "expert_shared_feed_forward_length",
     1,
     INT64_MAX,
     {"granitemoeshared", "GraniteMoeSharedForCausalLM"}},
    {"llama", "expert_count", 1, INT64_MAX, {"mixtral", "MixtralForCausalLM"}},
    {"olmo2", "attention.sliding_window", 1, INT64_MAX, {"olmo3", "Olmo3ForCausalLM"}},
};

}  // namespace

HuggingFaceNames HuggingFaceNamesOf(const ModelFile& file) {
  const auto architecture = file.GetStringOr("general.architecture", "");
  if (!architecture.ok()) return {};
  for (const Variant& variant : kVariants) {
    if (variant.architecture != *architecture) continue;
    const auto value = file.GetIntOr(StrCat(*architecture, ".", variant.key), 0);
    if (value.ok() && *value >= variant.least && *value <= variant.most) return variant.names;
  }
  for (const Named& named : kNamed) {
    if (named.architecture == *architecture) return named.names;
  }
  return {};
}

}  // namespace weft
