// The cuda backend over a fake driver: it computes the emulator's bits and leaks nothing.
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compute/gpu/gpu_backend.h"
#include "compute/gpu/image_files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/all_kernels.h"
#include "tests/support/engine_harness.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/model_runner.h"
#include "weft/engine.h"

namespace weft::gpu {
namespace {

using device::cuda::LoadedDriver;
using ::testing::AllOf;
using ::testing::HasSubstr;
using weft::testing::FakeCuda;
using weft::testing::Greedy;
using weft::testing::LoadedModel;
using weft::testing::ModelRunner;
using weft::testing::RandomTokens;
using weft::testing::RunAlone;
using weft::testing::RunTurn;
using weft::testing::TinyModel;

// The driver that the backend under test finds.
LoadedDriver found;
const LoadedDriver& Found() { return found; }

class CudaBackendTest : public ::testing::Test {
 protected:
  CudaBackendTest() : backend_(NewCudaBackend(Found, fake_.images())) {
    found = {.functions = fake_.driver(), .problem = ""};
  }

  StatusOr<LoadedModel> Load(const Backend* backend, int device) {
    LoadedModel model;
    model.backend = backend;
    WEFT_ASSIGN_OR_RETURN(auto file, ModelFile::Open(weft::testing::TinyModelFile("gemma3")));
    WEFT_ASSIGN_OR_RETURN(ModelSpec spec, BuildModelSpec(*file, {.context_tokens = 512}));
    WEFT_ASSIGN_OR_RETURN(model.weights, backend->Load(std::move(file), std::move(spec),
                                                       {.device = device, .n_threads = 1}));
    return model;
  }
  StatusOr<std::vector<float>> LogitsOn(const Backend* backend, int device = 0,
                                        int64_t n_tokens = 240) {
    WEFT_ASSIGN_OR_RETURN(const LoadedModel model, Load(backend, device));
    WEFT_ASSIGN_OR_RETURN(const auto runner, ModelRunner::New(model, {.pool_pages = 64}));
    const std::vector<int64_t> chunks = {64, 64, 5, 1, 1, 64};
    return runner->Feed(runner->Add(), RandomTokens(n_tokens, 5), chunks);
  }

  // The second device has tensor-core tiles, which are slow to emulate.
  FakeCuda fake_{
      {{.compute_major = 7, .compute_minor = 5}, {.name = "Loom 9001", .compute_major = 12}},
      weft::testing::AllKernels()};
  const std::unique_ptr<const Backend> backend_;
};

TEST_F(CudaBackendTest, ItsDevicesHaveNamesAndMemory) {
  ASSERT_TRUE(backend_->Available().ok());
  ASSERT_EQ(backend_->device_count(), 2);
  EXPECT_EQ(backend_->NameOfDevice(1), "Loom 9001, compute capability 12.0");
  const auto memory = backend_->MemoryOf(1);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->total_bytes, int64_t{1} << 30);
  EXPECT_THAT(std::string(Message(backend_->MemoryOf(2).status())), HasSubstr("devices 0 to 1"));
  const auto limits = backend_->LimitsOf(0);
  ASSERT_TRUE(limits);
  EXPECT_EQ(limits->read_bytes_per_s, 256e9);    // 2 x 2 GHz x 64 bytes
  EXPECT_EQ(limits->int8_macs_per_s, 10.24e12);  // 10 multiprocessors at 1 GHz
}

TEST_F(CudaBackendTest, ItsBitsAreTheEmulators) {
  const auto expected = LogitsOn(EmulatedBackend());
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const int device : {0, 1}) {
    const auto logits = LogitsOn(backend_.get(), device);
    ASSERT_TRUE(logits.ok()) << logits.status();
    ASSERT_EQ(logits->size(), expected->size());
    EXPECT_EQ(std::memcmp(logits->data(), expected->data(), logits->size() * 4), 0);
    EXPECT_EQ(fake_.n_alive(), 0);
    EXPECT_EQ(fake_.n_current(), 0);
  }
  EXPECT_GT(fake_.CallsOf("cuGraphLaunch"), 0);
}

