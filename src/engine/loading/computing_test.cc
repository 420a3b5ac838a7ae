#include "engine/loading/computing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/support/engine_harness.h"
#include "tests/support/wrapped_backend.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TinyModelFile;

constexpr int64_t kGiB = int64_t{1} << 30;

class Cards : public testing::WrappedBackend {
 public:
  std::string_view name() const override { return "cards"; }
  std::string NameOfDevice(int /*device*/) const override { return "a Loom 9000"; }
  Status Available() const override { return available; }
  int device_count() const override { return 1; }
  StatusOr<MemoryInfo> MemoryOf(int device) const override {
    WEFT_RETURN_IF_ERROR(WrappedBackend::MemoryOf(device).status());
    return MemoryInfo{.total_bytes = 8 * kGiB, .free_bytes = free_bytes, .reserve_bytes = kGiB / 2};
  }
  StatusOr<std::shared_ptr<const Weights>> Load(std::shared_ptr<const ModelFile> file,
                                                ModelSpec spec,
                                                const LoadOptions& options) const override {
    WEFT_RETURN_IF_ERROR(load);
    return WrappedBackend::Load(std::move(file), std::move(spec), options);
  }

  Status available, load;
  int64_t free_bytes = 4 * kGiB;
};

StatusOr<std::shared_ptr<const Model>> Choose(const Cards& cards, ModelOptions options = {}) {
  options.backend = ModelOptions::kAnyBackend;
  options.backend_object = &cards;
  options.n_threads = 1;
  options.context_tokens = testing::kTinyContext;
  return Model::Load(TinyModelFile("llama"), options);
}

TEST(ComputingTest, ACardWithRoomIsTakenAndTold) {
  const Cards cards;
  const auto model = Choose(cards);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->backend_name(), "cards");
  EXPECT_THAT((*model)->computing_choice(),
              AllOf(HasSubstr("computes on a Loom 9000: "), HasSubstr(" of weights, 3.5 GiB for")));
}

TEST(ComputingTest, ACardWithoutRoomIsLeftAloneAndTold) {
  Cards cards;
  cards.free_bytes = kGiB;
  const auto model = Choose(cards);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->backend_name(), "cpu");
  EXPECT_THAT((*model)->computing_choice(),
              AllOf(HasSubstr("computes on the processor: the model needs "),
                    HasSubstr("a Loom 9000 has 512.0 MiB to give")));
}

TEST(ComputingTest, WithoutADriverNothingIsTold) {
  Cards cards;
  cards.available = Unavailable("no driver");
  const auto model = Choose(cards);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->backend_name(), "cpu");
  EXPECT_EQ((*model)->computing_choice(), "");
}

TEST(ComputingTest, WhatACardCannotLoadTheProcessorComputes) {
  for (const Status& why :
       {Unimplemented("tensor x has type y"), Internal("the context is lost")}) {
    Cards cards;
    cards.load = why;
    const auto model = Choose(cards);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->backend_name(), "cpu");
    EXPECT_EQ((*model)->computing_choice(), StrCat("computes on the processor: ", Message(why)));
  }
}

TEST(ComputingTest, ADeviceThatThereIsNotIsRefused) {
  const Cards cards;
  ModelOptions options;
  options.device = 1;
  EXPECT_EQ(Choose(cards, options).status().code(), StatusCode::kInvalidArgument);
}

TEST(ComputingTest, WhoDividesAModelHasChosen) {
  Cards cards;
  cards.free_bytes = 0;
  ModelOptions options;
  options.device_layers = 1;
  const auto model = Choose(cards, options);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->backend_name(), "cpu:1+cards:1");
  EXPECT_EQ((*model)->computing_choice(), "");
  cards.load = ResourceExhausted("full");
  EXPECT_EQ(Choose(cards, options).status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace weft
