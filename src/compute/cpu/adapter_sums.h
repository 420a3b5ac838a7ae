// Adds what adapters change to products of a step's rows. One per executor; its owner's thread
// only.
#ifndef WEFT_COMPUTE_CPU_ADAPTER_SUMS_H_
#define WEFT_COMPUTE_CPU_ADAPTER_SUMS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/tokens.h"
#include "compute/cpu/adapters.h"
#include "compute/cpu/scratch.h"
#include "compute/kernels/matmul/matmul.h"

namespace weft::cpu {

class Compute;
struct Product;

class AdapterSums {
 public:
  // The rows that products have until the next call: row i of a product is row `first + i` of the
  // step. No rows: products stay as they are.
  void Use(std::span<const AdaptedRows> rows, int64_t first = 0) {
    rows_ = rows;
    first_ = first;
  }
  bool is_idle() const { return rows_.empty(); }

  // For products that are computed. Those with a matrix that an adapter changes have all rows in
  // use, in the step's order.
  void Add(std::span<const Product> products, Compute* compute);
  // For rows of the embedding table; tokens[i] is that of row i, or negative where the row is no
  // token.
  Status AddToEmbeddings(std::span<const TokenId> tokens, const RowsView& rows, Compute* compute);

  int64_t scratch_bytes() const {
    return static_cast<int64_t>((inputs_.capacity() + lows_.capacity() + sums_.capacity()) *
                                sizeof(float));
  }

 private:
  // What an adapter changes of some rows of a product.
  struct Change {
    const Product* product;
    const CpuAdapter::Pair* pair;
    std::span<const int64_t> rows;
    std::span<const float> scales;
    float* low = nullptr;  // A x, once it is made
  };
  // Computes the changes, and forgets them.
  void AddChanges(Compute* compute);
  void MultiplyLow(Compute* compute);
  // Tiles [begin, end) of the changes of one product, whose rows' sums are made at `sum`.
  void AddTiles(std::span<const Change> changes, int64_t begin, int64_t end, float* sum,
                const Compute& compute) const;
  // The inputs of the change's rows, which are copied if they do not follow each other.
  ActivationRows InputOf(const Change& change, float* copy) const;

  std::span<const AdaptedRows> rows_;
  int64_t first_ = 0;
  // To be computed together: one change per product, adapter and run of rows.
  std::vector<Change> changes_;
  // Copied rows, results of A, and results of B; they grow.
  std::vector<float> inputs_, lows_, sums_;
};

}  // namespace weft::cpu

#endif  // WEFT_COMPUTE_CPU_ADAPTER_SUMS_H_
