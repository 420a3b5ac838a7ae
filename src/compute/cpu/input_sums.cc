#include "compute/cpu/input_sums.h"

#include "model/formats/model_file.h"

namespace weft::cpu {

void InputSums::Watch(const CpuWeights& weights) {
  entries_.clear();
  places_.clear();
  // Several matrices may be cut from one tensor, as queries, keys and values are: they have the
  // same inputs, and the first of them stands for all.
  std::map<const TensorInfo*, int64_t> first_rows;
  for (const CpuWeights::PackedRows& rows : weights.packed()) {
    const auto [it, is_new] = first_rows.try_emplace(rows.tensor, rows.first_row);
    it->second = std::min(it->second, rows.first_row);
  }
  for (const CpuWeights::PackedRows& rows : weights.packed()) {
    Place place = {nullptr, rows.tensor->dims[0], rows.tensor->dims[2] * rows.tensor->dims[3]};
    if (rows.first_row == first_rows.at(rows.tensor)) {
      place.entry = &entries_[std::string(rows.tensor->name)];
      place.entry->sums.assign(static_cast<size_t>(place.n_in * place.n_matrices), 0.0);
      place.entry->counts.assign(static_cast<size_t>(place.n_matrices), 0.0);
    }
    places_.insert_or_assign(rows.tiles, place);
  }
}

void InputSums::Add(std::span<const Product> products) {
  if (!is_on_) return;
  for (const Product& product : products) AddProduct(product);
}

void InputSums::AddProduct(const Product& product) {
  const PackedMatrix& matrix = product.matrix;
  auto it = places_.upper_bound(matrix.tiles);
  if (it == places_.begin()) return;
  --it;
  const Place& place = it->second;
  if (place.entry == nullptr || place.n_in != matrix.n_in) return;
  const int64_t member_bytes = TileCount(matrix.n_out) * PackedTileBytes(matrix.type, matrix.n_in);
  const int64_t member = (matrix.tiles - it->first) / member_bytes;
  // The slices of one matrix, which all rows go through, count as that matrix.
  const int64_t index = place.n_matrices > 1 ? member : 0;
  if (index >= place.n_matrices) return;
  double* const sums = place.entry->sums.data() + index * place.n_in;
  for (int64_t row = 0; row < product.n_rows; ++row) {
    const float* const x = product.x.values + row * product.x.values_stride;
    for (int64_t i = 0; i < place.n_in; ++i) sums[i] += double{x[i]} * x[i];
  }
  place.entry->counts[static_cast<size_t>(index)] += static_cast<double>(product.n_rows);
}

}  // namespace weft::cpu
