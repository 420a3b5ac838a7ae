#include "compute/cpu/attention_scan.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace weft::cpu {

namespace {

// Consecutive rows of one sequence, and the page table of the layer's group.
struct RowBlock {
  int64_t begin, end;
  int64_t position;  // of the first row
  int64_t last;      // the last position that any row sees
  std::span<const PageId> table;
  int64_t n_rows() const { return end - begin; }
};

// Blocks [begin, end) that one job computes together for a kv head: their sequences begin with the
// same pages, which are read once for all of them.
struct BlockGroup {
  int64_t begin, end;
  int64_t n_rows;
  int64_t n_tiles;  // tiles that the blocks see, shared ones counted once per block
  int64_t n_read;   // positions read, shared ones counted once
  int64_t work;     // sum over rows of the positions they see
  int64_t first_span, n_spans;
  int64_t n_splits = 1;    // number of tasks that divide the spans
  float* parts = nullptr;  // with several splits: partial sums per row, query head and span
};

// Spans [span_begin, span_end) of the positions that a group's rows see, for query heads
// [head_begin, head_end) of a kv head.
struct AttentionTask {
  const BlockGroup* group;
  int kv_head;
  int64_t head_begin, head_end;
  int64_t span_begin, span_end;
  int64_t work;
};

// Query heads of one kv head are not split below this number.
constexpr int64_t kFewestHeads = 4;
// With this many tasks per thread, threads finish at about the same time.
constexpr int64_t kTasksPerThread = 4;
// Groups are made smaller, and so read shared pages more often, only until each thread has this
// many pairs of kv head and span.
constexpr int64_t kFewestPerThread = 2;
// Memory for partial sums: at most 64 MB.
constexpr int64_t kMaxPartFloats = 16 << 20;

std::vector<RowBlock> SplitRows(const StepContext& context, int kv_layer,
                                int64_t heads_per_kv_head) {
  const int64_t most = std::max<int64_t>(1, kQueriesPerTask / heads_per_kv_head);
  std::vector<RowBlock> blocks;
  for (int64_t begin = 0; begin < context.n_rows();) {
    const int sequence = context.rows[begin].sequence;
    int64_t end = begin + 1, last = context.rows[begin].last_seen;
    while (end < context.n_rows() && end - begin < most && context.rows[end].sequence == sequence) {
      last = std::max(last, context.rows[end++].last_seen);
    }
    blocks.push_back(
        {begin, end, context.rows[begin].position, last, context.TableOf(kv_layer, sequence)});
    begin = end;
  }
  return blocks;
}

// The positions that a row sees: the last `length` up to its own (0: all), but only those within
// the same chunk of `chunk` positions (0: no chunks).
struct Window {
  int64_t length;
  int64_t chunk;
  int64_t First(int64_t position) const {
    const int64_t first = length > 0 ? std::max<int64_t>(0, position - length + 1) : 0;
    return chunk > 0 ? std::max(first, position - position % chunk) : first;
  }
};

// Number of leading positions that both blocks see through the same pages, in whole blocks of the
// attention kernels.
int64_t SharedPositions(const RowBlock& a, const RowBlock& b, int64_t page_tokens) {
  const auto differ = std::ranges::mismatch(a.table, b.table).in1;
  const int64_t shared = (differ - a.table.begin()) * page_tokens;
  return std::min({shared, a.last + 1, b.last + 1}) / kAttentionBlock * kAttentionBlock;
}

// Sorts blocks so that those with shared pages are adjacent, and groups them. Forms at least
// `fewest` groups, if there are enough blocks.
std::vector<BlockGroup> GroupBlocks(int64_t page_tokens, Window window, int64_t max_rows,
                                    int64_t fewest, std::vector<RowBlock>* blocks) {
  if (window.length == 0) {
    std::ranges::stable_sort(*blocks, [](const RowBlock& a, const RowBlock& b) {
      return std::ranges::lexicographical_compare(a.table, b.table);
    });
  }
  const auto n_blocks = static_cast<int64_t>(blocks->size());
  const int64_t max_blocks = std::max<int64_t>(1, n_blocks / fewest);
  std::vector<BlockGroup> groups;
  for (int64_t i = 0; i < n_blocks; ++i) {
    const RowBlock& block = (*blocks)[i];
    const int64_t first_seen = window.First(block.position);
    const int64_t n_seen = block.last + 1 - first_seen;
    const int64_t n_tiles = block.last / kKvTileTokens + 1;
    const int64_t work = n_seen * block.n_rows();
    const int64_t end_span = block.last / kAttentionSpan + 1;
    if (window.length == 0 && i > 0) {
      BlockGroup& group = groups.back();
      const int64_t shared = SharedPositions((*blocks)[i - 1], block, page_tokens);
      if (shared > 0 && group.n_rows + block.n_rows() <= max_rows &&
          group.end - group.begin < max_blocks) {
        ++group.end;
        group.n_rows += block.n_rows();
        group.n_tiles += n_tiles;
        group.n_read += n_seen - shared;
        group.work += work;
        group.n_spans = std::max(group.n_spans, end_span);
        continue;
      }
    }
    const int64_t first_span = first_seen / kAttentionSpan;
    groups.push_back(
        {i, i + 1, block.n_rows(), n_tiles, n_seen, work, first_span, end_span - first_span});
  }
  return groups;
}

// One layer's attention for all rows of a step.
class LayerAttention {
 public:
  LayerAttention(StepContext* context, const Scan& scan);
  void Run();

