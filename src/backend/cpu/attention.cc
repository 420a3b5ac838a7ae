// The attention operations of a step: queries, keys and values of all rows, their
// storing, and the scan of every sequence's pages.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "backend/cpu/step_context.h"

namespace weft::cpu {

namespace {

// What is left of an attention operation once queries and keys are there.
struct Scan {
  int kv_layer;
  int n_heads;
  float scale;
  float softcap;
  const float* sinks;    // one per query head, or null
  const float* queries;  // row r, head h at r * query_stride + h * query_head_stride
  int64_t query_stride, query_head_stride;
  float* outputs;  // row r, head h at (r * n_heads + h) * v_dim
};

// Consecutive rows of one sequence, and the pages through which they see the layer.
struct RowBlock {
  int64_t begin, end;
  int64_t last;  // the position of the last row
  std::span<const PageId> table;
  int64_t n_rows() const { return end - begin; }
};

// Blocks [begin, end) that are taken through a kv head together, in one job: those
// whose sequences begin with the same pages, which then are read once for all of them.
struct BlockGroup {
  int64_t begin, end;
  int64_t n_rows;
  int64_t n_tiles;  // that the blocks see, shared ones counted for each
  int64_t n_read;   // positions, shared ones counted once
};

// One job: a group's rows, and query heads [head_begin, head_end) of a kv head.
struct AttentionTask {
  std::span<const RowBlock> blocks;
  int kv_head;
  int64_t head_begin, head_end;
};

// Query heads of one kv head that stay together.
constexpr int64_t kFewestHeads = 4;

std::vector<RowBlock> SplitRows(const StepContext& context, int kv_layer,
                                int64_t heads_per_kv_head) {
  const int64_t most = std::max<int64_t>(1, kQueriesPerTask / heads_per_kv_head);
  std::vector<RowBlock> blocks;
  for (int64_t begin = 0; begin < context.n_rows();) {
    const int sequence = context.rows[begin].sequence;
    int64_t end = begin + 1;
    while (end < context.n_rows() && end - begin < most && context.rows[end].sequence == sequence) {
      ++end;
    }
    blocks.push_back(
        {begin, end, context.rows[end - 1].position, context.TableOf(kv_layer, sequence)});
    begin = end;
  }
  return blocks;
}

// Positions, from the first on, that both see through the same pages; whole blocks of
// the attention kernels.
int64_t SharedPositions(const RowBlock& a, const RowBlock& b, int64_t page_tokens) {
  const auto differ = std::ranges::mismatch(a.table, b.table).in1;
  const int64_t shared = (differ - a.table.begin()) * page_tokens;
  return std::min({shared, a.last + 1, b.last + 1}) / kAttentionBlock * kAttentionBlock;
}

// Puts blocks that share pages side by side, and groups them; at least `fewest` groups
// while there are as many blocks, so that no thread is without work.
std::vector<BlockGroup> GroupBlocks(int64_t page_tokens, int64_t window, int64_t most_rows,
                                    int64_t fewest, std::vector<RowBlock>* blocks) {
  if (window == 0) {
    std::ranges::stable_sort(*blocks, [](const RowBlock& a, const RowBlock& b) {
      return std::ranges::lexicographical_compare(a.table, b.table);
    });
  }
  const auto n_blocks = static_cast<int64_t>(blocks->size());
  const int64_t most_blocks = std::max<int64_t>(1, n_blocks / fewest);
  std::vector<BlockGroup> groups;
  for (int64_t i = 0; i < n_blocks; ++i) {
    const RowBlock& block = (*blocks)[i];
    const int64_t n_seen =
        window > 0 ? std::min(block.last + 1, window + block.n_rows() - 1) : block.last + 1;
    const int64_t n_tiles = block.last / kKvTileTokens + 1;
    if (window == 0 && i > 0) {
      BlockGroup& group = groups.back();
      const int64_t shared = SharedPositions((*blocks)[i - 1], block, page_tokens);
      if (shared > 0 && group.n_rows + block.n_rows() <= most_rows &&
          group.end - group.begin < most_blocks) {
        ++group.end;
        group.n_rows += block.n_rows();
        group.n_tiles += n_tiles;
        group.n_read += n_seen - shared;
        continue;
      }
    }
    groups.push_back({i, i + 1, block.n_rows(), n_tiles, n_seen});
  }
  // What takes longest goes first, so that the threads end together.
  std::ranges::stable_sort(groups, std::greater(),
                           [](const BlockGroup& group) { return group.n_tiles * group.n_rows; });
  return groups;
}

void RunTask(const StepContext& context, const Scan& scan, const AttentionTask& task,
             Workspace* work) {
  const KvShape& shape = context.state.shape(scan.kv_layer);
  const int64_t window = context.spec.kv_groups[context.state.group(scan.kv_layer)].window;
  const auto first_seen = [&](int64_t position) {
    return window > 0 ? std::max<int64_t>(0, position - window + 1) : 0;
  };
  AttentionJob job;
  job.shape = shape;
  job.scale = scan.scale;
  job.softcap = scan.softcap;
  // Blocks that share a job see everything from the first position on.
  job.first_tile = first_seen(context.rows[task.blocks[0].begin].position) / kKvTileTokens;
  size_t n_queries = 0;
  const std::byte** tiles = work->tiles.data();
  for (const RowBlock& block : task.blocks) {
    const int64_t n_tiles = block.last / kKvTileTokens + 1 - job.first_tile;
    for (int64_t tile = 0; tile < n_tiles; ++tile) {
      tiles[tile] = context.state.Tile(scan.kv_layer, task.kv_head, block.table,
                                       (job.first_tile + tile) * kKvTileTokens);
    }
    for (int64_t row = block.begin; row < block.end; ++row) {
      for (int64_t head = task.head_begin; head < task.head_end; ++head) {
        AttentionQuery& query = work->queries[n_queries++];
        query.values = scan.queries + row * scan.query_stride + head * scan.query_head_stride;
        query.output = scan.outputs + (row * scan.n_heads + head) * shape.v_dim;
        query.tiles = tiles;
        query.last = context.rows[row].position;
        query.first = first_seen(query.last);
        query.slope = 0;
        query.sink = scan.sinks != nullptr ? scan.sinks[head] : -INFINITY;
      }
    }
    tiles += n_tiles;
  }
  job.queries = std::span(work->queries).first(n_queries);
  context.compute.vec().attend(job, work->scratch.As<float>().data());
}

void Attend(StepContext* context, const Scan& scan) {
  const KvLayer& layer = context->spec.kv_layers[scan.kv_layer];
  const int64_t heads_per_kv_head = scan.n_heads / layer.n_heads;
  const int64_t most_rows = std::max<int64_t>(1, kQueriesPerTask / heads_per_kv_head);
  const int64_t n_tasks_wanted = 2 * context->compute.n_threads();
  const int64_t window = context->spec.kv_groups[layer.group].window;
  std::vector<RowBlock> blocks = SplitRows(*context, scan.kv_layer, heads_per_kv_head);
  const std::vector<BlockGroup> groups =
      GroupBlocks(context->state.page_tokens(), window, most_rows,
                  (n_tasks_wanted + layer.n_heads - 1) / layer.n_heads, &blocks);
  int64_t most_tiles = 0;
  for (const BlockGroup& group : groups) most_tiles = std::max(most_tiles, group.n_tiles);
  SizeWorkspaces(context, most_tiles, heads_per_kv_head);
  const KvShape& shape = context->state.shape(scan.kv_layer);
  const int64_t tile_bytes = KvTileBytes(shape);
  for (const BlockGroup& group : groups) {
    context->compute.stats().kv_bytes += group.n_read * layer.n_heads * tile_bytes / kKvTileTokens;
  }
  int64_t n_seen = 0;
  for (const StepRow& row : context->rows) {
    n_seen += window > 0 ? std::min(window, row.position + 1) : row.position + 1;
  }
  StageStats& stats = context->compute.stats();
  if (shape.type == DType::kQ8_0) {  // a weight of a value takes two bytes
    stats.attention_int8_macs += n_seen * scan.n_heads * (shape.k_dim + 2 * shape.v_dim);
  } else {
    stats.attention_macs += n_seen * scan.n_heads * (shape.k_dim + shape.v_dim);
  }
  // Where there are few, the heads that share a kv head are split: more threads, the
  // same sums.
  const auto n_groups = static_cast<int64_t>(groups.size());
  int64_t n_splits = 1;
  while (n_groups * layer.n_heads * n_splits < n_tasks_wanted &&
         heads_per_kv_head >= 2 * kFewestHeads * n_splits) {
    n_splits *= 2;
  }
  const int64_t n_tasks = n_groups * layer.n_heads * n_splits;
  const auto task_at = [&](int64_t i) {
    const BlockGroup& group = groups[i / (layer.n_heads * n_splits)];
    AttentionTask task;
    task.blocks = std::span(blocks).subspan(group.begin, group.end - group.begin);
    task.kv_head = static_cast<int>(i / n_splits % layer.n_heads);
    const int64_t first = task.kv_head * heads_per_kv_head, split = i % n_splits;
    task.head_begin = first + heads_per_kv_head * split / n_splits;
    task.head_end = first + heads_per_kv_head * (split + 1) / n_splits;
    return task;
  };
  context->compute.TimeAttention([&] {
    context->compute.RunTasks(n_tasks, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t i = begin; i < end; ++i) {
        RunTask(*context, scan, task_at(i), &context->workspaces[worker]);
      }
    });
  });
}

