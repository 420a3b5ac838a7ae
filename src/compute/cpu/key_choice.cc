#include "compute/cpu/key_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

namespace weft::cpu {

std::vector<int64_t> BestNumbers(std::vector<float>* scores, int64_t count) {
  std::vector<int64_t> numbers(scores->size());
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  if (std::ssize(numbers) <= count) return numbers;
  for (float& score : *scores) {
    if (std::isnan(score)) score = -std::numeric_limits<float>::infinity();
  }
  std::ranges::nth_element(numbers, numbers.begin() + count, [&](int64_t a, int64_t b) {
    const float x = (*scores)[static_cast<size_t>(a)], y = (*scores)[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  });
  numbers.resize(static_cast<size_t>(count));
  std::ranges::sort(numbers);
  return numbers;
}

namespace {

// Index scores of one row: summed over all heads, or per head.
class RowScores {
 public:
  RowScores(const StepContext& context, const KeyChoice& choice, int64_t row)
      : context_(context),
        choice_(choice),
        row_(context.rows[static_cast<size_t>(row)]),
        table_(context.TableOf(choice.kv_layer, row_.sequence)),
        key_(static_cast<size_t>(choice.dim)),
        tile_(static_cast<size_t>(choice.dim * kKvTileTokens)) {}

  int64_t n_seen() const { return row_.position + 1; }

  // Calls fn(position, products) for each tile, with q . k of its positions, head by head.
  template <typename Fn>
  void ForTiles(const float* queries, Fn fn) {
    std::vector<float> products(static_cast<size_t>(choice_.n_heads) * kKvTileTokens);
    for (int64_t first = 0; first < n_seen(); first += kKvTileTokens) {
      LoadTile(first);
      for (int head = 0; head < choice_.n_heads; ++head) {
        std::array<float, kKvTileTokens> sums = {};
        const float* const query = queries + head * choice_.dim;
        for (int64_t dim = 0; dim < choice_.dim; ++dim) {
          const float* const keys = tile_.data() + dim * kKvTileTokens;
          for (int i = 0; i < kKvTileTokens; ++i) sums[i] += query[dim] * keys[i];
        }
        std::ranges::copy(sums, products.begin() + head * kKvTileTokens);
      }
      fn(first, products.data());
    }
  }

 private:
  // Loads a tile dimension by dimension, with zeros at positions that are not seen.
  void LoadTile(int64_t first) {
    const KvShape& shape = context_.state.shape(choice_.kv_layer);
    const std::byte* const tile = context_.state.Tile(choice_.kv_layer, 0, table_, first);
    for (int i = 0; i < kKvTileTokens; ++i) {
      const bool seen = first + i < n_seen();
      if (seen) ReadKv(shape, tile, i, key_.data(), nullptr);
      for (int64_t dim = 0; dim < choice_.dim; ++dim) {
        tile_[static_cast<size_t>(dim * kKvTileTokens + i)] =
            seen ? key_[static_cast<size_t>(dim)] : 0;
      }
    }
  }

  const StepContext& context_;
  const KeyChoice& choice_;
  const StepRow& row_;
  const std::span<const PageId> table_;
  std::vector<float> key_, tile_;
};

std::vector<int64_t> BestKeys(const StepContext& context, const KeyChoice& choice, int64_t row,
                              const float* queries, const float* weights) {
  RowScores of_row(context, choice, row);
  std::vector<float> scores(static_cast<size_t>(of_row.n_seen()));
  if (of_row.n_seen() > choice.count) {
    of_row.ForTiles(queries, [&](int64_t first, const float* products) {
      const int64_t n = std::min<int64_t>(kKvTileTokens, of_row.n_seen() - first);
      for (int head = 0; head < choice.n_heads; ++head) {
        for (int64_t i = 0; i < n; ++i) {
          scores[static_cast<size_t>(first + i)] +=
              std::max(products[head * kKvTileTokens + i], 0.0f) * weights[head];
        }
      }
    });
  }
  return BestNumbers(&scores, choice.count);
}

// Adds, for each head, the positions of its best blocks.
void BestBlocks(const StepContext& context, const KeyChoice& choice, int64_t row,
                const float* queries, std::vector<int64_t>* chosen) {
  RowScores of_row(context, choice, row);
  const int64_t n = of_row.n_seen(), n_blocks = (n - 1) / choice.block + 1;
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  std::vector<std::vector<float>> scores(static_cast<size_t>(choice.n_heads),
                                         std::vector<float>(static_cast<size_t>(n_blocks), kNone));
  if (n_blocks > choice.count) {
    of_row.ForTiles(queries, [&](int64_t first, const float* products) {
      for (int head = 0; head < choice.n_heads; ++head) {
        for (int64_t i = 0; i < kKvTileTokens && first + i < n; ++i) {
          float& best =
              scores[static_cast<size_t>(head)][static_cast<size_t>((first + i) / choice.block)];
          best = std::max(best, products[head * kKvTileTokens + i]);
        }
      }
    });
  }
  for (int head = 0; head < choice.n_heads; ++head) {
    std::vector<float>& of_head = scores[static_cast<size_t>(head)];
    for (int64_t i = std::max<int64_t>(0, n_blocks - choice.n_local); i < n_blocks; ++i) {
      of_head[static_cast<size_t>(i)] = std::numeric_limits<float>::infinity();
    }
    chosen[head].clear();
    for (const int64_t block : BestNumbers(&of_head, choice.count)) {
      const int64_t end = std::min(n, (block + 1) * choice.block);
      for (int64_t j = block * choice.block; j < end; ++j) chosen[head].push_back(j);
    }
  }
}

}  // namespace

void StoreIndexKeys(StepContext* context, const KeyChoice& choice, const BoundNorm& norm,
                    const RowsView& keys) {
  context->compute.ForEach(context->n_rows(), choice.dim * kNormRotate, [&](int64_t row, int) {
    float* const key = keys.row(row);
    context->compute.NormRow(norm, key, choice.dim, key);
    context->Rotate(choice.rope, row, key);
    const StepRow& of_step = context->rows[static_cast<size_t>(row)];
    const auto table = context->TableOf(choice.kv_layer, of_step.sequence);
    context->compute.vec().store_kv(
        context->state.shape(choice.kv_layer), key, key,
        static_cast<int>(of_step.position % kKvTileTokens),
        context->state.Tile(choice.kv_layer, 0, table, of_step.position));
  });
}

void ChooseKeys(StepContext* context, const KeyChoice& choice, const RowsView& queries,
                const RowsView& weights) {
  const bool by_key = choice.kind == KeyChoice::Kind::kKeys;
  const int64_t per_row = by_key ? 1 : choice.n_heads;
  context->chosen.resize(static_cast<size_t>(context->n_rows() * per_row));
  context->compute.RunTasks(context->n_rows(), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      float* const query = queries.row(row);
      for (int head = 0; head < choice.n_heads; ++head) {
        context->Rotate(choice.rope, row, query + head * choice.dim);
      }
      std::vector<int64_t>* const chosen = &context->chosen[static_cast<size_t>(row * per_row)];
      if (by_key) {
        *chosen = BestKeys(*context, choice, row, query, weights.row(row));
      } else {
        BestBlocks(*context, choice, row, query, chosen);
      }
    }
  });
}