 private:
  std::span<const RowBlock> BlocksOf(const BlockGroup& group) const {
    return std::span(blocks_).subspan(group.begin, group.end - group.begin);
  }
  // The size of a group's partial sums in floats, and the address of one.
  int64_t PartFloats(const BlockGroup& group) const {
    return group.n_rows * scan_.n_heads * group.n_spans * part_floats_;
  }
  float* PartOf(const BlockGroup& group, int64_t row, int64_t head, int64_t span) const {
    const int64_t i = (row * scan_.n_heads + head) * group.n_spans + span - group.first_span;
    return group.parts + i * part_floats_;
  }
  float SinkOf(int64_t head) const { return scan_.sinks ? scan_.sinks[head] : -INFINITY; }
  float* OutputOf(int64_t row, int64_t head) const {
    return scan_.outputs + (row * scan_.n_heads + head) * shape_.v_dim;
  }

  void CountWork();
  void SplitSpans(int64_t n_tasks_wanted);
  std::vector<AttentionTask> MakeTasks(int64_t n_tasks_wanted) const;
  void RunTask(const AttentionTask& task, Workspace* work) const;
  // Attends to the positions in [begin, end) that the task's rows see.
  void RunJob(const AttentionTask& task, int64_t begin, int64_t end, Workspace* work) const;
  void JoinSpans(const BlockGroup& group) const;

