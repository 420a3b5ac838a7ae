// Backends whose devices are missing, are several, have memory of their own, or compute while
// the engine does something else.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "compute/backend.h"
#include "engine/engine_test_util.h"
#include "tests/support/wrapped_backend.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using testing::WrappedBackend;
using testing::WrappedExecutor;
using testing::WrappedState;

constexpr int64_t kMiB = int64_t{1} << 20;

ModelOptions OnDevice(const Backend* backend, int device) {
  ModelOptions options;
  options.backend_object = backend;
  options.device = device;
  options.n_threads = 1;
  return options;
}

TEST(EngineDeviceTest, ABackendThatIsNotAvailableSaysWhatIsMissing) {
  class Absent : public WrappedBackend {
   public:
    Status Available() const override { return Unavailable("no driver is loaded"); }
  };
  const Absent backend;
  const auto model = Model::Load(testing::TinyModelFile("llama"), OnDevice(&backend, 0));
  EXPECT_THAT(model.status(), IsError(StatusCode::kUnavailable, "no driver is loaded"));
  EXPECT_THAT(std::string(Message(model.status())), HasSubstr("the cpu backend"));
}

TEST(EngineDeviceTest, ADeviceThatThereIsNotIsRefused) {
  for (const int device : {-1, 1, 7}) {
    const auto model = Model::Load(testing::TinyModelFile("llama"), OnDevice(nullptr, device));
    EXPECT_THAT(model.status(), IsError(StatusCode::kInvalidArgument, "has one device, 0"));
  }
}

TEST(EngineDeviceTest, TheBudgetIsHalfOfTheDevicesFreeMemory) {
  class Small : public WrappedBackend {
   public:
    StatusOr<MemoryInfo> MemoryOf(int /*device*/) const override {
      return MemoryInfo{.total_bytes = int64_t{1} << 40, .free_bytes = int64_t{300} << 20};
    }
  };
  const Small backend;
  EngineOptions options = SmallEngine();
  options.memory_bytes = 0;
  const auto model = TinyModel("llama", 1, &backend);
  const auto engine = StartEngine(options, model);
  EXPECT_EQ(engine->Stats().page_budget,
            (int64_t{150} << 20) / testing::PageBytes(*model, options));
}

// With memory of its own.
class Card : public WrappedBackend {
 public:
  StatusOr<MemoryInfo> MemoryOf(int /*device*/) const override {
    return MemoryInfo{
        .total_bytes = 1000 * kMiB, .free_bytes = 800 * kMiB, .reserve_bytes = 300 * kMiB};
  }
  StatusOr<std::unique_ptr<Executor>> NewExecutor(std::shared_ptr<const Weights> weights,
                                                  StateStore* state,
                                                  const ExecutorOptions& options) const override {
    class Capturing : public WrappedExecutor {
     public:
      using WrappedExecutor::WrappedExecutor;
      int64_t later_bytes() const override { return 100 * kMiB; }
    };
    WEFT_ASSIGN_OR_RETURN(auto executor,
                          WrappedBackend::NewExecutor(std::move(weights), state, options));
    return std::make_unique<Capturing>(std::move(executor));
  }
};

TEST(EngineDeviceTest, OfADevicesOwnMemoryAllIsTakenButTheReserveAndWhatComesLater) {
  const Card card;
  EngineOptions options = SmallEngine();
  options.memory_bytes = 0;
  const auto model = TinyModel("llama", 1, &card);
  const int64_t page = testing::PageBytes(*model, options);
  const int64_t taken = model->weights()->mapped_bytes();
  EXPECT_EQ(StartEngine(options, model)->Stats().page_budget, (400 * kMiB - taken) / page);
}

TEST(EngineDeviceTest, ADeviceGivesNoMoreThanItHas) {
  const Card card;
  EngineOptions options = SmallEngine();
  std::string notice;
  options.on_notice = [&](const std::string& text) { notice = text; };
  const auto model = TinyModel("llama", 1, &card);
  const int64_t page = testing::PageBytes(*model, options);
  EXPECT_EQ(StartEngine(options, model)->Stats().page_budget, options.memory_bytes / page);
  EXPECT_EQ(notice, "");
  options.memory_bytes = 500 * kMiB;
  EXPECT_LT(StartEngine(options, model)->Stats().page_budget, 401 * kMiB / page);
  EXPECT_THAT(notice, ::testing::HasSubstr("not 500.0 MiB"));
}

