#include "model/spec_builder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/strings.h"

namespace weft {
namespace {

constexpr int64_t kMaxLayers = 1 << 16, kMaxHeads = 1 << 16, kMaxExperts = 1 << 16;
constexpr double kMaxScale = 1e9;

std::string ShapeText(const TensorInfo& tensor) {
  return StrCat("[", StrJoin(std::vector<int64_t>(tensor.dims, tensor.dims + tensor.n_dims), ", "),
                "]");
}

// Integer types and 64-bit floats never hold weights.
bool HoldsWeights(DType type) {
  constexpr DType kOthers[] = {DType::kI8, DType::kI16, DType::kI32, DType::kI64, DType::kF64};
  return std::ranges::find(kOthers, type) == std::end(kOthers);
}

// The N of "blk.N.rest"; -1 for other names.
int64_t LayerOf(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return -1;
  name.remove_prefix(kPrefix.size());
  int64_t layer = -1;
  return ParseInt64(name.substr(0, name.find('.')), &layer) ? layer : -1;
}

}  // namespace

std::string LayerName(int64_t layer, std::string_view tensor) {
  return StrCat("blk.", layer, ".", tensor);
}

SpecBuilder::SpecBuilder(const ModelFile& file, const SpecOptions& options,
                         std::string_view architecture)
    : file_(file), options_(options), used_(file.tensors().size(), false) {
  spec_.architecture = std::string(architecture);
  const StatusOr<std::string_view> name = file.GetStringOr("general.name", "");
  if (name.ok()) spec_.name = std::string(*name);
}

void SpecBuilder::Fail(const Status& status) {
  if (status_.ok()) status_ = status;
}

void SpecBuilder::FailKey(std::string_view key, std::string_view what) {
  Fail(file_.KeyError(Key(key), what));
}

void SpecBuilder::FailTensor(std::string_view tensor, std::string_view what) {
  Fail(file_.TensorError(tensor, what));
}

int64_t SpecBuilder::context_tokens() const {
  return options_.context_tokens > 0 ? options_.context_tokens : spec_.context_tokens;
}

StatusOr<ModelSpec> SpecBuilder::Finish() {
  if (!status_.ok()) return status_;
  const auto tensors = file_.tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (used_[i] || Ignorable(tensors[i].name)) continue;
    return file_.TensorError(
        tensors[i].name,
        StrCat("is not part of the architecture '", Printable(spec_.architecture),
               "' as it is known here, and without it the answers would be wrong; convert the "
               "model again or use a newer version"));
  }
  if (n_blocks_ > n_layers_ && !spec_.prediction_head && spec_.no_prediction_head.empty()) {
    spec_.no_prediction_head = StrCat("prediction heads of the architecture '",
                                      Printable(spec_.architecture), "' are not known here");
  }
  return std::move(spec_);
}

void SpecBuilder::Ignore(std::string_view full_name) { ignored_.emplace_back(full_name); }

bool SpecBuilder::Ignorable(std::string_view full_name) const {
  const int64_t layer = LayerOf(full_name);
  if (layer >= n_layers_ && layer < n_blocks_) return true;
  return std::find(ignored_.begin(), ignored_.end(), full_name) != ignored_.end();
}

// --- metadata ---------------------------------------------------------------------

std::string SpecBuilder::Key(std::string_view key) const {
  return StrCat(spec_.architecture, ".", key);
}

bool SpecBuilder::HasKey(std::string_view key) const { return file_.HasMeta(Key(key)); }

int64_t SpecBuilder::Int(std::string_view key, int64_t min, int64_t max) {
  const StatusOr<int64_t> value = file_.GetInt(Key(key));
  if (!value.ok()) {
    Fail(value.status());
    return min;
  }
  if (*value < min || *value > max) {
    FailKey(key, StrCat("is ", *value, ", expected ", min, " to ", max));
    return min;
  }
  return *value;
}

int64_t SpecBuilder::IntOr(std::string_view key, int64_t absent, int64_t min, int64_t max) {
  return HasKey(key) ? Int(key, min, max) : absent;
}

std::vector<int64_t> SpecBuilder::IntsOr(std::string_view key, int64_t n, int64_t absent,
                                         int64_t min, int64_t max) {
  if (!HasKey(key)) return std::vector<int64_t>(n, absent);
  StatusOr<std::vector<int64_t>> values = file_.GetIntPerLayer(Key(key), n);
  if (!values.ok()) {
    Fail(values.status());
    return std::vector<int64_t>(n, min);
  }
  for (int64_t& value : *values) {
    if (value >= min && value <= max) continue;
    FailKey(key, StrCat("holds ", value, ", expected ", min, " to ", max));
    value = min;
  }
  return *std::move(values);
}

