// The mlx backend's own parts: packed weights keep their values, pools are written in place, and
// MLX's exceptions become statuses. The conformance tests compare its logits.
#include "compute/mlx/mlx_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "compute/kernels/quants/quants.h"
#include "compute/mlx/lanes.h"
#include "compute/mlx/mlx_include.h"
#include "compute/mlx/mlx_state.h"
#include "compute/mlx/packing.h"
#include "compute/mlx/step_context.h"
#include "compute/spec_tensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "mlx/random.h"
#include "tests/conformance/golden_cases.h"
#include "tests/support/goldens.h"
#include "tests/support/logits.h"
#include "tests/support/model_runner.h"

namespace weft::mlx {
namespace {

using ::testing::HasSubstr;
using testing::ModelRunner;

constexpr DType kQuantized[] = {
    DType::kQ4_0,    DType::kQ4_1,   DType::kQ5_0,  DType::kQ5_1,    DType::kQ8_0,
    DType::kQ2_K,    DType::kQ3_K,   DType::kQ4_K,  DType::kQ5_K,    DType::kQ6_K,
    DType::kIQ4_NL,  DType::kIQ4_XS, DType::kMXFP4, DType::kTQ1_0,   DType::kTQ2_0,
    DType::kNVFP4,   DType::kQ1_0,   DType::kQ2_0,  DType::kIQ1_S,   DType::kIQ1_M,
    DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S, DType::kIQ3_XXS, DType::kIQ3_S};

// A row of random bits whose values are all finite.
std::vector<std::byte> RandomRow(DType type, int64_t n, std::mt19937* random) {
  std::vector<std::byte> row(static_cast<size_t>(RowBytes(type, n)));
  std::vector<float> values(static_cast<size_t>(n));
  const auto block = static_cast<size_t>(InfoOf(type).block_bytes);
  for (size_t at = 0; at < row.size(); at += block) {
    bool finite = false;
    while (!finite) {
      for (size_t i = 0; i < block; ++i) row[at + i] = static_cast<std::byte>((*random)() & 0xFF);
      Dequantize(type, row.data() + at, InfoOf(type).block_values, values.data());
      finite = std::ranges::all_of(values, [](float v) { return std::isfinite(v); });
    }
  }
  return row;
}

class PackingTest : public ::testing::TestWithParam<DType> {};

TEST_P(PackingTest, EveryWeightKeepsItsValue) {
  constexpr int64_t kN = 512, kRows = 40;
  const DType type = GetParam();
  const Packing packing = PackingOf(type);
  ASSERT_NE(packing.form, Form::kFloat);
  const bool is_affine = packing.form == Form::kAffine;
  std::mt19937 random(7);
  const auto words = static_cast<size_t>(packing.Words(kN));
  const auto groups = static_cast<size_t>(packing.Groups(kN));
  std::vector<uint32_t> levels(kRows * words);
  std::vector<float> scales(kRows * groups), biases(kRows * groups);
  std::vector<uint8_t> exponents(kRows * groups);
  std::vector<float> wanted(kRows * kN);
  for (size_t r = 0; r < kRows; ++r) {
    const auto row = RandomRow(type, kN, &random);
    Dequantize(type, row.data(), kN, wanted.data() + r * kN);
    void* const to = is_affine ? static_cast<void*>(scales.data() + r * groups)
                               : static_cast<void*>(exponents.data() + r * groups);
    PackRow(type, row.data(), kN,
            {levels.data() + r * words, to, is_affine ? biases.data() + r * groups : nullptr});
  }
  const mx::Shape by_group = {kRows, Size(std::ssize(scales) / kRows)};
  const mx::array packed = FromHost<uint32_t>(levels, {kRows, Size(packing.Words(kN))});
  mx::array unpacked =
      is_affine ? mx::dequantize(packed, FromHost<float>(scales, by_group),
                                 FromHost<float>(biases, by_group), 32, packing.bits, "affine")
                : mx::dequantize(packed, FromHost<uint8_t>(exponents, by_group), std::nullopt, 32,
                                 packing.bits, "mxfp4", std::nullopt, mx::float32);
  const int spread = packing.spread ? 2 : 1;
  unpacked = mx::reshape(unpacked, {-1, 32});
  unpacked = mx::contiguous(mx::slice(unpacked, {0, 0}, {unpacked.shape(0), 32 / spread}));
  mx::eval(unpacked);
  ASSERT_EQ(unpacked.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(unpacked.data<float>()[i], wanted[i]) << NameOf(type) << ", weight " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, PackingTest, ::testing::ValuesIn(kQuantized),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST(MlxBackendTest, SaysThatBitsMayDifferAndWhatIsHeld) {
  const Backend& mlx = *MlxBackend();
  EXPECT_FALSE(mlx.capabilities().same_bits);
  EXPECT_THAT(mlx.FormOf(DType::kQ4_K, false).form, HasSubstr("affine, 4 bits"));
  EXPECT_EQ(mlx.FormOf(DType::kQ4_K, false).bits_per_weight, 6);
  EXPECT_EQ(mlx.FormOf(DType::kQ6_K, false).bits_per_weight, 16);
  EXPECT_EQ(mlx.FormOf(DType::kMXFP4, true).bits_per_weight, 4.25);
  EXPECT_EQ(mlx.FormOf(DType::kBF16, false).bits_per_weight, 16);
  EXPECT_EQ(mlx.FormOf(DType::kBF16, true).bits_per_weight, 32);  // MLX gathers only F32
}

// --- state -----------------------------------------------------------------------------

StatusOr<testing::LoadedModel> Load(const std::string& name) {
  return testing::LoadModel("mlx", testing::FloatModelPath(name), 256);
}

std::vector<TokenId> SomeTokens(const ModelSpec& spec, size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(n);
  for (TokenId& token : tokens) {
    token = static_cast<TokenId>(random() % static_cast<uint32_t>(spec.n_vocab));
  }
  return tokens;
}

std::vector<const void*> Places(const MlxState& state) {
  std::vector<const void*> places;
  for (const mx::array& pool : state.Pools()) places.push_back(pool.data<std::byte>());
  return places;
}

TEST(MlxStateTest, StepsWriteInPlace) {
  WEFT_REQUIRE_GOLDENS();
  for (const char* const name : {"llama", "qwen35", "falcon-h1"}) {
    const auto model = Load(name);
    ASSERT_TRUE(model.ok()) << model.status();
    const auto runner = ModelRunner::New(*model, {});
    ASSERT_TRUE(runner.ok()) << runner.status();
    const auto& state = static_cast<const MlxState&>((*runner)->state());
    const auto before = Places(state);
    ASSERT_FALSE(before.empty());
    const int64_t held = state.held_bytes();
    const int a = (*runner)->Add(), b = (*runner)->Add();
    const auto tokens = SomeTokens((*runner)->spec(), 24, 1);
    ASSERT_TRUE((*runner)->Feed(a, tokens).ok());
    const std::vector<int64_t> one = {1};
    ASSERT_TRUE((*runner)->Feed(b, tokens, one).ok());
    EXPECT_EQ(Places(state), before) << name;
    EXPECT_EQ(state.held_bytes(), held) << name;
  }
}

TEST(MlxStateTest, GrowingKeepsWhatIsThere) {
  ModelSpec spec;
  spec.kv_layers = {{.group = 0, .n_heads = 2, .k_dim = 8, .v_dim = 4},
                    {.group = 0, .n_heads = 1, .k_dim = 8, .v_dim = 0}};
  spec.kv_groups = {{.window = 0, .kv_layers = {0, 1}}};
  spec.slots = {{.kind = SlotKind::kConvolution, .n_floats = 6}};
  MlxState state(spec, DType::kF16, 16);
  ASSERT_EQ(state.layout().page_bytes[0], 16 * 2 * (16 + 8 + 8));
  ASSERT_EQ(state.layout().slot_bytes, 24);
  std::vector<std::byte> page(static_cast<size_t>(state.layout().page_bytes[0]));
  std::vector<std::byte> slot(24);
  for (size_t i = 0; i < page.size(); ++i) page[i] = static_cast<std::byte>(i * 7 + 1);
  for (size_t i = 0; i < slot.size(); ++i) slot[i] = static_cast<std::byte>(i + 1);
  for (PageId id = 0; id < 40; ++id) {
    ASSERT_TRUE(state.GrowPages(0, id + 1).ok());
    ASSERT_TRUE(state.GrowSlots(id + 1).ok());
    page[5] = slot[5] = static_cast<std::byte>(id);
    ASSERT_TRUE(state.WritePage(0, id, page).ok());
    ASSERT_TRUE(state.WriteSlot(id, slot).ok());
  }
  std::vector<std::byte> got(page.size());
  for (PageId id = 0; id < 40; ++id) {
    page[5] = slot[5] = static_cast<std::byte>(id);
    ASSERT_TRUE(state.ReadPage(0, id, 16, got).ok());
    EXPECT_EQ(got, page);
    std::vector<std::byte> got_slot(24);
    ASSERT_TRUE(state.ReadSlot(id, got_slot).ok());
    EXPECT_EQ(got_slot, slot);
  }
  // At most a quarter more than needed.
  const int64_t needed = 40 * (state.layout().page_bytes[0] + state.layout().slot_bytes);
  EXPECT_GE(state.held_bytes(), needed);
  EXPECT_LE(state.held_bytes(), needed + needed / 4);
  // Copying some positions leaves the others alone; reading fills the rest with zeros.
  ASSERT_TRUE(state.CopyPage(0, 3, 4, 2).ok());
  ASSERT_TRUE(state.ReadPage(0, 4, 2, got).ok());
  EXPECT_EQ(got[5], std::byte{3});
  EXPECT_EQ(got[2 * 2 * 16], std::byte{0});
  ASSERT_TRUE(state.ClearSlot(7).ok());
  std::vector<std::byte> cleared(24);
  ASSERT_TRUE(state.ReadSlot(7, cleared).ok());
  EXPECT_EQ(cleared, std::vector<std::byte>(24));
  // Ids and sizes out of range are errors.
  EXPECT_EQ(state.CopyPage(0, 3, 40, 2).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(state.ReadPage(1, 0, 2, got).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(state.CopySlot(-1, 0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(state.WriteSlot(0, page).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(state.GrowPages(0, int64_t{1} << 50).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(state.n_pages(0), 40);
}

// A step that fails before its writes are computed leaves the pools unchanged.
TEST(MlxStateTest, WhatWasNotComputedIsTakenBack) {
  ModelSpec spec;
  spec.kv_layers = {{.group = 0, .n_heads = 1, .k_dim = 8, .v_dim = 8}};
  spec.kv_groups = {{.window = 0, .kv_layers = {0}}};
  MlxState state(spec, DType::kF32, 16);
  ASSERT_TRUE(state.GrowPages(0, 2).ok());
  std::vector<std::byte> page(static_cast<size_t>(state.layout().page_bytes[0]), std::byte{9});
  ASSERT_TRUE(state.WritePage(0, 1, page).ok());
  for (int i = 0; i < 2; ++i) {
    state.keys(0) = mx::scatter(state.keys(0), mx::array({16}), mx::zeros({1, 1, 1, 8}), 1);
  }
  state.TakeBack();
  std::vector<std::byte> got(page.size());
  ASSERT_TRUE(state.ReadPage(0, 1, 16, got).ok());
  EXPECT_EQ(got, page);
}

// --- steps -----------------------------------------------------------------------------

TEST(WithoutExceptionsTest, WhatIsThrownBecomesAStatus) {
  const auto thrown = [](const std::exception& error) {
    return WithoutExceptions("a step", [&]() -> Status { throw std::runtime_error(error.what()); });
  };
  EXPECT_EQ(thrown(std::runtime_error("[metal] command buffer")).code(), StatusCode::kInternal);
  EXPECT_EQ(thrown(std::runtime_error("[malloc] Unable to allocate 3 bytes")).code(),
            StatusCode::kResourceExhausted);
}

// Each lane computes a range of outputs, which may begin anywhere.
TEST(LanesTest, ProductsAreTheSameHoweverManyThereAre) {
  if (mx::default_device() != mx::Device::cpu) GTEST_SKIP() << "a device's stream uses all of it";
  constexpr int kIn = 512, kOut = 509;
  for (const DType type : {DType::kQ4_1, DType::kQ5_0, DType::kQ6_K, DType::kMXFP4}) {
    std::mt19937 random(8);
    Matrix matrix{.packing = PackingOf(type), .levels = {}, .scales = {}, .biases = {}};
    const bool is_affine = matrix.packing.form == Form::kAffine;
    const auto words = static_cast<size_t>(matrix.packing.Words(kIn));
    const auto groups = static_cast<size_t>(matrix.packing.Groups(kIn));
    std::vector<uint32_t> levels(kOut * words);
    std::vector<float> scales(kOut * groups), biases(kOut * groups);
    std::vector<uint8_t> exponents(kOut * groups);
    for (size_t r = 0; r < kOut; ++r) {
      const auto row = RandomRow(type, kIn, &random);
      void* const to = is_affine ? static_cast<void*>(scales.data() + r * groups)
                                 : static_cast<void*>(exponents.data() + r * groups);
      PackRow(type, row.data(), kIn,
              {levels.data() + r * words, to, is_affine ? biases.data() + r * groups : nullptr});
    }
    const mx::Shape by_group = {kOut, Size(std::ssize(scales) / kOut)};
    matrix.levels = FromHost<uint32_t>(levels, {kOut, Size(matrix.packing.Words(kIn))});
    if (is_affine) {
      matrix.scales = FromHost<float>(scales, by_group);
      matrix.biases = FromHost<float>(biases, by_group);
    } else {
      matrix.scales = FromHost<uint8_t>(exponents, by_group);
    }
    const mx::array x = mx::random::normal({3, kIn});
    mx::array wanted = Multiply(x, matrix);
    mx::eval(wanted);
    for (const int n_lanes : {1, 2, 3, 7}) {
      const Lanes lanes(n_lanes);
      ASSERT_EQ(lanes.count(), n_lanes);
      mx::array got = mx::contiguous(MultiplyInLanes(lanes, x, matrix));
      mx::eval(got);
      ASSERT_EQ(got.shape(), wanted.shape());
      EXPECT_EQ(std::memcmp(got.data<float>(), wanted.data<float>(), wanted.nbytes()), 0)
          << NameOf(type) << " in " << n_lanes << " lanes";
    }
  }
}

// Two models' engines run steps in parallel, each on its own thread.
TEST(MlxStepTest, ThreadsHaveStreamsOfTheirOwn) {
  WEFT_REQUIRE_GOLDENS();
  const auto model = Load("llama");
  ASSERT_TRUE(model.ok()) << model.status();
  const auto tokens = SomeTokens(model->weights->spec(), 20, 2);
  const auto alone = testing::RunTokens(*model, tokens);
  ASSERT_TRUE(alone.ok()) << alone.status();
  std::vector<StatusOr<std::vector<float>>> results(3, Internal("not run"));
  {
    std::vector<std::jthread> threads;
    threads.reserve(results.size());
    for (auto& result : results) {
      threads.emplace_back([&] { result = testing::RunTokens(*model, tokens); });
    }
  }
  for (const auto& result : results) {
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_LE(testing::MaxDifference(*result, *alone), 1e-4);
  }
}

// More sequences than lanes, at different positions: each gets the same logits as alone with one
// thread.
TEST(MlxStepTest, SequencesAttendSideBySide) {
  WEFT_REQUIRE_GOLDENS();
  for (const char* name : {"gemma3", "qwen3moe"}) {
    const auto model = testing::LoadModel("mlx-strict", testing::FloatModelPath(name), 256);
    ASSERT_TRUE(model.ok()) << model.status();
    const ModelSpec& spec = model->weights->spec();
    const auto runner = ModelRunner::New(*model, {.executor = {.n_threads = 3}});
    ASSERT_TRUE(runner.ok()) << runner.status();
    constexpr size_t kSequences = 5, kNew = 4;
    std::vector<std::vector<TokenId>> tokens;
    std::vector<ModelRunner::Part> parts;
    for (size_t i = 0; i < kSequences; ++i) {
      tokens.push_back(SomeTokens(spec, 10 * i + 5 + kNew, static_cast<uint32_t>(20 + i)));
    }
    for (const auto& all : tokens) {
      const int sequence = (*runner)->Add();
      const std::span<const TokenId> both(all);
      ASSERT_TRUE((*runner)->Feed(sequence, both.first(both.size() - kNew)).ok());
      parts.push_back({sequence, both.last(kNew)});
    }
    const auto logits = (*runner)->Step(parts);
    ASSERT_TRUE(logits.ok()) << logits.status();
    const auto n = static_cast<size_t>(spec.n_vocab) * kNew;
    for (size_t i = 0; i < kSequences; ++i) {
      const auto alone = testing::RunTokens(*model, tokens[i]);
      ASSERT_TRUE(alone.ok()) << alone.status();
      EXPECT_EQ(
          testing::MaxDifference(std::span(*logits).subspan(i * n, n), std::span(*alone).last(n)),
          0)
          << name << ", sequence " << i;
    }
  }
}

// Another sequence's step runs while a long one is paused, which then continues.
TEST(MlxStepTest, AnotherStepRunsWhileOnePauses) {
  WEFT_REQUIRE_GOLDENS();
  const auto model = Load("qwen35");
  ASSERT_TRUE(model.ok()) << model.status();
  const auto tokens = SomeTokens(model->weights->spec(), 40, 3);
  const auto beside_tokens = SomeTokens(model->weights->spec(), 5, 4);
  const auto wanted = testing::RunTokens(*model, tokens);
  const auto wanted_beside = testing::RunTokens(*model, beside_tokens);
  ASSERT_TRUE(wanted.ok() && wanted_beside.ok());
  const auto runner = ModelRunner::New(*model, {});
  ASSERT_TRUE(runner.ok()) << runner.status();
  ASSERT_GT((*runner)->executor().pause_points(), 0);
  const int other = (*runner)->Add();
  StatusOr<std::vector<float>> beside = Internal("never paused");
  const std::vector<ModelRunner::Part> parts = {{(*runner)->Add(), tokens}};
  const auto logits = (*runner)->Step(parts, [&] {
    if (!beside.ok()) beside = (*runner)->Feed(other, beside_tokens);
  });
  ASSERT_TRUE(logits.ok()) << logits.status();
  ASSERT_TRUE(beside.ok()) << beside.status();
  EXPECT_LE(testing::MaxDifference(*logits, *wanted), 1e-3);
  EXPECT_LE(testing::MaxDifference(*beside, *wanted_beside), 1e-3);
}

// Two sequences of one step with input embeddings at different positions, one of them longer than a
// chunk.
TEST(MlxStepTest, VectorsStandInPlaceOfTokens) {
  WEFT_REQUIRE_GOLDENS();
  for (const char* backend : {"mlx", "mlx-strict"}) {
    const std::string path = testing::FloatModelPath("gemma3");  // it scales embeddings
    const auto model = testing::LoadModel(backend, path, 256);
    ASSERT_TRUE(model.ok()) << model.status();
    const ModelSpec& spec = model->weights->spec();
    const auto file = ModelFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    const auto runner = ModelRunner::New(*model, {});
    ASSERT_TRUE(runner.ok()) << runner.status();
    const auto width = static_cast<size_t>(spec.d_model);
    std::vector<std::vector<TokenId>> tokens, ids;
    std::vector<std::vector<float>> tables, wanted;
    for (const uint64_t seed : {6, 7}) {
      tokens.push_back(SomeTokens(spec, 24, seed));
      tables.push_back(*ReadTableRows(**file, spec.embedding, tokens.back()));
      wanted.push_back(*testing::RunTokens(*model, tokens.back()));
      ids.push_back(tokens.back());
    }
    const int sequences[] = {(*runner)->Add(), (*runner)->Add()};
    for (size_t at = 0; at < 24; at += 12) {
      std::vector<ModelRunner::Part> parts;
      for (size_t s = 0; s < 2; ++s) {
        ModelRunner::Part part{sequences[s], std::span(ids[s]).subspan(at, 12)};
        for (size_t i = at; i < at + 12; ++i) {
          if (i % (s + 2) == 0) continue;
          ids[s][i] = kAnyRow;
          part.rows.push_back(std::span(tables[s]).subspan(i * width, width));
        }
        parts.push_back(std::move(part));
      }
      const auto logits = (*runner)->Step(parts);
      ASSERT_TRUE(logits.ok()) << logits.status();
      for (size_t s = 0; s < 2; ++s) {
        const auto n = static_cast<size_t>(12 * spec.n_vocab);
        const double difference = testing::MaxDifference(
            std::span(*logits).subspan(s * n, n), std::span(wanted[s]).subspan(at / 12 * n, n));
        EXPECT_LE(difference, model->backend->capabilities().same_bits ? 0 : 1e-3) << backend;
      }
    }
  }
}

// A step that is destroyed halfway leaves other sequences unchanged.
TEST(MlxStepTest, AStepGivenUpHarmsNobody) {
  WEFT_REQUIRE_GOLDENS();
  const auto model = Load("qwen35");
  ASSERT_TRUE(model.ok()) << model.status();
  const auto tokens = SomeTokens(model->weights->spec(), 30, 5);
  const auto wanted = testing::RunTokens(*model, tokens);
  ASSERT_TRUE(wanted.ok());
  const auto runner = ModelRunner::New(*model, {});
  ASSERT_TRUE(runner.ok()) << runner.status();
  StateStore& state = (*runner)->state();
  const int kept = (*runner)->Add();
  ASSERT_TRUE((*runner)->Feed(kept, std::span(tokens).first(20)).ok());
  // The pages and the slot that the runner would use last.
  StepSequence given_up{.tokens = tokens, .slot = static_cast<SlotId>(state.n_slots() - 1)};
  std::vector<std::vector<PageId>> tables;
  for (size_t g = 0; g < (*runner)->spec().kv_groups.size(); ++g) {
    const auto last = static_cast<PageId>(state.n_pages(static_cast<int>(g)) - 1);
    tables.push_back({last});
  }
  for (const auto& table : tables) given_up.page_tables.emplace_back(table);
  {
    const auto run = (*runner)->executor().Begin({.sequences = {&given_up, 1}});
    ASSERT_TRUE(run.ok()) << run.status();
    const auto done = (*run)->Advance([] { return true; });
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_FALSE(*done);
  }
  const auto rest = (*runner)->Feed(kept, std::span(tokens).subspan(20));
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_LE(testing::MaxDifference(*rest, std::span(*wanted).last(rest->size())), 1e-3);
}

}  // namespace
}  // namespace weft::mlx
