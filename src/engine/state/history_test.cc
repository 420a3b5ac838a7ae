#include "engine/state/history.h"

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using Values = std::vector<float>;

TEST(RowTableTest, EqualBytesHaveOneIdAndOthersAnother) {
  RowTable table;
  const RowRef row = table.Keep(Values{1, 2, 0});
  EXPECT_TRUE(IsRow(row->id));
  EXPECT_NE(row->id, kAnyRow);
  EXPECT_EQ(table.Keep(Values{1, 2, 0}), row);
  const RowRef minus_zero = table.Keep(Values{1, 2, -0.0f});
  EXPECT_NE(minus_zero->id, row->id) << "bytes, not numbers";
  EXPECT_NE(table.Keep(Values{1, 2})->id, row->id);
  EXPECT_EQ(table.Find(row->id), row);
  EXPECT_EQ(table.Find(kAnyRow), nullptr);
  EXPECT_EQ(table.Find(5), nullptr);
}

TEST(RowTableTest, KeepsRowsAsLongAsSomebodyHoldsThem) {
  RowTable table;
  RowRef row = table.Keep(Values(100, 1));
  const TokenId id = row->id;
  EXPECT_EQ(table.bytes(), RowTable::BytesOf(1, 100));
  RowRef other = row;
  row.reset();
  EXPECT_NE(table.Find(id), nullptr);
  other.reset();
  EXPECT_EQ(table.Find(id), nullptr);
  EXPECT_EQ(table.bytes(), 0);
  EXPECT_NE(table.Keep(Values(100, 1))->id, id) << "ids do not come back soon";
}

TEST(RowTableTest, RowsMayOutliveTheTable) {
  RowRef row;
  {
    RowTable table;
    row = table.Keep(Values{3});
  }
  EXPECT_THAT(row->values, ElementsAre(3));
}

