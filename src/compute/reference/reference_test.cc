// The reference blocks against sums done by hand: the reference data exercises the
// common forms, this the rarer fields of the spec. And the executor's page calls.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "compute/kernels/quants/quants.h"
#include "compute/reference/blocks.h"
#include "compute/reference/reference_backend.h"
#include "compute/reference/reference_state.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/formats/gguf_writer.h"

namespace weft::reference {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// A model file of named F32 tensors, made in memory.
class Weightbox {
 public:
  TensorRef Add(const std::vector<int64_t>& dims, std::vector<float> values) {
    const std::string name = "t" + std::to_string(kept_.size());
    kept_.push_back(std::make_unique<std::vector<float>>(std::move(values)));
    writer_.AddTensor(name, DType::kF32, dims, std::as_bytes(std::span(*kept_.back())));
    return {static_cast<int>(kept_.size()) - 1};
  }
  TensorRef AddVector(std::vector<float> values) {
    const auto n = static_cast<int64_t>(values.size());
    return Add({n}, std::move(values));
  }
  // n x n, `diagonal` times the identity.
  Linear AddIdentity(int64_t n, float diagonal = 1) {
    std::vector<float> values(n * n);
    for (int64_t i = 0; i < n; ++i) values[i * n + i] = diagonal;
    return {.weight = Add({n, n}, std::move(values)), .n_in = n, .n_out = n};
  }

  const Tensors& Build() {
    bytes_ = writer_.ToBytes();
    auto file = ModelFile::FromBytes("test", std::as_bytes(std::span(bytes_)));
    EXPECT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
    tensors_ = std::make_unique<Tensors>(*file_);
    return *tensors_;
  }
  std::shared_ptr<const ModelFile> file() const { return file_; }

 private:
  GgufWriter writer_;
  std::vector<std::unique_ptr<std::vector<float>>> kept_;
  std::string bytes_;
  std::shared_ptr<const ModelFile> file_;
  std::unique_ptr<Tensors> tensors_;
};

Rows MakeRows(const std::vector<std::vector<float>>& values) {
  Rows rows(values.size(), values[0].size());
  for (size_t i = 0; i < values.size(); ++i) std::ranges::copy(values[i], rows.row(i).begin());
  return rows;
}

std::vector<float> RowOf(const Rows& rows, int64_t i) {
  return {rows.row(i).begin(), rows.row(i).end()};
}

auto Near(const std::vector<float>& expected) {
  return Pointwise(::testing::FloatNear(1e-5), expected);
}

TEST(LinearTest, UsesItsRowsAndBias) {
  Weightbox box;
  const Linear linear{.weight = box.Add({2, 4}, {9, 9, 1, 2, 3, 4, 9, 9}),
                      .bias = box.AddVector({9, 10, 20, 9}),
                      .first_row = 1,
                      .n_in = 2,
                      .n_out = 2};
  const Rows out = ApplyLinear(box.Build(), linear, MakeRows({{1, 1}, {2, 0}}));
  EXPECT_THAT(RowOf(out, 0), ElementsAre(13, 27));
  EXPECT_THAT(RowOf(out, 1), ElementsAre(12, 26));
}

TEST(LinearTest, MembersHaveRowsBiasAndScale) {
  Weightbox box;
  // Two slices of three rows; members use the last two rows.
  const StackedLinear stack{.weight = box.Add({1, 3, 2}, {9, 1, 2, 9, 3, 4}),
                            .bias = box.Add({2, 2}, {1, 1, 2, 2}),
                            .scale = box.AddVector({1, 10}),
                            .first_row = 1,
                            .n_in = 1,
                            .n_out = 2,
                            .count = 2};
  const Tensors& tensors = box.Build();
  const std::vector<float> x = {5};
  EXPECT_THAT(ApplyMember(tensors, stack, 0, x), ElementsAre(6, 11));
  EXPECT_THAT(ApplyMember(tensors, stack, 1, x), ElementsAre(170, 220));
}

TEST(NormTest, RmsByGroupWithFactor) {
  Weightbox box;
  const Norm shared{.kind = NormKind::kRms, .weight = box.AddVector({1, 2}), .width = 2};
  const Norm spanning{
      .kind = NormKind::kRms, .weight = box.AddVector({1, 1, 2, 2}), .width = 2, .factor = 3};
  const Tensors& tensors = box.Build();
  Rows x = MakeRows({{3, 3, 0, 4}});
  ApplyNorm(tensors, shared, &x);
  EXPECT_THAT(RowOf(x, 0), Near({1, 2, 0, 2 * std::sqrt(2.0f)}));
  x = MakeRows({{3, 3, 0, 4}});
  ApplyNorm(tensors, spanning, &x);
  EXPECT_THAT(RowOf(x, 0), Near({3, 3, 0, 6 * std::sqrt(2.0f)}));
  ApplyNorm(tensors, Norm(), &x);
  EXPECT_THAT(RowOf(x, 0), Near({3, 3, 0, 6 * std::sqrt(2.0f)}));
}

TEST(NormTest, LayerNormTakesTheMeanAwayAndEpsilonCounts) {
  Weightbox box;
  const Norm norm{.kind = NormKind::kLayer,
                  .weight = box.AddVector({2, 1}),
                  .bias = box.AddVector({0, 5}),
                  .width = 2,
                  .epsilon = 3};
  Rows x = MakeRows({{11, 9}});  // mean 10, variance 1
  ApplyNorm(box.Build(), norm, &x);
  EXPECT_THAT(RowOf(x, 0), Near({1, 4.5}));
}

TEST(RopeTest, TurnsPairsAndLeavesTheRest) {
  const Rope halves{.pairs = RopePairs::kHalves, .frequencies = {M_PI / 2, 0}, .magnitude = 2};
  std::vector<float> head = {1, 2, 3, 4, 5};
  ApplyRope(halves, 1, head);  // (1, 3) by 90 degrees, (2, 4) by none
  EXPECT_THAT(head, Near({-6, 4, 2, 8, 5}));
  const Rope adjacent{.pairs = RopePairs::kAdjacent, .frequencies = {M_PI / 2}};
  head = {1, 2, 3};
  ApplyRope(adjacent, 2, head);  // 180 degrees
  EXPECT_THAT(head, Near({-1, -2, 3}));
}

TEST(ActivationTest, Values) {
  const float up = 3;
  EXPECT_NEAR(Activate(Activation::kSilu, {}, 1, nullptr), 0.7310586, 1e-6);
  EXPECT_NEAR(Activate(Activation::kSilu, {}, 1, &up), 2.1931758, 1e-6);
  EXPECT_NEAR(Activate(Activation::kGeluTanh, {}, 1, nullptr), 0.8411920, 1e-6);
  EXPECT_NEAR(Activate(Activation::kGeluErf, {}, 1, nullptr), 0.8413447, 1e-6);
  EXPECT_EQ(Activate(Activation::kRelu, {}, -2, &up), 0);
  EXPECT_EQ(Activate(Activation::kReluSquared, {}, 2, &up), 12);
  // gate 9 counts as 7, up -8 as -7: 7 * sigmoid(11.914) * -6
  const float low = -8;
  EXPECT_NEAR(Activate(Activation::kClampedSwiglu, {.limit = 7}, 9, &low), -41.99972, 1e-4);
  EXPECT_NEAR(Activate(Activation::kClampedSwiglu, {.limit = 7}, -9, &up),
              -9 / (1 + std::exp(15.318)) * 4, 1e-9);
  // silu(9) counts as 1, and up 3 as 1.
  EXPECT_EQ(Activate(Activation::kClampedSilu, {.limit = 1}, 9, &up), 1);
  const ActivationNumbers xielu{.limit = -1e-6f, .rise = 0.5f, .fall = 2, .slope = 0.25f};
  EXPECT_NEAR(Activate(Activation::kXielu, xielu, 2, nullptr), 2.5, 1e-6);
  EXPECT_NEAR(Activate(Activation::kXielu, xielu, -1, nullptr), 2 * std::exp(-1.0) - 0.25, 1e-6);
}

TEST(SoftcapTest, BendsOnlyWithACap) {
  EXPECT_EQ(Softcap(0, 1000), 1000);
  EXPECT_NEAR(Softcap(30, 1000), 30, 1e-4);
  EXPECT_NEAR(Softcap(30, 3), 30 * std::tanh(0.1), 1e-6);
}

// A step of one sequence over one KvLayer and two slot states.
class Stage {
 public:
  Stage(Weightbox* box, const KvLayer& layer, int64_t window = 0) {
    spec_.kv_layers = {layer};
    spec_.kv_groups = {{.window = window, .kv_layers = {0}}};
    spec_.n_vocab = 4;
    tensors_ = &box->Build();
    spec_.slots = {{SlotKind::kConvolution, 16}, {SlotKind::kConvolution, 16}};
    state_ = std::make_unique<ReferenceState>(spec_, DType::kF32, 4);
    EXPECT_TRUE(state_->GrowPages(0, 2).ok());
    EXPECT_TRUE(state_->GrowSlots(2).ok());
  }

