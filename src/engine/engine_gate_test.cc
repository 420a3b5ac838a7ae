// Engines that compute in turn. Time is counted: a part of A's prompts takes as long as a step of
// B.
#include "compute/backend.h"
#include "engine/engine_test_util.h"
#include "engine/turns/shared_gate.h"

namespace weft {
namespace {

class EngineGateTest : public ::testing::Test {
 protected:
  static constexpr int kLongTokens = 440, kStepTokens = 16, kPendingEvents = 256;

  EngineGateTest() {
    EngineOptions options = Options();
    options.gate = gate_;
    a_ = StartEngine(options, TinyModel("llama", 1, &backend_a_));
    b_ = StartEngine(options, TinyModel("llama", 2, &backend_b_));
  }
  static EngineOptions Options() {
    EngineOptions options = SmallEngine();
    options.max_step_tokens = kStepTokens;
    options.max_pending_events = kPendingEvents;
    return options;
  }
  std::shared_ptr<Turn> Submit(Engine* engine, const TurnOptions& options) {
    return SubmitTurn(engine, NewSession(engine), options);
  }
  // The number of A's parts when each token of B is sampled.
  TurnOptions Watched(TurnOptions options, std::vector<int64_t>* parts) {
    struct Mask : TokenMask {
      Mask(std::vector<int64_t>* parts, testing::Faults* a) : parts(parts), a(a) {}
      void Apply(std::span<const int32_t>, std::span<uint32_t>) override {
        parts->push_back(a->parts);
      }
      std::vector<int64_t>* parts;
      testing::Faults* a;
    };
    options.token_mask = [parts, a = &faults_a()](int) { return std::make_unique<Mask>(parts, a); };
    return options;
  }
  // Between two tokens, at most two parts. A thread that the system keeps from its core comes late
  // to the gate, where nobody waits for it: rarely, so one gap in ten may be longer.
  static void ExpectShortGaps(const std::vector<int64_t>& parts) {
    size_t n_longer = 0;
    for (size_t i = 1; i < parts.size(); ++i) n_longer += parts[i] - parts[i - 1] > 2 ? 1 : 0;
    EXPECT_LE(n_longer, parts.size() / 10) << ::testing::PrintToString(parts);
  }
  void ExpectSameAlone(const TurnOutcome& got, const TurnOptions& turn, uint64_t seed) {
    ExpectSameAnswer(got, RunAlone(TinyModel("llama", seed), Options(), std::span(&turn, 1))[0]);
  }
  testing::Faults& faults_a() { return backend_a_.faults(); }
  testing::Faults& faults_b() { return backend_b_.faults(); }

  const TurnOptions long_ = Greedy(RandomTokens(kLongTokens, 1), 5);
  const TurnOptions short_ = Greedy(RandomTokens(4, 2), 12);
  testing::FaultyBackend backend_a_, backend_b_;  // outlive the engines
  const std::shared_ptr<SharedGate> gate_ =
      std::make_shared<SharedGate>([this] { return faults_a().parts + faults_b().forwards; });
  std::unique_ptr<Engine> a_, b_;
};

TEST_F(EngineGateTest, AShortRequestWaitsForOnePartOfALongPromptBeforeEachOfItsSteps) {
  faults_a().part_delay_us = 5000;
  const int64_t before = faults_a().parts;
  const auto long_turn = Submit(a_.get(), long_);
  ASSERT_TRUE(Eventually([&] { return faults_a().parts > before + 2; }));
  std::vector<int64_t> parts;
  const auto short_turn = Submit(b_.get(), Watched(short_, &parts));
  const TurnOutcome answer = Collect(short_turn.get());
  faults_a().part_delay_us = 0;
  ASSERT_EQ(parts.size(), 12u);
  ExpectShortGaps(parts);
  ExpectSameAlone(answer, short_, 2);
  ExpectSameAlone(Collect(long_turn.get()), long_, 1);
  EXPECT_OK(a_->CheckIntegrity());
  EXPECT_OK(b_->CheckIntegrity());
}

TEST_F(EngineGateTest, AnAnswerGoesOnWhileAnotherModelReadsALongPrompt) {
  faults_a().part_delay_us = 1000;
  std::vector<int64_t> parts;
  const TurnOptions talk = Greedy(RandomTokens(4, 2), 200);
  const auto talking = Submit(b_.get(), Watched(talk, &parts));
  const TurnOutcome read = RunTurn(a_.get(), NewSession(a_.get()), long_);
  const TurnOutcome said = Collect(talking.get());
  ExpectShortGaps(parts);
  ExpectSameAlone(said, talk, 2);
  ExpectSameAlone(read, long_, 1);
}

TEST_F(EngineGateTest, NeverTwoComputeAtATime) {
  testing::HeldSteps held(&faults_a());
  const auto first = Submit(a_.get(), short_);
  ASSERT_TRUE(held.WaitForOne());
  const int64_t before = faults_b().forwards;
  const auto second = Submit(b_.get(), short_);
  ASSERT_TRUE(Eventually([&] { return gate_->waiting() == 1; }));
  EXPECT_TRUE(held.holds());
  EXPECT_EQ(faults_b().forwards, before);
  held.Release();
  ExpectSameAlone(Collect(second.get()), short_, 2);
  ExpectSameAlone(Collect(first.get()), short_, 1);
}

TEST_F(EngineGateTest, AnEngineThatWaitsForItsTurnCanBeShutDown) {
  testing::HeldSteps held(&faults_a());
  const auto first = Submit(a_.get(), short_);
  ASSERT_TRUE(held.WaitForOne());
  // Its events are read after the shutdown only, and they fill its queue: it cannot end before.
  const auto second = Submit(b_.get(), Greedy(RandomTokens(4, 2), 400));
  ASSERT_TRUE(Eventually([&] { return gate_->waiting() == 1; }));
  std::thread ending([&] { EXPECT_OK(b_->Shutdown(std::chrono::milliseconds(0))); });
  held.Release();
  ending.join();
  EXPECT_EQ(Collect(second.get()).done().reason, FinishReason::kError);
  ExpectSameAlone(Collect(first.get()), short_, 1);
}

}  // namespace
}  // namespace weft