double SpecBuilder::Float(std::string_view key, double min, double max) {
  const StatusOr<double> value = file_.GetFloat(Key(key));
  if (!value.ok()) {
    Fail(value.status());
    return min;
  }
  if (!(*value >= min && *value <= max)) {
    FailKey(key, StrCat("is ", *value, ", expected ", min, " to ", max));
    return min;
  }
  return *value;
}

double SpecBuilder::FloatOr(std::string_view key, double absent, double min, double max) {
  return HasKey(key) ? Float(key, min, max) : absent;
}

std::vector<float> SpecBuilder::FloatsOr(std::string_view key, int64_t n, float absent, double min,
                                         double max) {
  return HasKey(key) ? PlainFloats(Key(key), n, min, max) : std::vector<float>(n, absent);
}

std::vector<float> SpecBuilder::PlainFloats(std::string_view full_key, int64_t n, double min,
                                            double max) {
  std::vector<float> values(n, static_cast<float>(min));
  const MetaValue* const value = file_.FindMeta(full_key);
  const bool is_array = value != nullptr && std::holds_alternative<MetaArray>(*value);
  std::vector<double> read(n);
  if (is_array) {
    const StatusOr<std::vector<double>> array = file_.GetFloatArray(full_key);
    if (!array.ok()) return Fail(array.status()), values;
    read = *array;
  } else {
    const StatusOr<double> number = file_.GetFloat(full_key);
    if (!number.ok()) return Fail(number.status()), values;
    read.assign(n, *number);
  }
  if (static_cast<int64_t>(read.size()) != n) {
    Fail(file_.KeyError(full_key, StrCat("holds ", read.size(), " values for ", n, " layers")));
    return values;
  }
  for (int64_t i = 0; i < n; ++i) {
    if (read[i] >= min && read[i] <= max) {
      values[i] = static_cast<float>(read[i]);
    } else {
      Fail(file_.KeyError(full_key, StrCat("holds ", read[i], ", expected ", min, " to ", max)));
    }
  }
  return values;
}

float SpecBuilder::ScaleOr(std::string_view key, float absent) {
  const double value = FloatOr(key, 0, -kMaxScale, kMaxScale);
  return value == 0 ? absent : static_cast<float>(value);
}

bool SpecBuilder::BoolOr(std::string_view key, bool absent) {
  const StatusOr<bool> value = file_.GetBoolOr(Key(key), absent);
  if (value.ok()) return *value;
  Fail(value.status());
  return absent;
}

std::string_view SpecBuilder::StringOr(std::string_view key, std::string_view absent) {
  const StatusOr<std::string_view> value = file_.GetStringOr(Key(key), absent);
  if (value.ok()) return *value;
  Fail(value.status());
  return absent;
}

void SpecBuilder::CheckHeads(const Dims& dims, HeadCounts head_counts) {
  for (size_t layer = 0; ok() && layer < dims.n_heads.size(); ++layer) {
    const int64_t n_heads = dims.n_heads[layer], n_kv_heads = dims.n_kv_heads[layer];
    // Layers without keys may still state the other layers' number of heads.
    if (n_kv_heads == 0 && head_counts == HeadCounts::kMayBeZero) continue;
    if (n_kv_heads > 0 && n_heads > 0 && n_heads % n_kv_heads == 0) continue;
    FailKey("attention.head_count_kv", StrCat("of layer ", layer, " is ", n_kv_heads,
                                              ", which does not divide its ", n_heads, " heads"));
  }
}

Dims SpecBuilder::ReadDims(HeadCounts head_counts, NormKind norms) {
  Dims dims = ReadSizes(head_counts);
  dims.norms = norms;
  if (!BoolOr("attention.causal", true)) {
    Fail(Unimplemented(Message(file_.KeyError(
        Key("attention.causal"), "is false, but this architecture is known here as causal"))));
  }
  dims.epsilon = ReadEpsilon(norms);
  return dims;
}

Dims SpecBuilder::ReadHeadDims() {
  Dims dims = ReadSizes(HeadCounts::kAlways, /*all_run=*/true);
  dims.epsilon = ReadEpsilon(NormKind::kRms);
  return dims;
}

