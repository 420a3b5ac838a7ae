#include "compute/backend.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compute/checks.h"
#include "compute/reference/reference_state.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/formats/gguf_writer.h"
#include "model/formats/model_file.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST(BackendRegistryTest, FindsEveryNameAndListsThemOtherwise) {
  EXPECT_THAT(BackendNames(), Contains("reference"));
  for (const std::string_view name : BackendNames()) {
    const auto backend = FindBackend(name);
    ASSERT_TRUE(backend.ok());
    EXPECT_EQ((*backend)->name(), name);
    EXPECT_FALSE((*backend)->capabilities().kv_types.empty());
    EXPECT_FALSE((*backend)->capabilities().page_tokens.empty());
    EXPECT_GT((*backend)->capabilities().max_step_tokens, 0);
  }
  const auto none = FindBackend("abacus\n");
  EXPECT_EQ(none.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(Message(none.status())), HasSubstr("reference"));
  EXPECT_THAT(std::string(Message(none.status())), HasSubstr("abacus\\x0"));
}

TEST(BackendRegistryTest, WhatIsNotCompiledInSaysHowToGetIt) {
  for (const std::string name : {"cuda", "mlx"}) {
    const auto backend = FindBackend(name);
    const auto missing = BackendNamesNotCompiledIn();
    EXPECT_EQ(std::ranges::count(missing, name), backend.ok() ? 0 : 1);
    if (backend.ok()) continue;
    EXPECT_THAT(std::string(Message(backend.status())), HasSubstr("tools/setup.sh " + name));
  }
}

TEST(BackendRegistryTest, EveryBackendSaysHowItHoldsMatrices) {
  for (const std::string_view name : BackendNames()) {
    for (const DType type : {DType::kF32, DType::kBF16, DType::kQ4_K, DType::kMXFP4}) {
      const HeldAs held = (*FindBackend(name))->FormOf(type, false);
      EXPECT_FALSE(held.form.empty());
      EXPECT_GE(held.bits_per_weight, 4);
      EXPECT_LE(held.bits_per_weight, 32);
    }
  }
}

TEST(CheckHostHoldsTest, SaysWhichQuantizationWouldFit) {
  GgufWriter writer;
  const std::vector<float> values(64);
  writer.AddTensor("w", DType::kF32, std::vector<int64_t>{64}, std::as_bytes(std::span(values)));
  const std::string bytes = writer.ToBytes();
  const auto file = ModelFile::FromBytes("m", std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(CheckHostHolds(256, **file).ok());
  const Status status = CheckHostHolds(int64_t{1} << 60, **file);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(Message(status)),
      AllOf(HasSubstr("need 1048576.0 TiB"), HasSubstr("a smaller quantization, such as Q8_0")));
}

TEST(BackendRegistryTest, EveryBackendHasDevicesAndNamesThem) {
  for (const std::string_view name : BackendNames()) {
    const Backend& backend = **FindBackend(name);
    if (!backend.Available().ok()) continue;
    ASSERT_GE(backend.device_count(), 1);
    for (int device = 0; device < backend.device_count(); ++device) {
      EXPECT_FALSE(backend.NameOfDevice(device).empty());
      const auto memory = backend.MemoryOf(device);
      ASSERT_TRUE(memory.ok()) << memory.status();
      EXPECT_GT(memory->free_bytes, 0);
      EXPECT_LE(memory->free_bytes, memory->total_bytes);
    }
    for (const int device : {-1, backend.device_count()}) {
      for (const Status& status : {backend.MemoryOf(device).status(),
                                   backend.Load(nullptr, {}, {.device = device}).status()}) {
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
        EXPECT_THAT(
            std::string(Message(status)),
            AllOf(HasSubstr(std::string(name)), HasSubstr("0"), HasSubstr(std::to_string(device))));
      }
    }
  }
}

// A valid step of two sequences over a model with a full and a windowed group; every case below
// breaks one thing.
//
//   pages of 4 tokens; pool of 10 pages in group 0, 8 in group 1 (window 6); 3 slots
//   sequence 0: positions 0..5,  writes entries 0, 1
//   sequence 1: positions 9..10, writes entry 2; in group 1 it sees positions 4..10,
//               so entry 0 may be absent
struct World {
  World() {
    spec.n_vocab = 100;
    spec.d_model = 30;
    spec.output = {.weight = {0}, .n_in = 30, .n_out = 100};
    spec.kv_layers = {{.group = 0, .n_heads = 1, .k_dim = 8, .v_dim = 8},
                      {.group = 1, .n_heads = 1, .k_dim = 8, .v_dim = 8}};
    spec.kv_groups = {{.window = 0, .kv_layers = {0}}, {.window = 6, .kv_layers = {1}}};
    spec.slots = {{.kind = SlotKind::kConvolution, .n_floats = 4}};
    SetWrites(true);
    state = std::make_unique<ReferenceState>(spec, DType::kF32, 4);
    EXPECT_TRUE(state->GrowPages(0, 10).ok());
    EXPECT_TRUE(state->GrowPages(1, 8).ok());
    EXPECT_TRUE(state->GrowSlots(3).ok());
  }

