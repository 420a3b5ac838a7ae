// The attention operations of a step.
#include <algorithm>
#include <array>

#include "compute/gpu/builder.h"

namespace weft::gpu {

using device::AttendArgs;
using device::AttendKind;
using device::HeadsArgs;
using device::KernelOf;
using device::KvType;
using device::KvView;

namespace {

// Attention kernels by the number of vectors of a value: 2, 4, 8, 16; null if there is none.
using KernelsByVectors = std::array<const KernelOf<AttendArgs>*, 4>;
#define WEFT_ATTEND_(kind, type)                                          \
  {                                                                       \
    &device::Attend##kind##type##_2, &device::Attend##kind##type##_4,     \
        &device::Attend##kind##type##_8, &device::Attend##kind##type##_16 \
  }
#define WEFT_ATTEND_SOME_(type) \
  { &device::AttendSome##type##_2, &device::AttendSome##type##_4 }

const KernelOf<AttendArgs>* AttendKernelOf(KvType type, size_t vectors, AttendKind kind) {
  static const KernelsByVectors kernels[device::kKvTypes][3] = {
      {WEFT_ATTEND_(Few, F32), WEFT_ATTEND_SOME_(F32), WEFT_ATTEND_(Many, F32)},
      {WEFT_ATTEND_(Few, F16), WEFT_ATTEND_SOME_(F16), WEFT_ATTEND_(Many, F16)},
      {WEFT_ATTEND_(Few, BF16), WEFT_ATTEND_SOME_(BF16), WEFT_ATTEND_(Many, BF16)},
      {WEFT_ATTEND_(Few, Q8_0), WEFT_ATTEND_SOME_(Q8_0), WEFT_ATTEND_(Many, Q8_0)}};
  return kernels[static_cast<size_t>(type)][static_cast<size_t>(kind)][vectors];
}

const KernelOf<HeadsArgs>& HeadsKernelOf(KvType type) {
  static const KernelOf<HeadsArgs>* const kernels[] = {
      &device::FinishHeadsF32, &device::FinishHeadsF16, &device::FinishHeadsBF16,
      &device::FinishHeadsQ8_0};
  return *kernels[static_cast<int>(type)];
}

// Whether one kernel can norm the heads together with the other work between product and attention.
bool NormsHeads(const BoundNorm& norm, int64_t width) {
  return !norm || (norm.spec.width == width && width <= device::kMaxHeadNorm);
}

// Index into 2, 4, 8, 16 vectors of 32 dimensions.
int VectorsFor(int64_t v_dim) {
  int index = 0;
  while (v_dim > 64 << index) ++index;
  return index;
}

// A text's KV cache in F32, with one token per page.
KvView TextKv(const BidirectionalAttention& op, const StepBuffer& buffer) {
  const int64_t key_floats = op.n_kv_heads * op.k_dim;
  KvView kv;
  kv.pool = buffer.text_pool((key_floats + op.n_kv_heads * op.v_dim) * 4);
  kv.keys.head = op.k_dim;
  kv.keys.dim = 1;
  kv.values.offset = key_floats * 4;
  kv.values.head = op.v_dim;
  kv.values.dim = 1;
  kv.page_shift = 0;
  kv.group = buffer.text_group();
  kv.k_dim = static_cast<int32_t>(op.k_dim);
  kv.v_dim = static_cast<int32_t>(op.v_dim);
  return kv;
}

}  // namespace

// A block takes as many of an item's queries as fit, divided evenly.
AttendLaunch AttendLaunchOf(KvType type, const AttendArgs& args, int64_t n_items) {
  // This many blocks fill a device even if each has only one warp.
  constexpr int64_t kManyBlocks = 1024;
  const int index = VectorsFor(args.kv.v_dim), vectors = 2 << index;
  const int n_kv_heads = args.n_heads / args.heads_per_kv_head;
  const auto max_queries = [&](AttendKind kind) {
    return device::AttendWarps(vectors, kind, args.kv.k_dim) * device::AttendQueries(vectors, kind);
  };
  const int rows = args.list == 0 ? 1 : device::kMaxItemRows;
  const int queries = args.heads_per_kv_head * rows;
  AttendKind kind = AttendKind::kFew;
  if (rows > 1 || queries > max_queries(kind)) {
    kind = AttendKind::kMany;
  } else if (vectors <= device::kMaxSomeVectors && queries > 2 &&
             queries <= max_queries(AttendKind::kSome) && n_items * n_kv_heads >= kManyBlocks) {
    kind = AttendKind::kSome;
  }
  const int blocks = device::CeilDiv(queries, max_queries(kind));
  const int warps = device::CeilDiv(queries, blocks * device::AttendQueries(vectors, kind));
  return {AttendKernelOf(type, static_cast<size_t>(index), kind),
          {n_kv_heads * blocks, static_cast<int>(n_items), 1, 32 * warps}};
}

device::LaunchShape MergeShapeOf(const AttendArgs& args, int64_t n_rows) {
  return {args.n_heads, static_cast<int>(n_rows), 1, device::CeilDiv(args.kv.v_dim, 4 * 32) * 32};
}

int64_t TextKvBytes(const ModelSpec& spec, int64_t n_rows) {
  int64_t floats = 0;
  ForEachPath(spec, [&](const Path& path) {
    const auto* op = std::get_if<BidirectionalAttention>(&path.op);
    if (op != nullptr) floats = std::max(floats, op->n_kv_heads * (op->k_dim + op->v_dim));
  });
  return floats * 4 * n_rows;
}

void Builder::FinishHeads(KvType type, HeadsArgs args, int rope, const BoundNorm& q_norm,
                          const BoundNorm& k_norm, const BoundNorm& v_norm) {
  const auto norm = [&](const BoundNorm& bound, const Rows& x, int64_t n_heads, int64_t head,
                        int64_t width) {
    if (NormsHeads(bound, width)) return PartOf(bound);
    if (bound.spec.width == width) {
      NormGroups(bound, x, n_heads, head, x);
    } else {
      Norm(bound, x, n_heads * head, x);
    }
    return device::NormPart{};
  };
  const int64_t k_dim = args.kv.k_dim, v_dim = args.kv.v_dim;
  args.step = buffer_.view();
  args.q_norm = norm(q_norm, args.q, args.n_heads, args.q_head, k_dim);
  args.k_norm = norm(k_norm, args.k, args.n_kv_heads, k_dim, k_dim);
  args.v_norm = norm(v_norm, args.v, args.n_kv_heads, v_dim, v_dim);
  if (rope >= 0) {
    const Rope& form = spec_.ropes[static_cast<size_t>(rope)];
    args.rope = buffer_.rope(rope);
    args.n_pairs = static_cast<int32_t>(form.frequencies.size());
    args.adjacent = form.pairs == RopePairs::kAdjacent ? 1 : 0;
  } else if (args.q_norm.width == 0) {
    args.n_heads = 0;
  }
  const int n = args.n_heads + args.n_kv_heads * (args.v.values != nullptr ? 2 : 1);
  if (n == 0) return;
  Launch(HeadsKernelOf(type),
         {device::CeilDiv(n, device::kHeadWarps), static_cast<int>(size_.rows), 1,
          device::kHeadWarps * 32},
         args);
}

int64_t Builder::MaxItems(int64_t n, int group) const {
  if (group >= std::ssize(spec_.kv_groups)) return n;
  const int64_t window = spec_.kv_groups[static_cast<size_t>(group)].window;
  // Items of single rows within a window. Items of several rows are never more than that.
  return window > 0 ? std::min(n, size_.rows * (window / device::kSplitTokens + 2)) : n;
}

Input Builder::Attend(KvType type, AttendArgs args, const BoundLinear* next) {
  Input sums = {args.out, {}};
  if (next != nullptr && next->form->int8 && args.kv.v_dim % device::kBlockInputs == 0) {
    sums.q = args.bytes = arena_.TakeBytes(size_.rows, int64_t{args.n_heads} * args.kv.v_dim);
    args.out.values = nullptr;
  }
  args.step = buffer_.view();
  args.partials =
      arena_.Take<float>(buffer_.max_parts() * args.n_heads * device::PartFloats(args.kv.v_dim));
  for (const int list : {0, 1}) {
    const int64_t n_items = MaxItems(list == 0 ? size_.row_items : size_.tile_items, args.kv.group);
    if (n_items == 0) continue;
    args.list = list;
    const AttendLaunch launch = AttendLaunchOf(type, args, n_items);
    Launch(*launch.kernel, launch.shape, args);
  }
  Launch(device::MergeParts, MergeShapeOf(args, size_.rows), args);
  return sums;
}

void Builder::Run(const Bound<Attention>& op, const Rows& x, const Rows&, const Rows& out) {
  const Attention& spec = *op.spec;
  const int64_t head = spec.k_dim * (spec.gated_query ? 2 : 1);
  const int64_t v_width = spec.n_kv_heads * spec.v_dim;
  const Input input = Prepare(x, spec_.d_model, {&op.q, &op.k, &op.v, &op.gate}, step_rows());
  const auto [q, k, own_v] = MultiplyAll(input, op.q, op.k, op.v);
  const Rows gates = op.gate ? NewRows(op.gate.matrix.n_out) : Columns(q, spec.k_dim);
  Multiply(op.gate, input, gates);
  const KvView kv = state_.kv(spec.kv_layer);
  HeadsArgs finish;
  finish.norms_last = spec.norms_after_rope ? 1 : 0;
  finish.kv = kv;
  finish.q = q;
  finish.q_head = head;
  finish.n_heads = spec.n_heads;
  if (spec.writes_kv) {
    finish.n_kv_heads = spec.n_kv_heads;
    finish.k = k;
    finish.v = own_v;
    if (spec.v_from_k) {
      finish.v = k;
      if (!NormsHeads(op.k_norm, spec.k_dim)) {
        finish.v = NewRows(v_width);
        Copy(k, 0, finish.v, 0, 1, v_width);
      }
    }
  }
  FinishHeads(state_.kv_type(), finish, spec.rope, op.q_norm, op.k_norm, op.v_norm);
  Warm(spec.temperature, q, spec.n_heads * head);

  const Rows heads = NewRows(spec.n_heads * spec.v_dim);
  AttendArgs args;
  args.kv = kv;
  args.q = q;
  args.q_head = head;
  args.out = heads;
  args.n_heads = spec.n_heads;
  args.heads_per_kv_head = spec.n_heads / spec.n_kv_heads;
  args.window = WindowOf(spec.kv_layer);
  args.chunk = static_cast<int32_t>(spec.chunk);
  args.scale = spec.scale;
  args.softcap = spec.softcap;
  args.sinks = op.sinks;
  const bool is_gated = spec.gated_query || op.gate;
  Input sums = Attend(state_.kv_type(), args, is_gated ? nullptr : &op.out);
  if (is_gated) {
    const bool by_head = op.gate && op.gate.matrix.n_out == spec.n_heads;
    device::GateArgs gate;
    gate.x = heads;
    gate.gate = gates;
    gate.x_head = spec.v_dim;
    gate.gate_head = spec.gated_query ? head : by_head ? 1 : spec.v_dim;
    gate.gate_step = by_head ? 0 : 1;
    gate.softplus = spec.gate_activation == GateActivation::kSoftplus ? 1 : 0;
    gate.width = static_cast<int32_t>(spec.v_dim);
    gate.n_rows = step_rows().n;
    Launch(device::GateRows, ColumnsShape(spec.v_dim, size_.rows, spec.n_heads), gate);
  }
  if (sums.q.q == nullptr) sums = Prepare(heads, op.out);
  Multiply(op.out, sums, out);
}

void Builder::Run(const Bound<LatentAttention>& op, const Rows& x, const Rows&, const Rows& out) {
  const LatentAttention& spec = *op.spec;
  const int64_t q_dim = spec.nope_dim + spec.rope_dim, k_dim = spec.latent_dim + spec.rope_dim;
  const Input input = Prepare(x, spec_.d_model, {&op.q, &op.q_a, &op.kv_a}, step_rows());
  const auto [keys, whole_q, low] = MultiplyAll(input, op.kv_a, op.q, op.q_a);
  const Rows q = op.q ? whole_q : NewRows(spec.n_heads * q_dim);
  if (!op.q) {
    const int64_t low_width = op.q_a.matrix.n_out;
    Norm(op.q_a_norm, low, low_width, low);
    Multiply(op.q_b, Prepare(low, op.q_b), q);
  }

  // Queries in the latent space, followed by their rope part.
  const Rows queries = NewRows(spec.n_heads * k_dim);
  MultiplyHeads(op.k_b, q, q_dim, queries, k_dim);
  Copy(Columns(q, spec.nope_dim), q_dim, Columns(queries, spec.latent_dim), k_dim, spec.n_heads,
       spec.rope_dim);
  Rotate(spec.rope, Columns(queries, spec.latent_dim), spec.n_heads, k_dim);
  Warm(spec.temperature, queries, spec.n_heads * k_dim);
  if (op.kv_norm) {
    NormGroups(op.kv_norm, keys, spec.latent_dim / op.kv_norm.spec.width, op.kv_norm.spec.width,
               keys);
  }
  Rotate(spec.rope, Columns(keys, spec.latent_dim), 1, k_dim);
  const KvView kv = state_.kv(spec.kv_layer);
  HeadsArgs finish;
  finish.kv = kv;
  finish.k = keys;
  finish.n_kv_heads = 1;
  FinishHeads(state_.kv_type(), finish, -1);

  const Rows sums = NewRows(spec.n_heads * spec.latent_dim);
  AttendArgs args;
  args.kv = kv;
  args.q = queries;
  args.q_head = k_dim;
  args.out = sums;
  args.n_heads = args.heads_per_kv_head = spec.n_heads;
  args.window = WindowOf(spec.kv_layer);
  args.scale = spec.scale;
  Attend(state_.kv_type(), args, nullptr);
  const Rows heads = NewRows(spec.n_heads * spec.v_dim);
  MultiplyHeads(op.v_b, sums, spec.latent_dim, heads, spec.v_dim);
  Multiply(op.out, Prepare(heads, op.out), out);
}

void Builder::Run(const Bound<UnfoldedLatentAttention>& op, const Rows& x, const Rows&,
                  const Rows& out) {
  const UnfoldedLatentAttention& spec = *op.spec;
  const int64_t k_dim = spec.nope_dim + spec.rope_dim, kv_dim = spec.nope_dim + spec.v_dim;
  const Input input = Prepare(x, spec_.d_model, {&op.q_a, &op.kv_a}, step_rows());
  const auto [low, latent] = MultiplyAll(input, op.q_a, op.kv_a);
  const Rows q = NewRows(spec.n_heads * k_dim), kv = NewRows(spec.n_heads * kv_dim);
  Norm(op.q_a_norm, low, op.q_a.matrix.n_out, low);
  Multiply(op.q_b, Prepare(low, op.q_b), q);
  Rotate(spec.rope, Columns(q, spec.nope_dim), spec.n_heads, k_dim);
  NormGroups(op.kv_norm, latent, 1, 0, latent);
  const Rows k_rope = Columns(latent, spec.latent_dim);
  Rotate(spec.rope, k_rope, 1, 0);
  Multiply(op.kv_b, Prepare(latent, op.kv_b), kv);
  const Rows keys = NewRows(spec.n_heads * k_dim), values = NewRows(spec.n_heads * spec.v_dim);
  Copy(kv, kv_dim, keys, k_dim, spec.n_heads, spec.nope_dim);
  Copy(k_rope, 0, Columns(keys, spec.nope_dim), k_dim, spec.n_heads, spec.rope_dim);
  Copy(Columns(kv, spec.nope_dim), kv_dim, values, spec.v_dim, spec.n_heads, spec.v_dim);
  HeadsArgs finish;
  finish.kv = state_.kv(spec.kv_layer);
  finish.k = keys;
  finish.v = values;
  finish.n_kv_heads = spec.n_heads;
  FinishHeads(state_.kv_type(), finish, -1);

  const Rows heads = NewRows(spec.n_heads * spec.v_dim);
  AttendArgs args;
  args.kv = finish.kv;
  args.q = q;
  args.q_head = k_dim;
  args.out = heads;
  args.n_heads = spec.n_heads;
  args.heads_per_kv_head = 1;
  args.window = WindowOf(spec.kv_layer);
  args.scale = spec.scale;
  Input sums = Attend(state_.kv_type(), args, &op.out);
  if (sums.q.q == nullptr) sums = Prepare(heads, op.out);
  Multiply(op.out, sums, out);
}

void Builder::Run(const Bound<BidirectionalAttention>& op, const Rows& x, const Rows&,
                  const Rows& out) {
  const BidirectionalAttention& spec = *op.spec;
  const Input input = Prepare(x, spec_.d_model, {&op.q, &op.k, &op.v}, step_rows());
  const auto [q, k, v] = MultiplyAll(input, op.q, op.k, op.v);
  const KvView kv = TextKv(spec, buffer_);
  HeadsArgs finish;
  finish.kv = kv;
  finish.q = q;
  finish.k = k;
  finish.v = v;
  finish.q_head = spec.k_dim;
  finish.n_heads = spec.n_heads;
  finish.n_kv_heads = spec.n_kv_heads;
  FinishHeads(KvType::kF32, finish, spec.rope, op.q_norm, op.k_norm);

  const Rows heads = NewRows(spec.n_heads * spec.v_dim);
  AttendArgs args;
  args.kv = kv;
  args.q = q;
  args.q_head = spec.k_dim;
  args.out = heads;
  args.n_heads = spec.n_heads;
  args.heads_per_kv_head = spec.n_heads / spec.n_kv_heads;
  args.both_ways = 1;
  args.reach = static_cast<int32_t>(spec.reach);
  args.scale = spec.scale;
  args.slopes = op.slopes;
  Input sums = Attend(KvType::kF32, args, &op.out);
  if (sums.q.q == nullptr) sums = Prepare(heads, op.out);
  Multiply(op.out, sums, out);
}

}  // namespace weft::gpu