// Counts the sequences that want whole rows, and those that want the best tokens.
class CountsResults : public WrappedBackend {
 public:
  explicit CountsResults(bool has_best)
      : capabilities_(has_best ? WrappedBackend::capabilities()
                               : testing::WithoutBest(WrappedBackend::capabilities())) {}
  const BackendCapabilities& capabilities() const override { return capabilities_; }
  StatusOr<std::unique_ptr<Executor>> NewExecutor(std::shared_ptr<const Weights> weights,
                                                  StateStore* state,
                                                  const ExecutorOptions& options) const override {
    class Counting : public WrappedExecutor {
     public:
      Counting(std::unique_ptr<Executor> inner, const CountsResults* counts)
          : WrappedExecutor(std::move(inner)), counts_(*counts) {}
      StatusOr<std::unique_ptr<StepRun>> Begin(const Step& step) override {
        for (const StepSequence& sequence : step.sequences) {
          if (sequence.n_logits > 0) ++(sequence.n_best > 0 ? counts_.best : counts_.whole);
        }
        return WrappedExecutor::Begin(step);
      }

     private:
      const CountsResults& counts_;
    };
    WEFT_ASSIGN_OR_RETURN(auto executor,
                          WrappedBackend::NewExecutor(std::move(weights), state, options));
    return std::make_unique<Counting>(std::move(executor), this);
  }

  mutable std::atomic<int> best{0}, whole{0};

 private:
  const BackendCapabilities capabilities_;
};

TEST(EngineDeviceTest, TheBestTokensAreAskedForWhereTheyAreEnough) {
  TurnOptions drawn = Greedy(RandomTokens(10, 1), 20);
  drawn.sampling = SamplingOptions();
  drawn.sampling.seed = 5;
  TurnOptions ends = drawn;
  ends.ignore_eos = false;
  ends.min_tokens = 5;
  ends.stop_tokens = {300, 301};
  TurnOptions choices = drawn;
  choices.n_choices = 3;
  TurnOptions penalties = drawn;
  penalties.sampling.repetition_penalty = 1.2f;
  TurnOptions all = drawn;
  all.sampling.top_k = 0;
  TurnOptions masked = drawn;
  masked.token_mask = Script({70, 71, 72});
  TurnOptions logprobs = drawn;
  logprobs.top_logprobs = 2;
  TurnOptions of_draw = logprobs;
  of_draw.logprobs_of_draw = true;
  TurnOptions prompt = drawn;
  prompt.prompt_logprobs = true;
  struct Case {
    TurnOptions turn;
    bool best, whole;
  };
  const std::vector<Case> cases = {
      {Greedy(RandomTokens(10, 1), 20), true, false},
      {drawn, true, false},
      {ends, true, false},
      {choices, true, false},
      {penalties, false, true},
      {all, false, true},
      {masked, false, true},
      {logprobs, false, true},
      {of_draw, false, true},
      {prompt, true, true},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    std::vector<std::vector<int32_t>> said;
    for (const bool has_best : {true, false}) {
      const CountsResults backend(has_best);
      const auto engine = StartEngine(SmallEngine(), TinyModel("llama", 1, &backend));
      backend.best = backend.whole = 0;
      const TurnOutcome outcome = RunTurn(engine.get(), NewSession(engine.get()), cases[i].turn);
      EXPECT_OK(outcome.done().status);
      for (const ChoiceOutcome& choice : outcome.choices) said.push_back(choice.tokens);
      EXPECT_EQ(backend.best > 0, has_best && cases[i].best) << i;
      EXPECT_EQ(backend.whole > 0, !has_best || cases[i].whole) << i;
    }
    const size_t n = said.size() / 2;
    EXPECT_TRUE(std::equal(said.begin(), said.begin() + static_cast<ptrdiff_t>(n),
                           said.begin() + static_cast<ptrdiff_t>(n)))
        << i;
  }
}

// A device: a thread that computes the parts of open runs, the last one begun first, whether or
// not somebody waits for them. Between two parts it takes calls. It computes with the cpu backend,
// which allows one caller at a time.
class Device {
 public:
  // A run as the device sees it. Guarded by the device's mutex.
  struct Job {
    StepRun* run = nullptr;
    bool done = false;
    Status status;
  };