  StepContext& context_;
  const Scan& scan_;
  const KvShape& shape_;
  const Window window_;
  const int64_t n_kv_heads_, heads_per_kv_head_;
  const int64_t part_floats_;
  std::vector<RowBlock> blocks_;
  std::vector<BlockGroup> groups_;
};

LayerAttention::LayerAttention(StepContext* context, const Scan& scan)
    : context_(*context),
      scan_(scan),
      shape_(context->state.shape(scan.kv_layer)),
      window_{context->spec.kv_groups[context->state.group(scan.kv_layer)].window, scan.chunk},
      n_kv_heads_(context->spec.kv_layers[scan.kv_layer].n_heads),
      heads_per_kv_head_(scan.n_heads / n_kv_heads_),
      part_floats_(AttentionPartFloats(shape_.v_dim)),
      blocks_(SplitRows(*context, scan.kv_layer, heads_per_kv_head_)) {}

void LayerAttention::Run() {
  const int64_t n_threads = context_.compute.n_threads();
  const int64_t n_tasks_wanted = n_threads > 1 ? n_threads * kTasksPerThread : 1;
  int64_t max_spans = 1;
  for (const RowBlock& block : blocks_) {
    max_spans = std::max(max_spans, block.last / kAttentionSpan + 1);
  }
  const int64_t max_rows = std::max<int64_t>(1, kQueriesPerTask / heads_per_kv_head_);
  groups_ =
      GroupBlocks(context_.state.page_tokens(), window_, max_rows,
                  (n_threads * kFewestPerThread - 1) / (n_kv_heads_ * max_spans) + 1, &blocks_);
  int64_t max_tiles = 0;
  for (const BlockGroup& group : groups_) max_tiles = std::max(max_tiles, group.n_tiles);
  SizeWorkspaces(&context_, max_tiles, heads_per_kv_head_);
  CountWork();
  SplitSpans(n_tasks_wanted);
  const std::vector<AttentionTask> tasks = MakeTasks(n_tasks_wanted);
  context_.compute.TimeAttention([&] {
    context_.compute.RunTasks(std::ssize(tasks), [&](int64_t begin, int64_t end, int worker) {
      for (int64_t i = begin; i < end; ++i) RunTask(tasks[i], &context_.workspaces[worker]);
    });
    for (const BlockGroup& group : groups_) {
      if (group.n_splits > 1) JoinSpans(group);
    }
  });
}

void LayerAttention::CountWork() {
  StageStats& stats = context_.compute.stats();
  for (const BlockGroup& group : groups_) {
    stats.kv_bytes += group.n_read * n_kv_heads_ * KvTileBytes(shape_) / kKvTileTokens;
  }
  int64_t n_seen = 0;
  for (const StepRow& row : context_.rows)
    n_seen += row.last_seen + 1 - window_.First(row.position);
  if (HoldsLevels(shape_.type)) {  // levels of values have weights of two bytes, so they cost twice
    stats.attention_int8_macs += n_seen * scan_.n_heads * (shape_.k_dim + 2 * shape_.v_dim);
  } else {
    stats.attention_macs += n_seen * scan_.n_heads * (shape_.k_dim + shape_.v_dim);
  }
}

// Gives each group tasks per kv head in proportion to its work, and memory for partial sums to
// groups with several tasks.
void LayerAttention::SplitSpans(int64_t n_tasks_wanted) {
  int64_t total = 0, used = 0;
  for (const BlockGroup& group : groups_) total += group.work;
  for (BlockGroup& group : groups_) {
    const int64_t wanted = (n_tasks_wanted * group.work - 1) / (total * n_kv_heads_) + 1;
    if (used + PartFloats(group) > kMaxPartFloats) continue;
    group.n_splits = std::min(wanted, group.n_spans);
    if (group.n_splits > 1) used += PartFloats(group);
  }
  AlignedBuffer& memory = context_.attention_parts;
  const size_t bytes = sizeof(float) * static_cast<size_t>(used);
  if (memory.size() < bytes) memory = AlignedBuffer(bytes);
  float* parts = memory.As<float>().data();
  for (BlockGroup& group : groups_) {
    if (parts == nullptr) group.n_splits = 1;
    if (group.n_splits > 1) group.parts = std::exchange(parts, parts + PartFloats(group));
  }
}

std::vector<AttentionTask> LayerAttention::MakeTasks(int64_t n_tasks_wanted) const {
  int64_t n_tasks = 0;
  for (const BlockGroup& group : groups_) n_tasks += n_kv_heads_ * group.n_splits;
  // If there are still too few tasks, the query heads of a kv head are split, too.
  int64_t n_head_splits = 1;
  while (n_tasks * n_head_splits < n_tasks_wanted &&
         heads_per_kv_head_ >= 2 * kFewestHeads * n_head_splits) {
    n_head_splits *= 2;
  }
  std::vector<AttentionTask> tasks;
  for (const BlockGroup& group : groups_) {
    const auto span_at = [&](int64_t split) {
      return group.first_span + group.n_spans * split / group.n_splits;
    };
    for (int64_t kv_head = 0; kv_head < n_kv_heads_; ++kv_head) {
      const auto head_at = [&](int64_t split) {
        return kv_head * heads_per_kv_head_ + heads_per_kv_head_ * split / n_head_splits;
      };
      for (int64_t heads = 0; heads < n_head_splits; ++heads) {
        for (int64_t spans = 0; spans < group.n_splits; ++spans) {
          const int64_t begin = span_at(spans), end = span_at(spans + 1);
          tasks.push_back({&group, static_cast<int>(kv_head), head_at(heads), head_at(heads + 1),
                           begin, end, group.work * (end - begin) / group.n_spans});
        }
      }
    }
  }
  // Longest tasks first, so that the threads finish together.
  std::ranges::stable_sort(tasks, std::greater(), &AttentionTask::work);
  return tasks;
}

void LayerAttention::RunTask(const AttentionTask& task, Workspace* work) const {
  if (task.group->n_splits == 1) {
    RunJob(task, 0, std::numeric_limits<int64_t>::max(), work);
    return;
  }
  for (int64_t span = task.span_begin; span < task.span_end; ++span) {
    RunJob(task, span * kAttentionSpan, (span + 1) * kAttentionSpan, work);
  }
}

void LayerAttention::RunJob(const AttentionTask& task, int64_t begin, int64_t end,
                            Workspace* work) const {
  const BlockGroup& group = *task.group;
  const std::span<const RowBlock> blocks = BlocksOf(group);
  AttentionJob job;
  job.shape = shape_;
  job.scale = scan_.scale;
  job.softcap = scan_.softcap;
  job.in_parts = group.n_splits > 1;
  // Blocks that share a job have no window, so they see everything from the first position on.
  const int64_t first_seen = window_.First(context_.rows[blocks[0].begin].position);
  job.first_tile = std::max(begin, first_seen) / kKvTileTokens;
  size_t n_queries = 0;
  const std::byte** tiles = work->tiles.data();
  int64_t row_of_group = -1;
  for (const RowBlock& block : blocks) {
    const int64_t last = std::min(block.last, end - 1);
    const int64_t n_tiles = std::max<int64_t>(0, last / kKvTileTokens + 1 - job.first_tile);
    for (int64_t tile = 0; tile < n_tiles; ++tile) {
      tiles[tile] = context_.state.Tile(scan_.kv_layer, task.kv_head, block.table,
                                        (job.first_tile + tile) * kKvTileTokens);
    }
    for (int64_t row = block.begin; row < block.end; ++row) {
      ++row_of_group;
      const int64_t position = context_.rows[row].position;
      const int64_t first = window_.First(position);
      const int64_t last_seen = context_.rows[row].last_seen;
      if (last_seen < begin || first >= end) continue;
      for (int64_t head = task.head_begin; head < task.head_end; ++head) {
        AttentionQuery& query = work->queries[n_queries++];
        query.values = scan_.queries + row * scan_.query_stride + head * scan_.query_head_stride;
        query.output = job.in_parts ? PartOf(group, row_of_group, head, begin / kAttentionSpan)
                                    : OutputOf(row, head);
        query.tiles = tiles;
        query.first = std::max(first, begin);
        query.last = std::min(last_seen, end - 1);
        query.slope = 0;
        query.sink = SinkOf(head);
      }
    }
    tiles += n_tiles;
  }
  if (n_queries == 0) return;
  job.queries = std::span(work->queries).first(n_queries);
  context_.compute.vec().attend(job, work->scratch.As<float>().data());
}

void LayerAttention::JoinSpans(const BlockGroup& group) const {
  std::vector<int64_t> rows;
  for (const RowBlock& block : BlocksOf(group)) {
    for (int64_t row = block.begin; row < block.end; ++row) rows.push_back(row);
  }
  const int64_t cost_each = kStep * group.n_spans * part_floats_;
  context_.compute.ForEach(group.n_rows * scan_.n_heads, cost_each, [&](int64_t i, int) {
    const int64_t row_of_group = i / scan_.n_heads, head = i % scan_.n_heads;
    const int64_t row = rows[row_of_group];
    const int64_t first = window_.First(context_.rows[row].position) / kAttentionSpan;
    context_.compute.vec().join_attention(PartOf(group, row_of_group, head, first),
                                          context_.rows[row].last_seen / kAttentionSpan + 1 - first,
                                          shape_.v_dim, SinkOf(head), OutputOf(row, head));
  });
}

}  // namespace

