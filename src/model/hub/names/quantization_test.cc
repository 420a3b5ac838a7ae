#include "model/hub/names/quantization.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::hub {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(QuantizationTest, IsReadFromTheName) {
  EXPECT_EQ(QuantizationOf("Model-1B-Q4_K_M.gguf"), "Q4_K_M");
  EXPECT_EQ(QuantizationOf("sub/model.q8_0.gguf"), "Q8_0");
  EXPECT_EQ(QuantizationOf("model_q4_k_m.gguf"), "Q4_K_M");
  EXPECT_EQ(QuantizationOf("m-UD-Q4_K_XL.gguf"), "UD-Q4_K_XL");
  EXPECT_EQ(QuantizationOf("m-IQ2_XXS-00001-of-00003.gguf"), "IQ2_XXS");
  EXPECT_EQ(QuantizationOf("m-BF16.gguf"), "BF16");
  EXPECT_EQ(QuantizationOf("gpt-oss-20b-MXFP4.gguf"), "MXFP4");
  EXPECT_EQ(QuantizationOf("Q4_0/m-Q8_0.gguf"), "Q8_0");
  EXPECT_EQ(QuantizationOf("Qwen3-0.6B.gguf"), "");
  EXPECT_EQ(QuantizationOf("model.gguf"), "");
}

TEST(GroupFilesTest, PartsBelongTogether) {
  const std::vector<std::string> files = {"README.md",
                                          "a-Q4_0.gguf",
                                          "b-00002-of-00002.gguf",
                                          "b-00001-of-00002.gguf",
                                          "c-00001-of-00003.gguf",
                                          "c-00002-of-00003.gguf",
                                          "mmproj-F16.gguf",
                                          "x.imatrix.gguf"};
  const std::vector<FileGroup> groups = GroupFiles(files);
  ASSERT_THAT(groups, SizeIs(2));
  EXPECT_EQ(groups[0].name, "a-Q4_0.gguf");
  EXPECT_THAT(groups[1].parts, ElementsAre(3u, 2u));
}

TEST(ChooseProjectorTest, TheUsualOneOfTheModelsFolder) {
  const std::vector<std::string> files = {"m-F16.gguf",       "mmproj-Q8_0.gguf",
                                          "mmproj-BF16.gguf", "m-mmproj-F16.gguf",
                                          "b/mmproj-x.gguf",  "mmproj-F16.txt"};
  EXPECT_EQ(ChooseProjector(files, "m-F16.gguf"), 3);
  EXPECT_EQ(ChooseProjector(files, "b/m.gguf"), 4);
  EXPECT_EQ(ChooseProjector(files, "c/m.gguf"), 3) << "of the whole repository";
  EXPECT_EQ(ChooseProjector(std::span(files).first(2), "m-F16.gguf"), 1);
  EXPECT_EQ(ChooseProjector(std::span(files).first(1), "m-F16.gguf"), -1);
}

TEST(GroupFilesTest, AMillionPartsAreNoModel) {
  const std::vector<std::string> files = {"b-00001-of-99999.gguf", "b-00002-of-99999.gguf"};
  EXPECT_THAT(GroupFiles(files), IsEmpty());
}

TEST(ChooseGroupTest, TheUsualOneWithoutAWord) {
  const std::vector<std::string> files = {"m-BF16.gguf", "m-Q4_0.gguf", "m-q4_k_m.gguf",
                                          "m-UD-Q4_K_M.gguf", "m-special.gguf"};
  const std::vector<FileGroup> all = GroupFiles(files);
  EXPECT_EQ(ChooseGroup(all, ""), 2);
  EXPECT_EQ(ChooseGroup(std::span(all).first(2), ""), 1);
  EXPECT_EQ(ChooseGroup(std::span(all).first(1), ""), 0);
  EXPECT_EQ(ChooseGroup({}, ""), -1);
  EXPECT_EQ(ChooseGroup(all, "bf16"), 0);
  EXPECT_EQ(ChooseGroup(all, "q4_k_m"), 2);
  EXPECT_EQ(ChooseGroup(all, "UD-Q4_K_M"), 3);
  EXPECT_EQ(ChooseGroup(all, "special"), 4);
  EXPECT_EQ(ChooseGroup(all, "M-SPECIAL.gguf"), 4);
  EXPECT_EQ(ChooseGroup(all, "pecial"), -1);
  EXPECT_EQ(ChooseGroup(all, "Q8_0"), -1);
}

}  // namespace
}  // namespace weft::hub
