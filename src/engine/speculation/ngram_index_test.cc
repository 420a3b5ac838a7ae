#include "engine/speculation/ngram_index.h"

#include <random>

#include "engine/speculation/text_follower.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using Tokens = std::vector<TokenId>;

Tokens RandomText(int64_t n, TokenId n_kinds, uint64_t seed) {
  std::mt19937_64 random(seed);
  Tokens text;
  for (int64_t i = 0; i < n; ++i) {
    text.push_back(static_cast<TokenId>(random() % static_cast<uint64_t>(n_kinds)));
  }
  return text;
}

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

NgramIndex Indexed(const Tokens& text) {
  NgramIndex index;
  index.Extend(text, std::ssize(text));
  return index;
}

TEST(NgramIndexTest, FindsWhereTheLastTokensStandAlready) {
  const Tokens text = {1, 2, 3, 4, 5, 6, 7, 1, 2, 3};
  const NgramIndex::Match match = Indexed(text).Find(text, text);
  EXPECT_EQ(match.next, 3);
  EXPECT_EQ(match.length, 3);
  EXPECT_EQ(Indexed(text).Find(text, Tokens{7, 1, 2}).next, 9);
  EXPECT_EQ(Indexed(text).Find(text, Tokens{1, 2}).next, -1) << "too short";
  EXPECT_EQ(Indexed(text).Find(text, Tokens{2, 1, 3}).next, -1);
  EXPECT_EQ(NgramIndex().Find({}, text).next, -1);
}

TEST(NgramIndexTest, TheLongestMatchWinsThenTheMostFrequentThenTheLatest) {
  // 9 follows the three tokens twice, but 8 follows four.
  const Tokens longer = {5, 1, 2, 3, 8, 6, 1, 2, 3, 9, 7, 1, 2, 3, 9, 5, 1, 2, 3};
  EXPECT_EQ(Indexed(longer).Find(longer, longer).next, 4);
  const Tokens counted = {6, 1, 2, 3, 9, 7, 1, 2, 3, 9, 4, 1, 2, 3, 8, 5, 1, 2, 3};
  EXPECT_EQ(Indexed(counted).Find(counted, counted).next, 9);
  const Tokens latest = {6, 1, 2, 3, 9, 4, 1, 2, 3, 8, 5, 1, 2, 3};
  EXPECT_EQ(Indexed(latest).Find(latest, latest).next, 9);
}

TEST(NgramIndexTest, NothingIsFoundAcrossTheEndOfAPassage) {
  const Tokens text = {1, 2, 3, kNoToken, 4, 1, 2, 3, 5, kNoToken};
  EXPECT_EQ(Indexed(text).Find(text, Tokens{1, 2, 3}).next, 8);
  EXPECT_EQ(Indexed(text).Find(text, Tokens{3, 4, 1}).next, -1);
}

TEST(NgramIndexTest, NothingIsFoundFromRowsOrAcrossThem) {
  const Tokens text = {1, 2, 3, -5, 4, 6, 7, 8, 1, -5, 3, 9};
  EXPECT_EQ(Indexed(text).Find(text, Tokens{1, 2, 3}).next, -1) << "a row follows";
  EXPECT_EQ(Indexed(text).Find(text, Tokens{3, -5, 4}).next, -1);
  EXPECT_EQ(Indexed(text).Find(text, Tokens{0, 4, 6, 7}).next, 7);
}

// Each match is correct, and there is one whenever a search of all positions finds one.
TEST(NgramIndexTest, AgreesWithASearchOfTheWholeText) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Tokens whole = RandomText(1 + static_cast<int64_t>(seed * 7 % 900),
                                    static_cast<TokenId>(3 + seed % 40), seed);
    NgramIndex index;
    for (size_t n = 1; n <= whole.size(); n += 1 + n / 3) {
      const Tokens text(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(n));
      index.Extend(text, std::ssize(text));
      const NgramIndex::Match match = index.Find(text, text);
      int64_t longest = 0;
      for (size_t at = 1; at < n; ++at) {
        int64_t length = 0;
        while (length < std::min<int64_t>(static_cast<int64_t>(at), NgramIndex::kLongestMatch) &&
               text[at - 1 - static_cast<size_t>(length)] ==
                   text[n - 1 - static_cast<size_t>(length)]) {
          ++length;
        }
        longest = std::max(longest, length);
      }
      ASSERT_EQ(match.next >= 0, longest >= NgramIndex::kShortestMatch) << seed << ", " << n;
      if (match.next < 0) continue;
      ASSERT_LT(match.next, std::ssize(text));
      ASSERT_LE(match.length, longest);
      for (int64_t i = 1; i <= match.length; ++i) {
        ASSERT_EQ(text[static_cast<size_t>(match.next - i)], text[n - static_cast<size_t>(i)]);
      }
    }
  }
}

