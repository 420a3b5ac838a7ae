#include "engine/turns/prompts_under_way.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/turns/active_turn.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using Tokens = std::vector<TokenId>;
using Found = std::vector<std::pair<ActiveTurn*, int64_t>>;

// With the texts of their sessions.
class Prompts {
 public:
  explicit Prompts(bool share_across_domains = false) : under_way_(share_across_domains) {}

  void Add(ActiveTurn* turn, std::string_view domain, Tokens tokens) {
    texts_[turn] = std::move(tokens);
    under_way_.Add(turn, domain, texts_[turn], texts_[turn].size());
  }
  void Say(ActiveTurn* turn, TokenId token) { texts_.at(turn).push_back(token); }
  void Remove(ActiveTurn* turn) { under_way_.Remove(turn); }
  Found SiblingsOf(const ActiveTurn& turn) const {
    Found found;
    under_way_.AnyEarlier(&turn, [&](ActiveTurn* earlier, int64_t common) {
      found.emplace_back(earlier, common);
      return false;
    });
    return found;
  }
  const PromptsUnderWay& operator*() const { return under_way_; }

 private:
  std::map<ActiveTurn*, Tokens> texts_;
  PromptsUnderWay under_way_;
};

TEST(PromptsUnderWayTest, FindsTheLongestCommonBeginningFirst) {
  Prompts prompts;
  ActiveTurn a, b, c, d;
  prompts.Add(&a, "", Tokens{1, 2, 3, 4});
  prompts.Add(&b, "", Tokens{1, 2, 9});
  prompts.Add(&c, "", Tokens{7, 8});
  prompts.Add(&d, "", Tokens{1, 2, 9, 5});
  EXPECT_THAT(prompts.SiblingsOf(a), IsEmpty());
  EXPECT_THAT(prompts.SiblingsOf(b), ElementsAre(Pair(&a, 2)));
  EXPECT_THAT(prompts.SiblingsOf(c), IsEmpty());
  EXPECT_THAT(prompts.SiblingsOf(d), ElementsAre(Pair(&b, 3), Pair(&a, 2)));
}

TEST(PromptsUnderWayTest, EqualPromptsAreFoundInOrderAndTheLookUpCanEnd) {
  Prompts prompts;
  ActiveTurn a, b, c;
  for (ActiveTurn* turn : {&a, &b, &c}) prompts.Add(turn, "", Tokens{5, 6});
  EXPECT_THAT(prompts.SiblingsOf(c), ElementsAre(Pair(&a, 2), Pair(&b, 2)));
  int visits = 0;
  EXPECT_TRUE((*prompts).AnyEarlier(&c, [&](ActiveTurn*, int64_t) { return ++visits > 0; }));
  EXPECT_EQ(visits, 1);
}

TEST(PromptsUnderWayTest, DomainsMeetOnlyWhereTheyMayShare) {
  for (const bool share : {false, true}) {
    Prompts prompts(share);
    ActiveTurn a, b;
    prompts.Add(&a, "one", Tokens{1, 2});
    prompts.Add(&b, "two", Tokens{1, 2});
    EXPECT_EQ(prompts.SiblingsOf(b).size(), share ? 1u : 0u);
  }
}

TEST(PromptsUnderWayTest, WhatIsRemovedIsNotFoundAndLeavesNothing) {
  Prompts prompts;
  ActiveTurn a, b;
  prompts.Add(&a, "x", Tokens{1, 2, 3});
  prompts.Add(&b, "x", Tokens{1, 2, 4});
  prompts.Remove(&a);
  prompts.Remove(&a);
  EXPECT_THAT(prompts.SiblingsOf(b), IsEmpty());
  prompts.Remove(&b);
  EXPECT_EQ((*prompts).n_domains(), 0u);
}

// Against comparing every pair.
TEST(PromptsUnderWayTest, RandomPromptsAgreeWithPairwiseComparison) {
  std::mt19937 random(7);
  Prompts prompts;
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
    Found wanted;
    for (const auto& [other, others] : there) {
      const auto [end, unused] = std::ranges::mismatch(others, tokens);
      const int64_t common = end - others.begin();
      if (other != turn && common > 0) wanted.emplace_back(other, common);
    }
    std::stable_sort(wanted.begin(), wanted.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    ASSERT_EQ(prompts.SiblingsOf(*turn), wanted) << "round " << round;
    // What a turn has said is not of its prompt.
    if (random() % 2 == 0) prompts.Say(turn, static_cast<TokenId>(random() % 2));
  }
}

}  // namespace
}  // namespace weft