float SpecBuilder::ReadEpsilon(NormKind norms) {
  return static_cast<float>(Float(
      norms == NormKind::kRms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
      0, 1));
}

Dims SpecBuilder::ReadSizes(HeadCounts head_counts, bool all_run) {
  Dims dims;
  // Every layer has at least one tensor, so a file cannot ask for more iterations than it has
  // entries.
  const int64_t most = std::clamp<int64_t>(used_.size(), 1, kMaxLayers);
  const int64_t n_blocks = Int("block_count", 1, most);
  dims.n_layers = all_run ? n_blocks : n_blocks - IntOr("nextn_predict_layers", 0, 0, n_blocks - 1);
  // Some files count heads that they lack, and no layer in their place.
  if (IsWholeLayer(dims.n_layers)) dims.n_layers = n_blocks;
  n_layers_ = dims.n_layers;
  n_blocks_ = n_blocks;
  dims.d_model = Int("embedding_length", 1);
  spec_.d_model = dims.d_model;
  spec_.context_tokens = Int("context_length", 1, kMaxContext);
  const int64_t least = head_counts == HeadCounts::kMayBeZero ? 0 : 1;
  dims.n_heads = IntsOr("attention.head_count", n_blocks, 0, least, kMaxHeads);
  if (!HasKey("attention.head_count")) FailKey("attention.head_count", "is missing");
  dims.n_kv_heads = HasKey("attention.head_count_kv")
                        ? IntsOr("attention.head_count_kv", n_blocks, least, least, kMaxHeads)
                        : dims.n_heads;
  CheckHeads(dims, head_counts);
  dims.n_ff = IntsOr("feed_forward_length", n_blocks, 0, 0);
  // If no key gives the width of heads, it follows from the first layer that has heads.
  const auto heads = std::find_if(dims.n_heads.begin(), dims.n_heads.end(),
                                  [](int64_t n_heads) { return n_heads > 0; });
  if (heads != dims.n_heads.end()) {
    dims.k_dim = IntOr("attention.key_length", dims.d_model / *heads, 1, kMaxHeadDim);
    dims.v_dim = IntOr("attention.value_length", dims.d_model / *heads, 1, kMaxHeadDim);
    dims.n_rot = IntOr("rope.dimension_count", dims.k_dim, 1, kMaxHeadDim);
    if (ok() && (dims.k_dim < 1 || dims.k_dim > kMaxHeadDim || dims.v_dim < 1)) {
      FailKey("attention.head_count", StrCat("leaves ", dims.k_dim, " values per head"));
    }
  }
  return dims;
}

std::vector<bool> SpecBuilder::ReadWindowPattern(int64_t n_layers, int64_t period_if_absent,
                                                 bool first_sees_all) {
  const std::string_view key = "attention.sliding_window_pattern";
  std::vector<bool> windowed(n_layers, false);
  const MetaValue* value = file_.FindMeta(Key(key));
  if (value != nullptr &&
      (std::holds_alternative<MetaArray>(*value) || std::holds_alternative<bool>(*value))) {
    // Arrays also cover the layers that do not run.
    const std::vector<int64_t> flags = IntsOr(key, n_blocks_, 0, 0, 1);
    for (int64_t layer = 0; layer < n_layers; ++layer) windowed[layer] = flags[layer] != 0;
    return windowed;
  }
  const int64_t period = IntOr(key, period_if_absent, 0);
  for (int64_t layer = 0; layer < n_layers; ++layer) {
    const int64_t in_period = period == 0 ? 0 : layer % period;
    windowed[layer] = period == 0 || in_period != (first_sees_all ? 0 : period - 1);
  }
  return windowed;
}

