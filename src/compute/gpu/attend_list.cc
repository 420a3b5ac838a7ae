#include "compute/gpu/attend_list.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <variant>

namespace weft::gpu {

namespace {

using device::AttendItem;
using device::kMaxItemRows;
using device::kSplitTokens;

constexpr int64_t kPartsMemory = int64_t{64} << 20;
constexpr int64_t kMaxParts = 16384;

int32_t Narrow(int64_t n) { return static_cast<int32_t>(n); }

// Bytes of one part of the model's largest attention.
int64_t AttendPartBytes(const ModelSpec& spec) {
  int64_t bytes = 0;
  const auto add = [&](int64_t n_heads, int64_t v_dim) {
    bytes = std::max(bytes, n_heads * device::PartFloats(static_cast<int>(v_dim)) * 4);
  };
  ForEachPath(spec, [&](const Path& path) {
    if (const auto* op = std::get_if<Attention>(&path.op)) add(op->n_heads, op->v_dim);
    if (const auto* op = std::get_if<LatentAttention>(&path.op)) add(op->n_heads, op->latent_dim);
    if (const auto* op = std::get_if<UnfoldedLatentAttention>(&path.op)) {
      add(op->n_heads, op->v_dim);
    }
    if (const auto* op = std::get_if<BidirectionalAttention>(&path.op)) add(op->n_heads, op->v_dim);
  });
  return bytes;
}

}  // namespace

AttendList::AttendList(const ModelSpec& spec, int page_tokens, int64_t max_rows)
    : spec_(spec), page_tokens_(page_tokens), max_rows_(max_rows) {
  const int64_t bytes = std::max<int64_t>(AttendPartBytes(spec), 1);
  max_parts_ = std::max(max_rows, std::min(kPartsMemory / bytes, kMaxParts));
}

void AttendList::Fill(const Step& step, int64_t group, std::span<const int32_t> tables,
                      std::vector<int32_t>* rows, std::span<device::RowParts> parts) {
  tables_ = tables;
  parts_ = parts;
  rows_ = rows;
  n_parts_ = 0;
  for (auto& items : items_) items.clear();
  sights_.clear();
  const bool text = group == std::ssize(spec_.kv_groups);
  const int64_t window = text ? 0 : spec_.kv_groups[static_cast<size_t>(group)].window;
  int64_t wanted = 0;  // number of parts if every split of every row has its own
  for (size_t s = 0; s < step.sequences.size(); ++s) {
    const StepSequence& sequence = step.sequences[s];
    const int64_t n = std::ssize(sequence.tokens);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t position = sequence.position + i;
      const int64_t last = text ? n - 1 : position;
      const int64_t first = window > 0 ? std::max<int64_t>(0, position - window + 1) : 0;
      const RowSight sight = {Narrow(static_cast<int64_t>(s)), Narrow(first / kSplitTokens),
                              Narrow(last / kSplitTokens)};
      wanted += sight.last - sight.first + 1;
      sights_.push_back(sight);
    }
  }
  max_row_parts_ = wanted <= max_parts_ ? std::numeric_limits<int32_t>::max()
                                        : max_parts_ / std::max<int64_t>(1, std::ssize(sights_));
  // Rows with a window rarely see a shared prefix, and long runs of rows already share their pages
  // among themselves; only short runs are grouped across sequences.
  std::vector<int32_t> few;  // sequences
  int32_t row = 0;
  for (size_t s = 0; s < step.sequences.size(); ++s) {
    const int32_t end = row + Narrow(std::ssize(step.sequences[s].tokens));
    if (!text && window == 0 && end - row <= kMaxItemRows / 2) {
      few.push_back(Narrow(static_cast<int64_t>(s)));
    } else {
      for (int32_t at = row; at < end; at += kMaxItemRows) {
        PutTile(at, std::min(at + kMaxItemRows, end));
      }
    }
    row = end;
  }
  FillTogether(step, group, few);
  if (wanted <= max_parts_) return;
  // Longest first, so that short items fill the gaps at the end of the launch.
  for (auto& items : items_) {
    std::ranges::stable_sort(items, [](const AttendItem& a, const AttendItem& b) {
      return a.end - a.first > b.end - b.first;
    });
  }
}

int32_t AttendList::CutOf(int32_t row) const {
  const RowSight& sight = sights_[static_cast<size_t>(row)];
  return Narrow(std::max<int64_t>(sight.first + 1, sight.last + 2 - max_row_parts_));
}

void AttendList::SetParts(int32_t row, int32_t cut) {
  parts_[static_cast<size_t>(row)] = {Narrow(n_parts_), cut};
  n_parts_ += std::max(1, sights_[static_cast<size_t>(row)].last - cut + 2);
}