// Norms and rotates one row's keys, and puts keys and values into their tiles.
//   k: (n_kv_heads, k_dim), v: (n_kv_heads, v_dim); both are overwritten
void StoreRow(StepContext* context, const Bound<Attention>& op, int64_t row, float* k, float* v) {
  const Attention& spec = *op.spec;
  if (spec.v_from_k) std::memcpy(v, k, sizeof(float) * spec.n_kv_heads * spec.v_dim);
  context->compute.NormRow(op.k_norm, k, spec.n_kv_heads * spec.k_dim, k);
  context->compute.NormRow(op.v_norm, v, spec.n_kv_heads * spec.v_dim, v);
  const int64_t position = context->rows[row].position;
  const auto table = context->TableOf(spec.kv_layer, context->rows[row].sequence);
  for (int head = 0; head < spec.n_kv_heads; ++head) {
    context->Rotate(spec.rope, row, k + head * spec.k_dim);
    context->compute.vec().store_kv(context->state.shape(spec.kv_layer), k + head * spec.k_dim,
                                    v + head * spec.v_dim,
                                    static_cast<int>(position % kKvTileTokens),
                                    context->state.Tile(spec.kv_layer, head, table, position));
  }
}

void TouchPages(StepContext* context, int kv_layer) {
  const int group = context->state.group(kv_layer);
  const int64_t page_tokens = context->state.page_tokens();
  for (const StepSequence& sequence : context->step->sequences) {
    const int64_t last = sequence.position + static_cast<int64_t>(sequence.tokens.size()) - 1;
    for (int64_t i = sequence.position / page_tokens; i <= last / page_tokens; ++i) {
      context->state.TouchPage(group, sequence.page_tables[group][i]);
    }
  }
}