RopeScaling SpecBuilder::ReadRopeScaling() {
  RopeScaling scaling;
  const std::string_view type_key = "rope.scaling.type";
  const StatusOr<std::string_view> type = file_.GetStringOr(Key(type_key), "linear");
  if (!type.ok()) {
    Fail(type.status());
    return scaling;
  }
  // "longrope" means divisors in tensors; a factor next to them is applied as always.
  if (*type == "linear" || *type == "longrope") {
    scaling.kind = RopeScalingKind::kLinear;
  } else if (*type == "yarn") {
    scaling.kind = RopeScalingKind::kYarn;
  } else if (*type != "none") {
    Fail(Unimplemented(Message(
        file_.KeyError(Key(type_key), StrCat("'", Printable(*type), "' is not known here")))));
  }
  const double old_factor = FloatOr("rope.scale_linear", 0, 0, kMaxScale);
  const double factor = FloatOr("rope.scaling.factor", old_factor, 0, kMaxScale);
  scaling.factor = factor == 0 ? 1 : factor;
  const int64_t original = IntOr("rope.scaling.original_context_length", 0, 0, kMaxContext);
  scaling.original_context =
      static_cast<double>(original == 0 ? std::max<int64_t>(spec_.context_tokens, 1) : original);
  scaling.beta_fast = FloatOr("rope.scaling.yarn_beta_fast", 32, 1e-6, kMaxScale);
  scaling.beta_slow = FloatOr("rope.scaling.yarn_beta_slow", 1, 1e-6, kMaxScale);
  scaling.extrapolation = FloatOr("rope.scaling.yarn_ext_factor", 1, 0, 1);
  scaling.magnitude = FloatOr("rope.scaling.attn_factor", 1, 0, kMaxScale);
  scaling.magnitude_multiplier = FloatOr("rope.scaling.yarn_log_multiplier", 0, 0, 1e3);
  return scaling;
}

MixtureOfExperts SpecBuilder::ReadMoe(const MoeDefaults& defaults) {
  MixtureOfExperts moe;
  moe.activation = defaults.activation;
  moe.n_experts = static_cast<int>(Int("expert_count", 1, kMaxExperts));
  moe.n_used = static_cast<int>(Int("expert_used_count", 1, moe.n_experts));
  switch (IntOr("expert_gating_func", 0, 0, 16)) {
    case 0:
      moe.weights = defaults.weights;
      break;
    case 1:
      moe.weights = RouterWeights::kSoftmax;
      break;
    case 2:
      moe.weights = RouterWeights::kSigmoid;
      break;
    case 3:
      moe.weights = RouterWeights::kSoftmaxOfChosen;
      break;
    case 4:
      moe.weights = RouterWeights::kRootSoftplus;
      break;
    default:
      FailKey("expert_gating_func", "names a routing that is not known here");
  }
  moe.renormalize = BoolOr("expert_weights_norm", defaults.renormalize);
  moe.weight_scale = ScaleOr("expert_weights_scale", 1);
  moe.n_groups =
      static_cast<int>(std::max<int64_t>(1, IntOr("expert_group_count", 1, 0, moe.n_experts)));
  if (moe.n_groups == 1) return moe;
  moe.n_groups_used = static_cast<int>(Int("expert_group_used_count", 1, moe.n_groups));
  const int per_group = moe.n_experts / moe.n_groups;
  if (moe.n_experts % moe.n_groups != 0 || per_group < 2) {
    FailKey("expert_group_count", StrCat("is ", moe.n_groups, ", which does not part ",
                                         moe.n_experts, " experts into groups of two or more"));
  } else if (moe.n_used > per_group * moe.n_groups_used) {
    FailKey("expert_used_count", StrCat("is ", moe.n_used, ", but the chosen groups hold only ",
                                        per_group * moe.n_groups_used, " experts"));
  }
  return moe;
}

// --- tensors -------------------------------------------------------------------------

bool SpecBuilder::HasTensor(std::string_view full_name) const {
  return file_.FindTensor(full_name) >= 0;
}

int64_t SpecBuilder::RowsOf(const std::string& name) const {
  const int index = file_.FindTensor(name + ".weight");
  return index < 0 ? 0 : file_.tensors()[index].dims[1];
}

int SpecBuilder::Find(const std::string& full_name, std::vector<int64_t> want, bool needs_f32) {
  if (!ok()) return -1;
  const std::string want_text = StrCat("[", StrJoin(want, ", "), "]");
  const int index = file_.FindTensor(full_name);
  if (index < 0) {
    FailTensor(full_name, StrCat("is missing; the architecture '", Printable(spec_.architecture),
                                 "' needs it with the shape ", want_text));
    return -1;
  }
  const TensorInfo& tensor = file_.tensors()[index];
  want.resize(4, 1);
  if (!std::equal(want.begin(), want.end(), tensor.dims)) {
    FailTensor(full_name, StrCat("has the shape ", ShapeText(tensor), ", expected ", want_text));
    return -1;
  }
  if (needs_f32 ? tensor.type != DType::kF32 : !HoldsWeights(tensor.type)) {
    FailTensor(full_name, StrCat("has the type ", NameOf(tensor.type), ", expected ",
                                 needs_f32 ? "F32" : "a floating-point or quantized type"));
    return -1;
  }
  used_[index] = true;
  return index;
}

