#include "cli/top/top_screen.h"

#include "base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr int64_t kSecond = 1'000'000;

constexpr char kSlots[] = R"([
  {"id": 0, "is_processing": true, "n_prompt_tokens": 900, "n_prompt_tokens_cache": 512,
   "next_token": [{"n_decoded": 24}], "state": "writing", "session_id": "kitchen",
   "prompt_progress": {"processed": 900, "waits_behind_tokens": 0, "seconds_left": 0}},
  {"id": 1, "is_processing": true, "n_prompt_tokens": 18410, "n_prompt_tokens_cache": 5,
   "next_token": [{"n_decoded": 0}], "state": "reading",
   "prompt_progress": {"processed": 5892, "waits_behind_tokens": 0, "seconds_left": 92.5}},
  {"id": 2, "is_processing": true, "n_prompt_tokens": 50, "state": "waiting",
   "prompt_progress": {"processed": 0, "waits_behind_tokens": 12518}},
  {"id": 3, "is_processing": true},
  {"id": 4, "is_processing": false}])";
constexpr char kSessions[] = R"({"data": [
  {"id": "old", "state": "parked", "tokens": 70, "idle_ms": 7200000},
  {"id": "kitchen", "state": "running", "tokens": 924, "idle_ms": 0},
  {"id": "garden", "state": "ready", "tokens": 60, "idle_ms": 5000}]})";

TEST(ServerViewTest, RunningConversationsComeFirst) {
  ServerView view;
  AddTurns(kSlots, "", &view);
  AddIdle(kSessions, &view);
  EXPECT_EQ(view.others_running, 1);
  std::vector<std::string> names;
  for (const ConversationView& each : view.conversations) names.push_back(each.name);
  EXPECT_THAT(names, ::testing::ElementsAre("kitchen", "", "", "garden", "old"));
}

TEST(ServerViewTest, OddAnswersAreNothing) {
  for (const char* text : {"", "null", "[3]", "{}", "[{\"is_processing\": true, \"state\": 4}]",
                           R"({"data": [1, {"id": 2}]})", R"({"data": 5})", "[[["}) {
    ServerView view;
    AddTurns(text, "", &view);
    AddIdle(text, &view);
    EXPECT_THAT(ModelsIn(text), SizeIs(0u));
    for (const std::string& line : TopScreen("x", true).Lines(80, 24)) EXPECT_LE(line.size(), 80u);
  }
}

TEST(TopScreenTest, TellsWhatEachConversationDoes) {
  ServerView view;
  AddTurns(kSlots, "", &view);
  AddIdle(kSessions, &view);
  TopScreen screen("m at http://h:1", /*plain=*/true);
  screen.Add(view, 0);
  const std::vector<std::string> lines = screen.Lines(100, 40);
  const auto tells = [&](std::string_view name, std::string_view what) {
    EXPECT_THAT(lines, Contains(AllOf(StartsWith(name), HasSubstr(what))));
  };
  tells("kitchen", "writing");
  tells("kitchen", "24 tokens written; 512 of 900 found");
  tells("(no name)", "32 % of 18410 tokens, 1 min 3");
  tells("(no name)", "waits for 12518 tokens of other prompts");
  tells("garden", "5 s ago");
  tells("old", "on disk");
  tells("old", "2 h 0 min ago");
  EXPECT_THAT(lines, Contains("1 running for other keys"));
  // What does not fit is counted.
  EXPECT_THAT(screen.Lines(100, 9), AllOf(SizeIs(::testing::Le(9u)), Contains(HasSubstr("more;"))));
}

TEST(TopScreenTest, TellsWhatEachModelTakes) {
  ServerView view;
  view.models = ModelsIn(R"({"data": [
      {"id": "haiku", "status": {"value": "loaded"}, "memory_bytes": 1048576, "requests": 2},
      {"id": "haiku:law", "parent": "haiku", "status": null},
      {"id": "haiku:rhyme", "parent": "haiku"},
      {"id": "large", "status": {"value": "unloaded"}, "memory_bytes": 0, "requests": 0}]})");
  AddTurns(kSlots, "haiku", &view);
  AddIdle(R"({"data": [{"id": "kitchen", "model": "large", "state": "parked", "tokens": 70},
                       {"id": "kitchen", "model": "haiku", "state": "running", "tokens": 924}]})",
          &view);
  TopScreen screen("2 models at http://h:1", /*plain=*/true);
  screen.Add(view, 0);
  const std::vector<std::string> lines = screen.Lines(100, 40);
  const auto tells = [&](std::string_view name, std::string_view what, std::string_view more) {
    EXPECT_THAT(lines, Contains(AllOf(StartsWith(name), HasSubstr(what), HasSubstr(more))));
  };
  tells("haiku", "loaded", "1.0 MiB         2  law, rhyme");
  tells("large", "unloaded", "-         0");
  tells("kitchen", "haiku", "writing");
  tells("kitchen", "large", "on disk");
}

TEST(TopScreenTest, ChartsFiveMinutes) {
  TopScreen screen("m at http://h:1", /*plain=*/true);
  ServerView view = {.figures = ServerFigures{.page_budget = 1}};
  for (int64_t second = 0; second <= 600; ++second) {
    // Ten tokens a second until a minute before the end.
    if (second < 540) view.figures->written_tokens += 10;
    screen.Add(view, second * kSecond);
  }
  const std::vector<std::string> lines = screen.Lines(79, 40);
  const auto written = std::ranges::find_if(
      lines, [](const std::string& line) { return line.starts_with("written/s"); });
  ASSERT_NE(written, lines.end());
  EXPECT_EQ(*written,
            StrCat("written/s  ", std::string(48, '#'), std::string(12, ' '), "      10"));
  for (size_t columns = 60; columns < 130; columns += 7) {
    EXPECT_THAT(screen.Lines(columns, 40), Each(SizeIs(::testing::Le(columns))));
  }
}

}  // namespace
}  // namespace weft::cli
