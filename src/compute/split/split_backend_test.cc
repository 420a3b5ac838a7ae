// Beyond the conformance tests of whole models: how state is divided, pauses with other steps in
// between, failures of one part, refusals, how many layers a device gets, and whole engines.
#include "compute/split/split_backend.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "compute/split/layer_needs.h"
#include "compute/split/split_test_util.h"
#include "engine/engine_test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/model_runner.h"
#include "tests/support/wrapped_backend.h"

namespace weft {
namespace {

using testing::FaultyBackend;
using ::testing::HasSubstr;
using testing::LoadedModel;
using testing::ModelRunner;
using testing::TinyModelFile;
using testing::WrappedBackend;

std::unique_ptr<const Backend> Both(const Backend* front, const Backend* back, const Tiny& tiny,
                                    int n_front = 1) {
  auto both = NewSplitBackend(front, back, tiny.spec, n_front);
  EXPECT_TRUE(both.ok()) << both.status();
  return both.ok() ? *std::move(both) : nullptr;
}

// gemma3 has two groups of pages; qwen35 has recurrent state in the front and pages in the back.
class SplitStateTest : public ::testing::TestWithParam<const char*> {};

TEST_P(SplitStateTest, PagesAndSlotsAreDividedForkedAndMoved) {
  const Tiny tiny(GetParam());
  const auto both = Both(Cpu(), Cpu(), tiny);
  const LoadedModel whole = tiny.On(Cpu()), divided = tiny.On(both.get());
  const auto tokens = testing::RandomTokens(90, 1);
  const auto expected = testing::RunTokens(whole, tokens);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto tail =
      std::vector<float>(expected->begin() + 70 * testing::kTinyVocab, expected->end());

  const auto alone = NewRunner(whole), runner = NewRunner(divided, {.page_seed = 2}),
             other = NewRunner(divided, {.page_seed = 3});
  EXPECT_EQ(runner->state().layout().page_bytes, alone->state().layout().page_bytes);
  EXPECT_EQ(runner->state().layout().slot_bytes, alone->state().layout().slot_bytes);
  const int origin = runner->Add();
  ASSERT_TRUE(runner->Feed(origin, std::span(tokens).first(70)).ok());
  EXPECT_GT(runner->state().held_bytes(), 0);
  const auto fork = runner->Fork(origin);
  const auto moved = runner->MoveTo(origin, other.get());
  ASSERT_TRUE(fork.ok() && moved.ok()) << moved.status();
  ASSERT_TRUE(runner->Feed(*fork, testing::RandomTokens(5, 8)).ok());
  EXPECT_EQ(*runner->Feed(origin, std::span(tokens).subspan(70)), tail);
  EXPECT_EQ(*other->Feed(*moved, std::span(tokens).subspan(70)), tail);
}

INSTANTIATE_TEST_SUITE_P(Models, SplitStateTest, ::testing::Values("llama", "gemma3", "qwen35"));

TEST(SplitStateTest, AWrongGroupOrSizeIsRefused) {
  const Tiny tiny("llama");
  const auto both = Both(Cpu(), Cpu(), tiny);
  const auto runner = NewRunner(tiny.On(both.get()));
  StateStore& state = runner->state();
  std::vector<std::byte> page(static_cast<size_t>(state.layout().page_bytes[0]));
  EXPECT_TRUE(state.ReadPage(0, 0, 0, page).ok());
  EXPECT_EQ(state.ReadPage(1, 0, 0, page).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(state.GrowPages(-1, 9).code(), StatusCode::kInvalidArgument);
  page.pop_back();
  EXPECT_EQ(state.ReadPage(0, 0, 0, page).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(state.WritePage(0, 0, page).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(state.ClearSlot(0).code(), StatusCode::kUnimplemented);
  EXPECT_EQ(state.n_slots(), 0);
}

TEST(SplitStateTest, WhenOnePartCannotGrowThePagesAreNotThere) {
  const Tiny tiny("llama");
  FaultyBackend back;
  const auto both = Both(Cpu(), &back, tiny);
  const LoadedModel model = tiny.On(both.get());
  const auto state = both->NewState(*model.weights, {});
  ASSERT_TRUE(state.ok()) << state.status();
  back.faults().fail_grow = true;
  EXPECT_EQ((*state)->GrowPages(0, 8).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ((*state)->n_pages(0), 0);
  back.faults().fail_grow = false;
  EXPECT_TRUE((*state)->GrowPages(0, 4).ok());
  EXPECT_EQ((*state)->n_pages(0), 4);
}

// The first step pauses in every layer of both parts, and between them.
TEST(SplitRunTest, AStepBesideAPausedOneDisturbsNothing) {
  const Tiny tiny("gemma3");
  const auto both = Both(Cpu(), Cpu(), tiny, 2);
  const auto tokens = testing::RandomTokens(60, 1), others = testing::RandomTokens(40, 2);
  const auto whole = testing::RunTokens(tiny.On(Cpu()), tokens);
  const auto other_whole = testing::RunTokens(tiny.On(Cpu()), others);
  ASSERT_TRUE(whole.ok() && other_whole.ok());
  const PausedRun run = RunWithOthersInPauses(tiny.On(both.get()), tokens, others);
  EXPECT_EQ(run.logits, *whole);
  EXPECT_EQ(run.n_pauses, 11) << "two blocks a layer, six layers; and where the step crosses";
  EXPECT_TRUE(std::equal(run.beside.begin(), run.beside.end(), other_whole->begin()));
}

TEST(SplitRunTest, OnlyOneStepBesideAndNoLongOne) {
  const Tiny tiny("llama");
  const auto both = Both(Cpu(), Cpu(), tiny);
  testing::RunnerOptions options;
  options.executor.max_beside_tokens = 4;
  const auto runner = NewRunner(tiny.On(both.get()), options);
  EXPECT_EQ(runner->executor().max_beside_tokens(), 4);
  const auto tokens = testing::RandomTokens(5, 1);
  const std::vector<PageId> pages[] = {{0}, {1}, {2}};
  const auto begin = [&](int n, size_t n_tokens) {
    StepSequence sequence{.tokens = std::span(tokens).first(n_tokens)};
    sequence.page_tables = {pages[n]};
    return runner->executor().Begin({.sequences = {&sequence, 1}});
  };
  auto first = begin(0, 5);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(begin(1, 5).status().code(), StatusCode::kInvalidArgument) << "too long for beside";
  auto second = begin(1, 4);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(begin(2, 1).status().code(), StatusCode::kFailedPrecondition);
  second->reset();
  first->reset();
  EXPECT_TRUE(begin(2, 5).ok()) << "both are gone";
}

TEST(SplitRunTest, AFailureOfTheBackEndsTheStepAndNotTheExecutor) {
  const Tiny tiny("llama");
  FaultyBackend back;
  const auto both = Both(Cpu(), &back, tiny);
  const auto runner = NewRunner(tiny.On(both.get()));
  back.faults().fail_forward = 1;
  const auto tokens = testing::RandomTokens(9, 1);
  EXPECT_EQ(runner->Feed(runner->Add(), tokens).status().code(), StatusCode::kInternal);
  EXPECT_EQ(*runner->Feed(runner->Add(), tokens), *testing::RunTokens(tiny.On(Cpu()), tokens));
}

TEST(SplitRunTest, WhatIsWantedComesFromTheDevice) {
  const Backend* const emu = *FindBackend("emu");
  if (!emu->Available().ok()) GTEST_SKIP() << "no emulator here";
  const Tiny tiny("llama");
  const auto both = Both(Cpu(), emu, tiny);
  EXPECT_TRUE(both->capabilities().changes_rows);
  const auto runner = NewRunner(tiny.On(both.get()));
  const auto tokens = testing::RandomTokens(9, 1);
  const auto whole = runner->Feed(runner->Add(), tokens);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const std::span<const float> last = std::span(*whole).last(testing::kTinyVocab);

  const std::vector<PageId> pages = {900};
  std::vector<TokenLogit> best(3);
  StepSequence sequence{.tokens = tokens, .page_tables = {pages}, .n_logits = 1, .n_best = 3};
  const LogitChange change{.token = 7, .bias = 1000};
  const RowChanges changes{.logits = {&change, 1}};
  sequence.changes = {&changes, 1};
  const auto run = runner->executor().Begin({.sequences = {&sequence, 1}, .best = best});
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_TRUE((*run)->Advance([] { return false; }).ok());
  EXPECT_EQ(best[0].token, 7);
  EXPECT_EQ(best[1].logit, *std::ranges::max_element(last));
  std::vector<float> row(static_cast<size_t>(testing::kTinyVocab));
  ASSERT_TRUE((*run)->ReadRow(0, row).ok());
  row[7] = last[7];
  EXPECT_TRUE(std::ranges::equal(row, last));
}

TEST(SplitBackendTest, TheNameSaysWhatIsWhere) {
  const Tiny tiny("gemma3");
  EXPECT_EQ(Both(Cpu(), *FindBackend("reference"), tiny, 2)->name(), "cpu:2+reference:4");
}

TEST(SplitBackendTest, MemoryIsThatOfThePartThatIsFullFirst) {
  class Sized : public WrappedBackend {
   public:
    explicit Sized(int64_t bytes) : bytes_(bytes) {}
    StatusOr<MemoryInfo> MemoryOf(int /*device*/) const override {
      return MemoryInfo{.total_bytes = 2 * bytes_, .free_bytes = bytes_};
    }

   private:
    const int64_t bytes_;
  };
  const Sized small(kGiB), large(100 * kGiB);
  const Tiny tiny("llama");  // has two equal layers
  for (const auto& both : {Both(&small, &large, tiny), Both(&large, &small, tiny)}) {
    const auto memory = both->MemoryOf(0);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(memory->free_bytes, 2 * kGiB);
    EXPECT_EQ(memory->total_bytes, 4 * kGiB);
  }
}

TEST(SplitBackendTest, WhatCannotBeDividedIsRefused) {
  const Tiny encoder("tiny-bert");
  const auto no_encoder = NewSplitBackend(Cpu(), Cpu(), encoder.spec, 1);
  EXPECT_THAT(no_encoder.status(), IsError(StatusCode::kUnimplemented, "encoder"));

  const Tiny tiny("qwen35-mtp");
  const auto both = Both(Cpu(), Cpu(), tiny);
  const auto head = both->Load(tiny.file, *tiny.spec.prediction_head, {});
  EXPECT_THAT(head.status(), IsError(StatusCode::kUnimplemented, "prediction heads"));
  const auto other = both->Load(Tiny("gemma3").file, Tiny("gemma3").spec, {});
  EXPECT_THAT(other.status(), IsError(StatusCode::kInvalidArgument, "another model"));

  class TakesNoRows : public WrappedBackend {
   public:
    TakesNoRows() : capabilities_(WrappedBackend::capabilities()) { capabilities_.rows = false; }
    const BackendCapabilities& capabilities() const override { return capabilities_; }

   private:
    BackendCapabilities capabilities_;
  };
  const TakesNoRows none;
  EXPECT_EQ(NewSplitBackend(Cpu(), &none, tiny.spec, 1).status().code(),
            StatusCode::kUnimplemented);
}

TEST(LayerNeedsTest, AsManyLayersFitAsMemoryHolds) {
  ModelNeeds needs;
  needs.output_bytes = 2 * kGiB;
  needs.layers.assign(8, {.weight_bytes = kGiB - 1000, .state_bytes = 1000});
  EXPECT_EQ(LastLayersThatFit(0, needs), 0);
  EXPECT_EQ(LastLayersThatFit(3 * kGiB, needs), 0) << "steps need memory, too";
  EXPECT_EQ(LastLayersThatFit(3 * kGiB + kGiB / 2, needs), 1);
  EXPECT_EQ(LastLayersThatFit(7 * kGiB, needs), 4);
  EXPECT_EQ(LastLayersThatFit(1000 * kGiB, needs), 8);
  needs.layers.front().weight_bytes = 500 * kGiB;
  EXPECT_EQ(LastLayersThatFit(100 * kGiB, needs), 7) << "the last ones";
}

TEST(LayerNeedsTest, ALayerNeedsItsWeightsAndItsWindow) {
  const Tiny tiny("gemma3");
  const ModelNeeds needs = NeedsOf(*Cpu(), *tiny.file, tiny.spec);
  ASSERT_EQ(needs.layers.size(), 6u);
  EXPECT_EQ(needs.layers[5].state_bytes / kCountedTokens,
            needs.layers[0].state_bytes / testing::kTinyWindow)
      << "one layer of six sees everything";
  int64_t sum = needs.output_bytes;
  for (const LayerNeeds& layer : needs.layers) sum += layer.weight_bytes;
  // The embedding is counted as the output; vectors are floats in both sums.
  EXPECT_NEAR(static_cast<double>(sum), static_cast<double>(tiny.file->file_bytes()),
              0.2 * static_cast<double>(tiny.file->file_bytes()));
}

// --- models and engines ------------------------------------------------------------------------

// A device with memory of its own that computes as the cpu backend does.
class Device : public WrappedBackend {
 public:
  explicit Device(int64_t free_bytes = 100 * kGiB) : free_bytes_(free_bytes) {}
  std::string_view name() const override { return "device"; }
  StatusOr<MemoryInfo> MemoryOf(int /*device*/) const override {
    return MemoryInfo{.total_bytes = 200 * kGiB, .free_bytes = free_bytes_};
  }

 private:
  const int64_t free_bytes_;
};

StatusOr<std::shared_ptr<const Model>> Divided(const Backend* backend, int device_layers) {
  ModelOptions options;
  options.backend_object = backend;
  options.n_threads = 1;
  options.context_tokens = testing::kTinyContext;
  options.device_layers = device_layers;
  return Model::Load(TinyModelFile("llama"), options);
}

TEST(DividedModelTest, ItsLayersAreWhereTheOptionsSay) {
  const Device large, small(kGiB / 4);
  const auto name = [](const Backend& backend, int n) {
    const auto model = Divided(&backend, n);
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? std::string((*model)->backend_name()) : "";
  };
  EXPECT_EQ(name(large, ModelOptions::kAllLayers), "device");
  EXPECT_EQ(name(large, 0), "cpu");
  EXPECT_EQ(name(large, 1), "cpu:1+device:1");
  EXPECT_EQ(name(large, 2), "device");
  EXPECT_EQ(name(large, 99), "device") << "as llama-server takes it";
  EXPECT_EQ(name(large, ModelOptions::kLayersThatFit), "device");
  EXPECT_EQ(name(small, ModelOptions::kLayersThatFit), "cpu");
  EXPECT_THAT(Divided(Cpu(), 1).status(), IsError(StatusCode::kInvalidArgument, "--backend cuda"));
}

TEST(DividedModelTest, AFullDeviceSaysWhatHelps) {
  class Full : public Device {
   public:
    StatusOr<std::shared_ptr<const Weights>> Load(std::shared_ptr<const ModelFile>, ModelSpec,
                                                  const LoadOptions&) const override {
      return ResourceExhausted("no memory");
    }
  };
  const Full full;
  EXPECT_THAT(Divided(&full, ModelOptions::kAllLayers).status(),
              IsError(StatusCode::kResourceExhausted, "--gpu-layers auto"));
  EXPECT_THAT(Divided(&full, 1).status(),
              IsError(StatusCode::kResourceExhausted, "1 layers on device"));
}

TEST(DividedModelTest, AnEngineSaysTheSameAndKeepsItsSessionsApart) {
  const Device device;
  const auto model = *Divided(&device, 1);
  const std::vector<TurnOptions> turns = {Greedy(RandomTokens(120, 1), 10),
                                          Greedy(RandomTokens(10, 2), 20)};
  const auto alone = RunAlone(TinyModel("llama"), SmallEngine(), turns);
  const TestFolder folder;
  EngineOptions options = SmallEngine();
  options.state_dir = folder.path();
  {
    auto engine = StartEngine(options, model);
    const SessionId session = NewSession(engine.get(), "s");
    EXPECT_EQ(RunTurn(engine.get(), session, turns[0]).tokens(), alone[0].tokens());
    EXPECT_TRUE(engine->Save(session).ok());
    EXPECT_TRUE(engine->CheckIntegrity().ok());
  }
  for (const bool same : {false, true}) {
    auto engine = StartEngine(options, same ? model : TinyModel("llama"));
    const SessionId session = *engine->FindSession("", "s");
    EXPECT_TRUE(engine->Restore(session).ok());
    if (same) {
      EXPECT_EQ(engine->Inspect(session)->note, "");
      EXPECT_EQ(RunTurn(engine.get(), session, turns[1]).tokens(), alone[1].tokens());
    } else {
      EXPECT_THAT(engine->Inspect(session)->note, HasSubstr("computed"));
    }
  }
}

}  // namespace
}  // namespace weft
