// Prefixes with rows: found by their bytes, which the index keeps.
#include <gtest/gtest.h>

#include "engine/state/prefix_index.h"

namespace weft {
namespace {

class PrefixIndexRowsTest : public ::testing::Test {
 protected:
  static PrefixIndexOptions Options(PagePool* pool, const RowTable* rows) {
    PrefixIndexOptions options;
    options.page_tokens = 4;
    options.groups = {{pool, 0}};
    options.rows = rows;
    return options;
  }
  // Five tokens, then rows of these values.
  History Prompt(std::initializer_list<float> values) {
    History prompt(std::vector<TokenId>{1, 2, 3, 4, 5});
    for (const float value : values) prompt.Add(rows_.Keep(std::vector<float>{value, 1}));
    return prompt;
  }
  void Insert(const History& prompt) {
    PageTable table(&pool_, GroupShape{4, 0});
    EXPECT_TRUE(table.Append(std::ssize(prompt)).ok());
    PageTable* const tables[] = {&table};
    index_.Insert("", prompt, std::ssize(prompt), tables, /*adopt=*/true);
    EXPECT_TRUE(index_.CheckIntegrity().ok()) << index_.CheckIntegrity();
  }
  int64_t Length(const History& prompt) {
    return index_.MatchLength("", prompt, std::ssize(prompt));
  }

  RowTable rows_;
  PagePool pool_{"page", 100};
  PrefixIndex index_{Options(&pool_, &rows_)};
};

TEST_F(PrefixIndexRowsTest, EqualRowsAreFoundAfterWhoeverSentThemIsGone) {
  Insert(Prompt({1, 2, 3, 4, 5}));
  EXPECT_EQ(rows_.bytes(), RowTable::BytesOf(5, 2));
  EXPECT_EQ(Length(Prompt({1, 2, 3, 4, 5})), 10);
  EXPECT_EQ(Length(Prompt({1, 2, 3, 7, 5})), 8);
  EXPECT_EQ(Length(Prompt({9})), 5);
  // A page that was filled partly grows.
  Insert(Prompt({1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(rows_.bytes(), RowTable::BytesOf(6, 2));
  EXPECT_EQ(Length(Prompt({1, 2, 3, 4, 5, 6})), 11);
  index_.Clear();
  EXPECT_EQ(rows_.bytes(), 0);
}

TEST_F(PrefixIndexRowsTest, PrefixesWithRowsAreGivenUpOldestFirst) {
  Insert(History(std::vector<TokenId>{7, 8, 9, 10}));
  Insert(Prompt({1, 2, 3, 4, 5, 6, 7}));
  Insert(Prompt({1, 2, 3, 14, 15, 16, 17}));
  const int64_t all = rows_.bytes();
  index_.EvictRows([&] { return rows_.bytes() < all; });
  EXPECT_TRUE(index_.CheckIntegrity().ok()) << index_.CheckIntegrity();
  EXPECT_EQ(Length(Prompt({1, 2, 3, 14, 15, 16, 17})), 12);
  EXPECT_EQ(Length(Prompt({1, 2, 3, 4, 5, 6, 7})), 8);
  index_.EvictRows([] { return false; });
  EXPECT_TRUE(index_.CheckIntegrity().ok()) << index_.CheckIntegrity();
  EXPECT_EQ(rows_.bytes(), 0);
  EXPECT_EQ(Length(History(std::vector<TokenId>{7, 8, 9, 10})), 4) << "it has no rows";
  EXPECT_EQ(Length(Prompt({})), 4) << "nor has the page before them";
}

}  // namespace
}  // namespace weft