void AttendRows(StepContext* context, const Scan& scan) { LayerAttention(context, scan).Run(); }

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

int64_t MaxAttentionScratch(const ModelSpec& spec, const CpuState& state) {
  struct Most : OperationVisitor {
    explicit Most(const CpuState& state) : state(state) {}
    void Kv(const KvUse& use) {
      const int64_t n_queries = std::max<int64_t>(kQueriesPerTask, use.n_heads / use.n_kv_heads);
      KvShape shape = state.shape(use.layer);
      floats = std::max(floats, AttentionScratchFloats(shape, n_queries));
      shape.type = DType::kF32;  // chosen keys are gathered as floats
      if (gathers) floats = std::max(floats, AttentionScratchFloats(shape, n_queries));
    }
    bool gathers = false;
    const CpuState& state;
    int64_t floats = 0;
  };
  Most most(state);
  most.gathers = ChoosesKeys(spec);
  VisitOperations(spec, most);
  ForEachPath(spec, [&](const Path& path) {
    const auto count = [&](int64_t heads_per_kv_head, int64_t k_dim, int64_t v_dim) {
      const int64_t n_queries = std::max(kQueriesPerTask, heads_per_kv_head);
      most.floats =
          std::max(most.floats, AttentionScratchFloats({DType::kF32, k_dim, v_dim}, n_queries));
    };
    if (const auto* op = std::get_if<BidirectionalAttention>(&path.op)) {
      count(op->n_heads / op->n_kv_heads, op->k_dim, op->v_dim);
    }
    // Its keys are gathered as floats.
    if (const auto* op = std::get_if<CompressedAttention>(&path.op)) {
      count(op->n_heads, op->dim, op->dim);
    }
  });
  return most.floats;
}

}  // namespace weft::cpu
