#include "cli/chat/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::cli {
namespace {

using ::testing::HasSubstr;

TEST(ChatSettings, AreTheUsersThenTheModelsThenWefts) {
  ChatSettings settings({}, {}, {.temperature = 0.25});
  EXPECT_EQ(*settings.Show("temperature"), "temperature 0.25 (the model's)");
  EXPECT_EQ(*settings.Show("top_k"), "top_k 40");
  EXPECT_TRUE(settings.Set("temperature", "1.5").ok());
  EXPECT_EQ(*settings.Show("temperature"), "temperature 1.5");
  const SamplingOptions used = SamplingWith(settings.sampling(), settings.of_model());
  EXPECT_EQ(used.temperature, 1.5f);
  EXPECT_TRUE(settings.Set("temperature", "default").ok());
  EXPECT_EQ(SamplingWith(settings.sampling(), settings.of_model()).temperature, 0.25f);
}

TEST(ChatSettings, DefaultIsWhatTheFlagsSaid) {
  SamplingFlags flags{.said = {.top_k = 7}, .n = 100, .seed = 3};
  ChatSettings settings(flags, {.reasoning = "off", .reasoning_budget = 9}, {});
  for (const char* const name : {"top_k", "seed", "max_tokens", "reasoning_budget"}) {
    EXPECT_TRUE(settings.Set(name, "1").ok()) << name;
    EXPECT_EQ(*settings.Show(name), std::string(name) + " 1");
    EXPECT_TRUE(settings.Set(name, "default").ok()) << name;
  }
  EXPECT_TRUE(settings.Set("reasoning", "on").ok());
  EXPECT_EQ(settings.reply().reasoning, "on");
  EXPECT_TRUE(settings.Set("reasoning", "default").ok());
  EXPECT_EQ(settings.sampling().said.top_k, 7);
  EXPECT_EQ(settings.sampling().seed, 3);
  EXPECT_EQ(settings.sampling().n, 100);
  EXPECT_EQ(settings.reply().reasoning, "off");
  EXPECT_EQ(settings.reply().reasoning_budget, 9);
}

TEST(ChatSettings, SaysWhatThereIs) {
  ChatSettings settings({}, {}, {});
  for (const std::string& name : ChatSettings::Names()) {
    EXPECT_THAT(settings.Text(), HasSubstr(name));
    EXPECT_THAT(std::string(Message(settings.Set("warmth", "1"))), HasSubstr(name));
  }
  EXPECT_FALSE(settings.Show("warmth").ok());
  const std::pair<const char*, const char*> wrong[] = {
      {"temperature", "hot"}, {"temperature", "-1"}, {"temperature", ""},
      {"temperature", "nan"}, {"top_k", "1.5"},      {"top_p", "2"},
      {"seed", "x"},          {"max_tokens", "-2"},  {"reasoning", "maybe"}};
  for (const auto& [name, value] : wrong) {
    const Status status = settings.Set(name, value);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name << " " << value;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("takes"));
  }
  EXPECT_EQ(settings.Text(), ChatSettings({}, {}, {}).Text());
}

}  // namespace
}  // namespace weft::cli
