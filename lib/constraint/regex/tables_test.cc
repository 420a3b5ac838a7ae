#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "constraint/regex/byte_rows.h"
#include "constraint/regex/chunked.h"
#include "constraint/regex/hash_index.h"
#include "gtest/gtest.h"

namespace weft::constraint {
namespace {

using Small = Chunked<int32_t, 32>;  // 8 elements per chunk

std::vector<int32_t> Counted(int32_t from, size_t count) {
  std::vector<int32_t> all(count);
  for (int32_t& one : all) one = from++;
  return all;
}

TEST(ChunkedTest, ElementsStayWhereTheyAre) {
  Small table;
  EXPECT_TRUE(table.empty());
  EXPECT_EQ(table.bytes(), 0u);
  std::vector<const int32_t*> places;
  for (int32_t i = 0; i < 1000; ++i) {
    table.push_back(i);
    ASSERT_EQ(table.size(), static_cast<size_t>(i) + 1);
    places.push_back(&table[static_cast<size_t>(i)]);
  }
  for (size_t i = 0; i < places.size(); ++i) {
    EXPECT_EQ(&table[i], places[i]);
    EXPECT_EQ(table[i], static_cast<int32_t>(i));
  }
  EXPECT_EQ(table.bytes(), 1000 * sizeof(int32_t));
}

TEST(ChunkedTest, ARunLiesInOneChunk) {
  Small table;
  std::vector<std::pair<size_t, std::vector<int32_t>>> runs;
  for (const size_t count : {3u, 5u, 1u, 8u, 7u, 2u, 20u, 1u, 9u, 8u, 4u, 4u, 100u, 0u, 6u}) {
    const auto run = Counted(static_cast<int32_t>(100 * runs.size()), count);
    runs.emplace_back(table.AddRun(run), run);
  }
  for (const auto& [first, run] : runs) {
    EXPECT_TRUE(std::ranges::equal(table.Run(first, run.size()), run)) << first;
    if (run.size() <= Small::kChunk) {
      EXPECT_LE(first % Small::kChunk + run.size(), Small::kChunk) << first;
    }
  }
  // 3+5, 1, 8, 7, 2, 20, 1, 9, 8, 4+4, 100, 6: nine chunks of the usual size and three larger ones.
  EXPECT_EQ(table.bytes(), (9 * 8 + 20 + 9 + 100) * sizeof(int32_t));
}

TEST(ChunkedTest, ACopyIsWholeAndGrowsByItself) {
  Small table;
  for (int32_t i = 0; i < 11; ++i) table.push_back(i);
  const size_t large = table.AddRun(Counted(50, 30));
  const size_t last = table.AddRun(Counted(90, 3));
  Small copy = table;
  EXPECT_EQ(copy.bytes(), table.bytes());
  const int32_t* place = &copy[last];
  copy.push_back(7);
  table.push_back(8);
  EXPECT_EQ(&copy[last], place);
  EXPECT_EQ(copy[last + 3], 7);
  EXPECT_EQ(table[last + 3], 8);
  copy[10] = -1;
  EXPECT_EQ(table[10], 10);
  EXPECT_TRUE(std::ranges::equal(copy.Run(large, 30), Counted(50, 30)));
  table = copy;
  EXPECT_EQ(table[10], -1);
}

TEST(HashIndexTest, FindsEachIdWhileItGrows) {
  HashIndex index;
  std::vector<uint64_t> hashes;
  const auto find = [&](uint64_t hash, int32_t id) {
    return index.Find(hash, [&](int32_t other) { return other == id; });
  };
  EXPECT_TRUE(index.empty());
  EXPECT_EQ(find(1, 0), -1);
  // Every third id has the hash of the one before it; many others have equal low bits.
  for (int32_t id = 0; id < 3000; ++id) {
    const bool again = id % 3 == 2;
    hashes.push_back(again ? hashes.back() : MixHash(3, static_cast<uint64_t>(id)) << (id % 7));
    EXPECT_EQ(find(hashes.back(), id), -1);
    index.Add(hashes.back(), id);
    for (int32_t known = id % 13; known <= id; known += 13) {
      ASSERT_EQ(find(hashes[static_cast<size_t>(known)], known), known) << "of " << id;
    }
  }
  EXPECT_FALSE(index.empty());
  for (int32_t id = 0; id < 3000; ++id) {
    EXPECT_EQ(find(hashes[static_cast<size_t>(id)], id), id);
    EXPECT_EQ(find(hashes[static_cast<size_t>(id)], 3000), -1);
  }
}

TEST(HashIndexTest, AsksOnlyAboutIdsOfTheHash) {
  HashIndex index;
  for (int32_t id = 0; id < 500; ++id) index.Add(static_cast<uint64_t>(id % 50) << 20, id);
  std::map<int32_t, int> asked;
  const HashIndex copy = index;
  EXPECT_EQ(copy.Find(uint64_t{7} << 20, [&](int32_t id) { return ++asked[id] > 1; }), -1);
  EXPECT_EQ(asked.size(), 10u);
  for (const auto& [id, times] : asked) EXPECT_EQ(id % 50, 7);
}

TEST(ByteRowsTest, RowsOfAllSizesKeepTheirEntries) {
  ByteRows rows;
  std::vector<ByteRows::Row> made;
  const auto step = [](size_t row) { return 1 + static_cast<int>(row % 200); };
  for (size_t i = 0; i < 1000; ++i) {
    ByteSet edges;
    for (int byte = 0; byte < 256; byte += step(i)) edges.Add(byte);
    const size_t before = rows.bytes();
    made.push_back(rows.Add(edges, [&](int byte) { return static_cast<int32_t>(i) + byte; }));
    EXPECT_GE(rows.bytes(), before);
    rows.Set(made[i], 255, -5);
  }
  for (size_t i = 0; i < made.size(); ++i) {
    const int last = 255 / step(i) * step(i);  // start of the range with byte 255
    for (int byte = 0; byte < 256; ++byte) {
      const int32_t expected =
          byte >= last ? -5 : static_cast<int32_t>(i) + byte / step(i) * step(i);
      ASSERT_EQ(rows.Get(made[i], static_cast<uint8_t>(byte)), expected) << i << " " << byte;
    }
  }
}

}  // namespace
}  // namespace weft::constraint
