// Measures what goes into each matrix of a model while the cpu backend computes: the squares of
// the inputs, summed over all rows, for an importance matrix.
//
//   InputSums sums;
//   const auto backend = NewMeasuringCpuBackend(&sums);  // ModelOptions::backend_object
//   ... load a model with it, start an engine ...
//   sums.Start();
//   ... run turns, destroy the engine ...
//   matrix.entries = sums.Take();
//
// Outlives the executors that measure for it, which belong to one thread: that of one engine.
// Start may be called from any thread; Take, once the executors are gone.
#ifndef WEFT_COMPUTE_CPU_INPUT_SUMS_H_
#define WEFT_COMPUTE_CPU_INPUT_SUMS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compute/cpu/compute.h"
#include "compute/cpu/cpu_weights.h"
#include "model/formats/importance_matrix.h"

namespace weft::cpu {

class InputSums {
 public:
  using Entries = decltype(ImportanceMatrix::entries);

  // From here on, rows count. Before, they are those of warm-up steps.
  void Start() { is_on_ = true; }
  // By the names of tensors.
  Entries Take() { return std::move(entries_); }

  // For executors: learns where the matrices of `weights` are, and adds the inputs of products with
  // them. REQUIRES: `weights` outlive the executor.
  void Watch(const CpuWeights& weights);
  void Add(std::span<const Product> products);

 private:
  // Packed rows of a tensor. A stack has several matrices, one after the other.
  struct Place {
    ImportanceMatrix::Entry* entry;
    int64_t n_in;
    int64_t n_matrices;
  };

  void AddProduct(const Product& product);

  std::atomic<bool> is_on_ = false;
  Entries entries_;
  std::map<const std::byte*, Place> places_;  // by the address of their tiles
};

}  // namespace weft::cpu

#endif  // WEFT_COMPUTE_CPU_INPUT_SUMS_H_
