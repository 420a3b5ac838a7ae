#include "model/formats/sampling_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/formats/gguf_writer.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

SamplingAdvice AdviceOfFile(const GgufWriter& writer) {
  const std::string bytes = writer.ToBytes();
  // Files must begin at a multiple of 8.
  std::vector<uint64_t> aligned((bytes.size() + 7) / 8);
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(aligned.data()));
  const auto file =
      ModelFile::FromBytes("test", std::as_bytes(std::span(aligned)).first(bytes.size()));
  EXPECT_TRUE(file.ok()) << file.status();
  return file.ok() ? ReadSamplingAdvice(**file) : SamplingAdvice();
}

TEST(SamplingAdvice, ReadsWhatTheFileSays) {
  GgufWriter writer;
  writer.AddFloat32("general.sampling.temp", 0.6f);
  writer.AddInt32("general.sampling.top_k", 20);
  writer.AddFloat32("general.sampling.top_p", 0.95f);
  writer.AddFloat32("general.sampling.min_p", 0);
  writer.AddFloat32("general.sampling.penalty_repeat", 1.05f);
  writer.AddInt32("general.sampling.penalty_last_n", -1);
  writer.AddInt32("general.sampling.mirostat", 0);
  writer.AddFloat32("general.sampling.xtc_threshold", 0.1f);
  const SamplingAdvice advice = AdviceOfFile(writer);
  EXPECT_EQ(
      advice.Text(),
      "temperature 0.6, top_k 20, top_p 0.95, min_p 0, repeat_penalty 1.05, repeat_last_n -1");
  EXPECT_EQ(advice.temperature, 0.6);  // not the double nearest to the float
  EXPECT_THAT(advice.left_out, IsEmpty());
}

TEST(SamplingAdvice, AFileThatSaysNothing) {
  GgufWriter writer;
  writer.AddString("general.name", "quiet");
  EXPECT_TRUE(AdviceOfFile(writer).empty());
}

TEST(SamplingAdvice, WhatCannotBeFollowedIsTold) {
  GgufWriter writer;
  writer.AddFloat32("general.sampling.temp", -1);
  writer.AddFloat32("general.sampling.top_k", 7.5f);
  writer.AddString("general.sampling.top_p", "most");
  writer.AddInt32("general.sampling.mirostat", 2);
  writer.AddFloat32("general.sampling.xtc_probability", 0.5f);
  writer.AddFloat32("general.sampling.min_p", 0.1f);
  const SamplingAdvice advice = AdviceOfFile(writer);
  EXPECT_EQ(advice.Text(), "min_p 0.1");
  EXPECT_THAT(advice.left_out, ElementsAre("temp -1", "top_k 7.5", "top_p most", "mirostat 2",
                                           "xtc_probability 0.5"));
}

TEST(SamplingAdvice, SamplersThatAreNotInTheSequenceAreOff) {
  GgufWriter writer;
  writer.AddString("general.sampling.sequence", "dry;top_p;temp");
  writer.AddFloat32("general.sampling.top_p", 0.5f);
  writer.AddInt32("general.sampling.top_k", 5);
  const SamplingAdvice advice = AdviceOfFile(writer);
  EXPECT_EQ(advice.top_k, 0);
  EXPECT_EQ(advice.top_p, 0.5);
  EXPECT_EQ(advice.min_p, 0);
  EXPECT_EQ(advice.repeat_penalty, 1);
  EXPECT_EQ(advice.presence_penalty, 0);
  EXPECT_EQ(advice.frequency_penalty, 0);
  EXPECT_FALSE(advice.temperature || advice.repeat_last_n);
}

TEST(SamplingAdvice, AnotherOrderIsLeftOut) {
  GgufWriter writer;
  writer.AddString("general.sampling.sequence", "temperature;top_p");
  writer.AddFloat32("general.sampling.top_p", 0.5f);
  const SamplingAdvice advice = AdviceOfFile(writer);
  EXPECT_EQ(advice.Text(), "top_p 0.5");
  EXPECT_THAT(advice.left_out, ElementsAre("sequence temperature;top_p"));
}

}  // namespace
}  // namespace weft
