// What a step's attention is made of: a list of items for each group of layers (attention.h).
//
// A row alone, up to kMostItemRows neighbours of one sequence, or as many rows of sequences that
// begin with the same pages become items, one per split; these all run beside each other. Where the
// parts of that many splits would not fit, the first splits of all rows become one item each.
#ifndef WEFT_BACKEND_GPU_ATTEND_LIST_H_
#define WEFT_BACKEND_GPU_ATTEND_LIST_H_

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "kernels_gpu/attention.h"

namespace weft::gpu {

class AttendList {
 public:
  // Parts that there is room for, however many rows a step has.
  AttendList(const ModelSpec& spec, int page_tokens, int64_t max_rows);
  int64_t most_parts() const { return most_parts_; }
  // Of one group of layers.
  int64_t most_items() const { return most_parts_ + max_rows_; }

  // A group's items for a step. `tables`: where in the step's page tables each sequence's begins;
  // `rows`: numbers of rows, the step's first; `parts`: per row of the step. A number one above the
  // last group is that of texts, whose rows see all of them.
  void Fill(const Step& step, int64_t group, std::span<const int32_t> tables,
            std::vector<int32_t>* rows, std::span<device::RowParts> parts);
  // Those of single rows, and those of several.
  const std::vector<device::AttendItem>& items(int list) const { return items_[list]; }
  void set_most_parts(int64_t n) { most_parts_ = n; }  // for tests

 private:
  // A row of the step: its sequence, the first and the last split that it sees.
  struct RowSight {
    int32_t sequence = 0, first = 0, last = 0;
  };
  // Rows [begin, end) of the step, of one sequence, at most kMostItemRows.
  void PutTile(int32_t begin, int32_t end);
  // The rows' splits from `from` to before `end`: the first of them, to before `cut`, together.
  void PutSplits(int32_t rows, int32_t n_rows, int32_t from, int32_t cut, int32_t end);
  void SetParts(int32_t row, int32_t cut);
  // Rows that see the same pages first, for so many splits.
  void PutTogether(const std::vector<int32_t>& together, int32_t n_splits);
  void FillTogether(const Step& step, int64_t group, const std::vector<int32_t>& sequences);
  int32_t CutOf(int32_t row) const;

  const ModelSpec& spec_;
  const int page_tokens_;
  const int64_t max_rows_;
  int64_t most_parts_ = 0;
  // Of the group at hand.
  int64_t most_row_parts_ = 0, n_parts_ = 0;
  std::span<const int32_t> tables_;
  std::span<device::RowParts> parts_;
  std::vector<int32_t>* rows_ = nullptr;
  std::vector<RowSight> sights_;
  std::vector<device::AttendItem> items_[2];
};

}  // namespace weft::gpu

#endif  // WEFT_BACKEND_GPU_ATTEND_LIST_H_