  // Whether the model's only operation stores keys and values.
  void SetWrites(bool writes) {
    Attention attention;
    attention.kv_layer = 0;
    attention.writes_kv = writes;
    Block block;
    block.paths.push_back({.pre = {}, .op = attention, .post = {}});
    spec.layers = {{.blocks = {block}}};
  }

  Status Validate() {
    sequences.resize(2);
    for (size_t s = 0; s < 2; ++s) {
      sequences[s].tokens = tokens[s];
      sequences[s].rows.assign(rows[s].begin(), rows[s].end());
      sequences[s].position = positions[s];
      sequences[s].slot = slots[s];
      sequences[s].n_logits = n_logits[s];
      sequences[s].n_best = n_best[s];
      sequences[s].changes = changes[s];
      sequences[s].temperature = temperatures[s];
      sequences[s].n_vectors = n_vectors[s];
      sequences[s].page_tables.assign(tables[s].begin(), tables[s].end());
    }
    if (n_sequences < 2) sequences.resize(n_sequences);
    std::vector<float> logits(n_logit_values), vectors(n_vector_values);
    std::vector<TokenLogit> best(n_best_tokens);
    std::vector<double> weights(n_weights);
    const StepLimits limits = {
        .tokens = max_step_tokens, .best = 50, .rows = takes_rows, .changes = changes_rows};
    return ValidateStep(spec, *state, limits,
                        {.sequences = sequences,
                         .logits = logits,
                         .best = best,
                         .weights = weights,
                         .vectors = vectors});
  }

  ModelSpec spec;
  std::unique_ptr<StateStore> state;
  int64_t max_step_tokens = 8;
  size_t n_logit_values = 300;
  size_t n_best_tokens = 0;
  size_t n_weights = 0;
  size_t n_vector_values = 0;
  size_t n_sequences = 2;
  std::vector<std::vector<TokenId>> tokens{{1, 2, 3, 4, 5, 99}, {0, 7}};
  std::vector<std::vector<std::vector<float>>> rows{{}, {}};
  bool takes_rows = true;
  std::vector<int64_t> positions{0, 9};
  std::vector<SlotId> slots{2, 0};
  std::vector<int64_t> n_logits{1, 2};
  std::vector<int64_t> n_best{0, 0};
  std::vector<LogitChange> changed_logits{{.token = 99, .bias = 1}};
  std::vector<uint32_t> allowed = std::vector<uint32_t>(4, 5);
  std::vector<std::vector<RowChanges>> changes{{}, {}};
  std::vector<float> temperatures{0, 0};
  bool changes_rows = true;
  std::vector<int64_t> n_vectors{0, 0};
  std::vector<std::vector<std::vector<PageId>>> tables{{{9, 0}, {7, 0}},
                                                       {{3, 4, 5}, {kNoPage, 4, 5}}};
  std::vector<StepSequence> sequences;
};

