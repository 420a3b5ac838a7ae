// The gpu backend beyond the conformance tests of all backends: memory, faults, and that a fault
// affects only its own step.
#include "compute/gpu/gpu_backend.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "compute/device/emulated_device.h"
#include "compute/gpu/gpu_weights.h"
#include "compute/kernels_gpu/attention.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/model_spec.h"
#include "tests/support/engine_harness.h"
#include "tests/support/logits.h"
#include "tests/support/model_runner.h"
#include "tests/support/wrapped_backend.h"
#include "weft/engine.h"

namespace weft::gpu {
namespace {

using device::EmulatedDevice;
using weft::testing::LoadedModel;
using weft::testing::ModelRunner;
using weft::testing::RandomTokens;
using weft::testing::RunnerOptions;
using weft::testing::SameBytes;

class GpuBackendTest : public ::testing::TestWithParam<std::string> {
 protected:
  StatusOr<LoadedModel> Load(std::shared_ptr<EmulatedDevice> device) {
    LoadedModel model;
    model.backend = EmulatedBackend();
    WEFT_ASSIGN_OR_RETURN(auto file, ModelFile::Open(weft::testing::TinyModelFile(GetParam())));
    WEFT_ASSIGN_OR_RETURN(ModelSpec spec, BuildModelSpec(*file, {.context_tokens = 512}));
    WEFT_ASSIGN_OR_RETURN(model.weights, LoadTo(std::move(device), 0, std::move(file),
                                                std::move(spec), {.n_threads = 1}));
    return model;
  }
  StatusOr<std::unique_ptr<ModelRunner>> NewRunner(int64_t pool_pages = 64) {
    WEFT_ASSIGN_OR_RETURN(const LoadedModel model, Load(device_));
    RunnerOptions options;
    options.pool_pages = pool_pages;
    options.executor.max_step_tokens = 64;
    return ModelRunner::New(model, options);
  }