  Device() : thread_([this] { Loop(); }) {}
  ~Device() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // Makes a call between two parts.
  template <typename Call>
  auto Ask(Call call) {
    ++callers_;
    const std::lock_guard lock(mutex_);
    --callers_;
    return call();
  }
  void Push(Job* job) {
    Ask([&] { jobs_.push_back(job); });
    changed_.notify_all();
  }
  // Returns when no part of it is being computed any more.
  void Remove(Job* job) {
    Ask([&] { std::erase(jobs_, job); });
  }
  // False if it is not done after a moment.
  bool WaitFor(Job* job) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::microseconds(200), [&] { return job->done; });
  }
  int64_t parts() const { return parts_; }
  bool is_busy() {
    return Ask([&] { return !jobs_.empty(); });
  }

 private:
  void Loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      ComputePart(jobs_.back());
      lock.unlock();
      while (callers_ > 0) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      lock.lock();
    }
  }
  void ComputePart(Job* job) {
    const StatusOr<bool> done = job->run->Advance([] { return true; });
    ++parts_;
    if (done.ok() && !*done) return;
    job->status = done.status();
    job->done = true;
    std::erase(jobs_, job);
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Job*> jobs_;
  bool stopping_ = false;
  std::atomic<int> callers_{0};
  std::atomic<int64_t> parts_{0};
  std::thread thread_;
};

class DeviceRun : public StepRun {
 public:
  DeviceRun(Device* device, std::unique_ptr<StepRun> inner)
      : device_(*device), inner_(std::move(inner)) {
    job_.run = inner_.get();
    device_.Push(&job_);
  }
  ~DeviceRun() override {
    device_.Remove(&job_);
    device_.Ask([&] { inner_.reset(); });
  }
  StatusOr<bool> Advance(FunctionRef<bool()> pause) override {
    while (!device_.WaitFor(&job_)) {
      if (pause()) return false;
    }
    WEFT_RETURN_IF_ERROR(job_.status);
    return true;
  }

 private:
  Device& device_;
  std::unique_ptr<StepRun> inner_;
  Device::Job job_;
};

class DeviceState : public WrappedState {
 public:
  DeviceState(std::unique_ptr<StateStore> inner, Device* device)
      : WrappedState(std::move(inner)), device_(*device) {}

  Status GrowPages(int group, int64_t n_pages) override {
    return device_.Ask([&] { return WrappedState::GrowPages(group, n_pages); });
  }
  void DiscardPages(int group, std::span<const PageId> pages) override {
    device_.Ask([&] { WrappedState::DiscardPages(group, pages); });
  }
  Status CopyPage(int group, PageId from, PageId to, int n_tokens) override {
    return device_.Ask([&] { return WrappedState::CopyPage(group, from, to, n_tokens); });
  }
  Status ReadPage(int group, PageId page, int n_tokens, std::span<std::byte> out) const override {
    return device_.Ask([&] { return WrappedState::ReadPage(group, page, n_tokens, out); });
  }
  Status WritePage(int group, PageId page, std::span<const std::byte> in) override {
    return device_.Ask([&] { return WrappedState::WritePage(group, page, in); });
  }

 private:
  Device& device_;
};

class DeviceExecutor : public WrappedExecutor {
 public:
  DeviceExecutor(std::unique_ptr<Executor> inner, Device* device)
      : WrappedExecutor(std::move(inner)), device_(*device) {}

  StatusOr<std::unique_ptr<StepRun>> Begin(const Step& step) override {
    WEFT_ASSIGN_OR_RETURN(auto run, device_.Ask([&] { return WrappedExecutor::Begin(step); }));
    return std::make_unique<DeviceRun>(&device_, std::move(run));
  }
  int64_t scratch_bytes() const override {
    return device_.Ask([&] { return WrappedExecutor::scratch_bytes(); });
  }
  StageStats stage_stats() const override { return {}; }

 private:
  Device& device_;
};

class DeviceBackend : public WrappedBackend {
 public:
  Device& device() const { return device_; }

  StatusOr<std::unique_ptr<StateStore>> NewState(const Weights& weights,
                                                 const StateOptions& options) const override {
    WEFT_ASSIGN_OR_RETURN(auto state, WrappedBackend::NewState(weights, options));
    return std::make_unique<DeviceState>(std::move(state), &device_);
  }
  StatusOr<std::unique_ptr<Executor>> NewExecutor(std::shared_ptr<const Weights> weights,
                                                  StateStore* state,
                                                  const ExecutorOptions& options) const override {
    WEFT_ASSIGN_OR_RETURN(
        auto executor, WrappedBackend::NewExecutor(
                           std::move(weights), static_cast<DeviceState*>(state)->inner(), options));
    return std::make_unique<DeviceExecutor>(std::move(executor), &device_);
  }

