#include "tools/quantize_plan.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <utility>

#include "base/strings.h"

namespace weft::tools {
namespace {

// Matrices with fewer values stay F32: they cost nothing.
constexpr int64_t kSmallValues = 4096;

constexpr Recipe kRecipes[] = {
    {"F32", DType::kF32, 0},
    {"F16", DType::kF16, 1},
    {"BF16", DType::kBF16, 32},
    {"Q8_0", DType::kQ8_0, 7},
    {"Q6_K", DType::kQ6_K, 18},
    {"Q5_K_M", DType::kQ5_K, 17, Mix::kQ5_K_M},
    {"Q5_K_S", DType::kQ5_K, 16, Mix::kQ5_K_S},
    {"Q5_K", DType::kQ5_K, 16},
    {"Q5_1", DType::kQ5_1, 9},
    {"Q5_0", DType::kQ5_0, 8, Mix::kLegacy},
    {"Q4_K_M", DType::kQ4_K, 15, Mix::kQ4_K_M},
    {"Q4_K_S", DType::kQ4_K, 14, Mix::kQ4_K_S},
    {"Q4_K", DType::kQ4_K, 14},
    {"Q4_1", DType::kQ4_1, 3},
    {"Q4_0", DType::kQ4_0, 2, Mix::kLegacy},
    {"IQ4_NL", DType::kIQ4_NL, 25, Mix::kIQ4},
    {"IQ4_XS", DType::kIQ4_XS, 30, Mix::kIQ4},
    {"MXFP4", DType::kMXFP4, 38},
    {"MXFP4_MOE", DType::kMXFP4, 38, Mix::kMxfp4Moe},
    {"Q3_K_L", DType::kQ3_K, 13, Mix::kQ3_K_L},
    {"Q3_K_M", DType::kQ3_K, 12, Mix::kQ3_K_M},
    {"Q3_K_S", DType::kQ3_K, 11, Mix::kQ3_K_S},
    {"Q3_K", DType::kQ3_K, 11},
    {"IQ3_M", DType::kIQ3_S, 27, Mix::kIQ3_M},
    {"IQ3_S", DType::kIQ3_S, 26, Mix::kIQ3_S},
    {"IQ3_XS", DType::kIQ3_S, 22, Mix::kIQ3_XS},
    {"IQ3_XXS", DType::kIQ3_XXS, 23, Mix::kIQ3_XXS},
    {"Q2_K", DType::kQ2_K, 10, Mix::kQ2_K},
    {"Q2_K_S", DType::kQ2_K, 21, Mix::kQ2_K_S},
    {"IQ2_M", DType::kIQ2_S, 29, Mix::kIQ2_M},
    {"IQ2_S", DType::kIQ2_XS, 28, Mix::kIQ2_S},
    {"IQ2_XS", DType::kIQ2_XS, 20, Mix::kIQ2_XS},
    {"IQ2_XXS", DType::kIQ2_XXS, 19, Mix::kIQ2_XXS},
    {"IQ1_M", DType::kIQ1_M, 31, Mix::kIQ1_M},
    {"IQ1_S", DType::kIQ1_S, 24, Mix::kIQ1_S},
    {"TQ2_0", DType::kTQ2_0, 37, Mix::kTernary},
    {"TQ1_0", DType::kTQ1_0, 36, Mix::kTernary},
    {"Q2_0", DType::kQ2_0, 41, Mix::kTernary},
    {"Q1_0", DType::kQ1_0, 40},
};

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Tensors that lose more than they save.
bool StaysFloat(const TensorInfo& tensor) {
  if (tensor.rows() == 1 || tensor.dims[0] < 32 || tensor.values() < kSmallValues) return true;
  if (!tensor.name.ends_with(".weight")) return true;
  for (std::string_view part :
       {"norm", "ffn_gate_inp", "conv", "rope_freqs", "position_embd", "token_types", "altup",
        "laurel", "per_layer_model_proj", ".hc_", "output_hc", "compressor_ape"}) {
    if (Contains(tensor.name, part)) return true;
  }
  return false;
}

bool IsInteger(DType type) {
  return type == DType::kI8 || type == DType::kI16 || type == DType::kI32 || type == DType::kI64;
}

// The kinds of matrices that mixes tell apart.
enum class Role { kEmbedding, kOutput, kValue, kKey, kQuery, kHeads, kUp, kGate, kDown, kOther };

Role RoleOf(std::string_view name, bool tied) {
  if (name == "output.weight") return Role::kOutput;
  if (name == "token_embd.weight" || name == "per_layer_token_embd.weight") {
    return tied ? Role::kOutput : Role::kEmbedding;
  }
  constexpr std::pair<std::string_view, Role> kParts[] = {
      {"attn_qkv.weight", Role::kValue},
      {"attn_kv_b.weight", Role::kValue},
      {"attn_v.weight", Role::kValue},
      {"attn_k.weight", Role::kKey},
      {"attn_q.weight", Role::kQuery},
      {"attn_output.weight", Role::kHeads},
      {"ffn_up", Role::kUp},
      {"ffn_gate", Role::kGate},
      {"ffn_down", Role::kDown},
  };
  for (const auto& [part, role] : kParts) {
    if (Contains(name, part)) return role;
  }
  return Role::kOther;
}

// The N of "blk.N.", or -1.
int64_t LayerOf(std::string_view name) {
  constexpr std::string_view kBegin = "blk.";
  int64_t layer = -1;
  if (name.starts_with(kBegin)) {
    std::from_chars(name.data() + kBegin.size(), name.data() + name.size(), layer);
  }
  return layer;
}

// What the mixes ask of a model.
struct Shape {
  int64_t n_layers = 0, n_experts = 0;
  int64_t heads_per_key = 1;
  bool tied = false;  // the embedding is the output matrix too
};

Shape ShapeOf(const ModelFile& file) {
  const std::string arch(file.GetStringOr("general.architecture", "").value_or(""));
  const auto number = [&](std::string_view key, int64_t absent) {
    return file.GetIntOr(StrCat(arch, ".", key), absent).value_or(absent);
  };
  const auto first = [&](std::string_view key) {
    const auto list = file.GetIntArray(StrCat(arch, ".", key));
    return list.ok() && !list->empty() ? list->front() : number(key, 1);
  };
  Shape shape;
  shape.n_layers = number("block_count", 0);
  shape.n_experts = number("expert_count", 0);
  const int64_t n_keys = first("attention.head_count_kv");
  shape.heads_per_key = n_keys > 0 ? first("attention.head_count") / n_keys : 0;
  shape.tied = file.FindTensor("output.weight") < 0;
  return shape;
}

// One matrix among those of its role.
struct Place {
  const Shape& shape;
  int64_t i, n;   // counted through; of the feed-forward, by the layers
  int64_t layer;  // in a model of experts that of its name, otherwise i
  bool has_importance;

