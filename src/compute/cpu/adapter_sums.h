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
    return static_cast<int64_t>((inputs_.capacity() + sums_.capacity()) * sizeof(float));
  }

 private:
  // One product, and the pair that changes it.
  struct Change {
    const Product* product;
    const CpuAdapter::Pair* pair;
  };
  // Rows whose changes are computed together.
  struct Part {
    std::span<const int64_t> rows;
    std::span<const float> scales;
  };
  void AddPart(const Part& part, std::span<const Change> changes, Compute* compute);
  // The inputs of the part's rows, which are copied if they do not follow each other.
  ActivationRows InputOf(const Part& part, const Product& product, float* copy) const;

  std::span<const AdaptedRows> rows_;
  int64_t first_ = 0;
  // Copied rows, and results of pairs; they grow.
  std::vector<float> inputs_, sums_;
};

}  // namespace weft::cpu

#endif  // WEFT_COMPUTE_CPU_ADAPTER_SUMS_H_