 private:
  mutable Device device_;
};

// Waits, while the engine samples, until the device has computed a part of another step.
class WaitsForTheDevice : public TokenMask {
 public:
  WaitsForTheDevice(Device* device, std::atomic<int>* overlaps)
      : device_(*device), overlaps_(*overlaps) {}
  void Apply(std::span<const int32_t> /*generated*/, std::span<uint32_t> /*allowed*/) override {
    const int64_t parts = device_.parts();
    if (!device_.is_busy()) return;
    if (Eventually([&] { return device_.parts() > parts; })) ++overlaps_;
  }

 private:
  Device& device_;
  std::atomic<int>& overlaps_;
};

TEST(EngineDeviceTest, ADeviceWorksWhileTheEngineSamples) {
  const DeviceBackend backend;
  EngineOptions options = SmallEngine();
  options.max_step_tokens = 16;
  const auto engine = StartEngine(options, TinyModel("llama", 1, &backend));
  std::atomic<int> overlaps{0};
  TurnOptions talk = Greedy(RandomTokens(4, 2), 300);
  const std::vector<TurnOutcome> talk_alone = RunAlone(TinyModel("llama"), options, {&talk, 1});
  talk.token_mask = [&](int) {
    return std::make_unique<WaitsForTheDevice>(&backend.device(), &overlaps);
  };
  auto talking = SubmitTurn(engine.get(), NewSession(engine.get()), talk);
  TurnOutcome said;
  ReadToFirstToken(talking.get(), &said);
  const TurnOptions read = Greedy(RandomTokens(440, 1), 5);
  auto reading = SubmitTurn(engine.get(), NewSession(engine.get()), read);
  while (auto event = talking->Next()) testing::AddEvent(*std::move(event), &said);
  EXPECT_EQ(said.tokens(), talk_alone[0].tokens());
  EXPECT_EQ(Collect(reading.get()).tokens(),
            RunAlone(TinyModel("llama"), options, {&read, 1})[0].tokens());
  EXPECT_GT(overlaps.load(), 0);
}

// Turns that share a prefix, follow one another on a session, are forked, parked and cancelled.
TEST(EngineDeviceTest, WhatADeviceComputesIsTheSame) {
  const TestFolder folder;
  const DeviceBackend backend;
  EngineOptions options = SmallEngine();
  options.state_dir = folder.path();
  options.max_step_tokens = 16;
  const auto engine = StartEngine(options, TinyModel("llama", 1, &backend));
  const auto common = RandomTokens(100, 1);
  std::vector<TurnOptions> turns;
  std::vector<std::shared_ptr<Turn>> running;
  for (int i = 0; i < 4; ++i) {
    TurnOptions turn = Greedy(common, 20);
    const auto own = RandomTokens(30 + i * 20, static_cast<uint64_t>(10 + i));
    turn.tokens.insert(turn.tokens.end(), own.begin(), own.end());
    turns.push_back(turn);
    running.push_back(SubmitTurn(engine.get(), NewSession(engine.get()), turn));
  }
  auto given_up =
      SubmitTurn(engine.get(), NewSession(engine.get()), Greedy(RandomTokens(400, 5), 20));
  EXPECT_TRUE(Eventually([&] { return backend.device().parts() > 40; }));
  given_up->Cancel();
  for (size_t i = 0; i < turns.size(); ++i) {
    EXPECT_EQ(Collect(running[i].get()).tokens(),
              RunAlone(TinyModel("llama"), options, {&turns[i], 1})[0].tokens());
  }
  const SessionId session = NewSession(engine.get(), "a");
  const TurnOptions first = turns[0], second = Greedy(RandomTokens(9, 8), 12);
  const std::vector<TurnOptions> both = {first, second};
  const std::vector<TurnOutcome> alone = RunAlone(TinyModel("llama"), options, both);
  EXPECT_EQ(RunTurn(engine.get(), session, first).tokens(), alone[0].tokens());
  const auto fork = engine->Fork(session, -1, {});
  ASSERT_TRUE(fork.ok()) << fork.status();
  EXPECT_OK(engine->Park(session));
  EXPECT_EQ(RunTurn(engine.get(), *fork, second).tokens(), alone[1].tokens());
  EXPECT_EQ(RunTurn(engine.get(), session, second).tokens(), alone[1].tokens());
  EXPECT_OK(engine->CheckIntegrity());
}

}  // namespace
}  // namespace weft
