#include "model/formats/importance_matrix.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/formats/gguf_writer.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ImportanceMatrixTest : public ::testing::Test {
 protected:
  ImportanceMatrixTest()
      : dir_(std::filesystem::temp_directory_path() / StrCat("weft_imatrix_test_", getpid())) {
    std::filesystem::create_directories(dir_);
  }
  ~ImportanceMatrixTest() override { std::filesystem::remove_all(dir_); }
  std::string Path(std::string_view name) const { return dir_ / std::string(name); }

 private:
  const std::filesystem::path dir_;
};

// Two tensors: a matrix of three inputs, and a stack of two matrices.
ImportanceMatrix Small() {
  ImportanceMatrix matrix;
  matrix.entries["blk.0.attn_q.weight"] = {{2, 8, 32}, {4}};
  matrix.entries["blk.0.ffn_up_exps.weight"] = {{1, 2, 3, 6, 12, 18}, {1, 6}};
  matrix.texts = {"a.txt"};
  matrix.n_chunks = 2;
  matrix.chunk_tokens = 64;
  return matrix;
}

std::string Message(const Status& status) { return std::string(weft::Message(status)); }

TEST_F(ImportanceMatrixTest, WhatIsWrittenIsRead) {
  std::mt19937 random(1);
  ImportanceMatrix matrix = Small();
  for (int i = 0; i < 20; ++i) {
    ImportanceMatrix::Entry& entry = matrix.entries[StrCat("blk.", i, ".x.weight")];
    for (uint32_t n = 1 + random() % 300; n > 0; --n) {
      entry.sums.push_back(static_cast<float>(random() % 100000) / 64);
    }
    entry.counts = {static_cast<double>(random() % 100)};
  }
  const std::string path = Path("m.gguf");
  ASSERT_TRUE(matrix.Write(path).ok());
  const auto read = ImportanceMatrix::Read(path);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->entries.size(), matrix.entries.size());
  for (const auto& [name, entry] : matrix.entries) {
    EXPECT_EQ(read->entries.at(name).sums, entry.sums) << name;
    EXPECT_EQ(read->entries.at(name).counts, entry.counts) << name;
  }
  EXPECT_EQ(read->texts, matrix.texts);
  EXPECT_EQ(read->n_chunks, 2);
  EXPECT_EQ(read->chunk_tokens, 64);
}

TEST_F(ImportanceMatrixTest, MeansAreSumsByCount) {
  ImportanceMatrix matrix = Small();
  EXPECT_THAT(*matrix.MeansOf("blk.0.attn_q.weight", 3, 1), ElementsAre(0.5f, 2.0f, 8.0f));
  EXPECT_THAT(*matrix.MeansOf("blk.0.ffn_up_exps.weight", 3, 2),
              ElementsAre(1.0f, 2.0f, 3.0f, 1.0f, 2.0f, 3.0f));
  EXPECT_THAT(*matrix.MeansOf("output.weight", 3, 1), IsEmpty());
  // An expert that no row reached.
  matrix.entries["blk.0.ffn_up_exps.weight"] = {{1, 2, 3, 0, 0, 0}, {1, 0}};
  EXPECT_THAT(*matrix.MeansOf("blk.0.ffn_up_exps.weight", 3, 2),
              ElementsAre(1.0f, 2.0f, 3.0f, 1.0f, 1.0f, 1.0f));
  // One row of sums for all matrices.
  matrix.entries["blk.0.attn_k_b.weight"] = {{3, 6, 9}, {3}};
  EXPECT_THAT(*matrix.MeansOf("blk.0.attn_k_b.weight", 3, 2),
              ElementsAre(1.0f, 2.0f, 3.0f, 1.0f, 2.0f, 3.0f));
  EXPECT_THAT(Message(matrix.MeansOf("blk.0.attn_q.weight", 4, 1).status()),
              HasSubstr("belongs to another model: it has 3 values for blk.0.attn_q.weight"));
}

