#include "model/sampling/sampling_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

namespace weft {
namespace {

using ::testing::ElementsAre;

TEST(SamplingParameters, EachRowIsWhole) {
  std::set<std::string_view> names;
  for (const SamplingParameter& parameter : SamplingParameters()) {
    SCOPED_TRACE(parameter.name);
    EXPECT_TRUE(names.insert(parameter.name).second);
    EXPECT_TRUE(parameter.other_name.empty() || names.insert(parameter.other_name).second);
    EXPECT_EQ(FindSamplingParameter(parameter.name), &parameter);
    EXPECT_LT(parameter.min, parameter.max);
    EXPECT_TRUE(parameter.Takes(parameter.own));
    EXPECT_TRUE(parameter.Takes(parameter.alias.said));
    EXPECT_TRUE(parameter.Takes(parameter.alias.means));
    EXPECT_TRUE(parameter.stage.order == 0 || parameter.Takes(parameter.stage.off));
    EXPECT_EQ(parameter.In(SamplingOptions()), parameter.own);
    EXPECT_TRUE(parameter.flag.starts_with("--"));
  }
  EXPECT_EQ(FindSamplingParameter("repetition_penalty"), nullptr);
  EXPECT_EQ(FindSamplingParameter(""), nullptr);
}

// Whatever a parameter takes, it stores; each row writes to its own member only.
TEST(SamplingParameters, ValuesAreStoredWhereTheyBelong) {
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    SamplingAdvice advice;
    for (const SamplingParameter& parameter : SamplingParameters()) {
      const double top = std::min(parameter.max, 1e4);
      double number = std::uniform_real_distribution(parameter.min, top)(random);
      if (parameter.is_whole()) number = std::floor(number);
      if (random() % 2 == 0) advice.*parameter.advice = number;
    }
    const SamplingOptions before = UnchangedSampling();
    const SamplingOptions after = Advised(before, advice);
    for (const SamplingParameter& parameter : SamplingParameters()) {
      SCOPED_TRACE(parameter.name);
      const auto& said = advice.*parameter.advice;
      const double expected = !said                           ? parameter.In(before)
                              : *said == parameter.alias.said ? parameter.alias.means
                                                              : *said;
      EXPECT_FLOAT_EQ(static_cast<float>(parameter.In(after)), static_cast<float>(expected));
    }
  }
}

TEST(SamplingParameters, RangesAreKept) {
  EXPECT_FALSE(FindSamplingParameter("top_k")->Takes(1.5));
  EXPECT_FALSE(FindSamplingParameter("top_k")->Takes(-2));
  EXPECT_FALSE(FindSamplingParameter("top_p")->Takes(1.01));
  EXPECT_FALSE(FindSamplingParameter("temperature")->Takes(-0.1));
  EXPECT_FALSE(FindSamplingParameter("temperature")->Takes(std::nan("")));
}

TEST(SamplingParameters, UnchangedSamplingUsesNoSampler) {
  const SamplingOptions options = UnchangedSampling();
  EXPECT_EQ(options.temperature, 1);
  EXPECT_EQ(options.top_k, 0);
  EXPECT_EQ(options.top_p, 1);
  EXPECT_EQ(options.min_p, 0);
  EXPECT_EQ(options.repetition_penalty, 1);
  EXPECT_EQ(options.penalty_window, SamplingOptions().penalty_window);
}

TEST(Samplers, AreNamedOnceInTheOrderInWhichTheyRun) {
  const std::vector<std::string_view> names = SamplerNames();
  EXPECT_EQ(std::set(names.begin(), names.end()).size(), names.size());
  const auto place = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) - names.begin();
  };
  EXPECT_EQ(place("penalties"), 0);
  EXPECT_LT(place("top_k"), place("top_p"));
  EXPECT_LT(place("top_p"), place("min_p"));
  EXPECT_LT(place("min_p"), place("temperature"));
  EXPECT_LT(place("temperature"), std::ssize(names));
}

TEST(Samplers, ThoseOutsideTheListAreOff) {
  const std::string_view used[] = {"dry", "top_k", "temp"};
  SamplingAdvice off;
  EXPECT_EQ(SamplersOff(used, &off), std::nullopt);
  EXPECT_EQ(off.top_p, 1);
  EXPECT_EQ(off.min_p, 0);
  EXPECT_EQ(off.repeat_penalty, 1);
  EXPECT_EQ(off.presence_penalty, 0);
  EXPECT_EQ(off.frequency_penalty, 0);
  EXPECT_FALSE(off.top_k || off.temperature || off.repeat_last_n);
}

TEST(Samplers, UnknownAndMisplacedOnesAreNamed) {
  SamplingAdvice off;
  const std::string_view unknown[] = {"top_k", "novel"};
  EXPECT_EQ(SamplersOff(unknown, &off), "novel");
  const std::string_view misplaced[] = {"temperature", "top_k"};
  EXPECT_EQ(SamplersOff(misplaced, &off), "top_k");
  const std::string_view twice[] = {"top_k", "top_k"};
  EXPECT_EQ(SamplersOff(twice, &off), "top_k");
  EXPECT_TRUE(off.empty());
}

TEST(SamplingAdvice, OneOverTheOther) {
  SamplingAdvice upper{.temperature = 0, .stop = {"a"}};
  upper.FillFrom({.temperature = 1, .top_k = 3, .stop = {"b"}, .left_out = {"c"}});
  EXPECT_EQ(upper.Text(), "temperature 0, top_k 3");
  EXPECT_THAT(upper.stop, ElementsAre("a"));
  EXPECT_THAT(upper.left_out, ElementsAre("c"));
}

TEST(SamplingAdvice, AdviceOverOnesOwn) {
  const SamplingOptions none = Advised({.temperature = 1, .top_k = 0}, {});
  EXPECT_EQ(none.temperature, 1);
  EXPECT_EQ(none.top_k, 0);
  const SamplingOptions all = Advised({}, {.temperature = 0,
                                           .top_k = -1,
                                           .top_p = 0,
                                           .min_p = 0.5,
                                           .repeat_penalty = 1.5,
                                           .repeat_last_n = -1,
                                           .presence_penalty = -1,
                                           .frequency_penalty = 0.25});
  EXPECT_EQ(all.temperature, 0);
  EXPECT_EQ(all.top_k, 0);
  EXPECT_GT(all.top_p, 0);
  EXPECT_LT(all.top_p, 1e-6);
  EXPECT_EQ(all.min_p, 0.5f);
  EXPECT_EQ(all.repetition_penalty, 1.5f);
  EXPECT_EQ(all.penalty_window, -1);
  EXPECT_EQ(all.frequency_penalty, 0.25f);
  EXPECT_EQ(all.presence_penalty, -1);
  EXPECT_EQ(Advised({}, {.repeat_penalty = 0}).repetition_penalty, 1);
}

TEST(SamplingAdvice, SaysWhoSaysWhat) {
  EXPECT_EQ(DescribeSampling({}, {}, ""),
            "temperature 0.8, top_k 40, top_p 0.95, min_p 0.05 (Weft's own)");
  EXPECT_EQ(
      DescribeSampling({.temperature = 0.5}, {.temperature = 1, .top_k = 3, .top_p = 0.5}, "file"),
      "temperature 0.5 (flags); top_k 3, top_p 0.5 (file); min_p 0.05 (Weft's own)");
}

}  // namespace
}  // namespace weft
