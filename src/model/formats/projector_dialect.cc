#include "model/formats/projector_dialect.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/half.h"

namespace weft {
namespace {

// Bytes of a value; 0 for types whose values do not stand alone.
size_t ValueBytes(DType type) {
  if (type == DType::kF32) return 4;
  return type == DType::kF16 || type == DType::kBF16 ? 2 : 0;
}

TensorInfo* Find(std::vector<TensorInfo>* tensors, std::string_view name) {
  const auto found = std::ranges::find(*tensors, name, &TensorInfo::name);
  return found == tensors->end() ? nullptr : &*found;
}

// A kernel of (width, height, colors, outputs) as a matrix.
void Flatten(TensorInfo* kernel) {
  if (kernel->n_dims != 4 || ValueBytes(kernel->type) == 0) return;
  kernel->dims[0] *= kernel->dims[1] * kernel->dims[2];
  kernel->dims[1] = kernel->dims[3];
  kernel->dims[2] = kernel->dims[3] = 1;
  kernel->n_dims = 2;
}

std::vector<float> ValuesOf(const TensorInfo& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.values()));
  const auto number = [&](size_t i) {
    uint16_t half;
    std::memcpy(&half, tensor.data.data() + i * sizeof(half), sizeof(half));
    return half;
  };
  for (size_t i = 0; i < values.size(); ++i) {
    if (tensor.type == DType::kF32) {
      std::memcpy(&values[i], tensor.data.data() + i * sizeof(float), sizeof(float));
    } else {
      values[i] = tensor.type == DType::kF16 ? F16ToF32(number(i)) : BF16ToF32(number(i));
    }
  }
  return values;
}

// A still picture is a pair of equal frames: its product is the sum of both frames' kernels.
void AddFrames(std::vector<TensorInfo>* tensors, std::deque<std::vector<std::byte>>* bytes) {
  TensorInfo* const first = Find(tensors, "v.patch_embd.weight");
  TensorInfo* const second = Find(tensors, "v.patch_embd.weight.1");
  if (first == nullptr || second == nullptr || ValueBytes(first->type) == 0 ||
      ValueBytes(second->type) == 0 || !std::equal(first->dims, first->dims + 4, second->dims)) {
    return;
  }
  std::vector<float> sums = ValuesOf(*first);
  const std::vector<float> others = ValuesOf(*second);
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += others[i];
  const auto sum_bytes = std::as_bytes(std::span(sums));
  first->type = DType::kF32;
  first->data = bytes->emplace_back(sum_bytes.begin(), sum_bytes.end());
  tensors->erase(tensors->begin() + (second - tensors->data()));
}

void Transpose(TensorInfo* matrix, std::deque<std::vector<std::byte>>* bytes) {
  const size_t size = ValueBytes(matrix->type);
  if (matrix->n_dims != 2 || size == 0) return;
  const auto n_columns = static_cast<size_t>(matrix->dims[0]);
  const auto n_rows = static_cast<size_t>(matrix->dims[1]);
  std::vector<std::byte>& out = bytes->emplace_back(matrix->data.size());
  for (size_t row = 0; row < n_rows; ++row) {
    for (size_t column = 0; column < n_columns; ++column) {
      std::memcpy(out.data() + (column * n_rows + row) * size,
                  matrix->data.data() + (row * n_columns + column) * size, size);
    }
  }
  std::swap(matrix->dims[0], matrix->dims[1]);
  matrix->data = out;
}

}  // namespace

void TranslateProjector(std::string_view projector, std::vector<TensorInfo>* tensors,
                        std::deque<std::vector<std::byte>>* bytes) {
  AddFrames(tensors, bytes);
  if (TensorInfo* const kernel = Find(tensors, "v.patch_embd.weight")) Flatten(kernel);
  TensorInfo* const projection = Find(tensors, "mm.input_projection.weight");
  if (projector == "gemma3" && projection != nullptr) Transpose(projection, bytes);
}

}  // namespace weft
