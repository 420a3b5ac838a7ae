#include "engine/state/history.h"

#include <thread>

#include "gtest/gtest.h"

namespace weft {
namespace {

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
  EXPECT_EQ(row->values, Values{3});
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
  EXPECT_EQ(some[0].row->values, Values{2});
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

}  // namespace
}  // namespace weft
