// Batches of rows of floats, and weights decoded row by row where they are used.
#ifndef WEFT_COMPUTE_REFERENCE_TENSORS_H_
#define WEFT_COMPUTE_REFERENCE_TENSORS_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/adapter_use.h"
#include "compute/kernels/quants/quants.h"
#include "compute/spec_tensors.h"
#include "model/adapter_spec.h"
#include "model/formats/model_file.h"
#include "model/model_spec.h"

namespace weft::reference {

// `count` rows of `width` floats, zero at first.
class Rows {
 public:
  Rows(int64_t count, int64_t width) : count_(count), width_(width), values_(count * width) {}

  int64_t count() const { return count_; }
  int64_t width() const { return width_; }
  std::span<float> row(int64_t i) { return {values_.data() + i * width_, size_t(width_)}; }
  std::span<const float> row(int64_t i) const {
    return {values_.data() + i * width_, size_t(width_)};
  }
  std::span<float> values() { return values_; }
  std::span<const float> values() const { return values_; }

 private:
  int64_t count_, width_;
  std::vector<float> values_;
};

// Which adapters each row of a step is computed with; empty: none. Views.
struct RowAdapters {
  std::span<const Adapter> adapters = {};
  std::vector<std::span<const AdapterUse>> rows = {};
};

// The tensors of a file as floats, as a step's rows see them. A view: the file outlives it.
class Tensors {
 public:
  explicit Tensors(const ModelFile& file, RowAdapters adapters = {})
      : file_(file), adapters_(std::move(adapters)) {}

  const RowAdapters& adapters() const { return adapters_; }
  // The same with the adapters of other rows.
  Tensors ForRows(std::vector<std::span<const AdapterUse>> rows) const {
    return Tensors(file_, {adapters_.adapters, std::move(rows)});
  }

  const TensorInfo& info(TensorRef ref) const { return file_.tensors()[ref.index]; }

  // One row of a matrix (of all matrices of a stack, counted through).
  std::vector<float> Row(TensorRef ref, int64_t row) const {
    const TensorInfo& tensor = info(ref);
    std::vector<float> out(tensor.dims[0]);
    DecodeRow(tensor, row, out.data());
    return out;
  }

  // All values of a one-dimensional tensor; empty when the reference is.
  std::vector<float> Vector(TensorRef ref) const {
    return ref ? Row(ref, 0) : std::vector<float>();
  }

  // All values of a tensor of any shape; empty when the reference is.
  std::vector<float> Values(TensorRef ref) const {
    std::vector<float> values;
    for (int64_t row = 0; ref && row < info(ref).rows(); ++row) {
      const std::vector<float> part = Row(ref, row);
      values.insert(values.end(), part.begin(), part.end());
    }
    return values;
  }

 private:
  const ModelFile& file_;
  const RowAdapters adapters_;
};

}  // namespace weft::reference

#endif  // WEFT_COMPUTE_REFERENCE_TENSORS_H_