struct AttentionScratch {
  const Bound<Attention>& op;
  Arena* arena;
  const Attention& spec = *op.spec;
  RowsView q = arena->Rows(spec.n_heads * spec.k_dim * (spec.gated_query ? 2 : 1));  // and gates
  RowsView k = arena->Rows(spec.n_kv_heads * spec.k_dim);
  RowsView v = arena->Rows(spec.n_kv_heads * spec.v_dim);
  RowsView heads = arena->Rows(spec.n_heads * spec.v_dim);  // what they give
  Int8View input = arena->Int8(op.q.matrix.n_in);
  Int8View inner = arena->Int8(op.out.matrix.n_in);
};

// From one head's query to the next; a gate stands behind each that has one.
int64_t QueryStride(const Attention& spec) { return spec.k_dim * (spec.gated_query ? 2 : 1); }

void GateHeads(StepContext* context, const Attention& spec, const RowsView& q,
               const RowsView& heads) {
  Compute& compute = context->compute;
  compute.ForEach(context->n_rows(), heads.width * kExp, [&](int64_t row, int) {
    for (int head = 0; head < spec.n_heads; ++head) {
      const float* const query = q.row(row) + head * QueryStride(spec);
      compute.vec().multiply_sigmoid(query + spec.k_dim, spec.v_dim,
                                     heads.row(row) + head * spec.v_dim);
    }
  });
}

}  // namespace

void PlanOp(const Bound<Attention>& op, Arena* arena) {
  static_cast<void>(AttentionScratch{op, arena});
}