  const std::shared_ptr<EmulatedDevice> device_ = std::make_shared<EmulatedDevice>();
  const std::vector<TokenId> tokens_ = RandomTokens(40, 3);
  const std::vector<int64_t> chunks_ = {64};
};

TEST_P(GpuBackendTest, EveryAllocationMayFailAndNothingStays) {
  int64_t n_failed = 0;
  for (int64_t n = 1;; ++n) {
    device_->faults().until_allocation_fails = n;
    {
      const auto runner = NewRunner();
      if (device_->faults().until_allocation_fails > 0) {
        EXPECT_TRUE(runner.ok()) << runner.status();
        break;
      }
      // After a refusal of a large slab, the backend retries with the smallest size that will do.
      if (!runner.ok()) ++n_failed;
      EXPECT_TRUE(runner.ok() || runner.status().code() == StatusCode::kResourceExhausted)
          << runner.status();
    }
    EXPECT_EQ(device_->held_bytes(), 0) << "allocation " << n;
    EXPECT_EQ(device_->pinned_bytes(), 0) << "allocation " << n;
  }
  EXPECT_GT(n_failed, 10);
}

TEST_P(GpuBackendTest, AFailedLaunchIsItsStepsAlone) {
  const auto runner = NewRunner();
  ASSERT_TRUE(runner.ok()) << runner.status();
  const std::span<const TokenId> tokens(tokens_);
  const int whole = (*runner)->Add(), other = (*runner)->Add(), hurt = (*runner)->Add();
  const auto expected = (*runner)->Feed(whole, tokens);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ASSERT_TRUE((*runner)->Feed(other, tokens.first(20)).ok());
  device_->faults().until_launch_fails = 9;
  const auto failed = (*runner)->Feed(hurt, tokens.first(20));
  EXPECT_EQ(failed.status().code(), StatusCode::kInternal);
  const auto rest = (*runner)->Feed(other, tokens.subspan(20));
  ASSERT_TRUE(rest.ok()) << rest.status();
  const size_t n_vocab = expected->size() / tokens.size();
  EXPECT_TRUE(
      SameBytes(*rest, {expected->begin() + 20 * static_cast<int64_t>(n_vocab), expected->end()}));
}

// The failing launch belongs to a step that runs while another one is paused; the paused one
// continues unharmed.
TEST_P(GpuBackendTest, AFailedLaunchIsNotThePausedStepsBesideIt) {
  const auto runner = NewRunner();
  ASSERT_TRUE(runner.ok()) << runner.status();
  const auto expected = (*runner)->Feed((*runner)->Add(), tokens_);
  ASSERT_TRUE(expected.ok());
  int n_failed = 0;
  const int mine = (*runner)->Add();
  const std::vector<ModelRunner::Part> parts = {{mine, tokens_}};
  const auto logits = (*runner)->Step(parts, [&] {
    device_->faults().until_launch_fails = 3;
    const auto beside = (*runner)->Feed((*runner)->Add(), std::span(tokens_).first(5));
    n_failed += beside.status().code() == StatusCode::kInternal ? 1 : 0;
  });
  EXPECT_GT(n_failed, 1);
  ASSERT_TRUE(logits.ok()) << logits.status();
  EXPECT_TRUE(SameBytes(*logits, *expected));
}

// Attention to rows one by one, and in tiles of a prompt.
TEST_P(GpuBackendTest, AttentionInSplitsHasTheSameBits) {
  const auto runner = NewRunner();
  ASSERT_TRUE(runner.ok()) << runner.status();
  const std::vector<TokenId> tokens = RandomTokens(300, 5);
  const std::vector<int64_t> many = {64}, few = {64, 64, 64, 64, 5, 1};
  const auto expected = (*runner)->Feed((*runner)->Add(), tokens, many);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto split = (*runner)->Feed((*runner)->Add(), tokens, few);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_TRUE(SameBytes(*split, *expected));
}

// KV heads of all layers without a window.
int64_t HeadsThatSeeAll(const ModelSpec& spec) {
  int64_t n_heads = 0;
  ForEachPath(spec, [&](const Path& path) {
    const auto* const op = std::get_if<Attention>(&path.op);
    if (op == nullptr) return;
    const int group = spec.kv_layers[static_cast<size_t>(op->kv_layer)].group;
    if (spec.kv_groups[static_cast<size_t>(group)].window == 0) n_heads += op->n_kv_heads;
  });
  return n_heads;
}

// Up to sixteen sessions that begin with the same pages read these pages once, and their logits
// equal those of sessions with pages of their own: for a step of few rows, whose attention is
// split, and for one of many.
TEST_P(GpuBackendTest, APrefixIsReadOnceForTheSessionsThatHoldIt) {
  const auto runner = NewRunner(400);
  ASSERT_TRUE(runner.ok()) << runner.status();
  constexpr int kTiles = device::kSplitTokens / 32;
  const int origin = (*runner)->Add();
  ASSERT_TRUE((*runner)->Feed(origin, RandomTokens(300, 5), chunks_).ok());
  for (const auto& [n_sessions, n_groups] : {std::pair(8, 1), {20, 2}}) {
    std::vector<float> logits[2];
    int64_t n_tiles[2];
    for (const bool share : {false, true}) {
      std::vector<std::vector<TokenId>> said;
      said.reserve(static_cast<size_t>(n_sessions));
      for (uint64_t seed = 100; said.size() < static_cast<size_t>(n_sessions); ++seed) {
        said.push_back(RandomTokens(1, seed));
      }
      std::vector<ModelRunner::Part> parts;
      for (int i = 0; i < n_sessions; ++i) {
        const auto fork = (*runner)->Fork(origin, share);
        ASSERT_TRUE(fork.ok()) << fork.status();
        parts.push_back({*fork, said[static_cast<size_t>(i)]});
      }
      const int64_t before = device_->n_tiles();
      auto results = (*runner)->Step(parts);
      ASSERT_TRUE(results.ok()) << results.status();
      n_tiles[share] = device_->n_tiles() - before;
      logits[share] = *std::move(results);
    }
    EXPECT_TRUE(SameBytes(logits[true], logits[false])) << n_sessions;
    // Two full splits are shared.
    EXPECT_EQ(n_tiles[false] - n_tiles[true],
              HeadsThatSeeAll((*runner)->spec()) * 2 * kTiles * (n_sessions - n_groups));
  }
}

// Sessions with shared prefixes of different lengths, and several rows per session.
TEST_P(GpuBackendTest, PrefixesOfPrefixesHaveTheSameBits) {
  const auto runner = NewRunner(400);
  ASSERT_TRUE(runner.ok()) << runner.status();
  std::vector<float> logits[2];
  int64_t n_tiles[2];
  for (const bool share : {false, true}) {
    const int root = (*runner)->Add(), alone = (*runner)->Add();
    ASSERT_TRUE((*runner)->Feed(root, RandomTokens(140, 5), chunks_).ok());
    ASSERT_TRUE((*runner)->Feed(alone, RandomTokens(280, 6), chunks_).ok());
    std::vector<int> sequences = {alone};
    for (uint64_t branch = 0; branch < 3; ++branch) {
      const auto fork = (*runner)->Fork(root, share);
      ASSERT_TRUE(fork.ok()) << fork.status();
      ASSERT_TRUE((*runner)->Feed(*fork, RandomTokens(130, 20 + branch), chunks_).ok());
      sequences.push_back(*fork);
      for (uint64_t leaf = 0; leaf < branch; ++leaf) {
        const auto further = (*runner)->Fork(*fork, share);
        ASSERT_TRUE(further.ok()) << further.status();
        sequences.push_back(*further);
      }
    }
    std::reverse(sequences.begin() + 2, sequences.end());
    const std::vector<TokenId> next = RandomTokens(3, 7);
    std::vector<ModelRunner::Part> parts;
    parts.reserve(sequences.size());
    for (const int sequence : sequences) parts.push_back({sequence, next});
    const int64_t before = device_->n_tiles();
    auto results = (*runner)->Step(parts);
    ASSERT_TRUE(results.ok()) << results.status();
    n_tiles[share] = device_->n_tiles() - before;
    logits[share] = *std::move(results);
  }
  EXPECT_TRUE(SameBytes(logits[true], logits[false]));
  EXPECT_LT(n_tiles[true], n_tiles[false]);
}

// Launches dominate the time of small steps: at most this many for attention and for a feed-forward
// network, and six for the beginning and the end of a step.
TEST_P(GpuBackendTest, AStepHasFewLaunches) {
  const auto runner = NewRunner();
  ASSERT_TRUE(runner.ok()) << runner.status();
  const int sequence = (*runner)->Add();
  ASSERT_TRUE((*runner)->Feed(sequence, tokens_).ok());
  const int64_t before = device_->n_launches();
  ASSERT_TRUE((*runner)->Feed(sequence, std::span(tokens_).first(1)).ok());
  const int64_t n_launches = device_->n_launches() - before;
  int64_t most = 6;
  ForEachPath((*runner)->spec(), [&](const Path& path) {
    most += std::holds_alternative<Attention>(path.op) ? 6 : 3;
  });
  EXPECT_LE(n_launches, most);
}

// Steps of few rows are one graph each, whatever their results: whole rows of logits or best
// tokens.
TEST_P(GpuBackendTest, ADecodeStepIsOneGraph) {
  const auto runner = NewRunner();
  ASSERT_TRUE(runner.ok()) << runner.status();
  const std::span<const TokenId> tokens(tokens_);
  std::vector<ModelRunner::Part> parts;
  for (const int64_t n_best : {4, 0, 7}) {
    const int sequence = (*runner)->Add();
    ASSERT_TRUE((*runner)->Feed(sequence, tokens).ok());
    parts.push_back({.sequence = sequence, .tokens = tokens.first(1), .n_best = n_best});
  }
  for (int time = 0; time < 2; ++time) {
    const int64_t n_graphs = device_->n_graphs(), n_single = device_->n_single_launches();
    const auto results = (*runner)->StepFor(parts);
    ASSERT_TRUE(results.ok()) << results.status();
    EXPECT_EQ(results->best.size(), 11);
    EXPECT_EQ(std::ssize(results->logits), (*runner)->spec().n_vocab);
    EXPECT_EQ(device_->n_graphs() - n_graphs, 1);
    EXPECT_EQ(device_->n_single_launches() - n_single, 0);
  }
}

// A wrong entry in a page table changes the logits.
TEST_P(GpuBackendTest, AWrongPageShows) {
  const auto runner = NewRunner();
  ASSERT_TRUE(runner.ok()) << runner.status();
  StateStore& state = (*runner)->state();
  const std::span<const TokenId> tokens(tokens_);
  const int right = (*runner)->Add(), wrong = (*runner)->Add();
  ASSERT_TRUE((*runner)->Feed(right, tokens.first(39)).ok());
  ASSERT_TRUE((*runner)->Feed(wrong, tokens.first(39)).ok());
  // Pages are allocated in order: the first sequence has pages 0 and 1 of a group, the second 2 and
  // 3.
  for (size_t group = 0; group < state.layout().page_bytes.size(); ++group) {
    ASSERT_TRUE(state.CopyPage(static_cast<int>(group), 3, 2, 32).ok());
  }
  const auto expected = (*runner)->Feed(right, tokens.subspan(39));
  const auto logits = (*runner)->Feed(wrong, tokens.subspan(39));
  ASSERT_TRUE(expected.ok() && logits.ok());
  EXPECT_FALSE(SameBytes(*logits, *expected));
}

TEST_P(GpuBackendTest, ADeviceThatSaysNothingIsToldOf) {
  const auto runner = NewRunner();
  ASSERT_TRUE(runner.ok()) << runner.status();
  const auto expected = (*runner)->Feed((*runner)->Add(), tokens_);
  ASSERT_TRUE(expected.ok());
  device_->set_patience(std::chrono::milliseconds(10));
  device_->faults().until_event_is_lost = 3;
  const auto failed = (*runner)->Feed((*runner)->Add(), tokens_);
  EXPECT_EQ(failed.status().code(), StatusCode::kDeadlineExceeded) << failed.status();
  device_->set_patience(std::chrono::minutes(2));
  const auto again = (*runner)->Feed((*runner)->Add(), tokens_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(SameBytes(*again, *expected));
}

TEST_P(GpuBackendTest, MemoryGoesBackOnceTheStreamHasPassed) {
  const auto runner = NewRunner();
  ASSERT_TRUE(runner.ok()) << runner.status();
  StateStore& state = (*runner)->state();
  const int64_t before = device_->held_bytes(), slabs = state.held_bytes();
  const auto expected = (*runner)->Feed((*runner)->Add(), tokens_);
  ASSERT_TRUE(expected.ok());
  EXPECT_EQ(state.held_bytes(), slabs);
  for (size_t group = 0; group < state.layout().page_bytes.size(); ++group) {
    std::vector<PageId> pages(static_cast<size_t>(state.n_pages(static_cast<int>(group))));
    for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<PageId>(i);
    state.DiscardPages(static_cast<int>(group), pages);
  }
  if (state.n_slots() > 0) {
    for (SlotId slot = 0; slot < state.n_slots(); ++slot) ASSERT_TRUE(state.ClearSlot(slot).ok());
  }
  EXPECT_EQ(state.held_bytes(), 0);
  // Writing again allocates memory again.
  const auto again = (*runner)->Feed((*runner)->Add(), tokens_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(SameBytes(*again, *expected));
  EXPECT_EQ(device_->held_bytes(), before);
}

// Two models' devices and weights are independent of each other.
TEST_P(GpuBackendTest, AnotherDeviceDoesNotSeeTheFault) {
  const auto runner = NewRunner();
  ASSERT_TRUE(runner.ok());
  const auto elsewhere = std::make_shared<EmulatedDevice>(device::emulator::Order::kDescending);
  const auto model = Load(elsewhere);
  ASSERT_TRUE(model.ok());
  const auto other = ModelRunner::New(*model, {.pool_pages = 64});
  ASSERT_TRUE(other.ok());
  device_->faults().until_launch_fails = 1;
  const auto theirs = (*other)->Feed((*other)->Add(), tokens_);
  ASSERT_TRUE(theirs.ok());
  EXPECT_FALSE((*runner)->Feed((*runner)->Add(), tokens_).ok());
  // The order in which a device runs blocks and threads does not change the result either.
  const auto mine = (*runner)->Feed((*runner)->Add(), tokens_);
  ASSERT_TRUE(mine.ok());
  EXPECT_TRUE(SameBytes(*mine, *theirs));
}

// A device with tensor-core tiles uses other kernels, which add in the same order.
TEST_P(GpuBackendTest, WithTilesTheSameBits) {
  const auto runner = NewRunner();
  ASSERT_TRUE(runner.ok());
  const auto expected = (*runner)->Feed((*runner)->Add(), tokens_);
  ASSERT_TRUE(expected.ok());
  const auto model =
      Load(std::make_shared<EmulatedDevice>(device::emulator::Order::kAscending, true));
  ASSERT_TRUE(model.ok());
  const auto with = ModelRunner::New(*model, {.pool_pages = 64});
  ASSERT_TRUE(with.ok());
  const auto logits = (*with)->Feed((*with)->Add(), tokens_);
  ASSERT_TRUE(logits.ok());
  EXPECT_TRUE(SameBytes(*logits, *expected));
}

// Matrices with the same input are adjacent in memory, and so are their biases; no others are.
TEST_P(GpuBackendTest, MatricesOfOneInputAreOne) {
  const auto model = Load(device_);
  ASSERT_TRUE(model.ok()) << model.status();
  int n_attentions = 0, n_ffns = 0;
  for (const BoundBlock& block : static_cast<const GpuWeights&>(*model->weights).model().blocks) {
    for (const BoundPath& path : block.paths) {
      if (const auto* op = std::get_if<Bound<Attention>>(&path.op)) {
        ++n_attentions;
        EXPECT_TRUE(Continues(op->q, op->k));
        EXPECT_TRUE(Continues(op->k, op->v));
        EXPECT_FALSE(Continues(op->q, op->v));
        EXPECT_FALSE(Continues(op->v, op->out));
        BoundLinear biased = op->q;
        biased.bias = reinterpret_cast<const float*>(op->q.matrix.levels);
        EXPECT_FALSE(Continues(biased, op->k));
      } else if (const auto* ffn = std::get_if<Bound<DenseFfn>>(&path.op)) {
        ++n_ffns;
        EXPECT_TRUE(Continues(ffn->up, ffn->gate));
        EXPECT_FALSE(Continues(ffn->gate, ffn->down));
      }
    }
  }
  EXPECT_GT(n_attentions, 0);
  EXPECT_GT(n_ffns, 0);
}

// The sizes used to divide a model between devices are the sizes that its matrices take.
TEST(GpuFormsTest, MatricesTakeTheBitsThatTheBackendNames) {
  const Backend& backend = *EmulatedBackend();
  EXPECT_EQ(backend.FormOf(DType::kQ4_K, false).bits_per_weight, 4.625);
  EXPECT_EQ(backend.FormOf(DType::kQ6_K, true).bits_per_weight, 6.5625);
  EXPECT_EQ(backend.FormOf(DType::kQ8_0, false).bits_per_weight, 8.5);
  EXPECT_EQ(backend.FormOf(DType::kBF16, false).bits_per_weight, 16);
  for (const DType type : {DType::kQ4_0, DType::kQ2_K, DType::kQ3_K, DType::kIQ4_XS}) {
    const PartBytes bytes = BytesOfRow(type, 2048);
    EXPECT_EQ(backend.FormOf(type, false).bits_per_weight * 2048 / 8,
              static_cast<double>(bytes.levels + bytes.meta + bytes.super));
  }
  for (const int64_t width : {576, 2880}) {
    const HeldAs held = backend.FormOf(DType::kQ8_0, false);
    const PartBytes bytes = BytesOfRow(DType::kQ8_0, width);
    const int64_t n_chunks = device::CeilDiv(width, static_cast<int>(held.row_multiple));
    EXPECT_EQ(held.bits_per_weight * static_cast<double>(n_chunks * held.row_multiple) / 8,
              static_cast<double>(bytes.levels + bytes.meta + bytes.super));
  }
}

// A prediction head that is loaded next to its model refers to the model's memory.
TEST(GpuFormsTest, AHeadHasTheModelsMatrices) {
  const auto file = ModelFile::Open(weft::testing::TinyModelFile("qwen35-mtp"));
  ASSERT_TRUE(file.ok()) << file.status();
  const auto spec = BuildModelSpec(**file, {});
  ASSERT_TRUE(spec.ok() && spec->prediction_head != nullptr) << spec.status();
  const auto model = EmulatedBackend()->Load(*file, *spec, {});
  ASSERT_TRUE(model.ok()) << model.status();
  const auto head = EmulatedBackend()->Load(*file, *spec->prediction_head, {.beside = *model});
  ASSERT_TRUE(head.ok()) << head.status();
  const auto& of_model = static_cast<const GpuWeights&>(**model);
  const auto& of_head = static_cast<const GpuWeights&>(**head);
  EXPECT_EQ(of_head.gpu(), of_model.gpu());
  EXPECT_EQ(of_head.model().output.matrix.levels, of_model.model().output.matrix.levels);
  EXPECT_EQ(of_head.model().embedding.matrix.levels, of_model.model().embedding.matrix.levels);
}

// Loads to the test's own device.
class OnDeviceBackend : public weft::testing::WrappedBackend {
 public:
  explicit OnDeviceBackend(std::shared_ptr<EmulatedDevice> device)
      : WrappedBackend(EmulatedBackend()), device_(std::move(device)) {}
  StatusOr<std::shared_ptr<const Weights>> Load(std::shared_ptr<const ModelFile> file,
                                                ModelSpec spec,
                                                const LoadOptions& options) const override {
    return LoadTo(device_, 0, std::move(file), std::move(spec), options);
  }

 private:
  const std::shared_ptr<EmulatedDevice> device_;
};

// In an engine, only the faulty step's session is lost, all others continue, and nothing leaks.
TEST_P(GpuBackendTest, AFaultPoisonsTheStepsSession) {
  const OnDeviceBackend backend(device_);
  const auto model = weft::testing::TinyModel(GetParam(), 1, &backend);
  const int64_t weight_bytes = device_->held_bytes();
  {
    const auto engine = Engine::Start(model, {});
    ASSERT_TRUE(engine.ok()) << engine.status();
    const auto well = (*engine)->CreateSession({}), hurt = (*engine)->CreateSession({}),
               alone = (*engine)->CreateSession({});
    ASSERT_TRUE(well.ok() && hurt.ok() && alone.ok());
    const auto run = [&](SessionId session, std::vector<TokenId> tokens) {
      return weft::testing::RunTurn(engine->get(), session,
                                    weft::testing::Greedy(std::move(tokens), 6));
    };
    const auto first = run(*alone, tokens_);
    const auto second = run(*alone, RandomTokens(9, 4));
    ASSERT_TRUE(first.done().status.ok() && second.done().status.ok());

    EXPECT_EQ(run(*well, tokens_).tokens(), first.tokens());
    device_->faults().until_launch_fails = 20;
    EXPECT_FALSE(run(*hurt, RandomTokens(30, 6)).done().status.ok());
    EXPECT_FALSE(run(*hurt, RandomTokens(3, 7)).done().status.ok()) << "it stays lost";
    EXPECT_EQ(run(*well, RandomTokens(9, 4)).tokens(), second.tokens());
  }
  EXPECT_EQ(device_->held_bytes(), weight_bytes);
}

INSTANTIATE_TEST_SUITE_P(Models, GpuBackendTest, ::testing::Values("llama", "gemma3"),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace weft::gpu
