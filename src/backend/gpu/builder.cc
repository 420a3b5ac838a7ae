#include "backend/gpu/builder.h"

#include <utility>

#include "base/check.h"

namespace weft::gpu {

namespace {

device::Int8View NewInt8(Arena* arena, int64_t n_rows, int64_t width) {
  const int64_t n_blocks = width / device::kBlockInputs;
  device::Int8View view;
  view.q = arena->Take<int8_t>(n_rows * width);
  view.scales = arena->Take<float>(n_rows * n_blocks);
  view.sums = arena->Take<int32_t>(n_rows * n_blocks);
  return view;
}

}  // namespace

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

// A kernel of a form, and the outputs and rows of one of its blocks.
struct ProductKernel {
  const device::KernelOf<device::MatmulArgs>* kernel;
  int outputs, rows;
};

// Rows from which on there are blocks enough for every multiprocessor if each has several bands.
constexpr int64_t kManyRows = 4 * device::kTileRows;

// All kernels of a form have one order of sums, so the number of rows may choose.
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
  args.weight = norm.weight;
  args.bias = norm.bias;
  args.weight_values = static_cast<int32_t>(norm.weight_values);
  args.width = static_cast<int32_t>(norm.spec.width);
  args.layer = norm.spec.kind == NormKind::kLayer ? 1 : 0;
  args.epsilon = norm.spec.epsilon;
  args.factor = norm.spec.factor;
  args.n_rows = rows.n;
  return args;
}

void LaunchNorm(device::Stream* stream, const BoundNorm& norm, const Rows& x, int64_t width,
                const Rows& out, const RowSet& rows) {
  stream->Launch(device::NormRows,
                 {static_cast<int>(width / norm.spec.width), static_cast<int>(rows.most), 1,
                  device::NormThreads(norm.spec.width)},
                 NormArgsOf(norm, x, norm.spec.width, out, rows));
}

// --- launches ------------------------------------------------------------------------------------

Builder::Builder(const GpuWeights& weights, const GpuState& state, const StepBuffer& buffer,
                 const ProgramSize& size, Arena* arena)
    : spec_(weights.spec()),
      model_(weights.model()),
      state_(state),
      buffer_(buffer),
      size_(size),
      arena_(*arena) {}

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
  const bool wanted = std::any_of(linears.begin(), linears.end(), [](const BoundLinear* linear) {
    return *linear && linear->form->int8;
  });
  if (!wanted) return input;
  input.q = NewInt8(&arena_, rows.most, width);
  Launch(device::QuantizeRows, QuantizeShapeOf(width, rows, 1),
         QuantizeArgsOf(x, width, input.q, rows));
  return input;
}

device::Int8View Builder::NewBytes(int64_t width) { return NewInt8(&arena_, size_.rows, width); }

void Builder::Multiply(const BoundLinear& linear, const Input& x, const Rows& out) {
  if (!linear) return;
  const Product product = ProductOf(linear, x, out, step_rows());
  Launch(*product.kernel, product.shape, product.args);
}

void Builder::MultiplyHeads(const BoundStack& stack, const Rows& x, int64_t x_head, const Rows& out,
                            int64_t out_head) {
  Input input = {x, {}};
  const RowSet rows = step_rows();
  const int64_t width = stack.matrix.n_in;
  if (stack.form->int8) {
    input.q = NewInt8(&arena_, rows.most * stack.count, width);
    device::QuantizeArgs args = QuantizeArgsOf(x, width, input.q, rows);
    args.x_head = x_head;
    Launch(device::QuantizeRows, QuantizeShapeOf(width, rows, stack.count), args);
  }
  Product product = ProductOf(stack, input, out, rows);
  product.shape.grid_z = static_cast<int>(stack.count);
  product.args.member_x = x_head;
  product.args.member_out = out_head;
  product.args.member_rows = static_cast<int32_t>(rows.most);
  product.args.scale = stack.scale;
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

void Builder::Add(const Rows& x, int64_t width, const Rows& sum) {
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

void Builder::Activate(Activation kind, float limit, const Rows& gate, const Rows& up,
                       int64_t width, const Rows& out, const RowSet& rows) {
  device::ActivateArgs args;
  args.gate = gate;
  args.up = up;
  args.out = out;
  args.width = static_cast<int32_t>(width);
  args.kind = static_cast<device::Act>(kind);
  args.limit = limit;
  args.n_rows = rows.n;
  Launch(device::ActivateRows, ColumnsShape(width, rows.most), args);
}

}  // namespace weft::gpu
