// Adds what adapters change to products of a step's rows. One per executor; its owner's thread
// only, except for what any worker may call.
#ifndef WEFT_COMPUTE_CPU_ADAPTER_SUMS_H_
#define WEFT_COMPUTE_CPU_ADAPTER_SUMS_H_

#include <atomic>
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

// The changes are computed in the loop over the products' own tiles, since a loop of their own
// costs more in waking threads than a pair does in sums. First come the tiles of all pairs' A, then
// those of the products; whoever has computed a tile of a product adds B (A x) to it.
class AdapterSums {
 public:
  // The rows that products have until the next call: row i of a product is row `first + i` of the
  // step. No rows: products stay as they are.
  void Use(const CpuAdapters* adapters, std::span<const AdaptedRows> rows, int64_t first = 0) {
    adapters_ = adapters;
    rows_ = rows;
    first_ = first;
  }
  bool is_idle() const { return rows_.empty(); }

  // Finds what adapters change of `products`, which must outlive their computation. Those with a
  // matrix that an adapter changes have all rows in use, in the step's order.
  void Plan(std::span<const Product> products, Compute* compute);
  // How many tiles the pairs' A have.
  int64_t n_low_tiles() const { return n_low_tiles_; }
  // Computes tiles [begin, end) of the pairs' A. Any worker.
  void MultiplyLow(int64_t begin, int64_t end, int worker, const MatmulKernels& kernels);
  // Adds to tiles [begin, end) of product `i`, which are computed, and waits for A's tiles: workers
  // must have begun all of them before. Any worker.
  void AddTo(size_t i, int64_t begin, int64_t end, int worker, const Compute& compute);

  // For rows of the embedding table; tokens[i] is that of row i, or negative where the row is no
  // token.
  Status AddToEmbeddings(std::span<const TokenId> tokens, const RowsView& rows, Compute* compute);

  int64_t scratch_bytes() const;

 private:
  // What an adapter changes of some rows of a product.
  struct Change {
    const Product* product;
    const AdapterPair* pair;
    std::span<const int64_t> rows;
    std::span<const float> scales;
    int64_t low;  // where A x is in lows_
  };
  struct Scratch {
    std::vector<float> inputs, sums;
  };
  // Adds the changes of one product.
  void AddChangesOf(const Product& product);
  // The inputs of the change's rows, which are copied if they do not follow each other.
  ActivationRows InputOf(const Change& change, float* copy) const;
  void WaitForLow() const;

  const CpuAdapters* adapters_ = nullptr;  // of rows_
  std::span<const AdaptedRows> rows_;
  int64_t first_ = 0;
  std::vector<Change> changes_;  // by product, then in the order of the adapters
  std::vector<size_t> ends_;     // of each product's changes
  int64_t n_low_tiles_ = 0;
  std::atomic<int64_t> low_tiles_left_{0};
  std::vector<float> lows_;
  std::vector<Scratch> scratch_;  // by worker
};

}  // namespace weft::cpu

#endif  // WEFT_COMPUTE_CPU_ADAPTER_SUMS_H_