  ModelSpec& spec() { return spec_; }

  // The context of a step of `n` tokens at `position`.
  StepContext Context(int64_t n, int64_t position = 0) {
    tokens_.assign(n, 0);
    sequences_.resize(1);
    sequences_[0].tokens = tokens_;
    sequences_[0].position = position;
    sequences_[0].page_tables = {table_};
    sequences_[0].slot = 1;
    step_ = {.sequences = sequences_};
    StepContext context{.spec = spec_, .tensors = *tensors_, .step = step_, .state = state_.get()};
    for (int64_t i = 0; i < n; ++i) context.rows.push_back({0, position + i, 0});
    return context;
  }

 private:
  ModelSpec spec_;
  const Tensors* tensors_;
  std::unique_ptr<ReferenceState> state_;
  std::vector<PageId> table_{1, 0};
  std::vector<TokenId> tokens_;
  std::vector<StepSequence> sequences_;
  Step step_;
};

// One head of one value, identity projections: the output of a row is the mean of
// the values it sees, weighted by exp(scale * q * k).
Attention ScalarAttention(Weightbox* box, float scale) {
  Attention op;
  op.kv_layer = 0;
  op.n_heads = 1;
  op.n_kv_heads = 1;
  op.k_dim = 1;
  op.v_dim = 1;
  op.q = box->AddIdentity(1);
  op.k = box->AddIdentity(1);
  op.v = box->AddIdentity(1);
  op.out = box->AddIdentity(1);
  op.scale = scale;
  return op;
}

TEST(AttentionTest, MeansWithinTheWindow) {
  Weightbox box;
  const Attention op = ScalarAttention(&box, 0);  // every visible value counts alike
  Stage stage(&box, {.n_heads = 1, .k_dim = 1, .v_dim = 1}, /*window=*/2);
  Rows out = RunOp(stage.Context(3), op, MakeRows({{1}, {3}, {9}}), Rows(0, 0));
  EXPECT_THAT(std::vector<float>(out.values().begin(), out.values().end()), Near({1, 2, 6}));
  // The next step still sees the last stored position, and no other.
  out = RunOp(stage.Context(1, 3), op, MakeRows({{1}}), Rows(0, 0));
  EXPECT_THAT(RowOf(out, 0), Near({5}));
}

TEST(AttentionTest, SinksTakeTheirShare) {
  Weightbox box;
  Attention op = ScalarAttention(&box, 0);
  op.sinks = box.AddVector({std::log(2.0f)});
  Stage stage(&box, {.n_heads = 1, .k_dim = 1, .v_dim = 1});
  const Rows out = RunOp(stage.Context(2), op, MakeRows({{3}, {5}}), Rows(0, 0));
  EXPECT_THAT(RowOf(out, 0), Near({3 / 3.0f}));  // one value next to a sink worth two
  EXPECT_THAT(RowOf(out, 1), Near({8 / 4.0f}));
}

TEST(AttentionTest, SoftcapBendsScores) {
  Weightbox box;
  Attention op = ScalarAttention(&box, 1);
  op.softcap = 2;
  Stage stage(&box, {.n_heads = 1, .k_dim = 1, .v_dim = 1});
  const Rows out = RunOp(stage.Context(2), op, MakeRows({{1}, {4}}), Rows(0, 0));
  const double a = std::exp(2 * std::tanh(4 / 2.0));
  const double b = std::exp(2 * std::tanh(16 / 2.0));
  EXPECT_THAT(RowOf(out, 1), Near({float((a * 1 + b * 4) / (a + b))}));
}

TEST(AttentionTest, GatedQueryMultipliesTheResult) {
  Weightbox box;
  Attention op = ScalarAttention(&box, 0);
  op.gated_query = true;
  op.q = {.weight = box.Add({1, 2}, {1, -1}), .n_in = 1, .n_out = 2};
  Stage stage(&box, {.n_heads = 1, .k_dim = 1, .v_dim = 1});
  const Rows out = RunOp(stage.Context(1), op, MakeRows({{2}}), Rows(0, 0));
  EXPECT_THAT(RowOf(out, 0), Near({float(2 / (1 + std::exp(2.0)))}));
}

TEST(AttentionTest, ValuesFromRawKeysAndSharedCache) {
  Weightbox box;
  Attention op = ScalarAttention(&box, 0);
  op.v = {};
  op.v_from_k = true;
  op.k = box.AddIdentity(1, 5);
  op.k_norm = {.kind = NormKind::kRms, .width = 1};  // the stored key is 1, the value is not
  Attention reader = ScalarAttention(&box, 0);
  reader.writes_kv = false;
  reader.k = reader.v = {};
  Stage stage(&box, {.n_heads = 1, .k_dim = 1, .v_dim = 1});
  EXPECT_THAT(RowOf(RunOp(stage.Context(1), op, MakeRows({{2}}), Rows(0, 0)), 0), Near({10}));
  EXPECT_THAT(RowOf(RunOp(stage.Context(1), reader, MakeRows({{77}}), Rows(0, 0)), 0), Near({10}));
}

TEST(AttentionTest, GroupedHeadsReadTheirOwn) {
  Weightbox box;
  // Four query heads on two key/value heads; values are 1 and 100 times the input.
  Attention op;
  op.kv_layer = 0;
  op.n_heads = 4;
  op.n_kv_heads = 2;
  op.k_dim = 1;
  op.v_dim = 1;
  op.q = {.weight = box.Add({1, 4}, {1, 1, 1, 1}), .n_in = 1, .n_out = 4};
  op.k = {.weight = box.Add({1, 2}, {1, 1}), .n_in = 1, .n_out = 2};
  op.v = {.weight = box.Add({1, 2}, {1, 100}), .n_in = 1, .n_out = 2};
  op.out = box.AddIdentity(4);
  Stage stage(&box, {.n_heads = 2, .k_dim = 1, .v_dim = 1});
  const Rows out = RunOp(stage.Context(1), op, MakeRows({{3}}), Rows(0, 0));
  EXPECT_THAT(RowOf(out, 0), Near({3, 3, 300, 300}));
}

TEST(LatentAttentionTest, AbsorbedHeads) {
  Weightbox box;
  // One token: whatever the scores, each head's sum is the latent value itself.
  LatentAttention op;
  op.kv_layer = 0;
  op.n_heads = 2;
  op.nope_dim = 1;
  op.rope_dim = 2;
  op.latent_dim = 1;
  op.v_dim = 1;
  op.q_a = box.AddIdentity(1, 2);
  op.q_b = {.weight = box.Add({1, 6}, {1, 0, 0, 1, 0, 0}), .n_in = 1, .n_out = 6};
  op.kv_a = {.weight = box.Add({1, 3}, {4, 0, 0}), .n_in = 1, .n_out = 3};
  op.k_b = {.weight = box.Add({1, 1, 2}, {1, -1}), .n_in = 1, .n_out = 1, .count = 2};
  op.v_b = {.weight = box.Add({1, 1, 2}, {1, 10}), .n_in = 1, .n_out = 1, .count = 2};
  op.out = box.AddIdentity(2);
  op.scale = 0.5;
  Stage stage(&box, {.n_heads = 1, .k_dim = 3, .v_dim = 0});
  const Rows out = RunOp(stage.Context(2), op, MakeRows({{1}, {0.5}}), Rows(0, 0));
  EXPECT_THAT(RowOf(out, 0), Near({4, 40}));
  // Second row: query +-1 against latents 4 and 2, scale 0.5: scores +-2 and +-1.
  const double e = std::exp(1.0);
  EXPECT_THAT(RowOf(out, 1),
              Near({float((4 * e + 2) / (e + 1)), float(10 * (4 + 2 * e) / (1 + e))}));
}

// Experts that multiply their input (a single value) by 1, 10, 100, ... without a
// gate; the router's logits are given as its bias.
struct Experts {
  Experts(Weightbox* box, const std::vector<float>& logits, int n_used) {
    const auto n = static_cast<int64_t>(logits.size());
    std::vector<float> powers;
    for (int64_t i = 0; i < n; ++i) powers.push_back(std::pow(10.0f, static_cast<float>(i)));
    op.router = {.weight = box->Add({1, n}, std::vector<float>(n)),
                 .bias = box->AddVector(logits),
                 .n_in = 1,
                 .n_out = n};
    op.n_experts = static_cast<int>(n);
    op.n_used = n_used;
    op.activation = Activation::kRelu;
    op.up = {.weight = box->Add({1, 1, n}, powers), .n_in = 1, .n_out = 1, .count = n};
    op.down = {
        .weight = box->Add({1, 1, n}, std::vector<float>(n, 1)), .n_in = 1, .n_out = 1, .count = n};
  }

