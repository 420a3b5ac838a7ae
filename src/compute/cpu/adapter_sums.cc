#include "compute/cpu/adapter_sums.h"

#include <algorithm>
#include <thread>

#include "base/thread_pool.h"
#include "compute/cpu/compute.h"

namespace weft::cpu {
namespace {

// Bound the scratch memory.
constexpr size_t kRowsTogether = 32;
constexpr int64_t kTilesTogether = 8;

Product MakePairProduct(const PackedMatrix& matrix, const ActivationRows& x, size_t n_rows,
                        float* out) {
  return {.matrix = matrix,
          .x = x,
          .n_rows = static_cast<int64_t>(n_rows),
          .out = out,
          .out_stride = matrix.n_out};
}

// Tiles [begin, end) as a matrix of its own.
PackedMatrix Part(const PackedMatrix& matrix, int64_t begin, int64_t end) {
  PackedMatrix part = matrix;
  part.n_out = std::min(end * kTileOutputs, matrix.n_out) - begin * kTileOutputs;
  part.tiles += begin * PackedTileBytes(matrix.type, matrix.n_in);
  return part;
}

bool FollowEachOther(std::span<const int64_t> rows) {
  return rows.back() - rows.front() + 1 == std::ssize(rows);
}

}  // namespace

void AdapterSums::AddChangesOf(const Product& product) {
  const std::span<const AdapterPair> pairs = adapters_->Find(product.matrix.tiles);
  if (pairs.empty()) return;
  for (const AdaptedRows& adapted : rows_) {
    const AdapterPair& pair = pairs[static_cast<size_t>(adapted.adapter)];
    if (!pair) continue;
    const auto first = std::ranges::lower_bound(adapted.rows, first_) - adapted.rows.begin();
    const auto end =
        std::ranges::lower_bound(adapted.rows, first_ + product.n_rows) - adapted.rows.begin();
    for (auto at = static_cast<size_t>(first); at < static_cast<size_t>(end);) {
      const size_t n = std::min(static_cast<size_t>(end) - at, kRowsTogether);
      changes_.push_back({&product, &pair, std::span(adapted.rows).subspan(at, n),
                          std::span(adapted.scales).subspan(at, n), /*low=*/0});
      at += n;
    }
  }
}

void AdapterSums::Plan(std::span<const Product> products, Compute* compute) {
  changes_.clear();
  ends_.clear();
  for (const Product& product : products) {
    AddChangesOf(product);
    ends_.push_back(changes_.size());
  }
  n_low_tiles_ = 0;
  size_t n_lows = 0, n_inputs = 0, n_sums = 0;
  for (Change& change : changes_) {
    const PackedMatrix &a = change.pair->a, &b = change.pair->b;
    const size_t n_rows = change.rows.size();
    compute->Count(MakePairProduct(a, {}, n_rows, nullptr));
    compute->Count(MakePairProduct(b, {}, n_rows, nullptr));
    change.low = static_cast<int64_t>(n_lows);
    n_lows += n_rows * static_cast<size_t>(a.n_out);
    n_low_tiles_ += TileCount(a.n_out);
    if (!FollowEachOther(change.rows)) {
      n_inputs = std::max(n_inputs, n_rows * static_cast<size_t>(a.n_in));
    }
    n_sums = std::max(n_sums, n_rows * static_cast<size_t>(kTilesTogether * kTileOutputs));
  }
  low_tiles_left_.store(n_low_tiles_, std::memory_order_relaxed);
  if (changes_.empty()) return;
  lows_.resize(std::max(lows_.size(), n_lows));
  scratch_.resize(static_cast<size_t>(compute->n_threads()));
  for (Scratch& scratch : scratch_) {
    scratch.inputs.resize(std::max(scratch.inputs.size(), n_inputs));
    scratch.sums.resize(std::max(scratch.sums.size(), n_sums));
  }
}

ActivationRows AdapterSums::InputOf(const Change& change, float* copy) const {
  const ActivationRows& x = change.product->x;
  const int64_t n_in = change.product->matrix.n_in;
  const auto row = [&](int64_t i) { return x.values + (i - first_) * x.values_stride; };
  if (FollowEachOther(change.rows)) return {row(change.rows.front()), x.values_stride, {}};
  for (size_t i = 0; i < change.rows.size(); ++i) {
    std::copy_n(row(change.rows[i]), n_in, copy + static_cast<int64_t>(i) * n_in);
  }
  return {copy, n_in, {}};
}

void AdapterSums::MultiplyLow(int64_t begin, int64_t end, int worker,
                              const MatmulKernels& kernels) {
  int64_t first = 0;
  for (const Change& change : changes_) {
    const PackedMatrix& a = change.pair->a;
    const int64_t n_tiles = TileCount(a.n_out);
    const int64_t from = std::max(begin, first) - first;
    const int64_t to = std::min(end, first + n_tiles) - first;
    first += n_tiles;
    if (from >= to) continue;
    const ActivationRows x = InputOf(change, scratch_[static_cast<size_t>(worker)].inputs.data());
    kernels.matmul(a, x, std::ssize(change.rows), from, to, lows_.data() + change.low, a.n_out);
  }
  low_tiles_left_.fetch_sub(end - begin, std::memory_order_release);
}

void AdapterSums::WaitForLow() const {
  // About as long as a tile takes; then its worker may have lost its core.
  constexpr int kSpins = 2000;
  for (int spins = 0; low_tiles_left_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpins) {
      RelaxCpu();
    } else {
      std::this_thread::yield();
    }
  }
}