TEST(ValidateStepTest, AcceptsWhatIsInOrder) {
  World world;
  EXPECT_TRUE(world.Validate().ok()) << world.Validate();
  world.tables[1][0].push_back(kNoPage);  // entries beyond the last position are ignored
  world.tables[1][1][0] = 1000;           // and so are those before the window
  EXPECT_TRUE(world.Validate().ok()) << world.Validate();
  // Two sequences may share a page that both only read.
  world.positions[0] = 12;
  world.tables[0] = {{3, 4, 6, 7, 8}, {kNoPage, 4, 6, 7, 0}};
  world.tables[1] = {{3, 4, 5}, {3, 4, 5}};
  EXPECT_TRUE(world.Validate().ok()) << world.Validate();
  // Only the best tokens of some rows.
  world.n_best = {0, 50};
  world.n_best_tokens = 100;
  world.n_logit_values = 100;
  EXPECT_TRUE(world.Validate().ok()) << world.Validate();
  // With changes and weights for these rows.
  world.changes[1] = {{.logits = world.changed_logits}, {.allowed = world.allowed}};
  world.temperatures[1] = 0.5f;
  world.n_weights = 2;
  EXPECT_TRUE(world.Validate().ok()) << world.Validate();
  world.changes[1] = {};
  world.temperatures[1] = 0;
  world.n_weights = 0;
  // A step without any logits is valid.
  world.n_best_tokens = 0;
  world.n_logits = {0, 0};
  world.n_logit_values = 0;
  EXPECT_TRUE(world.Validate().ok()) << world.Validate();
  // Vectors need no output.
  world.n_vectors = {6, 1};
  world.n_vector_values = 7 * 30;
  world.spec.output = {};
  EXPECT_TRUE(world.Validate().ok()) << world.Validate();
  // Input embeddings.
  world.tokens[0] = {1, -2, 3, -7, 5, 99};
  world.rows[0] = {std::vector<float>(30), std::vector<float>(30)};
  EXPECT_TRUE(world.Validate().ok()) << world.Validate();
  // Without recurrent state, slots are ignored.
  world.spec.slots.clear();
  world.slots = {kNoSlot, kNoSlot};
  EXPECT_TRUE(world.Validate().ok()) << world.Validate();
}

// A head that reads its model's pages may read one page for two sequences.
TEST(ValidateStepTest, AcceptsSharedPagesWhereNothingIsWritten) {
  World world;
  world.tables[1][0][2] = 9;
  EXPECT_EQ(world.Validate().code(), StatusCode::kInvalidArgument);
  world.SetWrites(false);
  EXPECT_TRUE(world.Validate().ok()) << world.Validate();
}

struct Spoiled {
  std::string what;
  std::function<void(World&)> spoil;
  std::string message;
};

void ExpectRefused(const std::vector<Spoiled>& cases) {
  for (const Spoiled& spoiled : cases) {
    World world;
    spoiled.spoil(world);
    const Status status = world.Validate();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << spoiled.what;
    EXPECT_THAT(std::string(Message(status)), HasSubstr(spoiled.message)) << spoiled.what;
  }
}

TEST(ValidateStepTest, RefusesTokensAndPlacesThatAreNot) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  ExpectRefused({
      {"no sequence", [](World& w) { w.n_sequences = 0; }, "at least one sequence"},
      {"no tokens", [](World& w) { w.tokens[1] = {}; }, "has no tokens"},
      {"negative token", [](World& w) { w.tokens[0][3] = -1; }, "token -1 is not"},
      {"a vector missing", [](World& w) { w.tokens[0][3] = -2; }, "has 0 vectors for 1 places"},
      {"a vector too many", [](World& w) { w.rows[1] = {std::vector<float>(30)}; },
       "has 1 vectors for 0 places"},
      {"a vector too long",
       [](World& w) {
         w.tokens[1][0] = -2;
         w.rows[1] = {std::vector<float>(31)};
       },
       "a vector of 31 values in a model of 30"},
      {"token too large", [](World& w) { w.tokens[0][5] = 100; }, "token 100 is not"},
      {"negative position", [](World& w) { w.positions[1] = -1; }, "position -1"},
      {"position overflows", [&](World& w) { w.positions[1] = kMax; }, "out of range"},
      {"position beyond the table", [&](World& w) { w.positions[1] = kMax - 2; }, "needs"},
      {"step too large", [](World& w) { w.max_step_tokens = 7; }, "8 tokens is larger"},
      {"a part of a text",
       [](World& w) { w.spec.layers = {{{{.paths = {{.op = BidirectionalAttention()}}}}}}; },
       "position 9, but the model needs whole texts"},
      {"beyond the learned positions",
       [](World& w) {
         w.spec.positions = {0};
         w.spec.context_tokens = 10;
       },
       "ends at position 11, but the model has 10 learned"},
  });
}

TEST(ValidateStepTest, RefusesResultsThatCannotBe) {
  ExpectRefused({
      {"negative logits", [](World& w) { w.n_logits[0] = -1; }, "wants -1 logits"},
      {"more logits than tokens", [](World& w) { w.n_logits[1] = 3; }, "wants 3 logits of 2"},
      {"more vectors than tokens", [](World& w) { w.n_vectors[1] = 3; }, "wants 3 vectors of 2"},
      {"no room for vectors", [](World& w) { w.n_vectors[1] = 1; }, "1 vectors of 30 values"},
      {"logits of a model without", [](World& w) { w.spec.output = {}; }, "model without them"},
      {"buffer too small", [](World& w) { w.n_logit_values = 299; }, "holds 299"},
      {"buffer too large", [](World& w) { w.n_logit_values = 400; }, "holds 400"},
      {"negative best", [](World& w) { w.n_best[0] = -1; }, "wants the -1 best"},
      {"more best than there may be", [](World& w) { w.n_best[0] = 51; }, "at most 50"},
      {"no room for the best", [](World& w) { w.n_best[1] = 3; }, "asks for 6 best tokens"},
  });
}