  bool shares_keys() const { return shape.heads_per_key >= 4; }
  bool has_8_experts() const { return shape.n_experts == 8; }
  bool in_first_eighth() const { return layer < n / 8; }
  // The first and last eighth, and every third between.
  bool gets_more() const { return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2; }
};

// IQ1 and IQ2: the mixes that give extra bits to few matrices.
bool IsLow(Mix mix) { return mix >= Mix::kIQ1_S && mix <= Mix::kIQ2_M; }
bool IsIQ2SorM(Mix mix) { return mix == Mix::kIQ2_S || mix == Mix::kIQ2_M; }

DType LowType(Mix mix, DType base, Role role, const Place& place) {
  const DType more = IsIQ2SorM(mix) ? DType::kIQ3_S : DType::kQ2_K;
  switch (role) {
    case Role::kValue:
      return place.shares_keys() || place.shape.n_experts >= 4 ? DType::kQ4_K : more;
    case Role::kKey:
      return place.has_8_experts() ? DType::kQ4_K : base;
    case Role::kDown:
      return place.i < place.n / 8 ? more : base;
    case Role::kHeads:
      if (place.has_8_experts()) return DType::kQ5_K;
      if (mix == Mix::kIQ1_S || mix == Mix::kIQ1_M) return DType::kIQ2_XXS;
      return IsIQ2SorM(mix) ? DType::kIQ3_S : base;
    default:
      return base;
  }
}

DType ValueType(Mix mix, DType base, const Place& place) {
  switch (mix) {
    case Mix::kQ2_K:
      return place.shares_keys() ? DType::kQ4_K : DType::kQ3_K;
    case Mix::kQ2_K_S:
    case Mix::kIQ3_XS:
    case Mix::kIQ3_S:
      return place.shares_keys() ? DType::kQ4_K : base;
    case Mix::kIQ3_XXS:
      if (place.shares_keys()) return DType::kQ4_K;
      return place.has_importance ? base : DType::kIQ3_S;
    case Mix::kIQ3_M:
      return DType::kQ4_K;
    case Mix::kQ3_K_M:
      return place.i < 2 ? DType::kQ5_K : DType::kQ4_K;
    case Mix::kQ3_K_L:
      return DType::kQ5_K;
    case Mix::kIQ4:
      return place.shares_keys() ? DType::kQ5_K : base;
    case Mix::kQ4_K_M:
    case Mix::kQ5_K_M:
      return place.gets_more() ? DType::kQ6_K : base;
    case Mix::kQ4_K_S:
      return place.i < 4 ? DType::kQ5_K : base;
    default:
      return base;
  }
}

// The values of models like Llama 70B are small beside all else.
DType RaisedValueType(DType type, const Place& place) {
  if (place.has_8_experts()) return DType::kQ8_0;
  const bool is_small = place.shape.n_layers == 80 && place.shape.heads_per_key > 1;
  return is_small && (type == DType::kQ3_K || type == DType::kQ4_K) ? DType::kQ5_K : type;
}

DType DownType(Mix mix, DType base, const Place& place) {
  const bool first = place.in_first_eighth();
  switch (mix) {
    case Mix::kQ2_K:
      return DType::kQ3_K;
    case Mix::kQ2_K_S:
      return first ? DType::kQ4_K : base;
    case Mix::kIQ3_XXS:
      if (place.has_importance) return base;
      return first ? DType::kQ4_K : DType::kQ3_K;
    case Mix::kQ3_K_M:
      return place.layer < place.n / 16 ? DType::kQ5_K : DType::kQ4_K;
    case Mix::kIQ3_M:
      return first || (place.has_8_experts() && place.gets_more()) ? DType::kQ4_K : base;
    case Mix::kQ3_K_L:
      return DType::kQ5_K;
    case Mix::kQ4_K_M:
    case Mix::kQ5_K_M:
      return place.gets_more() ? DType::kQ6_K : base;
    case Mix::kIQ4:
      return first && !place.has_importance ? DType::kQ5_K : base;
    case Mix::kQ4_K_S:
      return first ? DType::kQ5_K : base;
    case Mix::kLegacy:
      if (!first || !place.has_importance) return base;
      return base == DType::kQ4_0 ? DType::kQ4_1 : DType::kQ5_1;
    default:
      return base;
  }
}

DType HeadsType(Mix mix, DType base, const Place& place) {
  if (place.has_8_experts()) {
    const bool keeps = mix == Mix::kNone || mix == Mix::kQ2_K_S || mix == Mix::kQ3_K_L ||
                       mix == Mix::kQ5_K_S || mix == Mix::kQ5_K_M || mix == Mix::kLegacy ||
                       mix == Mix::kTernary;
    return keeps ? base : DType::kQ5_K;
  }
  switch (mix) {
    case Mix::kQ2_K:
      return DType::kQ3_K;
    case Mix::kIQ3_XXS:
      return DType::kIQ3_S;
    case Mix::kQ3_K_M:
    case Mix::kIQ3_M:
      return DType::kQ4_K;
    case Mix::kQ3_K_L:
      return DType::kQ5_K;
    default:
      return base;
  }
}

DType EmbeddingType(Mix mix, DType base) {
  switch (mix) {
    case Mix::kIQ1_S:
    case Mix::kIQ1_M:
    case Mix::kIQ2_XXS:
    case Mix::kIQ2_XS:
      return DType::kQ2_K;
    case Mix::kIQ2_S:
    case Mix::kIQ2_M:
    case Mix::kIQ3_XXS:
      return DType::kIQ3_S;
    case Mix::kTernary:
      return DType::kQ4_K;
    default:
      return base;
  }
}

DType OutputType(Mix mix, DType base, int64_t n_in) {
  if (base == DType::kQ8_0 || n_in % InfoOf(base).block_values != 0) return DType::kQ8_0;
  if (mix == Mix::kMxfp4Moe) return DType::kQ8_0;
  return IsLow(mix) || mix == Mix::kIQ3_XXS ? DType::kQ5_K : DType::kQ6_K;
}

// The type of one matrix, whatever its shape. REQUIRES: the recipe's type is quantized.
DType MixedType(const Recipe& recipe, Role role, const TensorInfo& tensor, const Place& place) {
  const Mix mix = recipe.mix;
  const DType base = recipe.type;
  if (role == Role::kOutput) return OutputType(mix, base, tensor.dims[0]);
  if (mix == Mix::kMxfp4Moe) return tensor.dims[2] > 1 ? base : DType::kQ8_0;
  if (role == Role::kEmbedding) return EmbeddingType(mix, base);
  if (IsLow(mix)) return LowType(mix, base, role, place);
  const bool in_middle = !place.in_first_eighth() && place.layer < 7 * place.n / 8;
  switch (role) {
    case Role::kValue:
      return RaisedValueType(ValueType(mix, base, place), place);
    case Role::kKey:
      if (place.has_8_experts()) return DType::kQ8_0;
      [[fallthrough]];
    case Role::kQuery:
      return mix == Mix::kIQ3_XS ? DType::kIQ3_XXS : mix == Mix::kIQ3_XXS ? DType::kIQ2_S : base;
    case Role::kHeads:
      return HeadsType(mix, base, place);
    case Role::kUp:
    case Role::kGate:
      return mix == Mix::kIQ3_XS && in_middle ? DType::kIQ3_XXS : base;
    case Role::kDown:
      return DownType(mix, base, place);
    default:
      return base;
  }
}

// The type itself where rows of `n` values are whole blocks of it, else the nearest. (IQ4_NL takes
// no more bits than Q4_0 and is more exact.)
DType Fitting(DType type, int64_t n) {
  if (n % InfoOf(type).block_values == 0) return type;
  if (n % 32 != 0) return DType::kF16;
  switch (type) {
    case DType::kQ6_K:
      return DType::kQ8_0;
    case DType::kQ5_K:
      return DType::kQ5_1;
    case DType::kQ4_K:
      return DType::kQ5_0;
    default:
      return DType::kIQ4_NL;
  }
}

bool IsQuantized(DType type) { return InfoOf(type).block_values > 1; }

}  // namespace

std::string QuantizeTypeNames() {
  std::vector<std::string_view> names;
  for (const Recipe& recipe : kRecipes) names.push_back(recipe.name);
  return StrJoin(names, ", ");
}

StatusOr<Recipe> FindRecipe(std::string_view name, bool pure) {
  for (const Recipe& recipe : kRecipes) {
    if (!EqualIgnoringCase(recipe.name, name)) continue;
    if (!pure) return recipe;
    if (const DTypeInfo* type = FindDTypeByName(recipe.name)) {
      return Recipe{recipe.name, type->type, recipe.file_type};
    }
    return InvalidArgument(recipe.name, " is a mix of types and cannot be pure: ask for ",
                           NameOf(recipe.type));
  }
  return InvalidArgument("unknown type \"", Printable(name), "\": choose one of ",
                         QuantizeTypeNames());
}

std::vector<DType> PlanTypes(const ModelFile& file, const Recipe& recipe, bool pure,
                             bool has_importance) {
  const Shape shape = ShapeOf(file);
  const auto tensors = file.tensors();
  // Mixes count matrices through by layers, whatever their order in the file.
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return LayerOf(tensors[a].name) < LayerOf(tensors[b].name);
  });
  std::map<Role, int64_t> totals, seen;
  for (const TensorInfo& tensor : tensors) ++totals[RoleOf(tensor.name, shape.tied)];
  std::vector<DType> types(tensors.size());
  for (const size_t at : order) {
    const TensorInfo& tensor = tensors[at];
    if (IsInteger(tensor.type)) {
      types[at] = tensor.type;
      continue;
    }
    if (StaysFloat(tensor)) {
      types[at] = DType::kF32;
      continue;
    }
    const Role role = RoleOf(tensor.name, shape.tied);
    const int64_t i = seen[role]++;
    const Place place = {shape, i, role == Role::kValue ? totals[role] : shape.n_layers,
                         shape.n_experts > 1 && role != Role::kValue ? LayerOf(tensor.name) : i,
                         has_importance};
    const bool mixed = !pure && IsQuantized(recipe.type);
    types[at] =
        Fitting(mixed ? MixedType(recipe, role, tensor, place) : recipe.type, tensor.dims[0]);
  }
  return types;
}

}  // namespace weft::tools
