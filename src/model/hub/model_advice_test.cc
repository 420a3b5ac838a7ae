#include "model/hub/model_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/formats/gguf_writer.h"

namespace weft::hub {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ModelAdvice, OllamasParameters) {
  const SamplingAdvice advice = ParseOllamaParameters(
      R"({"temperature":0.7,"top_k":-1,"repeat_penalty":1.1,"stop":["<|im_end|>","User:",""],
          "num_ctx":4096,"mirostat":2,"top_p":7})");
  EXPECT_EQ(advice.Text(), "temperature 0.7, top_k -1, repeat_penalty 1.1");
  EXPECT_THAT(advice.stop, ElementsAre("<|im_end|>", "User:"));
  EXPECT_THAT(advice.left_out, ElementsAre("num_ctx 4096", "mirostat 2", "top_p 7"));
  EXPECT_THAT(ParseOllamaParameters(R"({"stop":"one"})").stop, ElementsAre("one"));
}

TEST(ModelAdvice, WhatIsNoJsonSaysNothing) {
  for (const char* const text : {"", "{", "[1]", "null"}) {
    EXPECT_TRUE(ParseOllamaParameters(text).empty()) << text;
    EXPECT_THAT(ParseOllamaParameters(text).left_out, IsEmpty());
  }
}

class AdviceOfTest : public ::testing::Test {
 protected:
  AdviceOfTest() {
    GgufWriter writer;
    writer.AddFloat32("general.sampling.temp", 0.9f);
    writer.AddInt32("general.sampling.top_k", 64);
    const std::string bytes = writer.ToBytes();
    bytes_.resize((bytes.size() + 7) / 8);
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(bytes_.data()));
    auto file = ModelFile::FromBytes("test", std::as_bytes(std::span(bytes_)).first(bytes.size()));
    EXPECT_TRUE(file.ok()) << file.status();
    if (file.ok()) file_ = *std::move(file);
  }

  std::vector<uint64_t> bytes_;
  std::shared_ptr<const ModelFile> file_;
};

TEST_F(AdviceOfTest, AFileAlone) {
  const ModelAdvice advice = AdviceOf({}, *file_);
  EXPECT_EQ(advice.advice.Text(), "temperature 0.9, top_k 64");
  EXPECT_THAT(advice.by, ElementsAre("file"));
}

TEST_F(AdviceOfTest, WhatComesWithTheNameGoesFirst) {
  const ModelAdvice ollama = AdviceOf(
      {.name = "x", .owner = Owner::kOllama, .parameters = R"({"temperature":0})"}, *file_);
  EXPECT_EQ(ollama.advice.Text(), "temperature 0, top_k 64");
  EXPECT_THAT(ollama.by, ElementsAre("ollama", "file"));
  const std::vector<CatalogueEntry> catalogue = {
      {.name = "small", .sampling = {.temperature = 0.2, .top_p = 0.5}}};
  EXPECT_EQ(AdviceOf({.name = "Small", .owner = Owner::kWeft}, *file_, catalogue).advice.Text(),
            "temperature 0.2, top_k 64, top_p 0.5");
  // Another program's model of that name is not the catalogue's.
  EXPECT_EQ(AdviceOf({.name = "small", .owner = Owner::kHub}, *file_, catalogue).advice.Text(),
            "temperature 0.9, top_k 64");
}

TEST_F(AdviceOfTest, WhatOllamaHasBesidesIsNotFollowedSilently) {
  EXPECT_THAT(AdviceOf({.name = "x",
                        .owner = Owner::kOllama,
                        .parameters = R"({"mirostat":2})",
                        .ollama_kinds = {"model", "template", "system", "params", "license"}},
                       *file_)
                  .advice.left_out,
              ElementsAre("mirostat 2", "a system message", "a template in Ollama's language"));
  EXPECT_THAT(AdviceOf({.ollama_kinds = {"model", "params", "config"}}, *file_).advice.left_out,
              IsEmpty());
}

}  // namespace
}  // namespace weft::hub