  float Run(Weightbox* box) {
    Stage stage(box, {.n_heads = 1, .k_dim = 1, .v_dim = 1});
    const Rows x = MakeRows({{1}});
    return RunOp(stage.Context(1), op, x, x).row(0)[0];
  }

  MixtureOfExperts op;
};

TEST(MixtureOfExpertsTest, WeightsOfAllOrOfTheChosen) {
  const std::vector<float> logits = {std::log(1.0f), std::log(6.0f), std::log(3.0f)};
  {
    Weightbox box;
    Experts experts(&box, logits, 2);  // among all: 0.6 and 0.3
    EXPECT_NEAR(experts.Run(&box), 0.6 * 10 + 0.3 * 100, 1e-4);
  }
  {
    Weightbox box;
    Experts experts(&box, logits, 2);
    experts.op.renormalize = true;
    experts.op.weight_scale = 3;
    EXPECT_NEAR(experts.Run(&box), 3 * (10 * 2 / 3.0 + 100 / 3.0), 1e-4);
  }
  {
    Weightbox box;
    Experts experts(&box, logits, 2);
    experts.op.weights = RouterWeights::kSoftmaxOfChosen;
    EXPECT_NEAR(experts.Run(&box), 10 * 2 / 3.0 + 100 / 3.0, 1e-4);
  }
  {
    Weightbox box;
    Experts experts(&box, {0, 0, -100}, 2);
    experts.op.weights = RouterWeights::kSigmoid;
    EXPECT_NEAR(experts.Run(&box), 0.5 * 1 + 0.5 * 10, 1e-4);
  }
}

// 2.00 and 1.97 are near each other, 1.94 is near the second alone, and 0.5 to none.
TEST(MixtureOfExpertsTest, ChoicesAreWeighedAmongNearLogits) {
  Weightbox box;
  Experts experts(&box, {1.97f, 2.0f, 0.5f, 1.94f}, 2);
  experts.op.weights = RouterWeights::kSoftmaxOfNear;
  const auto share = [](double a, double b) { return 1 / (1 + std::exp(b - a)); };
  EXPECT_NEAR(experts.Run(&box), 10 * share(2.0, 1.97) + share(1.97, 1.94), 1e-4);
}

TEST(MixtureOfExpertsTest, BiasChoosesButDoesNotWeigh) {
  Weightbox box;
  Experts experts(&box, {0, 0, 0}, 1);
  experts.op.weights = RouterWeights::kSigmoid;
  experts.op.selection_bias = box.AddVector({0, 0.1, 0});
  EXPECT_NEAR(experts.Run(&box), 0.5 * 10, 1e-5);
}

TEST(MixtureOfExpertsTest, TiesGoToTheLowerExpert) {
  Weightbox box;
  Experts experts(&box, {0, 0, 0, 0}, 1);
  EXPECT_NEAR(experts.Run(&box), 0.25, 1e-5);
}

TEST(MixtureOfExpertsTest, OnlyTheBestGroupCompetes) {
  Weightbox box;
  // Groups {0,1} and {2,3}: the best expert is in the first, the best pair is not.
  Experts experts(&box, {2, -9, 1, 1}, 1);
  experts.op.weights = RouterWeights::kSigmoid;
  experts.op.n_groups = 2;
  experts.op.n_groups_used = 1;
  EXPECT_NEAR(experts.Run(&box), 100 / (1 + std::exp(-1.0)), 1e-4);
}

TEST(MixtureOfExpertsTest, NotANumberIsNoCrash) {
  Weightbox box;
  Experts experts(&box, {NAN, NAN, NAN, NAN}, 2);
  experts.op.n_groups = 2;
  EXPECT_TRUE(std::isnan(experts.Run(&box)));
}

TEST(MixtureOfExpertsTest, RouterNormReadsTheRawStream) {
  Weightbox box;
  Experts experts(&box, {0, 0}, 1);
  // Logits: the raw value for expert 0, its negative for expert 1.
  experts.op.router.weight = box.Add({1, 2}, {1, -1});
  experts.op.router_norm = {.kind = NormKind::kRms, .width = 1};
  Stage stage(&box, {.n_heads = 1, .k_dim = 1, .v_dim = 1});
  const Rows x = MakeRows({{1}});
  const auto run = [&](float raw) {
    return RunOp(stage.Context(1), experts.op, x, MakeRows({{raw}})).row(0)[0];
  };
  const double weight = 1 / (1 + std::exp(-2.0));  // softmax of (1, -1)
  EXPECT_NEAR(run(8), weight, 1e-4);
  EXPECT_NEAR(run(-8), weight * 10, 1e-4);
}

// --- recurrent state ------------------------------------------------------------------

float SiluOf(float x) { return x / (1 + std::exp(-x)); }

TEST(ShortConvolutionTest, GatesAroundTapsThatReachBack) {
  Weightbox box;
  // Two channels, 1 and 10 times the input x: b = 1 and 10, c = 2 and 20, x = 3 and 30.
  ShortConvolution op;
  op.in = {.weight = box.Add({1, 6}, {1, 10, 2, 20, 3, 30}), .n_in = 1, .n_out = 6};
  op.convolution = {.kernel = box.Add({3, 2}, {1, 2, 3, 0, 0, 1}),
                    .bias = box.AddVector({0, 7}),
                    .n_channels = 2,
                    .n_taps = 3,
                    .slot = 1};
  op.out = box.AddIdentity(2);
  Stage stage(&box, {.n_heads = 1, .k_dim = 1, .v_dim = 1});
  // b x is 3 x^2 and 300 x^2; the first channel's taps are 1, 2, 3 with the last on
  // the row itself.
  const Rows first = RunOp(stage.Context(2), op, MakeRows({{1}, {2}}), Rows(0, 0));
  EXPECT_THAT(RowOf(first, 0), Near({2 * 3 * 3, 20 * 307}));
  EXPECT_THAT(RowOf(first, 1), Near({4 * (2 * 3 + 3 * 12), 40 * 1207}));
  // The next step finds the last two inputs.
  const Rows second = RunOp(stage.Context(1, 2), op, MakeRows({{1}}), Rows(0, 0));
  EXPECT_THAT(RowOf(second, 0), Near({2 * (3 + 2 * 12 + 3 * 3), 20 * 307}));
}

// Value heads of one value, keys of two: everything but the rule itself is trivial.
// The last tap passes q, k, v on through silu.
GatedDeltaNet TinyDeltaNet(Weightbox* box, KeyHeads key_heads) {
  const int64_t n_channels = 2 * 2 * 2 + 4;
  std::vector<float> kernel;
  for (int64_t c = 0; c < n_channels; ++c) kernel.insert(kernel.end(), {0, 1});
  GatedDeltaNet op;
  op.n_k_heads = 2;
  op.n_v_heads = 4;
  op.k_dim = 2;
  op.v_dim = 1;
  op.key_heads = key_heads;
  op.qkv = box->AddIdentity(n_channels);
  op.gate = {.weight = box->Add({n_channels, 4}, std::vector<float>(4 * n_channels, 1)),
             .n_in = n_channels,
             .n_out = 4};
  op.convolution = {.kernel = box->Add({2, n_channels}, kernel),
                    .n_channels = n_channels,
                    .n_taps = 2,
                    .slot = 0};
  op.decay_bias = box->AddVector({0, 0, 0, 20});
  op.decay_rate = box->AddVector({-1, -1, -1, -1});
  op.epsilon = 1e-6f;
  op.out = box->AddIdentity(4);
  op.slot = 1;
  return op;
}

TEST(GatedDeltaNetTest, LearnsWhatItsKeysDoNotYetSay) {
  for (const KeyHeads key_heads : {KeyHeads::kTiled, KeyHeads::kInterleaved}) {
    Weightbox box;
    GatedDeltaNet op = TinyDeltaNet(&box, key_heads);
    // Projections of zero: every beta is 1/2, every decay exp(-softplus(bias)).
    const Linear zero{.weight = box.Add({12, 4}, std::vector<float>(48)), .n_in = 12, .n_out = 4};
    if (key_heads == KeyHeads::kTiled) {
      op.beta = op.decay = zero;
    } else {
      op.beta_decay = {.weight = box.Add({12, 8}, std::vector<float>(96)), .n_in = 12, .n_out = 8};
    }
    Stage stage(&box, {.n_heads = 1, .k_dim = 1, .v_dim = 1});
    // Queries and keys of the first key head point along (1, 0), of the second along
    // (0, 1), whatever their length; values are silu(1 .. 4).
    const std::vector<float> row = {5, 0, 0, 5, 9, 0, 0, 9, 1, 2, 3, 4};
    const float gate = SiluOf(38);
    std::vector<float> expected(4);
    std::vector<float> learnt(4);
    for (int step = 0; step < 2; ++step) {
      for (int h = 0; h < 4; ++h) {
        const float decay = h == 3 ? std::exp(-20.0f) : 0.5f;  // softplus(0) = ln 2
        learnt[h] *= decay;
        learnt[h] += 0.5f * (SiluOf(static_cast<float>(h + 1)) - learnt[h]);
        expected[h] = learnt[h] / std::sqrt(2.0f) * gate;
      }
      const Rows out = RunOp(stage.Context(1, step), op, MakeRows({row}), Rows(0, 0));
      EXPECT_THAT(RowOf(out, 0), Pointwise(::testing::FloatNear(1e-3), expected)) << step;
    }
    // A query of the second key head alone is answered by the value heads that read it.
    std::vector<float> ask = {0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0};
    const Rows out = RunOp(stage.Context(1, 2), op, MakeRows({ask}), Rows(0, 0));
    const bool tiled = key_heads == KeyHeads::kTiled;
    EXPECT_EQ(out.row(0)[0], 0);
    EXPECT_EQ(out.row(0)[tiled ? 2 : 1], 0);
    EXPECT_GT(out.row(0)[tiled ? 1 : 2], 0.1f);
  }
}

TEST(GatedDeltaNetTest, FusedGatesBelongToTheirKeyHead) {
  Weightbox box;
  GatedDeltaNet op = TinyDeltaNet(&box, KeyHeads::kInterleaved);
  // Rows: betas of heads 0 and 1, their decays, betas of 2 and 3, their decays. The
  // betas of 1 and 2 are shut, the decays of all wide open.
  std::vector<float> weights(12 * 8);
  for (const int shut : {1, 4}) weights[shut * 12] = -100;
  op.beta_decay = {.weight = box.Add({12, 8}, weights), .n_in = 12, .n_out = 8};
  Stage stage(&box, {.n_heads = 1, .k_dim = 1, .v_dim = 1});
  const std::vector<float> row = {5, 5, 5, 5, 9, 9, 9, 9, 1, 2, 3, 4};
  const std::vector<float> out = RowOf(RunOp(stage.Context(1), op, MakeRows({row}), Rows(0, 0)), 0);
  EXPECT_GT(out[0], 0.1f);
  EXPECT_NEAR(out[1], 0, 1e-6);
  EXPECT_NEAR(out[2], 0, 1e-6);
  EXPECT_GT(out[3], 0.1f);
}

TEST(StateSpaceTest, GroupsFeedTheirHeadsAndStatesDecay) {
  Weightbox box;
  // Four heads of one value, two groups of state 1. Input x of one value; z is 1, x is
  // 2, B is 3 and 4, C is 5 and 6 times it; the steps are 0 and the last one 100.
  const std::vector<float> in = {1, 1, 1, 1, 2, 2, 2, 2, 3, 4, 5, 6, 0, 0, 0, 100};
  std::vector<float> kernel;
  for (int c = 0; c < 8; ++c) kernel.insert(kernel.end(), {0, 1});
  StateSpace op;
  op.n_heads = 4;
  op.n_groups = 2;
  op.head_dim = 1;
  op.state_dim = 1;
  op.in = {.weight = box.Add({1, 16}, in), .n_in = 1, .n_out = 16};
  op.convolution = {.kernel = box.Add({2, 8}, kernel), .n_channels = 8, .n_taps = 2, .slot = 0};
  op.step_bias = box.AddVector({0, std::log(std::exp(1.0f) - 1), 0, 0});
  op.rate = box.Add({1, 4}, {-1, 0, -1, 0});
  op.skip = box.Add({1, 4}, {0, 0, 1, 0});
  op.out = box.AddIdentity(4);
  op.slot = 1;
  Stage stage(&box, {.n_heads = 1, .k_dim = 1, .v_dim = 1});
  const float x = SiluOf(2), b[] = {SiluOf(3), SiluOf(4)}, c[] = {SiluOf(5), SiluOf(6)};
  const float half = std::log(2.0f);  // softplus(0); its decay at rate -1 is 1/2
  const float z = SiluOf(1);
  const Rows out = RunOp(stage.Context(2), op, MakeRows({{1}, {1}}), Rows(0, 0));
  const float first = b[0] * x * half, third = b[1] * x * half;
  EXPECT_THAT(RowOf(out, 0),
              Pointwise(::testing::FloatNear(1e-3),
                        std::vector<float>{c[0] * first * z, c[0] * b[0] * x * z,
                                           (c[1] * third + x) * z, c[1] * b[1] * x * 100 * z}));
  EXPECT_NEAR(out.row(1)[0], c[0] * first * 1.5f * z, 1e-3);
  EXPECT_NEAR(out.row(1)[1], c[0] * b[0] * x * 2 * z, 1e-3);
  const Rows next = RunOp(stage.Context(1, 2), op, MakeRows({{1}}), Rows(0, 0));
  EXPECT_NEAR(next.row(0)[0], c[0] * first * 1.75f * z, 1e-3);
}

TEST(StateSpaceTest, TheNormComesAfterTheGate) {
  Weightbox box;
  const std::vector<float> in = {1, 2, 3, 4, 1, 1, 0, 0};
  std::vector<float> kernel;
  for (int c = 0; c < 4; ++c) kernel.insert(kernel.end(), {0, 1});
  StateSpace op;
  op.n_heads = 2;
  op.n_groups = 1;
  op.head_dim = 1;
  op.state_dim = 1;
  op.in = {.weight = box.Add({1, 8}, in), .n_in = 1, .n_out = 8};
  op.convolution = {.kernel = box.Add({2, 4}, kernel), .n_channels = 4, .n_taps = 2, .slot = 0};
  op.step_bias = box.AddVector({0, 0});
  op.rate = box.Add({1, 2}, {-1, -1});
  op.skip = box.Add({1, 2}, {0, 0});
  op.norm = {.kind = NormKind::kRms, .weight = box.Add({2, 1}, {1, 10}), .width = 2};
  op.out = box.AddIdentity(2);
  op.slot = 1;
  Stage stage(&box, {.n_heads = 1, .k_dim = 1, .v_dim = 1});
  const std::vector<float> out = RowOf(RunOp(stage.Context(1), op, MakeRows({{1}}), Rows(0, 0)), 0);
  const float a = SiluOf(3) * SiluOf(1), b = SiluOf(4) * SiluOf(2);
  const float rms = std::sqrt((a * a + b * b) / 2);
  EXPECT_THAT(out, Near({a / rms, 10 * b / rms}));
}

TEST(BlockTest, PathsAreSummedAndScalesApplied) {
  Weightbox box;
  DenseFfn ffn;
  ffn.up = box.AddIdentity(2);
  ffn.down = box.AddIdentity(2);
  ffn.activation = Activation::kRelu;
  Block block{.paths = {{.op = ffn}, {.op = ffn}}, .residual_scale = 0.5};
  block.post = {.kind = NormKind::kRms, .width = 2, .factor = 4};
  block.stream_scale = box.AddVector({10});
  Stage stage(&box, {.n_heads = 1, .k_dim = 1, .v_dim = 1});
  Rows x = MakeRows({{3, 3}});
  StepContext context = stage.Context(1);
  RunBlock(&context, block, &x);  // (3 + 0.5 * 4 * 1) * 10
  EXPECT_THAT(RowOf(x, 0), Near({50, 50}));
}

TEST(BlockTest, DenseOutputGate) {
  Weightbox box;
  DenseFfn ffn;
  ffn.gate = box.AddIdentity(1);
  ffn.up = box.AddIdentity(1);
  ffn.down = box.AddIdentity(1);
  ffn.activation = Activation::kRelu;
  ffn.output_gate = box.AddIdentity(1, 0);
  Stage stage(&box, {.n_heads = 1, .k_dim = 1, .v_dim = 1});
  const Rows out = RunOp(stage.Context(1), ffn, MakeRows({{3}}), Rows(0, 0));
  EXPECT_THAT(RowOf(out, 0), Near({4.5}));
}

// --- keys and values ------------------------------------------------------------------

TEST(ReferenceStateTest, KeepsWhatTheTypeKeeps) {
  ModelSpec spec;
  spec.kv_layers = {{.group = 0, .n_heads = 2, .k_dim = 32, .v_dim = 16},
                    {.group = 0, .n_heads = 1, .k_dim = 32, .v_dim = 0}};
  spec.kv_groups = {{.kv_layers = {0, 1}}};
  std::vector<float> key(64), value(32), key2(32);
  for (size_t i = 0; i < key.size(); ++i) key[i] = std::sin(static_cast<float>(i)) * 3;
  for (size_t i = 0; i < value.size(); ++i) value[i] = std::cos(static_cast<float>(i));
  for (size_t i = 0; i < key2.size(); ++i) key2[i] = static_cast<float>(i) / 7;
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
    ASSERT_TRUE(ReferenceState::Check(spec, type).ok());
    ReferenceState store(spec, type, 4);
    EXPECT_EQ(store.layout().page_bytes[0], 4 * RowBytes(type, 128));
    ASSERT_TRUE(store.GrowPages(0, 3).ok());
    const std::vector<PageId> table = {2, 0};
    store.Store(0, table, 5, key, value);
    store.Store(1, table, 5, key2, {});
    store.Store(0, table, 4, std::vector<float>(64, 1), value);
    std::vector<float> got(64), got_value(32), got2(32), expected(64);
    store.Load(0, table, 5, got, got_value);
    store.Load(1, table, 5, got2, {});
    std::vector<std::byte> row(RowBytes(type, 64));
    Quantize(type, key.data(), 64, nullptr, row.data());
    Dequantize(type, row.data(), 64, expected.data());
    EXPECT_EQ(got, expected) << NameOf(type);
    for (size_t i = 0; i < got2.size(); ++i) EXPECT_NEAR(got2[i], key2[i], 0.03);
    for (size_t i = 0; i < got_value.size(); ++i) EXPECT_NEAR(got_value[i], value[i], 0.01);
  }
  spec.kv_layers[1].k_dim = 31;
  const Status status = ReferenceState::Check(spec, DType::kQ8_0);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("blocks of 32"));
}

class ExecutorPagesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ModelSpec spec;
    spec.n_vocab = 3;
    spec.d_model = 2;
    spec.embedding = box_.Add({2, 3}, {1, 2, 3, 4, 5, 6});
    spec.output = {.weight = spec.embedding, .n_in = 2, .n_out = 3};
    spec.kv_layers = {{.group = 0, .n_heads = 1, .k_dim = 2, .v_dim = 2}};
    spec.kv_groups = {{.kv_layers = {0}}};
    Attention attention;
    attention.kv_layer = 0;
    attention.n_heads = 1;
    attention.n_kv_heads = 1;
    attention.k_dim = 2;
    attention.v_dim = 2;
    attention.q = attention.k = attention.v = attention.out = box_.AddIdentity(2);
    spec.layers = {{.blocks = {{.paths = {{.op = attention}}}}}};
    box_.Build();
    auto weights = backend_->Load(box_.file(), spec, {});
    ASSERT_TRUE(weights.ok()) << weights.status();
    weights_ = *std::move(weights);
    auto state = backend_->NewState(*weights_, {.kv_type = DType::kF32, .page_tokens = 2});
    ASSERT_TRUE(state.ok()) << state.status();
    state_ = *std::move(state);
    auto executor = backend_->NewExecutor(weights_, state_.get(), {.max_step_tokens = 4});
    ASSERT_TRUE(executor.ok()) << executor.status();
    executor_ = *std::move(executor);
    ASSERT_TRUE(state_->GrowPages(0, 4).ok());
  }

  // One step of one sequence whose page table is `table`; the last row's logits.
  StatusOr<std::vector<float>> Run(const std::vector<TokenId>& tokens, int64_t position,
                                   const std::vector<PageId>& table) {
    StepSequence sequence{
        .tokens = tokens, .position = position, .page_tables = {table}, .n_logits = 1};
    std::vector<float> logits(3);
    WEFT_RETURN_IF_ERROR(executor_->Forward({.sequences = {&sequence, 1}, .logits = logits}));
    return logits;
  }

  Weightbox box_;
  const Backend* backend_ = ReferenceBackend();
  std::shared_ptr<const Weights> weights_;
  std::unique_ptr<StateStore> state_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(ExecutorPagesTest, ReadsWritesAndCopies) {
  EXPECT_EQ(state_->layout().page_bytes[0], 2 * 4 * 4);
  ASSERT_TRUE(Run({0, 1, 2}, 0, {3, 1}).ok());
  std::vector<std::byte> bytes(32, std::byte{0xAA});
  ASSERT_TRUE(state_->ReadPage(0, 1, 1, bytes).ok());
  std::vector<float> values(8);
  std::memcpy(values.data(), bytes.data(), 32);
  EXPECT_THAT(values, ElementsAre(5, 6, 5, 6, 0, 0, 0, 0));  // zero beyond the token

  const auto expected = Run({1}, 3, {3, 1});
  ASSERT_TRUE(state_->CopyPage(0, 3, 0, 2).ok());
  ASSERT_TRUE(state_->WritePage(0, 2, bytes).ok());
  const auto copied = Run({1}, 3, {0, 2});
  ASSERT_TRUE(expected.ok() && copied.ok());
  EXPECT_EQ(*expected, *copied);
}

