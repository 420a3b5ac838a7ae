// Attention among all tokens of each text of a step. Keys and values go into tiles that live only
// as long as the operation. Each text begins at a new tile, so its results depend only on its own
// tokens.
#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "compute/cpu/step_context.h"

namespace weft::cpu {

namespace {

KvShape KvShapeOf(const BidirectionalAttention& op) { return {DType::kF32, op.k_dim, op.v_dim}; }

int64_t TilesOf(int64_t n_tokens) { return (n_tokens + kKvTileTokens - 1) / kKvTileTokens; }

// The tiles of the step's texts: ordered by text, then by head.
class TextTiles {
 public:
  TextTiles(const BidirectionalAttention& op, StepContext* context)
      : context_(*context), n_heads_(op.n_kv_heads), tile_bytes_(KvTileBytes(KvShapeOf(op))) {
    int64_t n_tiles = 0;
    for (int64_t s = 0; s < context_.n_sequences(); ++s) {
      first_tiles_.push_back(n_tiles);
      n_tiles += TilesOf(Tokens(s)) * n_heads_;
    }
    const auto bytes = static_cast<size_t>(n_tiles * tile_bytes_);
    if (context->text_tiles.size() < bytes) context->text_tiles = AlignedBuffer(bytes);
    if (context->text_tiles.data() == nullptr) throw std::bad_alloc();
    memory_ = context->text_tiles.data();
  }

  int64_t Tokens(int64_t text) const {
    return context_.first_rows[text + 1] - context_.first_rows[text];
  }
  // The tile that holds token `position` of the text.
  std::byte* Tile(int64_t text, int head, int64_t position) const {
    const int64_t tile =
        first_tiles_[text] + head * TilesOf(Tokens(text)) + position / kKvTileTokens;
    return memory_ + tile * tile_bytes_;
  }

 private:
  const StepContext& context_;
  const int n_heads_;
  const int64_t tile_bytes_;
  std::vector<int64_t> first_tiles_;  // per text
  std::byte* memory_;
};

// Rows [begin, end) of one text.
struct TextRows {
  int64_t text;
  int64_t begin, end;
};
// The same rows, for the query heads of one kv head.
struct HeadRows {
  int64_t text;
  int64_t begin, end;
  int kv_head;
  RowsView q, out;
};

std::vector<TextRows> SplitTexts(const StepContext& context, int64_t heads_per_kv_head) {
  const int64_t most = std::max<int64_t>(1, kQueriesPerTask / heads_per_kv_head);
  std::vector<TextRows> blocks;
  for (int64_t s = 0; s < context.n_sequences(); ++s) {
    for (int64_t begin = context.first_rows[s]; begin < context.first_rows[s + 1]; begin += most) {
      blocks.push_back({s, begin, std::min(begin + most, context.first_rows[s + 1])});
    }
  }
  // The longest texts first, so that the threads finish together.
  std::stable_sort(blocks.begin(), blocks.end(), [&](const TextRows& a, const TextRows& b) {
    const auto tokens = [&](const TextRows& block) {
      return context.first_rows[block.text + 1] - context.first_rows[block.text];
    };
    return tokens(a) > tokens(b);
  });
  return blocks;
}

struct BidirectionalScratch {
  const Bound<BidirectionalAttention>& op;
  Arena* arena;
  const BidirectionalAttention& spec = *op.spec;
  RowsView q = arena->Rows(spec.n_heads * spec.k_dim);
  RowsView k = arena->Rows(spec.n_kv_heads * spec.k_dim);
  RowsView v = arena->Rows(spec.n_kv_heads * spec.v_dim);
  RowsView heads = arena->Rows(spec.n_heads * spec.v_dim);  // the heads' outputs
  Int8View input = arena->Int8(op.q.matrix.n_in);
  Int8View inner = arena->Int8(op.out.matrix.n_in);
};

void AttendBlock(const StepContext& context, const BidirectionalAttention& op,
                 const TextTiles& tiles, const HeadRows& rows, Workspace* work) {
  AttentionJob job;
  job.shape = KvShapeOf(op);
  job.scale = op.scale;
  const int64_t n_tokens = tiles.Tokens(rows.text);
  const auto first_seen = [&](int64_t position) {
    return op.reach < 0 ? 0 : std::max<int64_t>(0, position - op.reach);
  };
  const auto last_seen = [&](int64_t position) {
    return op.reach < 0 ? n_tokens - 1 : std::min(n_tokens - 1, position + op.reach);
  };
  job.first_tile = first_seen(context.rows[rows.begin].position) / kKvTileTokens;
  const int64_t last_tile = last_seen(context.rows[rows.end - 1].position) / kKvTileTokens;
  for (int64_t tile = job.first_tile; tile <= last_tile; ++tile) {
    work->tiles[tile - job.first_tile] = tiles.Tile(rows.text, rows.kv_head, tile * kKvTileTokens);
  }
  const int64_t heads_per_kv_head = op.n_heads / op.n_kv_heads;
  size_t n_queries = 0;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int64_t i = 0; i < heads_per_kv_head; ++i) {
      const int64_t head = rows.kv_head * heads_per_kv_head + i;
      AttentionQuery& query = work->queries[n_queries++];
      query = {};
      query.values = rows.q.row(row) + head * op.k_dim;
      query.output = rows.out.row(row) + head * op.v_dim;
      query.tiles = work->tiles.data();
      query.position = context.rows[row].position;
      query.first = first_seen(query.position);
      query.last = last_seen(query.position);
      query.slope = op.slopes.empty() ? 0 : op.slopes[head];
    }
  }
  job.queries = std::span(work->queries).first(n_queries);
  context.compute.vec().attend(job, work->scratch.As<float>().data());
}

}  // namespace