void SizeGathered(StepContext* context, int64_t k_dim, int64_t v_dim, int64_t n_keys,
                  int64_t heads_per_kv_head) {
  const int64_t n_tiles = (n_keys - 1) / kKvTileTokens + 1;
  const auto bytes = static_cast<size_t>(n_tiles * KvTileBytes({DType::kF32, k_dim, v_dim}));
  SizeWorkspaces(context, n_tiles, heads_per_kv_head);
  for (Workspace& work : context->workspaces) {
    if (work.gathered.size() < bytes) work.gathered = AlignedBuffer(bytes);
    if (work.gathered.size() < bytes) throw std::bad_alloc();
    work.gathered_position.resize(static_cast<size_t>(k_dim + v_dim));
  }
}

void PutGathered(StepContext* context, const KvShape& shape, int64_t i, const float* key,
                 const float* value, Workspace* work) {
  std::byte* const tile =
      work->gathered.As<std::byte>().data() + i / kKvTileTokens * KvTileBytes(shape);
  work->tiles[static_cast<size_t>(i / kKvTileTokens)] = tile;
  context->compute.vec().store_kv(shape, key, value, static_cast<int>(i % kKvTileTokens), tile);
}

void AttendToGathered(StepContext* context, const ChosenScan& scan, const KvShape& shape,
                      int64_t row, HeadRange heads, int64_t n_keys, Workspace* work) {
  for (int64_t i = 0; i < heads.count; ++i) {
    const int64_t head = heads.first + i;
    AttentionQuery& query = work->queries[static_cast<size_t>(i)];
    query = {};
    query.values = scan.queries + row * scan.query_stride + head * shape.k_dim;
    query.output = scan.outputs + (row * scan.n_heads + head) * shape.v_dim;
    query.tiles = work->tiles.data();
    query.last = n_keys - 1;
    if (scan.sinks != nullptr) query.sink = scan.sinks[head];
  }
  AttentionJob job;
  job.shape = shape;
  job.scale = scan.scale;
  job.softcap = scan.softcap;
  job.queries = std::span(work->queries).first(static_cast<size_t>(heads.count));
  context->compute.vec().attend(job, work->scratch.As<float>().data());
}

