// A model file that is truncated or overwritten while it is loaded or in use: the engine reports a
// status and keeps nothing computed since.
#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>

#include "engine/engine_test_util.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ModelFileTest : public ::testing::TestWithParam<const char*> {
 protected:
  ModelFileTest() { PutWhole(); }

  void PutWhole() {
    fs::remove(path_);
    fs::copy_file(testing::TinyModelFile("gemma3"), path_);
    size_ = fs::file_size(path_);
  }
  StatusOr<std::shared_ptr<const Model>> Load(std::function<void(double)> progress = nullptr) {
    ModelOptions options;
    options.n_threads = 1;
    options.backend = GetParam();
    options.progress = std::move(progress);
    return Model::Load(path_, options);
  }
  void ExpectTold(const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(Message(status)),
                AllOf(HasSubstr("model.gguf"), Not(HasSubstr(path_)), HasSubstr("in use")));
  }

  const TestFolder folder_;
  const std::string path_ = folder_.path() + "/model.gguf";
  uintmax_t size_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Backends, ModelFileTest, ::testing::Values("cpu", "reference"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(ModelFileTest, OneThatIsShortFromTheStartIsTruncated) {
  fs::resize_file(path_, size_ / 2);
  EXPECT_THAT(Load().status(), IsError(StatusCode::kDataLoss, "truncated"));
}

TEST_P(ModelFileTest, CutWhileItIsLoaded) {
  for (const double when : {0.0, 0.1, 0.3, 0.5, 0.8, 1.0}) {
    for (const double left : {0.0, 0.3, 0.9, 0.999}) {
      PutWhole();
      bool cut = false;
      const auto model = Load([&](double fraction) {
        if (fraction < when || std::exchange(cut, true)) return;
        fs::resize_file(path_, static_cast<uintmax_t>(left * static_cast<double>(size_)));
      });
      ASSERT_TRUE(cut) << "at " << when;
      ExpectTold(model.status());
    }
  }
}

TEST_P(ModelFileTest, CutAtAnyMomentOfTheLoad) {
  for (int64_t delay_us = 0; delay_us < 8000; delay_us += 200) {
    PutWhole();
    std::thread cutter([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
      fs::resize_file(path_, 0);
    });
    const auto model = Load();
    cutter.join();
    if (model.ok()) {
      ExpectTold((*model)->CheckFile());
    } else {
      EXPECT_THAT(std::string(Message(model.status())), HasSubstr("model.gguf"));
    }
  }
}

TEST_P(ModelFileTest, CutWhileATurnDecodes) {
  EngineOptions options = SmallEngine();
  options.state_dir = folder_.path() + "/state";
  options.max_pending_events = 4;
  const TurnOptions first = Greedy(RandomTokens(40, 1), 8);
  std::vector<int32_t> before;
  {
    auto model = Load();
    ASSERT_TRUE(model.ok()) << model.status();
    auto engine = StartEngine(options, *model);
    const SessionId session = NewSession(engine.get(), "kitchen");
    EXPECT_OK(RunTurn(engine.get(), session, first).done().status);
    before = TokensOf(engine.get(), session);
    ASSERT_TRUE(Eventually([&] { return engine->Stats().disk_pending == 0; }));
    const int64_t blocks = engine->Stats().disk_blocks;

    const auto turn = SubmitTurn(engine.get(), session, Greedy(RandomTokens(20, 2), 300));
    TurnOutcome outcome;
    ReadToFirstToken(turn.get(), &outcome);
    fs::resize_file(path_, size_ / 3);
    while (auto event = turn->Next()) testing::AddEvent(*std::move(event), &outcome);
    ExpectTold(outcome.done().status);
    EXPECT_LT(outcome.tokens().size(), 300u);

    // From now on nothing is computed for anyone.
    const SessionId other = NewSession(engine.get(), "other");
    ExpectTold(engine->Submit(other, first).status());
    ExpectTold(engine->SubmitOnce("", first).status());
    ExpectTold((*model)->CheckFile());
    EXPECT_OK(engine->CheckIntegrity());
    EXPECT_LE(engine->Stats().disk_blocks, blocks + 2) << "pages of the broken turn were kept";
    EXPECT_OK(engine->Shutdown(std::chrono::milliseconds(0)));
    // The old model still reports it after the file was restored.
    PutWhole();
    ExpectTold((*model)->CheckFile());
  }
  // Earlier answers are unaffected.
  auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  auto engine = StartEngine(options, *model);
  const auto session = engine->FindSession("", "kitchen");
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(TokensOf(engine.get(), *session), before);
  const TurnOptions next = Greedy(RandomTokens(20, 3), 10);
  const TurnOutcome outcome = RunTurn(engine.get(), *session, next);
  EXPECT_OK(outcome.done().status);
  const std::vector<TurnOptions> turns = {first, next};
  EngineOptions alone = SmallEngine();
  EXPECT_EQ(outcome.tokens(), RunAlone(*model, alone, turns).back().tokens());
}

TEST_P(ModelFileTest, WrittenToWhileItIsIdle) {
  auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  auto engine = StartEngine(SmallEngine(), *model);
  const TurnOptions turn = Greedy({5, 6}, 2);
  EXPECT_OK(RunTurn(engine.get(), NewSession(engine.get()), turn).done().status);
  // Renaming the file and creating another under its name is not a change.
  fs::rename(path_, path_ + ".old");
  PutWhole();
  EXPECT_OK(RunTurn(engine.get(), NewSession(engine.get()), turn).done().status);
  // The file size stays the same.
  const int fd = open((path_ + ".old").c_str(), O_WRONLY);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(pwrite(fd, "xx", 2, static_cast<off_t>(size_) / 2), 2);
  close(fd);
  const Status status = engine->Submit(NewSession(engine.get()), turn).status();
  EXPECT_THAT(status, IsError(StatusCode::kDataLoss, "was written to"));
}

}  // namespace
}  // namespace weft