void PlanOp(const Bound<BidirectionalAttention>& op, Arena* arena) {
  static_cast<void>(BidirectionalScratch{op, arena});
}

void RunOp(StepContext* context, const Bound<BidirectionalAttention>& op, const RowsView& x,
           const RowsView&, const RowsView& out) {
  const BidirectionalAttention& spec = *op.spec;
  Compute& compute = context->compute;
  const int64_t n = context->n_rows();
  Arena arena = context->scratch.ForRows(n);
  const BidirectionalScratch scratch{op, &arena};
  const RowsView &q = scratch.q, &k = scratch.k, &v = scratch.v, &heads = scratch.heads;
  const ActivationRows input = compute.Input(x, n, {&op.q, &op.k, &op.v}, scratch.input);
  compute.Multiply({MakeProduct(op.q, input, n, q), MakeProduct(op.k, input, n, k),
                    MakeProduct(op.v, input, n, v)});

  const TextTiles tiles(spec, context);
  compute.ForEach(n, (q.width + k.width + v.width) * kNormRotate, [&](int64_t row, int) {
    compute.NormRow(op.q_norm, q.row(row), q.width, q.row(row));
    compute.NormRow(op.k_norm, k.row(row), k.width, k.row(row));
    for (int head = 0; head < spec.n_heads; ++head) {
      context->Rotate(spec.rope, row, q.row(row) + head * spec.k_dim);
    }
    const StepRow& place = context->rows[row];
    for (int head = 0; head < spec.n_kv_heads; ++head) {
      context->Rotate(spec.rope, row, k.row(row) + head * spec.k_dim);
      compute.vec().store_kv(KvShapeOf(spec), k.row(row) + head * spec.k_dim,
                             v.row(row) + head * spec.v_dim,
                             static_cast<int>(place.position % kKvTileTokens),
                             tiles.Tile(place.sequence, head, place.position));
    }
  });

  const int64_t heads_per_kv_head = spec.n_heads / spec.n_kv_heads;
  const std::vector<TextRows> blocks = SplitTexts(*context, heads_per_kv_head);
  int64_t max_tiles = 0;
  for (int64_t s = 0; s < context->n_sequences(); ++s) {
    max_tiles = std::max(max_tiles, TilesOf(tiles.Tokens(s)));
  }
  SizeWorkspaces(context, max_tiles, heads_per_kv_head);
  compute.TimeAttention([&] {
    const auto n_tasks = static_cast<int64_t>(blocks.size()) * spec.n_kv_heads;
    compute.RunTasks(n_tasks, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t i = begin; i < end; ++i) {
        const TextRows& block = blocks[i / spec.n_kv_heads];
        AttendBlock(
            *context, spec, tiles,
            {block.text, block.begin, block.end, static_cast<int>(i % spec.n_kv_heads), q, heads},
            &context->workspaces[worker]);
      }
    });
  });
  const ActivationRows inner = compute.Input(heads, n, {&op.out}, scratch.inner);
  compute.Multiply({MakeProduct(op.out, inner, n, out)});
}

}  // namespace weft::cpu