namespace {

// Gathers the chosen positions of a kv head as floats, and attends to them there.
void AttendRow(StepContext* context, const ChosenScan& scan, int64_t row, int kv_head,
               std::span<const int64_t> chosen, Workspace* work) {
  const KvShape& stored = context->state.shape(scan.kv_layer);
  const KvShape shape = {DType::kF32, stored.k_dim, stored.v_dim};
  const auto table =
      context->TableOf(scan.kv_layer, context->rows[static_cast<size_t>(row)].sequence);
  float* const key = work->gathered_position.data();
  float* const value = key + shape.k_dim;
  const auto n = static_cast<int64_t>(chosen.size());
  for (int64_t i = 0; i < n; ++i) {
    const int64_t position = chosen[static_cast<size_t>(i)];
    ReadKv(stored, context->state.Tile(scan.kv_layer, kv_head, table, position),
           static_cast<int>(position % kKvTileTokens), key, value);
    PutGathered(context, shape, i, key, value, work);
  }
  const int64_t group = scan.n_heads / context->spec.kv_layers[scan.kv_layer].n_heads;
  AttendToGathered(context, scan, shape, row, {kv_head * group, group}, n, work);
}

}  // namespace

void AttendToChosen(StepContext* context, const ChosenScan& scan) {
  const int n_kv_heads = context->spec.kv_layers[scan.kv_layer].n_heads;
  const int64_t n_tasks = context->n_rows() * n_kv_heads;
  const auto per_row = static_cast<int64_t>(context->chosen.size()) / context->n_rows();
  const auto chosen_of = [&](int64_t task) -> std::span<const int64_t> {
    return context->chosen[static_cast<size_t>(task / n_kv_heads * per_row +
                                               std::min<int64_t>(task % n_kv_heads, per_row - 1))];
  };
  size_t most = 1;
  for (int64_t task = 0; task < n_tasks; ++task) most = std::max(most, chosen_of(task).size());
  const KvShape& stored = context->state.shape(scan.kv_layer);
  SizeGathered(context, stored.k_dim, stored.v_dim, static_cast<int64_t>(most),
               scan.n_heads / n_kv_heads);
  context->compute.TimeAttention([&] {
    context->compute.RunTasks(n_tasks, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t task = begin; task < end; ++task) {
        AttendRow(context, scan, task / n_kv_heads, static_cast<int>(task % n_kv_heads),
                  chosen_of(task), &context->workspaces[static_cast<size_t>(worker)]);
      }
    });
  });
}

}  // namespace weft::cpu