void AdapterSums::AddTo(size_t i, int64_t begin, int64_t end, int worker, const Compute& compute) {
  const size_t first = i > 0 ? ends_[i - 1] : 0;
  if (first == ends_[i]) return;
  WaitForLow();
  float* const sums = scratch_[static_cast<size_t>(worker)].sums.data();
  for (const Change& change : std::span(changes_).subspan(first, ends_[i] - first)) {
    const Product& product = *change.product;
    const ActivationRows low = {lows_.data() + change.low, change.pair->a.n_out, {}};
    for (int64_t from = begin; from < end; from += kTilesTogether) {
      const PackedMatrix b = Part(change.pair->b, from, std::min(end, from + kTilesTogether));
      compute.mat().matmul(b, low, std::ssize(change.rows), 0, TileCount(b.n_out), sums, b.n_out);
      float* const out = product.out + from * kTileOutputs;
      for (size_t r = 0; r < change.rows.size(); ++r) {
        compute.vec().add_scaled(sums + static_cast<int64_t>(r) * b.n_out, b.n_out,
                                 change.scales[r] * change.pair->factor,
                                 out + (change.rows[r] - first_) * product.out_stride);
      }
    }
  }
}

int64_t AdapterSums::scratch_bytes() const {
  size_t n = lows_.capacity();
  for (const Scratch& scratch : scratch_) {
    n += scratch.inputs.capacity() + scratch.sums.capacity();
  }
  return static_cast<int64_t>(n * sizeof(float));
}

Status AdapterSums::AddToEmbeddings(std::span<const TokenId> tokens, const RowsView& rows,
                                    Compute* compute) {
  for (const AdaptedRows& adapted : rows_) {
    const CpuAdapter& adapter = (*adapters_)[adapted.adapter];
    const AdapterPair& pair = adapter.embedding();
    if (!pair) continue;
    const int64_t rank = pair.b.n_in, width = pair.b.n_out;
    lows_.resize(std::max(lows_.size(), static_cast<size_t>(rank + width)));
    float* const low = lows_.data();
    for (size_t i = 0; i < adapted.rows.size(); ++i) {
      const int64_t row = adapted.rows[i];
      const TokenId token = tokens[static_cast<size_t>(row)];
      if (token < 0) continue;
      WEFT_RETURN_IF_ERROR(adapter.ReadEmbedding(token, std::span(low, static_cast<size_t>(rank))));
      const Product product = MakePairProduct(pair.b, {low, rank, {}}, 1, low + rank);
      compute->MultiplyAlone(std::span(&product, 1));
      compute->vec().add_scaled(product.out, width, adapted.scales[i] * pair.factor, rows.row(row));
    }
  }
  return OkStatus();
}

}  // namespace weft::cpu
