// The work items of a step's attention: one list per group of layers (attention.h).
//
// An item covers one split and either a single row, up to kMaxItemRows neighbouring rows of one
// sequence, or as many rows of sequences with a common prefix. All items run in parallel. If the
// parts of all splits would not fit into memory, the first splits of each row become one item.
#ifndef WEFT_COMPUTE_GPU_ATTEND_LIST_H_
#define WEFT_COMPUTE_GPU_ATTEND_LIST_H_

#include <cstdint>
#include <span>
#include <vector>

#include "compute/backend.h"
#include "compute/kernels_gpu/attention.h"

namespace weft::gpu {

class AttendList {
 public:
  // Capacity for parts, however many rows a step has.
  AttendList(const ModelSpec& spec, int page_tokens, int64_t max_rows);
  int64_t max_parts() const { return max_parts_; }
  // Max items of one group of layers.
  int64_t max_items() const { return max_parts_ + max_rows_; }

  // Builds a group's items for a step. `tables`: where each sequence's page table begins in the
  // step's tables; `rows`: row numbers, beginning with those of the step; `parts`: one per row of
  // the step. A group number one above the last stands for encoder texts, whose rows see the whole
  // text.
  void Fill(const Step& step, int64_t group, std::span<const int32_t> tables,
            std::vector<int32_t>* rows, std::span<device::RowParts> parts);
  // List 0: items of single rows; list 1: items of several rows.
  const std::vector<device::AttendItem>& items(int list) const { return items_[list]; }
  void set_most_parts(int64_t n) { max_parts_ = n; }  // for tests

 private:
  // One row of the step: its sequence, and the first and last split that it sees.
  struct RowSight {
    int32_t sequence = 0, first = 0, last = 0;
  };
  // Rows [begin, end) of the step, all of one sequence, at most kMaxItemRows.
  void PutTile(int32_t begin, int32_t end);
  // The rows' splits [from, end): those before `cut` as one item, the others one item each.
  void PutSplits(int32_t rows, int32_t n_rows, int32_t from, int32_t cut, int32_t end);
  void SetParts(int32_t row, int32_t cut);
  // Rows that share their first `n_splits` splits.
  void PutTogether(const std::vector<int32_t>& together, int32_t n_splits);
  void FillTogether(const Step& step, int64_t group, const std::vector<int32_t>& sequences);
  int32_t CutOf(int32_t row) const;

  const ModelSpec& spec_;
  const int page_tokens_;
  const int64_t max_rows_;
  int64_t max_parts_ = 0;
  // For the group being filled.
  int64_t max_row_parts_ = 0, n_parts_ = 0;
  std::span<const int32_t> tables_;
  std::span<device::RowParts> parts_;
  std::vector<int32_t>* rows_ = nullptr;
  std::vector<RowSight> sights_;
  std::vector<device::AttendItem> items_[2];
};

}  // namespace weft::gpu

#endif  // WEFT_COMPUTE_GPU_ATTEND_LIST_H_