TensorRef SpecBuilder::Vector(const std::string& full_name, int64_t n) {
  return TensorRef{Find(full_name, {n}, /*needs_f32=*/true)};
}

TensorRef SpecBuilder::Values(const std::string& full_name, const std::vector<int64_t>& dims) {
  return TensorRef{Find(full_name, dims, /*needs_f32=*/true)};
}

TensorRef SpecBuilder::OptionalVector(const std::string& full_name, int64_t n) {
  return HasTensor(full_name) ? Vector(full_name, n) : TensorRef();
}

Linear SpecBuilder::Matrix(const std::string& name, int64_t n_in, int64_t n_out) {
  Linear linear;
  linear.weight.index = Find(name + ".weight", {n_in, n_out}, /*needs_f32=*/false);
  linear.bias = OptionalVector(name + ".bias", n_out);
  linear.n_in = n_in;
  linear.n_out = n_out;
  linear.scale = ReadScale(name, 1, static_cast<bool>(linear.bias));
  return linear;
}

Linear SpecBuilder::MatrixRows(const std::string& name, int64_t n_in, int64_t n_rows,
                               int64_t first_row, int64_t n_out) {
  Linear linear;
  linear.weight.index = Find(name + ".weight", {n_in, n_rows}, /*needs_f32=*/false);
  linear.bias = OptionalVector(name + ".bias", n_rows);
  linear.first_row = first_row;
  linear.n_in = n_in;
  linear.n_out = n_out;
  linear.scale = ReadScale(name, 1, static_cast<bool>(linear.bias));
  return linear;
}

StackedLinear SpecBuilder::Stack(const std::string& name, int64_t n_in, int64_t n_out,
                                 int64_t count) {
  StackedLinear stack;
  stack.weight.index = Find(name + ".weight", {n_in, n_out, count}, /*needs_f32=*/false);
  if (HasTensor(name + ".bias")) {
    stack.bias.index = Find(name + ".bias", {n_out, count}, /*needs_f32=*/true);
  }
  stack.scale = ReadScale(name, count, false);
  stack.n_in = n_in;
  stack.n_out = n_out;
  stack.count = count;
  return stack;
}

StackedLinear SpecBuilder::StackRows(const std::string& name, int64_t n_in, int64_t n_rows,
                                     int64_t first_row, int64_t n_out, int64_t count) {
  StackedLinear stack;
  stack.weight.index = Find(name + ".weight", {n_in, n_rows, count}, /*needs_f32=*/false);
  stack.scale = ReadScale(name, count, false);
  stack.first_row = first_row;
  stack.n_in = n_in;
  stack.n_out = n_out;
  stack.count = count;
  return stack;
}

Norm SpecBuilder::RmsNorm(const std::string& name, int64_t width, float epsilon) {
  Norm norm;
  norm.kind = NormKind::kRms;
  norm.weight = Vector(name + ".weight", width);
  norm.width = width;
  norm.epsilon = epsilon;
  return norm;
}

Norm SpecBuilder::OptionalRmsNorm(const std::string& name, int64_t width, float epsilon) {
  return HasTensor(name + ".weight") ? RmsNorm(name, width, epsilon) : Norm();
}

std::vector<float> SpecBuilder::OptionalDivisors(const std::string& full_name, int64_t n) {
  const int index = file_.FindTensor(full_name);
  if (index < 0 || !ok()) return {};
  const TensorInfo& tensor = file_.tensors()[index];
  if (tensor.type != DType::kF32 || tensor.rows() != 1 || tensor.dims[0] < n) {
    FailTensor(full_name, StrCat("has the type ", NameOf(tensor.type), " and the shape ",
                                 ShapeText(tensor), ", expected F32 and [", n, "]"));
    return {};
  }
  used_[index] = true;
  std::vector<float> values(n);
  std::memcpy(values.data(), tensor.data.data(), values.size() * sizeof(float));
  for (const float value : values) {
    if (std::isfinite(value) && value != 0) continue;
    FailTensor(full_name, "holds a value that is zero or not finite");
    return {};
  }
  return values;
}

}  // namespace weft
