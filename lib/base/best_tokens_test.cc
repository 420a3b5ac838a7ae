#include "base/best_tokens.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Every order and every number of equals, at sizes around that of a block.
TEST(BestTokensTest, AreTheFirstOfTheSortedRow) {
  std::mt19937 random(5);
  for (const size_t n : {1, 2, 63, 64, 65, 200, 1000}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<TokenLogit> sorted(n);
      std::vector<float> row(n);
      for (size_t i = 0; i < n; ++i) {
        row[i] = static_cast<float>(random() % (round % 2 == 0 ? 7 : 100000)) - 3;
        if (random() % 8 == 0) row[i] = kNever;
        sorted[i] = {static_cast<TokenId>(i), row[i]};
      }
      std::sort(sorted.begin(), sorted.end(), IsBetter);
      std::erase_if(sorted, [](const TokenLogit& t) { return t.logit == kNever; });
      for (const size_t k : {size_t{1}, size_t{2}, size_t{40}, n}) {
        std::vector<TokenLogit> best(k);
        const size_t found = FindBest(row, best);
        ASSERT_EQ(found, std::min(k, sorted.size()));
        for (size_t i = 0; i < found; ++i) {
          EXPECT_EQ(best[i].token, sorted[i].token);
          EXPECT_EQ(best[i].logit, sorted[i].logit);
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft
