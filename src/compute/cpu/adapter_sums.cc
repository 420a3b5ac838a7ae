#include "compute/cpu/adapter_sums.h"

#include <algorithm>

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

// Adapters that change the same products are computed together, since waking the threads for each
// costs more than its pairs do.
void AdapterSums::Add(std::span<const Product> products, Compute* compute) {
  size_t n_together = 0;
  for (const AdaptedRows& adapted : rows_) {
    for (size_t at = 0; at < adapted.rows.size();) {
      const size_t n = std::min(adapted.rows.size() - at, kRowsTogether);
      if (n_together + n > kRowsTogether) {
        AddChanges(compute);
        n_together = 0;
      }
      n_together += n;
      for (const Product& product : products) {
        const CpuAdapter::Pair* const pair = adapted.adapter->Find(product.matrix.tiles);
        if (pair == nullptr) continue;
        const auto rows = std::span(adapted.rows).subspan(at, n);
        const auto begin = std::ranges::lower_bound(rows, first_);
        const auto end = std::ranges::lower_bound(rows, first_ + product.n_rows);
        if (begin == end) continue;
        changes_.push_back({&product,
                            pair,
                            {begin, end},
                            std::span(adapted.scales)
                                .subspan(at + static_cast<size_t>(begin - rows.begin()),
                                         static_cast<size_t>(end - begin))});
      }
      at += n;
    }
  }
  AddChanges(compute);
}

ActivationRows AdapterSums::InputOf(const Change& change, float* copy) const {
  const ActivationRows& x = change.product->x;
  const int64_t n_in = change.product->matrix.n_in;
  const auto row = [&](int64_t i) { return x.values + (i - first_) * x.values_stride; };
  if (change.rows.back() - change.rows.front() + 1 == std::ssize(change.rows)) {
    return {row(change.rows.front()), x.values_stride, {}};
  }
  for (size_t i = 0; i < change.rows.size(); ++i) {
    std::copy_n(row(change.rows[i]), n_in, copy + static_cast<int64_t>(i) * n_in);
  }
  return {copy, n_in, {}};
}

void AdapterSums::MultiplyLow(Compute* compute) {
  size_t n_inputs = 0, n_lows = 0;
  for (const Change& change : changes_) {
    n_inputs += change.rows.size() * static_cast<size_t>(change.pair->a.n_in);
    n_lows += change.rows.size() * static_cast<size_t>(change.pair->a.n_out);
  }
  inputs_.resize(std::max(inputs_.size(), n_inputs));
  lows_.resize(std::max(lows_.size(), n_lows));
  std::vector<Product> lows;
  lows.reserve(changes_.size());
  float *input = inputs_.data(), *low = lows_.data();
  for (Change& change : changes_) {
    const auto n_rows = std::ssize(change.rows);
    change.low = low;
    lows.push_back(
        MakePairProduct(change.pair->a, InputOf(change, input), change.rows.size(), low));
    input += n_rows * change.pair->a.n_in;
    low += n_rows * change.pair->a.n_out;
  }
  compute->MultiplyAlone(lows);
}

void AdapterSums::AddTiles(std::span<const Change> changes, int64_t begin, int64_t end, float* sum,
                           const Compute& compute) const {
  for (const Change& change : changes) {
    const Product& product = *change.product;
    const int64_t n_out = change.pair->b.n_out, column = begin * kTileOutputs;
    const int64_t width = std::min(end * kTileOutputs, n_out) - column;
    compute.mat().matmul(change.pair->b, {change.low, change.pair->a.n_out, {}},
                         std::ssize(change.rows), begin, end, sum, n_out);
    for (size_t i = 0; i < change.rows.size(); ++i) {
      compute.vec().add_scaled(
          sum + static_cast<int64_t>(i) * n_out + column, width,
          change.scales[i] * change.pair->factor,
          product.out + (change.rows[i] - first_) * product.out_stride + column);
    }
  }
}

void AdapterSums::AddChanges(Compute* compute) {
  if (changes_.empty()) return;
  MultiplyLow(compute);
  // A product's changes one after the other, in the order of the adapters.
  std::ranges::stable_sort(changes_, {}, &Change::product);
  struct Target {
    std::span<const Change> changes;
    int64_t n_tiles;
    size_t sum;  // where its sums are
  };
  std::vector<Target> targets;
  int64_t n_tiles = 0;
  size_t n_sums = 0;
  for (auto begin = changes_.cbegin(); begin != changes_.cend();) {
    size_t most_rows = 0;
    auto end = begin;
    for (; end != changes_.cend() && end->product == begin->product; ++end) {
      most_rows = std::max(most_rows, end->rows.size());
      compute->Count(MakePairProduct(end->pair->b, {}, end->rows.size(), nullptr));
    }
    const int64_t n_out = begin->pair->b.n_out;
    targets.push_back({{begin, end}, TileCount(n_out), n_sums});
    n_tiles += TileCount(n_out);
    n_sums += most_rows * static_cast<size_t>(n_out);
    begin = end;
  }
  sums_.resize(std::max(sums_.size(), n_sums));
  compute->ForTiles(n_tiles, [&](int64_t begin, int64_t end) {
    int64_t first = 0;
    for (const Target& target : targets) {
      const int64_t from = std::max(begin, first) - first;
      const int64_t to = std::min(end, first + target.n_tiles) - first;
      first += target.n_tiles;
      if (from < to) AddTiles(target.changes, from, to, sums_.data() + target.sum, *compute);
    }
  });
  changes_.clear();
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
