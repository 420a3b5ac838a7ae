#include "compute/gpu/builder.h"

#include <utility>

#include "base/check.h"

namespace weft::gpu {

// --- arguments ----------------------------------------------------------------------------------

device::QuantizeArgs QuantizeArgsOf(const Rows& x, int64_t width, const device::Int8View& to,
                                    const RowSet& rows) {
  device::QuantizeArgs args;
  args.x = x;
  args.out = to;
  args.n_blocks = static_cast<int32_t>(width / device::kBlockInputs);
  args.head_rows = static_cast<int32_t>(rows.most);
  args.n_rows = rows.n;
  return args;
}

device::LaunchShape QuantizeShapeOf(int64_t width, const RowSet& rows, int64_t n_heads) {
  return {device::CeilDiv(width / device::kBlockInputs, device::kQuantizeBlocks),
          static_cast<int>(rows.most), static_cast<int>(n_heads), device::kQuantizeThreads};
}

namespace {

// A kernel for a weight form, and the outputs and rows that one block computes.
struct ProductKernel {
  const device::KernelOf<device::MatmulArgs>* kernel;
  int outputs, rows;
};

// From this many rows on, there are enough blocks for every multiprocessor even if each block takes
// several bands.
constexpr int64_t kManyRows = 4 * device::kTileRows;

// All kernels of a form add in the same order, so the number of rows may decide.
ProductKernel KernelFor(const BoundLinear& linear, int64_t n_rows, bool sorted, int lanes) {
  const WeightForm& form = *linear.form;
  if (n_rows == 1 && !sorted) {
    return {form.multiply_one, form.int8 ? device::kBandOutputs : device::kMatmulThreads / lanes,
            1};
  }
  if (!linear.by_tiles) {
    return {form.multiply, device::kMatmulThreads / lanes, device::kMatmulRows};
  }
  if (sorted || n_rows <= device::kMatmulRows) {
    return {form.multiply_few, device::kBandOutputs, device::kMatmulRows};
  }
  if (n_rows < kManyRows) return {form.multiply_tiles, device::kBandOutputs, device::kTileRows};
  return {form.multiply_many, device::kTileBands * device::kBandOutputs, device::kTileRows};
}

}  // namespace

Product ProductOf(const BoundLinear& linear, const Input& x, const Rows& out, const RowSet& rows,
                  bool sorted) {
  Product product;
  device::MatmulArgs& args = product.args;
  args.matrix = linear.matrix;
  args.x = x.x;
  args.q = x.q;
  args.out = out;
  args.bias = linear.bias;
  args.scale = linear.scale;
  args.n_rows = rows.n;
  args.lanes = device::MatmulLanes(linear.matrix.n_in);
  const ProductKernel chosen = KernelFor(linear, rows.most, sorted, args.lanes);
  product.kernel = chosen.kernel;
  product.shape = {device::CeilDiv(linear.matrix.n_out, chosen.outputs),
                   device::CeilDiv(rows.most, chosen.rows), 1, device::kMatmulThreads};
  return product;
}

device::NormArgs NormArgsOf(const BoundNorm& norm, const Rows& x, int64_t group, const Rows& out,
                            const RowSet& rows) {
  device::NormArgs args;
  args.x = x;
  args.out = out;
  args.group = group;
  args.norm = PartOf(norm);
  args.n_rows = rows.n;
  return args;
}

device::NormPart PartOf(const BoundNorm& norm) {
  device::NormPart part;
  if (!norm) return part;
  part.weight = norm.weight;
  part.bias = norm.bias;
  part.weight_values = static_cast<int32_t>(norm.weight_values);
  part.width = static_cast<int32_t>(norm.spec.width);
  part.layer = norm.spec.kind == NormKind::kLayer ? 1 : 0;
  part.epsilon = norm.spec.epsilon;
  part.factor = norm.spec.factor;
  return part;
}

const device::KernelOf<device::StreamArgs>* AdvanceKernelOf(const device::StreamArgs& args) {
  const auto fits = [&](const device::NormPart& part) {
    return part.width == 0 || part.width == args.width;
  };
  if (args.width % device::kStreamEach != 0 || args.width > device::kLongRow || !fits(args.post) ||
      !fits(args.norm)) {
    return nullptr;
  }
  return args.width <= device::kShortRow ? &device::AdvanceShortRows : &device::AdvanceLongRows;
}

void LaunchNorm(const BoundNorm& norm, const Rows& x, int64_t width, const Rows& out,
                const RowSet& rows, const Launches& to) {
  to.Add(device::NormRows,
         {static_cast<int>(width / norm.spec.width), static_cast<int>(rows.most), 1,
          device::NormThreads(norm.spec.width)},
         NormArgsOf(norm, x, norm.spec.width, out, rows));
}

// --- launches ------------------------------------------------------------------------------------

Builder::Builder(const GpuWeights& weights, const GpuState& state, const StepBuffer& buffer,
                 const ProgramSize& size, Arena* arena, const StepMemory& memory)
    : spec_(weights.spec()),
      model_(weights.model()),
      state_(state),
      buffer_(buffer),
      size_(size),
      arena_(*arena),
      memory_(memory) {}

Rows Builder::NewRows(int64_t width, int64_t n_rows) {
  return {arena_.Take<float>(width * (n_rows > 0 ? n_rows : size_.rows)), width};
}

void Builder::Embed(const BoundLinear& table, const int32_t* index, float scale, bool add,
                    const Rows& out) {
  device::EmbedArgs args;
  args.table = table.matrix;
  args.index = index;
  args.out = out;
  args.scale = scale;
  args.add = add ? 1 : 0;
  args.n_rows = step_rows().n;
  const int n_blocks = device::CeilDiv(table.matrix.n_in, device::kBlockInputs);
  Launch(*table.form->embed,
         {device::CeilDiv(n_blocks, device::kEmbedThreads), static_cast<int>(size_.rows), 1,
          device::kEmbedThreads},
         args);
}

Input Builder::Prepare(const Rows& x, int64_t width,
                       std::initializer_list<const BoundLinear*> linears, const RowSet& rows) {
  Input input = {x, {}};
  const auto wants = [&](bool int8) {
    return std::any_of(linears.begin(), linears.end(), [&](const BoundLinear* linear) {
      return linear != nullptr && *linear && linear->form->int8 == int8;
    });
  };
  if (x.values == entry_.x.values) return Entered(wants(false), wants(true));
  if (!wants(true)) return input;
  input.q = arena_.TakeBytes(rows.most, width);
  Launch(device::QuantizeRows, QuantizeShapeOf(width, rows, 1),
         QuantizeArgsOf(x, width, input.q, rows));
  return input;
}

void Builder::Multiply(const BoundLinear& linear, const Input& x, const Rows& out) {
  if (!linear) return;
  const Product product = ProductOf(linear, x, out, step_rows());
  Launch(*product.kernel, product.shape, product.args);
}

void Builder::MultiplyJoined(const Input& x, std::initializer_list<const BoundLinear*> linears,
                             std::span<Rows> outs) {
  // Next to each other, so that outputs of joined matrices are contiguous.
  constexpr int64_t kAligned = 16;
  int64_t width = 0;
  const auto aligned = [](int64_t n) { return (n + kAligned - 1) / kAligned * kAligned; };
  for (const BoundLinear* linear : linears) width += aligned(linear->matrix.n_out);
  Rows next = NewRows(width);
  BoundLinear whole;
  Rows whole_out;
  for (size_t i = 0; i < outs.size(); ++i) {
    const BoundLinear& linear = *linears.begin()[i];
    if (!linear) continue;
    outs[i] = next;
    next = Columns(next, aligned(linear.matrix.n_out));
    if (Continues(whole, linear)) {
      whole.matrix.n_out += linear.matrix.n_out;
      whole.end = linear.end;
      continue;
    }
    Multiply(whole, x, whole_out);
    whole = linear;
    whole_out = outs[i];
  }
  Multiply(whole, x, whole_out);
}

void Builder::MultiplyHeads(const BoundStack& stack, const Rows& x, int64_t x_head, const Rows& out,
                            int64_t out_head) {
  Input input = {x, {}};
  const RowSet rows = step_rows();
  const int64_t width = stack.matrix.n_in;
  if (stack.form->int8) {
    input.q = arena_.TakeBytes(rows.most * stack.count, width);
    device::QuantizeArgs args = QuantizeArgsOf(x, width, input.q, rows);
    args.x_head = x_head;
    Launch(device::QuantizeRows, QuantizeShapeOf(width, rows, stack.count), args);
  }
  Product product = ProductOf(stack, input, out, rows);
  product.shape.grid_z = static_cast<int>(stack.count);
  product.args.member_x = x_head;
  product.args.member_out = out_head;
  product.args.member_rows = static_cast<int32_t>(rows.most);
  Launch(*product.kernel, product.shape, product.args);
}

void Builder::NormGroups(const BoundNorm& norm, const Rows& x, int64_t n_groups, int64_t group,
                         const Rows& out) {
  Launch(device::NormRows,
         {static_cast<int>(n_groups), static_cast<int>(size_.rows), 1,
          device::NormThreads(norm.spec.width)},
         NormArgsOf(norm, x, group, out, step_rows()));
}

Rows Builder::Norm(const BoundNorm& norm, const Rows& x, int64_t width, const Rows& out) {
  if (!norm) return x;
  NormGroups(norm, x, width / norm.spec.width, norm.spec.width, out);
  return out;
}

void Builder::Rotate(int rope, const Rows& x, int64_t n_heads, int64_t head) {
  if (rope < 0) return;
  const Rope& form = spec_.ropes[static_cast<size_t>(rope)];
  device::RopeArgs args;
  args.x = x;
  args.head = head;
  args.table = buffer_.rope(rope);
  args.n_pairs = static_cast<int32_t>(form.frequencies.size());
  args.adjacent = form.pairs == RopePairs::kAdjacent ? 1 : 0;
  args.n_rows = step_rows().n;
  Launch(device::RotateRows, ColumnsShape(args.n_pairs, size_.rows, n_heads), args);
}

void Builder::Copy(const Rows& from, int64_t from_head, const Rows& to, int64_t to_head,
                   int64_t n_heads, int64_t width) {
  device::CopyArgs args;
  args.from = from;
  args.to = to;
  args.from_head = from_head;
  args.to_head = to_head;
  args.width = static_cast<int32_t>(width);
  args.n_rows = step_rows().n;
  Launch(device::CopyRows, ColumnsShape(width, size_.rows, n_heads), args);
}

void Builder::Add(const Rows& x, int64_t width, const Rows& sum, float scale) {
  if (scale != 1) {
    device::ScaleArgs args;
    args.stream = sum;
    args.y = x;
    args.width = static_cast<int32_t>(width);
    args.y_scale = scale;
    args.n_rows = step_rows().n;
    return Launch(device::ScaleRows, ColumnsShape(width, size_.rows), args);
  }
  Launch(device::AddRows, ColumnsShape(width, size_.rows),
         {x, sum, static_cast<int32_t>(width), step_rows().n});
}

void Builder::Multiply(const Rows& x, int64_t width, const Rows& product) {
  Launch(device::MultiplyRows, ColumnsShape(width, size_.rows),
         {x, product, static_cast<int32_t>(width), step_rows().n});
}

void Builder::Scale(float factor, int64_t width, const Rows& x) {
  if (factor == 1) return;
  device::ScaleArgs args;
  args.stream = x;
  args.width = static_cast<int32_t>(width);
  args.scale = factor;
  args.n_rows = step_rows().n;
  Launch(device::ScaleRows, ColumnsShape(width, size_.rows), args);
}

void Builder::Warm(const QueryTemperature& temperature, const Rows& x, int64_t width) {
  if (!temperature) return;
  device::WarmArgs args;
  args.x = x;
  args.width = static_cast<int32_t>(width);
  args.scale = temperature.scale;
  args.length = static_cast<int32_t>(temperature.length);
  args.offset = static_cast<int32_t>(temperature.offset);
  args.positions = buffer_.view().positions;
  args.n_rows = step_rows().n;
  Launch(device::WarmRows, ColumnsShape(width, size_.rows), args);
}

device::ActivateArgs ActivateArgsOf(Activation kind, const ActivationNumbers& numbers,
                                    const Rows& gate, const Rows& up, const RowSet& rows) {
  device::ActivateArgs args;
  args.gate = gate;
  args.up = up;
  args.kind = static_cast<device::Act>(kind);
  args.limit = numbers.limit;
  args.rise = numbers.rise;
  args.fall = numbers.fall;
  args.slope = numbers.slope;
  args.n_rows = rows.n;
  return args;
}

void Builder::Activate(device::ActivateArgs args, int64_t width, int64_t max_rows) {
  args.width = static_cast<int32_t>(width);
  Launch(device::ActivateRows, InRuns(ColumnsShape(width, max_rows)), args);
}

device::ActivateBytesArgs Builder::ActivateBytesOf(const device::ActivateArgs& args, int64_t width,
                                                   int64_t max_rows) {
  device::ActivateBytesArgs bytes;
  bytes.rows = args;
  bytes.rows.out = {};
  bytes.out = arena_.TakeBytes(max_rows, width);
  bytes.n_blocks = static_cast<int32_t>(width / device::kBlockInputs);
  return bytes;
}

Input Builder::PrepareActivated(const device::ActivateArgs& args, const BoundLinear& linear,
                                int64_t max_rows) {
  const int64_t width = linear.matrix.n_in;
  if (!linear.form->int8) {
    Activate(args, width, max_rows);
    return {args.out, {}};
  }
  const auto bytes = ActivateBytesOf(args, width, max_rows);
  Launch(device::ActivateBytes, InRuns(QuantizeShapeOf(width, {args.n_rows, max_rows}, 1)), bytes);
  return {{}, bytes.out};
}

// --- the stream between two products ------------------------------------------------------------

Rows Builder::Enter(const BoundNorm& norm, const Rows& from, const Rows& to) {
  entry_ = {from, norm ? &norm : nullptr, norm ? to : from, !norm, false};
  return entry_.x;
}

Input Builder::Entered(bool floats, bool bytes) {
  const bool makes_floats = floats && !entry_.floats, makes_bytes = bytes && !entry_.bytes;
  const bool adds = residual_.has_value() && entry_.from.values == stream_.values;
  if (makes_floats || makes_bytes || adds) {
    Advance(entry_.from, entry_.norm, makes_floats ? entry_.x : Rows{},
            makes_bytes ? entry_bytes_ : device::Int8View{});
  }
  entry_.floats = entry_.floats || floats;
  entry_.bytes = entry_.bytes || bytes;
  return {entry_.x, bytes ? entry_bytes_ : device::Int8View{}};
}

void Builder::AddToStream() {
  if (residual_) Advance(stream_, nullptr, {}, {});
}

void Builder::Advance(const Rows& from, const BoundNorm* norm, const Rows& out,
                      const device::Int8View& bytes) {
  const int64_t width = spec_.d_model;
  device::StreamArgs args;
  args.x = from;
  if (norm != nullptr) args.norm = PartOf(*norm);
  args.out = out;
  args.bytes = bytes;
  args.width = static_cast<int32_t>(width);
  args.n_rows = step_rows().n;
  if (residual_ && from.values == stream_.values) {
    args.y = residual_->y;
    if (residual_->post != nullptr) args.post = PartOf(*residual_->post);
    args.y_scale = residual_->y_scale;
    args.scale = residual_->scale;
  }
  const auto* const kernel = AdvanceKernelOf(args);
  if (kernel == nullptr) return AdvanceInSteps(from, norm, bytes);
  residual_.reset();
  Launch(*kernel, {1, static_cast<int>(size_.rows), 1, device::StreamThreads(width)}, args);
}

void Builder::AdvanceInSteps(const Rows& from, const BoundNorm* norm,
                             const device::Int8View& bytes) {
  const int64_t width = spec_.d_model;
  if (residual_ && from.values == stream_.values) {
    if (residual_->post != nullptr) Norm(*residual_->post, residual_->y, width, residual_->y);
    device::ScaleArgs args;
    args.stream = stream_;
    args.y = residual_->y;
    args.width = static_cast<int32_t>(width);
    args.y_scale = residual_->y_scale;
    args.scale = residual_->scale;
    args.n_rows = step_rows().n;
    Launch(device::ScaleRows, ColumnsShape(width, size_.rows), args);
    residual_.reset();
  }
  const Rows x = norm != nullptr ? Norm(*norm, from, width, entry_.x) : from;
  if (bytes.q == nullptr) return;
  Launch(device::QuantizeRows, QuantizeShapeOf(width, step_rows(), 1),
         QuantizeArgsOf(x, width, bytes, step_rows()));
}

}  // namespace weft::gpu
