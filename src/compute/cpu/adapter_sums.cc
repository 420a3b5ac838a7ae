#include "compute/cpu/adapter_sums.h"

#include <algorithm>

#include "base/check.h"
#include "compute/cpu/compute.h"

namespace weft::cpu {
namespace {

// Bounds the scratch memory.
constexpr size_t kRowsTogether = 32;

Product MakePairProduct(const PackedMatrix& matrix, const ActivationRows& x, size_t n_rows,
                        float* out) {
  return {.matrix = matrix,
          .x = x,
          .n_rows = static_cast<int64_t>(n_rows),
          .out = out,
          .out_stride = matrix.n_out};
}

}  // namespace

void AdapterSums::Add(std::span<const Product> products, Compute* compute) {
  std::vector<Change> changes;
  for (const AdaptedRows& adapted : rows_) {
    changes.clear();
    for (const Product& product : products) {
      const CpuAdapter::Pair* const pair = adapted.adapter->Find(product.matrix.tiles);
      if (pair != nullptr) changes.push_back({&product, pair});
    }
    if (changes.empty()) continue;
    const int64_t n_rows = changes[0].product->n_rows;
    const auto begin = std::ranges::lower_bound(adapted.rows, first_);
    const auto end = std::ranges::lower_bound(adapted.rows, first_ + n_rows);
    const auto n = static_cast<size_t>(end - begin);
    for (size_t at = static_cast<size_t>(begin - adapted.rows.begin()), left = n; left > 0;) {
      const size_t together = std::min(left, kRowsTogether);
      AddPart({std::span(adapted.rows).subspan(at, together),
               std::span(adapted.scales).subspan(at, together)},
              changes, compute);
      at += together;
      left -= together;
    }
  }
}

ActivationRows AdapterSums::InputOf(const Part& part, const Product& product, float* copy) const {
  const ActivationRows& x = product.x;
  const int64_t n_in = product.matrix.n_in;
  const auto row = [&](int64_t i) { return x.values + (i - first_) * x.values_stride; };
  if (part.rows.back() - part.rows.front() + 1 == std::ssize(part.rows)) {
    return {row(part.rows.front()), x.values_stride, {}};
  }
  for (size_t i = 0; i < part.rows.size(); ++i) {
    std::copy_n(row(part.rows[i]), n_in, copy + static_cast<int64_t>(i) * n_in);
  }
  return {copy, n_in, {}};
}

void AdapterSums::AddPart(const Part& part, std::span<const Change> changes, Compute* compute) {
  const size_t n = part.rows.size();
  size_t n_inputs = 0, n_sums = 0;
  for (const Change& change : changes) {
    WEFT_CHECK(change.product->n_rows == changes[0].product->n_rows,
               "adapters change products of all rows");
    n_inputs += n * static_cast<size_t>(change.pair->a.n_in);
    n_sums += n * static_cast<size_t>(change.pair->a.n_out + change.pair->b.n_out);
  }
  if (inputs_.size() < n_inputs) inputs_.resize(n_inputs);
  if (sums_.size() < n_sums) sums_.resize(n_sums);

  std::vector<Product> low, high;
  float *input = inputs_.data(), *sum = sums_.data();
  const auto n_rows = static_cast<int64_t>(n);
  for (const auto& [product, pair] : changes) {
    low.push_back(MakePairProduct(pair->a, InputOf(part, *product, input), n, sum));
    input += n_rows * pair->a.n_in;
    sum += n_rows * pair->a.n_out;
  }
  for (size_t i = 0; i < changes.size(); ++i) {
    const PackedMatrix& b = changes[i].pair->b;
    high.push_back(MakePairProduct(b, {low[i].out, low[i].out_stride, {}}, n, sum));
    sum += n_rows * b.n_out;
  }
  compute->MultiplyAlone(low);
  compute->MultiplyAlone(high);
  for (size_t i = 0; i < changes.size(); ++i) {
    const Product& product = *changes[i].product;
    const int64_t width = product.matrix.n_out;
    compute->ForEach(n_rows, width * kStep, [&](int64_t r, int) {
      const auto at = static_cast<size_t>(r);
      compute->vec().add_scaled(high[i].out + r * width, width,
                                part.scales[at] * changes[i].pair->factor,
                                product.out + (part.rows[at] - first_) * product.out_stride);
    });
  }
}

Status AdapterSums::AddToEmbeddings(std::span<const TokenId> tokens, const RowsView& rows,
                                    Compute* compute) {
  for (const AdaptedRows& adapted : rows_) {
    const CpuAdapter::Pair* const pair = adapted.adapter->embedding();
    if (pair == nullptr) continue;
    const int64_t rank = pair->b.n_in, width = pair->b.n_out;
    sums_.resize(std::max(sums_.size(), static_cast<size_t>(rank + width)));
    float* const low = sums_.data();
    for (size_t i = 0; i < adapted.rows.size(); ++i) {
      const int64_t row = adapted.rows[i];
      const TokenId token = tokens[static_cast<size_t>(row)];
      if (token < 0) continue;
      WEFT_RETURN_IF_ERROR(
          adapted.adapter->ReadEmbedding(token, std::span(low, static_cast<size_t>(rank))));
      const Product product = MakePairProduct(pair->b, {low, rank, {}}, 1, low + rank);
      compute->MultiplyAlone(std::span(&product, 1));
      compute->vec().add_scaled(product.out, width, adapted.scales[i] * pair->factor,
                                rows.row(row));
    }
  }
  return OkStatus();
}

}  // namespace weft::cpu
