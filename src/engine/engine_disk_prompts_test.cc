// Which prompts without a session name the disk keeps: long ones and those that come back, and not
// what came once and pushes at them.
#include "engine/engine_test_util.h"

namespace weft {
namespace {

constexpr int64_t kAmple = int64_t{1} << 30;
constexpr int64_t kLong = 1100;  // more than the 1,000 tokens that are worth keeping at once
constexpr int64_t kPages = kLong / 16;

std::shared_ptr<const Model> LongModel() {
  static const auto model =
      Model::Load(testing::TinyModelFile("llama"), {.n_threads = 1, .context_tokens = 4096});
  EXPECT_TRUE(model.ok()) << model.status();
  return *model;
}

class EngineDiskPromptsTest : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> Start() {
    EngineOptions options = SmallEngine();
    options.state_dir = folder_.path();
    options.state_disk_bytes = disk_bytes_;
    options.state_disk_bytes_per_hour = kAmple;
    return StartEngine(options, LongModel());
  }
  static TurnUsage Ask(Engine* engine, uint64_t prompt, int64_t n_tokens) {
    const TurnOutcome said =
        Collect(engine->SubmitOnce("", Greedy(RandomTokens(n_tokens, prompt), 1))->get());
    EXPECT_TRUE(said.done().status.ok()) << said.done().status;
    EXPECT_TRUE(Eventually([&] { return engine->Stats().disk_pending == 0; }));
    return said.done().usage;
  }

  const TestFolder folder_;
  int64_t disk_bytes_ = kAmple;
};

TEST_F(EngineDiskPromptsTest, ALongOneIsKeptAtOnce) {
  auto engine = Start();
  Ask(engine.get(), 1, 1000);
  EXPECT_EQ(engine->Stats().disk_blocks, 0);
  Ask(engine.get(), 2, 1001);
  EXPECT_GT(engine->Stats().disk_blocks, 0);
  engine.reset();
  engine = Start();
  EXPECT_EQ(Ask(engine.get(), 1, 1000).cached_tokens, 0);
  const TurnUsage usage = Ask(engine.get(), 2, 1001);
  EXPECT_EQ(usage.cached_tokens, 1000);
  EXPECT_EQ(usage.disk_tokens, 1000);
}

TEST_F(EngineDiskPromptsTest, OneThatComesBackOutlivesThoseThatCameOnce) {
  constexpr uint64_t kRecurring = 1;
  auto engine = Start();
  // After the first time it is found in memory, and the disk is not asked for it.
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(Ask(engine.get(), kRecurring, kLong).cached_tokens, i == 0 ? 0 : kLong - 1);
  }
  for (uint64_t once = 2; once < 5; ++once) Ask(engine.get(), once, kLong);
  engine.reset();
  // Now there is room for one of them.
  disk_bytes_ = 3 * kPages * (testing::PageBytes(*LongModel(), SmallEngine()) + 4096) / 2;
  engine = Start();
  EXPECT_GT(engine->Stats().disk_evicted_blocks, kPages);
  EXPECT_EQ(Ask(engine.get(), kRecurring, kLong).disk_tokens, kLong - 1);
}

}  // namespace
}  // namespace weft