void RunOp(StepContext* context, const Bound<Attention>& op, const RowsView& x, const RowsView&,
           const RowsView& out) {
  const Attention& spec = *op.spec;
  Compute& compute = context->compute;
  Arena arena = context->scratch.ForRows(context->n_rows());
  const AttentionScratch scratch{op, &arena};
  const RowsView &q = scratch.q, &k = scratch.k, &v = scratch.v, &heads = scratch.heads;
  const int64_t head_stride = QueryStride(spec);

  // Those of the three that there are, side by side.
  using Projection = std::pair<const BoundLinear*, RowsView>;
  const auto project = [&](std::initializer_list<Projection> projections) {
    const int64_t n = context->n_rows();
    const ActivationRows input = compute.Input(x, n, {&op.q, &op.k, &op.v}, scratch.input);
    Product products[3];
    size_t n_products = 0;
    for (const auto& [linear, to] : projections) {
      if (*linear) products[n_products++] = MakeProduct(*linear, input, n, to);
    }
    compute.Multiply(std::span<const Product>(products, n_products));
  };
  const auto prepare_query = [&](int64_t row) {
    if (!spec.gated_query) compute.NormRow(op.q_norm, q.row(row), q.width, q.row(row));
    for (int head = 0; head < spec.n_heads; ++head) {
      float* const query = q.row(row) + head * head_stride;
      if (spec.gated_query) compute.NormRow(op.q_norm, query, spec.k_dim, query);
      context->Rotate(spec.rope, row, query);
    }
  };
  const auto store = [&](int64_t row) { StoreRow(context, op, row, k.row(row), v.row(row)); };

  if (spec.writes_kv) TouchPages(context, spec.kv_layer);
  if (op.last_to_write && context->has_unwanted_rows()) {
    project({{&op.k, k}, {&op.v, v}});
    compute.ForEach(context->n_rows(), (k.width + v.width) * kNormRotate,
                    [&](int64_t row, int) { store(row); });
    context->KeepWantedRows();
    if (context->n_rows() == 0) return;
    project({{&op.q, q}});
    compute.ForEach(context->n_rows(), q.width * kNormRotate,
                    [&](int64_t row, int) { prepare_query(row); });
  } else {
    project({{&op.q, q}, {&op.k, k}, {&op.v, v}});
    const int64_t width = q.width + k.width + v.width;
    compute.ForEach(context->n_rows(), width * kNormRotate, [&](int64_t row, int) {
      prepare_query(row);
      if (spec.writes_kv) store(row);
    });
  }

  const int64_t n = context->n_rows();
  Attend(context, {spec.kv_layer, spec.n_heads, spec.scale, spec.softcap, op.sinks, q.values,
                   q.stride, head_stride, heads.values});
  if (spec.gated_query) GateHeads(context, spec, q, heads);
  const ActivationRows inner = compute.Input(heads, n, {&op.out}, scratch.inner);
  compute.Multiply({MakeProduct(op.out, inner, n, out)});
}

// --- latent attention ------------------------------------------------------------------

namespace {

// One product per head: head h of `x`, x_head_stride behind the one before it, to head h of
// `out`. `int8`: rows for each head, in panels of their own.
void MultiplyHeads(StepContext* context, const BoundStack& stack, int n_heads, const RowsView& x,
                   int64_t x_head_stride, const Int8View& int8, const RowsView& out,
                   int64_t out_head_stride) {
  const int64_t n = context->n_rows();
  std::vector<Product> products;
  if (WantsInt8(stack.first)) {
    context->compute.ForEach(n_heads * n, int8.width * kStep, [&](int64_t i, int) {
      context->compute.QuantizeRow(x.row(i % n) + i / n * x_head_stride, int8,
                                   i / n * WholePanels(n) + i % n);
    });
  }
  for (int head = 0; head < n_heads; ++head) {
    Product product;
    product.matrix = stack.Member(head);
    if (stack.bias != nullptr) product.bias = stack.bias + head * stack.first.n_out;
    if (stack.scale != nullptr) product.scale = stack.scale[head];
    product.x.values = x.values + head * x_head_stride;
    product.x.values_stride = x.stride;
    if (WantsInt8(stack.first)) product.x.int8 = int8.Rows(head * WholePanels(n));
    product.n_rows = n;
    product.out = out.values + head * out_head_stride;
    product.out_stride = out.stride;
    products.push_back(product);
  }
  context->compute.Multiply(products);
}

struct LatentScratch {
  const Bound<LatentAttention>& op;
  Arena* arena;
  const LatentAttention& spec = *op.spec;
  int64_t int8_heads = spec.n_heads * WholePanels(arena->n_rows());
  Int8View input = arena->Int8(op.kv_a.matrix.n_in);
  RowsView low = arena->Rows(op.q_a.matrix.n_out);  // low-rank queries
  Int8View low_int8 = arena->Int8(op.q_b.matrix.n_in);
  RowsView q = arena->Rows(spec.n_heads * (spec.nope_dim + spec.rope_dim));  // as projected
  Int8View q_int8 = arena->Int8(spec.nope_dim, int8_heads);
  // In the latent space.
  RowsView queries = arena->Rows(spec.n_heads * (spec.latent_dim + spec.rope_dim));
  RowsView keys = arena->Rows(spec.latent_dim + spec.rope_dim);
  RowsView sums = arena->Rows(spec.n_heads * spec.latent_dim);
  Int8View sums_int8 = arena->Int8(spec.latent_dim, int8_heads);
  RowsView heads = arena->Rows(spec.n_heads * spec.v_dim);  // what they give
  Int8View inner = arena->Int8(op.out.matrix.n_in);
};

}  // namespace

