// Experts on the host, beyond the conformance tests of whole models: pauses with other steps in
// between, failures, refusals, options, and the choice of how many layers' experts the host gets.
#include "compute/split/expert_backend.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compute/split/expert_spec.h"
#include "compute/split/layer_needs.h"
#include "compute/split/split_test_util.h"
#include "engine/engine_test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/wrapped_backend.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using testing::LoadedModel;
using testing::ModelRunner;
using testing::WatchedDevice;
using testing::WrappedBackend;

const Backend* Emulator() { return *FindBackend("emu"); }

class HostExpertsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Emulator()->Available().ok()) GTEST_SKIP() << "no emulator here";
  }
  std::unique_ptr<const Backend> WithoutExperts(int n_layers) {
    auto both = NewExpertBackend(Cpu(), &device_, n_layers);
    EXPECT_TRUE(both.ok()) << both.status();
    return both.ok() ? *std::move(both) : nullptr;
  }
  const Tiny tiny_{"glm4moe"};
  const int n_layers_ = static_cast<int>(tiny_.spec.layers.size());
  WatchedDevice device_{Emulator()};
};

TEST_F(HostExpertsTest, TheDeviceHoldsAllElse) {
  const auto experts_of = [&](int n) {
    const split::ExpertSplit parts = split::SplitExperts(tiny_.spec, n);
    return std::pair(WholeBytes(*Emulator(), *tiny_.file, parts.device),
                     WholeBytes(*Emulator(), *tiny_.file, parts.host));
  };
  const auto [whole, none] = experts_of(0);
  const auto [left, given] = experts_of(n_layers_);
  EXPECT_EQ(whole - left, given - none);
  EXPECT_GT(whole - left, 0);
  const LoadedModel all = tiny_.On(WithoutExperts(n_layers_).get());
  EXPECT_EQ(WithoutExperts(2)->name(), "emu+cpu-experts:2");
  EXPECT_TRUE(all.weights->spec().layers.size() == tiny_.spec.layers.size());
}

TEST_F(HostExpertsTest, AStepBesideAPausedOneDisturbsNothing) {
  const auto both = WithoutExperts(n_layers_);
  const LoadedModel model = tiny_.On(both.get());
  const auto tokens = testing::RandomTokens(48, 1), others = testing::RandomTokens(40, 2);
  const auto whole = testing::RunTokens(model, tokens);
  const auto other_whole = testing::RunTokens(model, others);
  ASSERT_TRUE(whole.ok() && other_whole.ok());
  const PausedRun run = RunWithOthersInPauses(model, tokens, others);
  EXPECT_GE(run.n_pauses, n_layers_);
  EXPECT_EQ(run.logits, *whole);
  EXPECT_TRUE(std::equal(run.beside.begin(), run.beside.end(), other_whole->begin()));
}

TEST_F(HostExpertsTest, AFailureOfTheExpertsEndsTheStepAndNotTheExecutor) {
  const auto both = WithoutExperts(n_layers_);
  const LoadedModel model = tiny_.On(both.get());
  const auto runner = NewRunner(model);
  const auto tokens = testing::RandomTokens(9, 1);
  device_.experts->fail_call = 1;
  EXPECT_EQ(runner->Feed(runner->Add(), tokens).status().code(), StatusCode::kInternal);
  EXPECT_EQ(device_.experts->n_calls, 2);
  EXPECT_EQ(*runner->Feed(runner->Add(), tokens), *testing::RunTokens(model, tokens));
}

TEST_F(HostExpertsTest, WhatCannotBeDividedIsRefused) {
  EXPECT_THAT(NewExpertBackend(Cpu(), Cpu(), 1).status(),
              IsError(StatusCode::kUnimplemented, "cannot leave experts"));
  const Tiny dense("llama");
  EXPECT_THAT(WithoutExperts(1)->Load(dense.file, dense.spec, {}).status(),
              IsError(StatusCode::kInvalidArgument, "mixtures of experts"));
}