TEST_F(ImportanceMatrixTest, AddingFilesAddsTheirRows) {
  ImportanceMatrix matrix = Small();
  ASSERT_TRUE(matrix.Add(Small()).ok());
  ImportanceMatrix more;
  more.entries["blk.0.ffn_up_exps.weight"] = {{6, 6, 6, 6, 6, 6}, {6}};
  more.entries["blk.1.attn_q.weight"] = {{1, 1, 1}, {1}};
  ASSERT_TRUE(matrix.Add(more).ok());
  EXPECT_THAT(matrix.entries["blk.0.attn_q.weight"].sums, ElementsAre(4, 16, 64));
  EXPECT_THAT(matrix.entries["blk.0.attn_q.weight"].counts, ElementsAre(8));
  EXPECT_THAT(matrix.entries["blk.0.ffn_up_exps.weight"].sums, ElementsAre(8, 10, 12, 18, 30, 42));
  EXPECT_THAT(matrix.entries["blk.0.ffn_up_exps.weight"].counts, ElementsAre(8, 18));
  EXPECT_THAT(matrix.entries["blk.1.attn_q.weight"].counts, ElementsAre(1));
  EXPECT_THAT(matrix.texts, ElementsAre("a.txt", "a.txt"));
  EXPECT_EQ(matrix.n_chunks, 4);
  more.entries["blk.1.attn_q.weight"] = {{1, 1}, {1}};
  EXPECT_THAT(Message(matrix.Add(more)), HasSubstr("belong to different models"));
}

template <typename T>
void Append(T value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string OldForm() {
  std::string bytes;
  Append(int32_t{2}, &bytes);
  for (const std::string name : {"blk.0.attn_q.weight", "blk.0.attn_k.weight"}) {
    Append(static_cast<int32_t>(name.size()), &bytes);
    bytes += name;
    Append(int32_t{3}, &bytes);  // chunks
    Append(int32_t{2}, &bytes);  // values
    Append(1.5f, &bytes);
    Append(6.0f, &bytes);
  }
  Append(int32_t{3}, &bytes);
  Append(int32_t{5}, &bytes);
  return bytes + "b.txt";
}

TEST_F(ImportanceMatrixTest, TheOldFormIsRead) {
  const std::string bytes = OldForm();
  const auto matrix = ImportanceMatrix::FromOldForm("m.dat", std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  EXPECT_THAT(*matrix->MeansOf("blk.0.attn_k.weight", 2, 1), ElementsAre(0.5f, 2.0f));
  EXPECT_THAT(*matrix->MeansOf("blk.0.attn_k.weight", 1, 2), ElementsAre(0.5f, 2.0f));
  EXPECT_EQ(matrix->entries.size(), 2u);
  EXPECT_EQ(matrix->n_chunks, 3);
  EXPECT_THAT(matrix->texts, ElementsAre("b.txt"));
}

// Of a file that was cut off, only one without its last part is whole: that part may be absent.
TEST_F(ImportanceMatrixTest, DamagedFilesAreRefused) {
  const std::string whole = OldForm();
  const size_t without_tail = whole.size() - 13;
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string bytes = whole.substr(0, size);
    const auto matrix = ImportanceMatrix::FromOldForm("m.dat", std::as_bytes(std::span(bytes)));
    EXPECT_EQ(matrix.ok(), size == without_tail) << size;
    if (matrix.ok()) continue;
    EXPECT_THAT(Message(matrix.status()), HasSubstr("m.dat"));
  }
  std::mt19937 random(2);
  for (int trial = 0; trial < 20000; ++trial) {
    std::string bytes = whole;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    const auto matrix = ImportanceMatrix::FromOldForm("m.dat", std::as_bytes(std::span(bytes)));
    if (matrix.ok()) continue;
    EXPECT_THAT(Message(matrix.status()), HasSubstr("m.dat"));
  }
  // A model is not an importance matrix, and negative sums are none.
  GgufWriter writer;
  const std::vector<float> value = {1};
  writer.AddTensor("x", DType::kF32, std::vector<int64_t>{1}, std::as_bytes(std::span(value)));
  ASSERT_TRUE(writer.Write(Path("model.gguf")).ok());
  EXPECT_THAT(Message(ImportanceMatrix::Read(Path("model.gguf")).status()),
              HasSubstr("is not an importance matrix"));
  ImportanceMatrix negative = Small();
  negative.entries["blk.0.attn_q.weight"].sums[1] = -1;
  ASSERT_TRUE(negative.Write(Path("negative.gguf")).ok());
  EXPECT_THAT(Message(ImportanceMatrix::Read(Path("negative.gguf")).status()),
              HasSubstr("attn_q.weight is damaged"));
}

}  // namespace
}  // namespace weft
