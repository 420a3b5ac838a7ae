#include "engine/turns/prompts_under_way.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "engine/turns/active_turn.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using Tokens = std::vector<TokenId>;
using Siblings = std::vector<std::pair<ActiveTurn*, int64_t>>;

Siblings SiblingsOf(const PromptsUnderWay& prompts, const ActiveTurn& turn) {
  Siblings found;
  prompts.AnyEarlier(&turn, [&](ActiveTurn* earlier, int64_t common) {
    found.emplace_back(earlier, common);
    return false;
  });
  return found;
}

TEST(PromptsUnderWayTest, FindsTheLongestCommonBeginningFirst) {
  PromptsUnderWay prompts(false);
  ActiveTurn a, b, c, d;
  prompts.Add(&a, "", Tokens{1, 2, 3, 4});
  prompts.Add(&b, "", Tokens{1, 2, 9});
  prompts.Add(&c, "", Tokens{7, 8});
  prompts.Add(&d, "", Tokens{1, 2, 9, 5});
  EXPECT_THAT(SiblingsOf(prompts, a), IsEmpty());
  EXPECT_THAT(SiblingsOf(prompts, b), ElementsAre(Pair(&a, 2)));
  EXPECT_THAT(SiblingsOf(prompts, c), IsEmpty());
  EXPECT_THAT(SiblingsOf(prompts, d), ElementsAre(Pair(&b, 3), Pair(&a, 2)));
}

TEST(PromptsUnderWayTest, EqualPromptsAreFoundInOrderAndTheLookUpCanEnd) {
  PromptsUnderWay prompts(false);
  ActiveTurn a, b, c;
  for (ActiveTurn* turn : {&a, &b, &c}) prompts.Add(turn, "", Tokens{5, 6});
  EXPECT_THAT(SiblingsOf(prompts, c), ElementsAre(Pair(&a, 2), Pair(&b, 2)));
  int visits = 0;
  EXPECT_TRUE(prompts.AnyEarlier(&c, [&](ActiveTurn*, int64_t) { return ++visits > 0; }));
  EXPECT_EQ(visits, 1);
}

TEST(PromptsUnderWayTest, DomainsMeetOnlyWhereTheyMayShare) {
  for (const bool share : {false, true}) {
    PromptsUnderWay prompts(share);
    ActiveTurn a, b;
    prompts.Add(&a, "one", Tokens{1, 2});
    prompts.Add(&b, "two", Tokens{1, 2});
    EXPECT_EQ(SiblingsOf(prompts, b).size(), share ? 1u : 0u);
  }
}

TEST(PromptsUnderWayTest, WhatIsRemovedIsNotFoundAndLeavesNothing) {
  PromptsUnderWay prompts(false);
  ActiveTurn a, b;
  prompts.Add(&a, "x", Tokens{1, 2, 3});
  prompts.Add(&b, "x", Tokens{1, 2, 4});
  prompts.Remove(&a);
  prompts.Remove(&a);
  EXPECT_THAT(SiblingsOf(prompts, b), IsEmpty());
  prompts.Remove(&b);
  EXPECT_EQ(prompts.size(), 0u);
  EXPECT_EQ(prompts.n_nodes(), 0u);
}

// Against comparing every pair.
TEST(PromptsUnderWayTest, RandomPromptsAgreeWithPairwiseComparison) {
  std::mt19937 random(7);
  PromptsUnderWay prompts(false);
  std::vector<ActiveTurn> turns(40);
  std::vector<std::pair<ActiveTurn*, Tokens>> there;  // in order of addition
  for (int round = 0; round < 2000; ++round) {
    ActiveTurn* const turn = &turns[random() % turns.size()];
    const auto of_turn = [&](const auto& entry) { return entry.first == turn; };
    if (std::erase_if(there, of_turn) > 0) {
      prompts.Remove(turn);
      continue;
    }
    Tokens tokens(random() % 12);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 2);
    prompts.Add(turn, "", tokens);
    there.emplace_back(turn, tokens);
    Siblings wanted;
    for (const auto& [other, others] : there) {
      const auto [end, unused] = std::ranges::mismatch(others, tokens);
      const int64_t common = end - others.begin();
      if (other != turn && common > 0) wanted.emplace_back(other, common);
    }
    std::stable_sort(wanted.begin(), wanted.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    ASSERT_EQ(SiblingsOf(prompts, *turn), wanted) << "round " << round;
  }
}

}  // namespace
}  // namespace weft
