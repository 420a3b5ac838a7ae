#include "compute/reference/adapters.h"

#include <algorithm>
#include <iterator>

#include "base/adapter_use.h"
#include "base/check.h"
#include "base/tokens.h"
#include "model/adapter_spec.h"

namespace weft::reference {
namespace {

// Adds scale * B low, where B's rows begin at `first_row`.
void AddProduct(const Tensors& adapter, const LowRankPair& pair, double scale, int64_t first_row,
                std::span<const float> low, std::vector<double>* sums) {
  for (size_t o = 0; o < sums->size(); ++o) {
    const auto row = first_row + static_cast<int64_t>(o);
    (*sums)[o] += scale * pair.factor * Dot(adapter.Row(pair.b, row), low);
  }
}

}  // namespace

std::vector<std::span<const AdapterUse>> AdaptersOfWanted(const Step& step,
                                                          int64_t StepSequence::*n_wanted) {
  std::vector<std::span<const AdapterUse>> rows;
  for (const StepSequence& sequence : step.sequences) {
    rows.insert(rows.end(), static_cast<size_t>(sequence.*n_wanted), sequence.adapters);
  }
  return rows;
}

std::vector<std::vector<double>> ChangesOf(const Tensors& tensors, const Linear& linear,
                                           const Rows& x) {
  const RowAdapters& all = tensors.adapters();
  if (all.adapters.empty()) return {};
  WEFT_CHECK(x.count() == std::ssize(all.rows), "a linear is applied to all rows of a step");
  std::vector<std::vector<double>> changes(all.rows.size(),
                                           std::vector<double>(static_cast<size_t>(linear.n_out)));
  for (size_t i = 0; i < all.rows.size(); ++i) {
    for (const AdapterUse& use : all.rows[i]) {
      const Adapter& adapter = all.adapters[static_cast<size_t>(use.adapter)];
      const LowRankPair* const pair = adapter.spec.Find(linear.weight);
      if (pair == nullptr) continue;
      const Tensors own(*adapter.file);
      std::vector<float> low;
      for (int64_t r = 0; r < pair->rank; ++r) {
        low.push_back(static_cast<float>(Dot(own.Row(pair->a, r), x.row(static_cast<int64_t>(i)))));
      }
      AddProduct(own, *pair, use.scale, linear.first_row, low, &changes[i]);
    }
  }
  return changes;
}

std::vector<float> EmbeddingOf(const StepContext& context, size_t i) {
  const TokenId token = context.rows[i].token;
  std::vector<float> row = context.tensors.Row(context.spec.embedding, token);
  const RowAdapters& all = context.tensors.adapters();
  if (all.adapters.empty()) return row;
  std::vector<double> sums(row.begin(), row.end());
  for (const AdapterUse& use : all.rows[i]) {
    const Adapter& adapter = all.adapters[static_cast<size_t>(use.adapter)];
    if (!adapter.spec.embedding) continue;
    const LowRankPair& pair = *adapter.spec.embedding;
    const Tensors own(*adapter.file);
    AddProduct(own, pair, use.scale, 0, own.Row(pair.a, token), &sums);
  }
  std::ranges::transform(sums, row.begin(), [](double v) { return static_cast<float>(v); });
  return row;
}

}  // namespace weft::reference