TEST_F(ExecutorPagesTest, HoldsWhatIsWrittenAndGivesItBack) {
  EXPECT_EQ(state_->held_bytes(), 0);
  ASSERT_TRUE(Run({0, 1, 2}, 0, {3, 1}).ok());
  const int64_t two_pages = state_->held_bytes();
  EXPECT_GE(two_pages, 2 * 32);
  const std::vector<PageId> one = {3};
  state_->DiscardPages(0, one);
  EXPECT_EQ(state_->held_bytes(), two_pages / 2);
  const std::vector<PageId> rest = {0, 1, 2, 3};
  state_->DiscardPages(0, rest);
  EXPECT_EQ(state_->held_bytes(), 0);
}

TEST_F(ExecutorPagesTest, RefusesWhatDoesNotExist) {
  std::vector<std::byte> bytes(32);
  const auto refused = [](const Status& status) {
    return status.code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused(state_->GrowPages(1, 1)));
  EXPECT_TRUE(refused(state_->CopyPage(0, 0, 4, 1)));
  EXPECT_TRUE(refused(state_->CopyPage(0, -1, 0, 1)));
  EXPECT_TRUE(refused(state_->CopyPage(0, 0, 1, 3)));
  EXPECT_TRUE(refused(state_->ReadPage(0, 4, 1, bytes)));
  EXPECT_TRUE(refused(state_->ReadPage(0, 0, 3, bytes)));
  EXPECT_TRUE(refused(state_->ReadPage(0, 0, 1, std::span(bytes).first(31))));
  EXPECT_TRUE(refused(state_->WritePage(0, 0, std::span(bytes).first(31))));
  EXPECT_TRUE(refused(state_->WritePage(-1, 0, bytes)));
  EXPECT_EQ(state_->GrowPages(0, int64_t{1} << 40).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(refused(Run({0}, 0, {4}).status()));
  EXPECT_TRUE(refused(Run({0, 0, 0, 0, 0}, 0, {0, 1, 2}).status()));  // more than max_step_tokens
  EXPECT_TRUE(refused(Run({3}, 0, {0}).status()));
  EXPECT_EQ(state_->held_bytes(), 0);  // nothing was touched
}

TEST_F(ExecutorPagesTest, RefusesOptionsItDoesNotAdvertise) {
  const auto code = [&](StateOptions options) {
    return backend_->NewState(*weights_, options).status().code();
  };
  const auto code_of_step = [&](int64_t max_step_tokens) {
    return backend_->NewExecutor(weights_, state_.get(), {.max_step_tokens = max_step_tokens})
        .status()
        .code();
  };
  EXPECT_EQ(code({.kv_type = DType::kQ4_1}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.kv_type = {DType::kQ5_0, DType::kF16}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.kv_type = DType::kQ8_0}), StatusCode::kInvalidArgument);  // rows of 2
  EXPECT_EQ(code({.kv_type = {DType::kQ5_0, DType::kQ4_0}}), StatusCode::kOk);
  EXPECT_EQ(code({.page_tokens = 3}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.page_tokens = -16}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of_step(0), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of_step(int64_t{1} << 40), StatusCode::kInvalidArgument);
}

TEST(ReferenceBackendTest, RefusesTypesItCannotDecode) {
  GgufWriter writer;
  const std::vector<std::byte> data(RowBytes(DType::kQ8_1, 32));
  const std::vector<int64_t> dims = {32, 1};
  writer.AddTensor("token_embd.weight", DType::kQ8_1, dims, data);
  const std::string bytes = writer.ToBytes();
  const auto file = ModelFile::FromBytes("test", std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(file.ok()) << file.status();
  ModelSpec spec;
  spec.embedding = {0};
  const auto weights = ReferenceBackend()->Load(*file, spec, {});
  EXPECT_FALSE(weights.ok());
  EXPECT_THAT(std::string(Message(weights.status())), HasSubstr("Q8_1"));
}

}  // namespace
}  // namespace weft::reference