TEST(RowTableTest, ManyThreadsFindTheSameRows) {
  RowTable table;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&table] {
      for (int i = 0; i < 3000; ++i) {
        const RowRef row = table.Keep(Values{static_cast<float>(i % 7)});
        EXPECT_EQ(row->values[0], static_cast<float>(i % 7));
        const RowRef found = table.Find(row->id);
        ASSERT_EQ(found, row);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(table.bytes(), 0);
}

TEST(RowTableTest, ASpanIsKeptWholeAndIsNoOther) {
  RowTable table;
  const Values values = {1, 2, 3, 4, 5, 6};
  const RowForm grid = {.grid_rows = 1, .grid_columns = 3}, mutual = {.mutual = true};
  std::vector<RowRef> rows = table.KeepSpan(values, 3, grid);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_THAT(rows[1]->values, ElementsAre(3, 4));
  EXPECT_EQ(rows[2]->index, 2);
  EXPECT_EQ(table.KeepSpan(values, 3, grid), rows);
  EXPECT_NE(table.KeepSpan(values, 3, mutual)[0]->id, rows[0]->id);
  EXPECT_NE(table.KeepSpan(values, 2, grid)[0]->id, rows[0]->id);
  Values other = values;
  other.back() = 7;
  EXPECT_NE(table.KeepSpan(other, 3, grid)[0]->id, rows[0]->id) << "the last row differs";
  EXPECT_NE(table.Keep(Values{1, 2})->id, rows[0]->id) << "one that stands alone";
  const RowRef one = rows[1];
  const TokenId first = rows[0]->id;
  rows.clear();
  EXPECT_EQ(table.bytes(), RowTable::BytesOf(3, 2)) << "one row holds all";
  EXPECT_THAT(table.Find(first)->values, ElementsAre(1, 2));
}

class HistoryTest : public ::testing::Test {
 protected:
  // 10, 11, row, 12, row, row, 13.
  History Mixed() {
    History history(std::vector<TokenId>{10, 11});
    history.Add(table_.Keep(Values{1}));
    history.push_back(12);
    history.Add(table_.Keep(Values{2}));
    history.Add(table_.Keep(Values{3}));
    history.push_back(13);
    return history;
  }
  RowTable table_;
};

TEST_F(HistoryTest, IsTokensAndRowsInOrder) {
  const History history = Mixed();
  EXPECT_EQ(history.size(), 7u);
  EXPECT_EQ(history.WithoutIds(), (std::vector<TokenId>{10, 11, -2, 12, -2, -2, 13}));
  EXPECT_EQ(std::ssize(history.before_rows()), 2);
  EXPECT_EQ(history.row_bytes(), table_.bytes());
  const auto some = history.RowsIn(3, 2);
  ASSERT_EQ(some.size(), 1u);
  EXPECT_EQ(some[0].position, 4);
  EXPECT_THAT(some[0].row->values, ElementsAre(2));
  EXPECT_TRUE(history.RowsIn(0, 2).empty());
  EXPECT_TRUE(history == Mixed());
  EXPECT_EQ(std::ssize(History(std::vector<TokenId>{1, 2}).before_rows()), 2);
}

TEST_F(HistoryTest, IsCutAndPutTogether) {
  const History history = Mixed();
  for (int64_t at = 0; at <= 7; ++at) {
    History again = history.First(at);
    EXPECT_EQ(again.rows().size(), history.RowsIn(0, at).size());
    again.Append(history, at);
    EXPECT_TRUE(again == history) << at;
    ASSERT_EQ(again.rows().size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(again.rows()[i].position, history.rows()[i].position) << at;
    }
    History cut = history;
    cut.Cut(at);
    EXPECT_TRUE(cut == history.First(at)) << at;
    cut.Append(history.From(at));
    EXPECT_TRUE(cut == history) << at;
  }
}

class SpanHistoryTest : public ::testing::Test {
 protected:
  void AddSpan(History* history, int64_t n_rows, const RowForm& form) {
    Values values(static_cast<size_t>(n_rows));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    for (RowRef& row : table_.KeepSpan(values, n_rows, form)) history->Add(std::move(row));
  }
  static std::vector<int64_t> Axes(const History& history, int64_t n) {
    std::vector<int64_t> axes;
    for (int64_t i = 0; i < n; ++i) axes.push_back(history.AxisOf(i));
    return axes;
  }
  RowTable table_;
};

TEST_F(SpanHistoryTest, AGridTakesAsManyAxisPositionsAsItsLongerSide) {
  History history(std::vector<TokenId>{10, 11});
  EXPECT_FALSE(history.has_grids());
  AddSpan(&history, 6, {.grid_rows = 2, .grid_columns = 3});
  history.push_back(12);
  AddSpan(&history, 2, {.grid_rows = 2, .grid_columns = 1});
  EXPECT_TRUE(history.has_grids());
  EXPECT_EQ(history.rows()[5].axis_begin, 2);
  EXPECT_EQ(history.rows()[7].axis_begin, 6);
  EXPECT_EQ(history.AxisOf(8), 5);
  EXPECT_EQ(history.AxisOf(11), 8) << "of what follows";
  EXPECT_EQ(history.AxisOf(13), 10);
  const std::vector<int64_t> axes = Axes(history, 14);
  for (int64_t at = 0; at <= 11; ++at) {
    History again = history.First(at);
    again.Append(history, at);
    EXPECT_EQ(Axes(again, 14), axes) << at;
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(again.rows()[i].axis_begin, history.rows()[i].axis_begin) << at;
    }
  }
  history.Cut(2);
  EXPECT_FALSE(history.has_grids());
}

TEST_F(SpanHistoryTest, SpansAreNotCut) {
  History history(std::vector<TokenId>{10, 11});
  AddSpan(&history, 4, {.mutual = true});
  AddSpan(&history, 3, {.mutual = true});
  history.Add(table_.Keep(Values{1}));
  const auto run = [](int64_t begin, int64_t end) { return TokenRun{begin, end}; };
  EXPECT_THAT(history.MutualIn(0, 10), ElementsAre(run(2, 6), run(6, 9)));
  EXPECT_THAT(history.MutualIn(3, 2), ElementsAre(run(0, 3))) << "goes on";
  EXPECT_THAT(history.MutualIn(8, 2), ElementsAre(run(0, 1)));
  EXPECT_TRUE(history.MutualIn(9, 1).empty());
  for (const int64_t whole : {0, 2, 6, 9, 10}) EXPECT_FALSE(history.Cuts(whole)) << whole;
  for (const int64_t within : {3, 5, 7, 8}) EXPECT_TRUE(history.Cuts(within)) << within;
  EXPECT_EQ(history.WithoutCut(5), 2);
  EXPECT_EQ(history.WithoutCut(8), 6);
  EXPECT_EQ(WithoutCut(history.MutualIn(0, 10), 5), 2);
  EXPECT_EQ(WithoutCut(history.MutualIn(0, 10), 6), 6);
  EXPECT_EQ(WithoutCut(history.MutualIn(3, 7), 2), 0);
}

}  // namespace
}  // namespace weft