void AttendList::PutSplits(int32_t rows, int32_t n_rows, int32_t from, int32_t cut, int32_t end) {
  const RowSight& sight = sights_[static_cast<size_t>((*rows_)[static_cast<size_t>(rows)])];
  const int32_t table = tables_[static_cast<size_t>(sight.sequence)];
  std::vector<AttendItem>& items = items_[n_rows > 1 ? 1 : 0];
  if (from < std::min(cut, end)) items.push_back({rows, n_rows, from, std::min(cut, end), table});
  for (int32_t split = std::max(from, cut); split < end; ++split) {
    items.push_back({rows, n_rows, split, split + 1, table});
  }
}

void AttendList::PutTile(int32_t begin, int32_t end) {
  const int32_t cut = CutOf(end - 1);
  for (int32_t row = begin; row < end; ++row) SetParts(row, cut);
  PutSplits(begin, end - begin, sights_[static_cast<size_t>(begin)].first, cut,
            sights_[static_cast<size_t>(end - 1)].last + 1);
}

// Sorting by page table makes sequences with a common prefix neighbours. A row joins the previous
// row's group if that saves splits overall, even if the group's shared prefix gets shorter.
void AttendList::FillTogether(const Step& step, int64_t group,
                              const std::vector<int32_t>& sequences) {
  const auto table = [&](int32_t s) {
    return step.sequences[static_cast<size_t>(s)].page_tables[static_cast<size_t>(group)];
  };
  std::vector<int32_t> order = sequences;
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
    return std::ranges::lexicographical_compare(table(a), table(b));
  });
  std::vector<int32_t> first_rows(step.sequences.size() + 1, 0);
  for (size_t s = 0; s < step.sequences.size(); ++s) {
    first_rows[s + 1] = first_rows[s] + Narrow(std::ssize(step.sequences[s].tokens));
  }
  std::vector<int32_t> together;
  int64_t n_shared = 0;  // shared splits of the group; for a single row, the splits it sees in full
  for (size_t i = 0; i < order.size(); ++i) {
    const auto s = static_cast<size_t>(order[i]);
    int64_t shared = 0;  // positions shared with the previous row
    if (i > 0) {
      const auto before = table(order[i - 1]);
      const auto differ = std::ranges::mismatch(before, table(order[i])).in1;
      shared = (differ - before.begin()) * page_tokens_;
    }
    for (int32_t row = first_rows[s]; row < first_rows[s + 1]; ++row) {
      const int64_t n_seen = step.sequences[s].position + row - first_rows[s] + 1;
      const int64_t n = std::min({n_shared, shared / kSplitTokens, n_seen / kSplitTokens});
      const int64_t n_rows = std::ssize(together);
      // Neighbouring rows of one sequence always stay together: they see the same pages.
      const bool same = row > first_rows[s] && n_rows < kMaxItemRows;
      if (!same && (n_rows == kMaxItemRows || n * n_rows <= n_shared * (n_rows - 1))) {
        PutTogether(together, Narrow(n_shared));
        together.clear();
      }
      n_shared = together.empty() ? n_seen / kSplitTokens : n;
      together.push_back(row);
      shared = n_seen;  // the next row belongs to the same sequence
    }
  }
  PutTogether(together, Narrow(n_shared));
}

void AttendList::PutTogether(const std::vector<int32_t>& together, int32_t n_splits) {
  if (together.empty()) return;
  int32_t cut = 1;
  for (const int32_t row : together) cut = std::max(cut, CutOf(row));
  const bool shares = n_splits >= cut;
  if (shares) {
    const auto begin = Narrow(std::ssize(*rows_));
    rows_->insert(rows_->end(), together.begin(), together.end());
    PutSplits(begin, Narrow(std::ssize(together)), 0, cut, n_splits);
  }
  // The remaining splits (all of them if nothing is shared) go sequence by sequence.
  for (size_t i = 0; i < together.size();) {
    const int32_t sequence = sights_[static_cast<size_t>(together[i])].sequence;
    size_t end = i + 1;
    while (end < together.size() &&
           sights_[static_cast<size_t>(together[end])].sequence == sequence) {
      ++end;
    }
    if (!shares) {
      PutTile(together[i], together[end - 1] + 1);
    } else {
      for (size_t j = i; j < end; ++j) SetParts(together[j], cut);
      PutSplits(together[i], Narrow(static_cast<int64_t>(end - i)), n_splits, cut,
                sights_[static_cast<size_t>(together[end - 1])].last + 1);
    }
    i = end;
  }
}

}  // namespace weft::gpu