TEST_F(CudaBackendTest, WithoutMemoryForAGraphItsKernelsAreLaunchedOneByOne) {
  const auto expected = LogitsOn(backend_.get());
  ASSERT_TRUE(expected.ok()) << expected.status();
  const int64_t n_launched = fake_.CallsOf("cuLaunchKernel");
  fake_.Plant("cuGraphInstantiateWithFlags", 2, device::cuda::kOutOfMemory);
  const auto logits = LogitsOn(backend_.get());
  ASSERT_TRUE(logits.ok()) << logits.status();
  EXPECT_TRUE(fake_.struck());
  EXPECT_EQ(std::memcmp(logits->data(), expected->data(), logits->size() * 4), 0);
  EXPECT_GT(fake_.CallsOf("cuLaunchKernel"), 2 * n_launched);
  EXPECT_EQ(fake_.n_alive(), 0);
}

// Nothing leaks, whichever allocation, instantiation or load fails.
TEST_F(CudaBackendTest, WhateverIsRefusedNothingStays) {
  for (const char* const function :
       {"cuMemAlloc_v2", "cuMemHostAlloc", "cuStreamCreateWithPriority", "cuEventCreate",
        "cuLaunchKernel"}) {
    int n_failed = 0;
    for (int64_t n = 1;; n += 1 + n / 4) {
      fake_.Plant(function, n, device::cuda::kOutOfMemory);
      const auto logits = LogitsOn(backend_.get(), 0, 40);
      if (!fake_.struck()) break;
      n_failed += logits.ok() ? 0 : 1;
      EXPECT_EQ(fake_.n_alive(), 0) << function << ' ' << n;
      EXPECT_EQ(fake_.n_current(), 0) << function << ' ' << n;
    }
    fake_.Plant(function, 0, device::cuda::kSuccess);
    EXPECT_GT(n_failed, 1) << function;
  }
}

// Two engines on two devices; one device is lost.
TEST_F(CudaBackendTest, EnginesDoNotSeeEachOther) {
  const auto prompt = RandomTokens(20, 3);
  const auto expected =
      RunAlone(TinyModel("llama", 1, EmulatedBackend()), {}, std::vector{Greedy(prompt, 6)});
  {
    std::vector<std::shared_ptr<const Model>> models;
    std::vector<std::unique_ptr<Engine>> engines;
    for (const int device : {0, 1}) {
      ModelOptions options;
      options.backend_object = backend_.get();
      options.device = device;
      options.context_tokens = 512;
      auto model = Model::Load(weft::testing::TinyModelFile("llama"), options);
      ASSERT_TRUE(model.ok()) << model.status();
      models.push_back(*std::move(model));
      auto engine = Engine::Start(models.back(), {});
      ASSERT_TRUE(engine.ok()) << engine.status();
      engines.push_back(*std::move(engine));
    }
    const auto run = [&](size_t i) {
      const auto session = engines[i]->CreateSession({});
      return RunTurn(engines[i].get(), *session, Greedy(prompt, 6));
    };
    EXPECT_EQ(run(0).tokens(), expected[0].tokens());
    EXPECT_EQ(run(1).tokens(), expected[0].tokens());
    fake_.Plant("cuGraphLaunch", 3, device::cuda::kLaunchFailed);
    const auto hurt = run(1);
    EXPECT_EQ(hurt.done().status.code(), StatusCode::kInternal);
    EXPECT_THAT(std::string(Message(hurt.done().status)), HasSubstr("CUDA device 1 (Loom 9001)"));
    EXPECT_EQ(run(0).tokens(), expected[0].tokens());
  }
  EXPECT_EQ(fake_.n_alive(), 0);
}

// Pages whose slab was freed get new memory when a step begins.
TEST_F(CudaBackendTest, AStepForWhichThereIsNoMemoryIsComputedLater) {
  const auto turn = Greedy(RandomTokens(20, 3), 6);
  const auto expected = RunAlone(TinyModel("llama", 1, EmulatedBackend()), {}, std::vector{turn});
  const auto engine = Engine::Start(TinyModel("llama", 1, backend_.get()), {});
  ASSERT_TRUE(engine.ok()) << engine.status();
  fake_.Plant("cuMemAlloc_v2", 1, device::cuda::kOutOfMemory);
  const auto session = (*engine)->CreateSession({});
  const auto outcome = RunTurn(engine->get(), *session, turn);
  EXPECT_TRUE(fake_.struck());
  EXPECT_TRUE(outcome.done().status.ok()) << outcome.done().status;
  EXPECT_EQ(outcome.tokens(), expected[0].tokens());
}