TEST(NgramIndexTest, ALongTextIsIndexedInParts) {
  const Tokens text = RandomText(5000, 50000, 1);
  NgramIndex index;
  const Tokens early(text.begin() + 100, text.begin() + 110);
  const Tokens late(text.begin() + 4000, text.begin() + 4010);
  index.Extend(text, 1000);
  EXPECT_EQ(index.Find(text, early).next, 110);
  EXPECT_EQ(index.Find(text, late).next, -1);
  for (int i = 0; i < 4; ++i) index.Extend(text, 1000);
  EXPECT_EQ(index.Find(text, late).next, 4010);
  EXPECT_LT(index.memory_bytes(), 40 * std::ssize(text));
}

// --- following a text ----------------------------------------------------------------------

// How many tokens of `answer` are predicted.
int64_t Foretold(const Tokens& text, const Tokens& answer, TextFollower* follower) {
  const NgramIndex index = Indexed(text);
  int64_t n = 0;
  for (size_t i = 0; i < answer.size(); ++i) {
    const Tokens said(answer.begin(), answer.begin() + static_cast<ptrdiff_t>(i));
    const NgramIndex::Match match = follower->Next(text, index, said);
    if (match.next >= 0 && text[static_cast<size_t>(match.next)] == answer[i]) ++n;
    follower->Follow(text, answer[i]);
  }
  return n;
}

TEST(TextFollowerTest, FollowsACopyFromItsBeginning) {
  const Tokens text = RandomText(300, 50000, 1);
  TextFollower expected;
  expected.StartAtBeginning();
  EXPECT_EQ(Foretold(text, text, &expected), 300);
  EXPECT_EQ(expected.kept(), 300);
  TextFollower found;
  EXPECT_EQ(Foretold(text, text, &found), 297) << "three tokens say where it is";
}

TEST(TextFollowerTest, TakesUpTheTextBehindAnEdit) {
  const Tokens a = RandomText(60, 50000, 1), b = RandomText(60, 50000, 2), edit = {50001};
  const auto foretold = [&](const Tokens& text, const Tokens& answer) {
    TextFollower follower;
    follower.StartAtBeginning();
    return Foretold(text, answer, &follower);
  };
  EXPECT_EQ(foretold(a + Tokens{7} + b, a + edit + b), 120) << "one token exchanged";
  EXPECT_EQ(foretold(a + b, a + edit + b), 119) << "one added";
  EXPECT_EQ(foretold(a + Tokens{7, 8, 9} + b, a + b), 119) << "three removed";
}

TEST(TextFollowerTest, AFrequentPhraseDoesNotLeadAwayFromTheCopy) {
  // The same three tokens again and again, each time followed by different ones.
  Tokens text;
  for (TokenId i = 0; i < 100; ++i) text = text + Tokens{1, 2, 3, 1000 + i, 2000 + i};
  TextFollower follower;
  follower.StartAtBeginning();
  EXPECT_EQ(Foretold(text, text, &follower), std::ssize(text));
}

TEST(TextFollowerTest, ATextThatChangedIsForgotten) {
  const Tokens text = RandomText(50, 50000, 1);
  TextFollower follower;
  follower.StartAtBeginning();
  follower.Follow(text, text[0]);
  follower.Forget();
  EXPECT_EQ(follower.Next(text, NgramIndex(), Tokens{text[0]}).next, -1);
}

}  // namespace
}  // namespace weft