// All layers have equal experts, so each frees the same number of bytes.
TEST_F(HostExpertsTest, AsFewExpertsStayAsMemoryNeeds) {
  const int64_t whole = WholeBytes(*Emulator(), *tiny_.file, tiny_.spec);
  const auto choose = [&](int64_t bytes) {
    return ChooseExpertLayers(bytes, *Emulator(), *tiny_.file, tiny_.spec);
  };
  EXPECT_EQ(choose(whole), 0);
  EXPECT_EQ(choose(whole - 1), 1);
  EXPECT_EQ(choose(0), n_layers_);
  for (int n = 1; n <= n_layers_; ++n) {
    const split::ExpertSplit parts = split::SplitExperts(tiny_.spec, n);
    const int64_t left = WholeBytes(*Emulator(), *tiny_.file, parts.device);
    EXPECT_EQ(choose(left), n);
  }
  const Tiny dense("llama");
  EXPECT_EQ(ChooseExpertLayers(0, *Emulator(), *dense.file, dense.spec), 0);
}

// A device with limited memory that computes as the emulator does.
class EmulatedDevice : public WrappedBackend {
 public:
  explicit EmulatedDevice(int64_t free_bytes)
      : WrappedBackend(Emulator()), free_bytes_(free_bytes) {}
  StatusOr<MemoryInfo> MemoryOf(int /*device*/) const override {
    return MemoryInfo{.total_bytes = 200 * kGiB, .free_bytes = free_bytes_};
  }

 private:
  const int64_t free_bytes_;
};

TEST(HostExpertsModelTest, ItsExpertsAreWhereTheOptionsSay) {
  if (!Emulator()->Available().ok()) GTEST_SKIP() << "no emulator here";
  const Tiny tiny("glm4moe");
  const int n_layers = static_cast<int>(tiny.spec.layers.size());
  const auto computing = [&](int64_t free_bytes, int device_layers, int expert_layers,
                             std::string_view architecture = "glm4moe") {
    const EmulatedDevice device(free_bytes);
    ModelOptions options;
    options.backend_object = &device;
    options.n_threads = 1;
    options.context_tokens = testing::kTinyContext;
    options.device_layers = device_layers;
    options.expert_layers = expert_layers;
    const auto model = Model::Load(testing::TinyModelFile(architecture), options);
    return model.ok() ? std::string((*model)->backend_name()) : model.status().ToString();
  };
  constexpr int kAll = ModelOptions::kAllLayers, kFit = ModelOptions::kLayersThatFit;
  const auto left_with = [&](int n) {
    return WholeBytes(*Emulator(), *tiny.file, split::SplitExperts(tiny.spec, n).device);
  };
  const std::string all = StrCat("emu+cpu-experts:", n_layers);
  EXPECT_EQ(computing(100 * kGiB, kAll, kFit), "emu");
  EXPECT_EQ(computing(100 * kGiB, kAll, 0), "emu");
  EXPECT_EQ(computing(100 * kGiB, kAll, kAll), all);
  EXPECT_EQ(computing(100 * kGiB, kAll, 999), all) << "as llama-server takes it";
  EXPECT_EQ(computing(100 * kGiB, kAll, 1), "emu+cpu-experts:1");
  EXPECT_EQ(computing(100 * kGiB, n_layers - 1, 2),
            StrCat("cpu:1+emu+cpu-experts:1:", n_layers - 1));
  EXPECT_EQ(computing(100 * kGiB, 1, 1), StrCat("cpu:", n_layers - 1, "+emu:1"));
  // Chosen by memory: moving experts to the host is tried before moving layers.
  EXPECT_EQ(computing(100 * kGiB, kFit, kFit), "emu");
  EXPECT_EQ(computing(left_with(1), kFit, kFit), "emu+cpu-experts:1");
  EXPECT_EQ(computing(left_with(n_layers), kFit, kFit), all);
  EXPECT_EQ(computing(kGiB / 4, kFit, kFit), "cpu");
  EXPECT_THAT(computing(left_with(1), kFit, 0), HasSubstr("cpu:"))
      << "layers, if that is asked for";
  EXPECT_THAT(computing(100 * kGiB, kAll, 1, "llama"), HasSubstr("no mixtures of experts"));
}

}  // namespace
}  // namespace weft
