// Which type each tensor of a quantized model gets: llama.cpp's mixes, which give more bits to the
// matrices that need them.
//
// Pure functions; any thread.
#ifndef WEFT_TOOLS_QUANTIZE_PLAN_H_
#define WEFT_TOOLS_QUANTIZE_PLAN_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "model/formats/model_file.h"

namespace weft::tools {

enum class Mix : uint8_t {
  kNone,
  kQ2_K,
  kQ2_K_S,
  kQ3_K_S,
  kQ3_K_M,
  kQ3_K_L,
  kQ4_K_S,
  kQ4_K_M,
  kQ5_K_S,
  kQ5_K_M,
  kIQ1_S,
  kIQ1_M,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ2_M,
  kIQ3_XXS,
  kIQ3_XS,
  kIQ3_S,
  kIQ3_M,
  kIQ4,
  kLegacy,   // Q4_0 and Q5_0
  kTernary,  // and Q2_0
  kMxfp4Moe,
};

// A requested mix, and the number by which other programs know it.
struct Recipe {
  std::string_view name;
  DType type;  // for most matrices
  uint32_t file_type;
  Mix mix = Mix::kNone;
};

// "F16, BF16, Q8_0, ...".
std::string QuantizeTypeNames();
// In any letter case. `pure`: all matrices in that type, so it must name one.
StatusOr<Recipe> FindRecipe(std::string_view name, bool pure);

// The types of `file`'s tensors, in their order. Some mixes give fewer bits where there is an
// importance matrix.
//
// Vectors, norms, routers, convolutions, biases and small matrices become F32, and tensors of
// integers stay as they are. Of the rest, a matrix whose rows are not whole blocks gets the nearest
// type with blocks of 32, or else F16.
std::vector<DType> PlanTypes(const ModelFile& file, const Recipe& recipe, bool pure,
                             bool has_importance);

}  // namespace weft::tools

#endif  // WEFT_TOOLS_QUANTIZE_PLAN_H_
