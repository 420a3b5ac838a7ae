// Devices that give less memory than the budget allows: turns say the same, with less of it.
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compute/backend.h"
#include "engine/engine_test_util.h"
#include "tests/support/wrapped_backend.h"

namespace weft {
namespace {

using testing::WrappedBackend;
using testing::WrappedExecutor;
using testing::WrappedState;

// Refuses pages beyond a number of them, and the steps whose turn has come.
class Stingy : public WrappedBackend {
 public:
  StatusOr<std::unique_ptr<StateStore>> NewState(const Weights& weights,
                                                 const StateOptions& options) const override {
    class State : public WrappedState {
     public:
      State(std::unique_ptr<StateStore> inner, const Stingy* backend)
          : WrappedState(std::move(inner)), backend_(*backend) {}
      Status GrowPages(int group, int64_t n_pages) override {
        if (n_pages <= backend_.max_pages) return WrappedState::GrowPages(group, n_pages);
        ++backend_.n_refused;
        return ResourceExhausted("the device is full");
      }

     private:
      const Stingy& backend_;
    };
    WEFT_ASSIGN_OR_RETURN(auto state, WrappedBackend::NewState(weights, options));
    return std::make_unique<State>(std::move(state), this);
  }
  StatusOr<std::unique_ptr<Executor>> NewExecutor(std::shared_ptr<const Weights> weights,
                                                  StateStore* state,
                                                  const ExecutorOptions& options) const override {
    class Refusing : public WrappedExecutor {
     public:
      Refusing(std::unique_ptr<Executor> inner, const Stingy* backend)
          : WrappedExecutor(std::move(inner)), backend_(*backend) {}
      StatusOr<std::unique_ptr<StepRun>> Begin(const Step& step) override {
        const int64_t n = ++backend_.n_steps;
        const int64_t period = backend_.refuses_every;
        if (period == 0 || n % period != 0) return WrappedExecutor::Begin(step);
        ++backend_.n_refused;
        return ResourceExhausted("the device is full");
      }

     private:
      const Stingy& backend_;
    };
    WEFT_ASSIGN_OR_RETURN(auto executor, WrappedBackend::NewExecutor(
                                             std::move(weights),
                                             static_cast<WrappedState*>(state)->inner(), options));
    return std::make_unique<Refusing>(std::move(executor), this);
  }

  std::atomic<int64_t> max_pages{int64_t{1} << 30};
  std::atomic<int64_t> refuses_every{0};
  mutable std::atomic<int64_t> n_steps{0}, n_refused{0};
};

class EngineShrinkTest : public ::testing::TestWithParam<const char*> {
 protected:
  void Start() {
    model_ = TinyModel(GetParam(), 1, &backend_);
    engine_ = StartEngine(SmallEngine(), model_);
  }
  // Runs turns together; each answers as it does alone.
  void RunTurns(uint64_t first, uint64_t n) {
    std::vector<TurnOptions> turns;
    std::vector<std::shared_ptr<Turn>> running;
    for (uint64_t i = first; i < first + n; ++i) {
      turns.push_back(Greedy(RandomTokens(70, i), 30));
      running.push_back(*engine_->SubmitOnce("", turns.back()));
    }
    for (size_t i = 0; i < turns.size(); ++i) {
      const TurnOutcome outcome = Collect(running[i].get());
      EXPECT_TRUE(outcome.done().status.ok()) << outcome.done().status;
      EXPECT_EQ(
          outcome.tokens(),
          RunAlone(TinyModel(GetParam()), SmallEngine(), std::span(&turns[i], 1))[0].tokens());
    }
    EXPECT_TRUE(engine_->CheckIntegrity().ok()) << engine_->CheckIntegrity();
  }

  Stingy backend_;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(EngineShrinkTest, PrefixesMakeRoomWhereTheDeviceHasLessThanTheBudget) {
  Start();
  backend_.max_pages = 20;
  const int64_t before = engine_->Stats().page_budget;
  for (uint64_t round = 0; round < 4; ++round) RunTurns(round, 1);
  EXPECT_GT(backend_.n_refused, 0);
  EXPECT_LT(engine_->Stats().page_budget, before);
}

TEST_P(EngineShrinkTest, TurnsThatTheDeviceDoesNotHoldTogetherAllEnd) {
  Start();
  backend_.max_pages = 12;
  RunTurns(0, 5);
  EXPECT_GT(backend_.n_refused, 0);
}

TEST_P(EngineShrinkTest, ARefusedStepIsComputedLater) {
  Start();
  RunTurns(0, 3);  // prefixes to give up
  backend_.refuses_every = 5;
  RunTurns(3, 3);
  EXPECT_GT(backend_.n_refused, 3);
}

TEST_P(EngineShrinkTest, GuessesOfARefusedStepCostNothing) {
  EngineOptions options = SmallEngine();
  options.speculation = Speculation::kLookup;
  model_ = TinyModel(GetParam(), 1, &backend_);
  engine_ = StartEngine(options, model_);
  backend_.refuses_every = 3;
  // A text that repeats itself.
  std::vector<TokenId> prompt = RandomTokens(12, 1);
  for (int i = 0; i < 3; ++i) prompt.insert(prompt.end(), prompt.begin(), prompt.begin() + 12);
  const TurnOptions turn = Greedy(prompt, 40);
  const auto running = *engine_->SubmitOnce("", turn);
  EXPECT_EQ(Collect(running.get()).tokens(),
            RunAlone(TinyModel(GetParam()), SmallEngine(), std::span(&turn, 1))[0].tokens());
  EXPECT_GT(backend_.n_refused, 1);
  EXPECT_TRUE(engine_->CheckIntegrity().ok()) << engine_->CheckIntegrity();
}

TEST_P(EngineShrinkTest, ADeviceThatRefusesEverythingFailsTheTurn) {
  Start();
  backend_.refuses_every = 1;
  const auto turn = *engine_->SubmitOnce("", Greedy(RandomTokens(30, 1), 5));
  EXPECT_THAT(Collect(turn.get()).done().status,
              IsError(StatusCode::kResourceExhausted, "the device is full"));
  backend_.refuses_every = 0;
  RunTurns(1, 2);
}

INSTANTIATE_TEST_SUITE_P(Models, EngineShrinkTest, ::testing::Values("llama", "gemma3", "qwen35"),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace weft