TEST_F(CudaBackendTest, WithoutADeviceItSaysWhatToDo) {
  found = {.functions = {}, .problem = "NVIDIA's driver is not installed: there is no libx"};
  EXPECT_THAT(std::string(Message(backend_->Available())),
              AllOf(HasSubstr("no CUDA device"), HasSubstr("libx"), HasSubstr("--backend cpu")));
}

// The error names the file that is missing.
TEST(ImageFilesTest, TakesFilesInThePlaceOfKernels) {
  const std::string folder = StrCat(::testing::TempDir(), "weft_images_", getpid());
  std::filesystem::create_directories(folder);
  const auto write = [&](std::string_view name, std::string_view contents) {
    ASSERT_TRUE(WriteFile(StrCat(folder, "/", name), std::as_bytes(std::span(contents))).ok());
  };
  write("norms.fatbin", "one");
  const char* const names[] = {"norms", "best"};
  const auto missing = ImageFiles::Open(folder, names);
  EXPECT_THAT(std::string(Message(missing.status())), HasSubstr("/best.fatbin"));
  write("best.cubin", "");
  EXPECT_THAT(std::string(Message(ImageFiles::Open(folder, names).status())),
              AllOf(HasSubstr("/best.cubin"), HasSubstr("empty")));
  write("best.cubin", "two");
  const auto found_both = ImageFiles::Open(folder, names);
  ASSERT_TRUE(found_both.ok()) << found_both.status();
  ASSERT_EQ(found_both->images().size(), 2u);
  EXPECT_EQ(std::memcmp(found_both->images()[1], "two", 3), 0);
  std::filesystem::remove_all(folder);
}

TEST(CudaBackendMemoryTest, LeavesMoreWhereADesktopIsDrawn) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  const FakeCuda fake({{.memory_bytes = 4 * kGiB},
                       {.memory_bytes = 80 * kGiB},
                       {.memory_bytes = 4 * kGiB, .draws_desktop = true}},
                      {});
  found = {.functions = fake.driver(), .problem = ""};
  const auto backend = NewCudaBackend(Found, fake.images());
  EXPECT_EQ(backend->MemoryOf(0)->reserve_bytes, kGiB / 2);
  EXPECT_EQ(backend->MemoryOf(1)->reserve_bytes, 4 * kGiB);
  EXPECT_EQ(backend->MemoryOf(2)->reserve_bytes, kGiB);
}

// The driver finds the cards: the first one with enough memory takes the model.
TEST(CudaBackendChoiceTest, TakesTheCardOrSaysWhyNot) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  const FakeCuda fake({{.memory_bytes = 8 * kGiB}, {}}, weft::testing::AllKernels());
  found = {.functions = fake.driver(), .problem = ""};
  const auto backend = NewCudaBackend(Found, fake.images());
  ModelOptions options;
  options.backend = ModelOptions::kAnyBackend;
  options.backend_object = backend.get();
  const auto choose = [&] { return Model::Load(weft::testing::TinyModelFile("llama"), options); };
  auto model = choose();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->backend_name(), "cuda");
  EXPECT_THAT((*model)->computing_choice(), HasSubstr("computes on Loom 9000"));
  options.device = 1;
  model = choose();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->backend_name(), "cpu");
  EXPECT_THAT((*model)->computing_choice(), HasSubstr("Loom 9000, compute capability 9.0 has"));
  found = {.functions = {}, .problem = "there is no driver"};
  options.device = 0;
  model = choose();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->backend_name(), "cpu");
  EXPECT_EQ((*model)->computing_choice(), "");
}

TEST(CudaBackendWithoutCardsTest, SaysWhatToDo) {
  const FakeCuda fake({}, {});
  found = {.functions = fake.driver(), .problem = ""};
  const auto backend = NewCudaBackend(Found, fake.images());
  EXPECT_THAT(std::string(Message(backend->Available())),
              AllOf(HasSubstr("no CUDA device"), HasSubstr("nvidia-smi")));
}

}  // namespace
}  // namespace weft::gpu