TEST(ValidateStepTest, RefusesChangesThatCannotBe) {
  const auto changed = [](auto change) {
    return [change](World& w) {
      w.n_best = {0, 5};
      w.n_best_tokens = 10;
      w.n_logit_values = 100;
      w.changes[1] = {{.logits = w.changed_logits}, {.allowed = w.allowed}};
      change(w);
    };
  };
  World without;
  changed([](World& w) { w.changes_rows = false; })(without);
  EXPECT_EQ(without.Validate().code(), StatusCode::kUnimplemented);
  ExpectRefused({
      {"of whole rows", changed([](World& w) { w.n_best[1] = 0; }), "that it wants whole"},
      {"of fewer rows", changed([](World& w) { w.changes[1].pop_back(); }), "changes 1 rows of 2"},
      {"of no token", changed([](World& w) { w.changed_logits[0].token = 100; }), "token 100"},
      {"a mask too short",
       changed([](World& w) { w.changes[1][1].allowed = std::span(w.allowed).first(3); }),
       "mask of 3 words"},
      {"no temperature", changed([](World& w) { w.temperatures[1] = -1; }), "temperature of -1"},
      {"no room for weights", changed([](World& w) { w.temperatures[1] = 1; }),
       "asks for 2 weights"},
  });
}

TEST(ValidateStepTest, RefusesPagesAndSlotsThatDoNotFit) {
  ExpectRefused({
      {"a table missing", [](World& w) { w.tables[0].pop_back(); }, "has 1 page tables"},
      {"a table too many", [](World& w) { w.tables[0].push_back({}); }, "has 3 page tables"},
      {"table too short",
       [](World& w) {
         w.tables[1][0] = {3, 4};
       },
       "has 2 entries, needs 3"},
      {"page absent", [](World& w) { w.tables[1][0][0] = kNoPage; }, "entry 0 is page -1"},
      {"page in the window absent", [](World& w) { w.tables[1][1][1] = kNoPage; },
       "page group 1: entry 1 is page -1"},
      {"page outside the pool", [](World& w) { w.tables[0][1][0] = 8; }, "page 8 of a pool of 8"},
      {"written page outside", [](World& w) { w.tables[1][0][2] = 10; }, "of a pool of 10"},
      {"two write a page", [](World& w) { w.tables[1][0][2] = 9; }, "page 9 is written twice"},
      {"one writes a page twice", [](World& w) { w.tables[0][0][1] = 9; }, "written twice"},
      {"one reads what another writes", [](World& w) { w.tables[1][0][0] = 0; },
       "page 0 is read while it is written"},
      {"an earlier one reads it",
       [](World& w) {
         std::swap(w.tokens[0], w.tokens[1]);
         std::swap(w.positions[0], w.positions[1]);
         std::swap(w.tables[0], w.tables[1]);
         std::swap(w.n_logits[0], w.n_logits[1]);
         w.tables[0][0][1] = 0;
       },
       "page 0 is read while it is written"},
      {"no slot", [](World& w) { w.slots[0] = kNoSlot; }, "slot -1 of a pool of 3"},
      {"slot outside", [](World& w) { w.slots[1] = 3; }, "slot 3 of a pool of 3"},
      {"shared slot", [](World& w) { w.slots[1] = 2; }, "share slot 2"},
  });
}

TEST(ValidateStepTest, RefusesVectorsWhereTokensAreMore) {
  const auto refusal = [](const std::function<void(World&)>& change) {
    World world;
    world.tokens[1][0] = kAnyRow;
    world.rows[1] = {std::vector<float>(30)};
    change(world);
    const Status status = world.Validate();
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << status;
    return std::string(Message(status));
  };
  EXPECT_THAT(refusal([](World& w) { w.takes_rows = false; }), HasSubstr("this backend takes no"));
  EXPECT_THAT(refusal([](World& w) { w.spec.per_layer_input.emplace(); }),
              HasSubstr("per-layer embeddings"));
  EXPECT_THAT(refusal([](World& w) { w.spec.token_types.separator = 3; }), HasSubstr("separator"));
}

}  // namespace
}  // namespace weft