void PlanOp(const Bound<LatentAttention>& op, Arena* arena) {
  static_cast<void>(LatentScratch{op, arena});
}

void RunOp(StepContext* context, const Bound<LatentAttention>& op, const RowsView& x,
           const RowsView&, const RowsView& out) {
  const LatentAttention& spec = *op.spec;
  Compute& compute = context->compute;
  const int64_t n = context->n_rows();
  const int64_t q_dim = spec.nope_dim + spec.rope_dim;
  const int64_t k_dim = spec.latent_dim + spec.rope_dim;
  Arena arena = context->scratch.ForRows(n);
  const LatentScratch scratch{op, &arena};
  const RowsView &low = scratch.low, &q = scratch.q, &queries = scratch.queries;
  const RowsView &keys = scratch.keys, &sums = scratch.sums, &heads = scratch.heads;

  if (op.q) {
    const ActivationRows input = compute.Input(x, n, {&op.q, &op.kv_a}, scratch.input);
    compute.Multiply({MakeProduct(op.q, input, n, q), MakeProduct(op.kv_a, input, n, keys)});
  } else {
    const ActivationRows input = compute.Input(x, n, {&op.q_a, &op.kv_a}, scratch.input);
    compute.Multiply({MakeProduct(op.q_a, input, n, low), MakeProduct(op.kv_a, input, n, keys)});
    compute.ForEach(n, low.width * kStep, [&](int64_t row, int) {
      compute.NormRow(op.q_a_norm, low.row(row), low.width, low.row(row));
    });
    const ActivationRows inner = compute.Input(low, n, {&op.q_b}, scratch.low_int8);
    compute.Multiply({MakeProduct(op.q_b, inner, n, q)});
  }
  MultiplyHeads(context, op.k_b, spec.n_heads, q, q_dim, scratch.q_int8, queries, k_dim);

  TouchPages(context, spec.kv_layer);
  compute.ForEach(n, (queries.width + k_dim) * kStep, [&](int64_t row, int) {
    for (int head = 0; head < spec.n_heads; ++head) {
      float* const rotated = queries.row(row) + head * k_dim + spec.latent_dim;
      std::memcpy(rotated, q.row(row) + head * q_dim + spec.nope_dim,
                  sizeof(float) * spec.rope_dim);
      context->Rotate(spec.rope, row, rotated);
    }
    float* const key = keys.row(row);
    compute.NormRow(op.kv_norm, key, spec.latent_dim, key);
    context->Rotate(spec.rope, row, key + spec.latent_dim);
    const int64_t position = context->rows[row].position;
    const auto table = context->TableOf(spec.kv_layer, context->rows[row].sequence);
    compute.vec().store_kv(context->state.shape(spec.kv_layer), key, key,
                           static_cast<int>(position % kKvTileTokens),
                           context->state.Tile(spec.kv_layer, 0, table, position));
  });

  Attend(context, {spec.kv_layer, spec.n_heads, spec.scale, 0, nullptr, queries.values,
                   queries.stride, k_dim, sums.values});
  MultiplyHeads(context, op.v_b, spec.n_heads, sums, spec.latent_dim, scratch.sums_int8, heads,
                spec.v_dim);
  const ActivationRows inner = compute.Input(heads, n, {&op.out}, scratch.inner);
  compute.Multiply({MakeProduct(op.out, inner, n, out)});
}

int64_t MaxAttentionScratch(const ModelSpec& spec, const CpuState& state) {
  struct Most : OperationVisitor {
    explicit Most(const CpuState& state) : state(state) {}
    void Kv(const KvUse& use) {
      const int64_t n_queries = std::max<int64_t>(kQueriesPerTask, use.n_heads / use.n_kv_heads);
      floats = std::max(floats, AttentionScratchFloats(state.shape(use.layer), n_queries));
    }
    const CpuState& state;
    int64_t floats = 0;
  };
  Most most(state);
  VisitOperations(spec, most);
  ForEachPath(spec, [&](const Path& path) {
    const auto* op = std::get_if<BidirectionalAttention>(&path.op);
    if (op == nullptr) return;
    const int64_t n_queries = std::max<int64_t>(kQueriesPerTask, op->n_heads / op->n_kv_heads);
    const KvShape shape = {DType::kF32, op->k_dim, op->v_dim};
    most.floats = std::max(most.floats, AttentionScratchFloats(shape, n_queries));
  });
  return most.floats;
}

}  // namespace weft::cpu
