#include "compute/kernels/vector_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/half.h"

namespace weft {
namespace {

std::vector<float> RandomValues(int64_t n, uint32_t seed, float spread = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = normal(random);
  return values;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

const VectorKernels& Scalar() { return VectorKernelsFor(Isa::kScalar); }

// --- functions ---------------------------------------------------------------------

class PerIsa : public ::testing::TestWithParam<Isa> {
 protected:
  const VectorKernels& vec() const { return VectorKernelsFor(GetParam()); }
};

TEST_P(PerIsa, ExpIsWithinTwoUlp) {
  std::vector<float> x;
  for (float v = -86.4f; v < 88.3f; v += 0.00371f) x.push_back(v);
  std::vector<float> y = x;
  vec().exp(static_cast<int64_t>(y.size()), y.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(double{x[i]});
    ASSERT_LE(std::fabs(y[i] - exact), 2 * exact * 0x1p-24) << x[i];
  }
}

TEST_P(PerIsa, ExpAtTheEnds) {
  std::vector<float> x = {-INFINITY, -1000, -86.6f, 0, -0.0f, 1000, INFINITY, NAN};
  vec().exp(static_cast<int64_t>(x.size()), x.data());
  EXPECT_EQ(x[0], 0);
  EXPECT_EQ(x[1], 0);
  EXPECT_EQ(x[2], 0);
  EXPECT_EQ(x[3], 1);
  EXPECT_EQ(x[4], 1);
  EXPECT_TRUE(std::isfinite(x[5]) && x[5] > 2e38f);
  EXPECT_EQ(x[6], x[5]);
  EXPECT_TRUE(std::isnan(x[7]));
}

TEST_P(PerIsa, TanhIsWithinFourUlp) {
  std::vector<float> x;
  for (float v = -12; v < 12; v += 0.00071f) x.push_back(v);
  for (float v = 1e-30f; v < 1; v *= 1.7f) x.push_back(-v);
  std::vector<float> y = x;
  vec().tanh(static_cast<int64_t>(y.size()), y.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::tanh(double{x[i]});
    ASSERT_LE(std::fabs(y[i] - exact), 4 * std::fabs(exact) * 0x1p-24) << x[i];
  }
}

double SigmoidOf(double x) { return 1 / (1 + std::exp(-x)); }

double ActivationOf(const ActivationShape& form, double g, double u) {
  const double limit = form.limit;
  switch (form.kind) {
    case ActivationKind::kSilu:
      return g * SigmoidOf(g) * u;
    case ActivationKind::kGeluTanh:
      return 0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * u;
    case ActivationKind::kGeluErf:
      return 0.5 * g * (1 + std::erf(g / std::sqrt(2.0))) * u;
    case ActivationKind::kRelu:
      return std::max(g, 0.0) * u;
    case ActivationKind::kReluSquared:
      return std::max(g, 0.0) * std::max(g, 0.0) * u;
    case ActivationKind::kClampedSwiglu: {
      const double clamped = std::min(g, limit);
      return clamped * SigmoidOf(1.702 * clamped) * (std::clamp(u, -limit, limit) + 1);
    }
    case ActivationKind::kClampedSilu:
      return std::min(g * SigmoidOf(g), limit) * std::clamp(u, -limit, limit);
    case ActivationKind::kSiluOfClamped: {
      const double clamped = std::min(g, limit);
      return clamped * SigmoidOf(clamped) * std::clamp(u, -limit, limit);
    }
    case ActivationKind::kXielu:
      return form.slope * g +
             (g > 0 ? form.rise * g * g : form.fall * (std::expm1(std::min(g, limit)) - g));
  }
  return NAN;
}

constexpr ActivationShape kActivations[] = {
    {ActivationKind::kSilu},
    {ActivationKind::kGeluTanh},
    {ActivationKind::kGeluErf},
    {ActivationKind::kRelu},
    {ActivationKind::kReluSquared},
    {ActivationKind::kClampedSwiglu, 7},
    {ActivationKind::kClampedSilu, 3},
    {ActivationKind::kXielu, -1e-6f, 0.7f, 1.3f, 0.5f},
    {ActivationKind::kSiluOfClamped, 3},
};
bool TakesUp(ActivationKind kind) { return kind != ActivationKind::kXielu; }
bool NeedsUp(ActivationKind kind) {
  return kind == ActivationKind::kClampedSwiglu || kind == ActivationKind::kClampedSilu ||
         kind == ActivationKind::kSiluOfClamped;
}

TEST_P(PerIsa, ActivationsMatchDoublePrecision) {
  for (const int64_t n : {1, 15, 16, 200, 1007}) {
    const std::vector<float> gate = RandomValues(n, 1, 6), up = RandomValues(n, 2, 4);
    for (const ActivationShape& form : kActivations) {
      std::vector<float> out(gate.size());
      const auto compare = [&](const float* ups) {
        vec().activate(form, gate.data(), ups, n, out.data());
        for (int64_t i = 0; i < n; ++i) {
          const double exact = ActivationOf(form, gate[i], ups != nullptr ? ups[i] : 1);
          ASSERT_NEAR(out[i], exact, 1e-6 * (1 + std::fabs(exact))) << gate[i];
        }
      };
      if (TakesUp(form.kind)) compare(up.data());
      if (!NeedsUp(form.kind)) compare(nullptr);
    }
  }
}

TEST_P(PerIsa, NormsMatchDoublePrecision) {
  for (const int64_t n : {1, 24, 64, 1000}) {
    const std::vector<float> x = RandomValues(n, 3, 2), weight = RandomValues(n, 4);
    const std::vector<float> bias = RandomValues(n, 5);
    double mean = 0, square = 0, variance = 0;
    for (const float v : x) mean += v / static_cast<double>(n);
    for (const float v : x) square += double{v} * v / static_cast<double>(n);
    for (const float v : x) variance += (v - mean) * (v - mean) / static_cast<double>(n);
    std::vector<float> rms(x.size()), plain(x.size()), layer(x.size());
    vec().rms_norm(x.data(), n, 1e-5f, 0.5f, weight.data(), rms.data());
    vec().rms_norm(x.data(), n, 1e-5f, 1, nullptr, plain.data());
    vec().layer_norm(x.data(), n, 1e-5f, 1, weight.data(), bias.data(), layer.data());
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_NEAR(rms[i], x[i] / std::sqrt(square + 1e-5) * 0.5 * weight[i], 1e-5);
      EXPECT_NEAR(plain[i], x[i] / std::sqrt(square + 1e-5), 1e-5);
      EXPECT_NEAR(layer[i], (x[i] - mean) / std::sqrt(variance + 1e-5) * weight[i] + bias[i], 2e-5);
    }
  }
}

TEST_P(PerIsa, SoftmaxMatchesDoublePrecision) {
  for (const int64_t n : {1, 8, 60, 300}) {
    const std::vector<float> x = RandomValues(n, 6, 5);
    std::vector<float> y = x;
    vec().softmax(n, y.data());
    double total = 0;
    for (const float v : x) total += std::exp(double{v});
    for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(y[i], std::exp(double{x[i]}) / total, 1e-6);
  }
}

TEST_P(PerIsa, RotationsMatchDoublePrecision) {
  for (const int64_t n_pairs : {1, 12, 16, 37, 64}) {
    const std::vector<float> x = RandomValues(2 * n_pairs, 7);
    std::vector<float> cosines, sines;
    for (int64_t i = 0; i < n_pairs; ++i) {
      cosines.push_back(std::cos(0.3f * static_cast<float>(i)));
      sines.push_back(std::sin(0.3f * static_cast<float>(i)));
    }
    std::vector<float> halves = x, adjacent = x;
    vec().rotate_halves(cosines.data(), sines.data(), n_pairs, halves.data());
    vec().rotate_adjacent(cosines.data(), sines.data(), n_pairs, adjacent.data());
    for (int64_t i = 0; i < n_pairs; ++i) {
      const double c = cosines[i], s = sines[i];
      EXPECT_NEAR(halves[i], x[i] * c - x[i + n_pairs] * s, 1e-6);
      EXPECT_NEAR(halves[i + n_pairs], x[i] * s + x[i + n_pairs] * c, 1e-6);
      EXPECT_NEAR(adjacent[2 * i], x[2 * i] * c - x[2 * i + 1] * s, 1e-6);
      EXPECT_NEAR(adjacent[2 * i + 1], x[2 * i] * s + x[2 * i + 1] * c, 1e-6);
    }
  }
}

TEST_P(PerIsa, EveryFunctionGivesTheBitsOfTheScalarOne) {
  const VectorKernels& scalar = Scalar();
  for (const int64_t n : {2, 30, 64, 514}) {
    const std::vector<float> y = RandomValues(n, 9, 4), z = RandomValues(n, 10, 4);
    const auto both = [&](const char* what, const auto& call) {
      std::vector<float> mine = RandomValues(n, 8, 4), others = mine;
      call(vec(), mine.data());
      call(scalar, others.data());
      EXPECT_TRUE(SameBits(mine, others)) << what << " of " << n;
    };
    using Kernels = VectorKernels;
    both("exp", [&](const Kernels& k, float* x) { k.exp(n, x); });
    both("tanh", [&](const Kernels& k, float* x) { k.tanh(n, x); });
    both("softmax", [&](const Kernels& k, float* x) { k.softmax(n, x); });
    both("sigmoid", [&](const Kernels& k, float* x) { k.sigmoid(n, x); });
    both("softcap", [&](const Kernels& k, float* x) { k.softcap(30, n, x); });
    both("add", [&](const Kernels& k, float* x) { k.add(y.data(), n, x); });
    both("scale", [&](const Kernels& k, float* x) { k.scale(0.3f, n, x); });
    both("multiply", [&](const Kernels& k, float* x) { k.multiply(y.data(), n, x); });
    both("multiply_sigmoid",
         [&](const Kernels& k, float* x) { k.multiply_sigmoid(y.data(), n, x); });
    both("add_scaled", [&](const Kernels& k, float* x) { k.add_scaled(y.data(), n, 0.7f, x); });
    both("rms_norm",
         [&](const Kernels& k, float* x) { k.rms_norm(x, n, 1e-6f, 1.5f, y.data(), x); });
    both("layer_norm", [&](const Kernels& k, float* x) {
      k.layer_norm(x, n, 1e-6f, 1.5f, y.data(), z.data(), x);
    });
    both("rotate_halves",
         [&](const Kernels& k, float* x) { k.rotate_halves(y.data(), z.data(), n / 2, x); });
    both("rotate_adjacent",
         [&](const Kernels& k, float* x) { k.rotate_adjacent(y.data(), z.data(), n / 2, x); });
    for (const ActivationShape& form : kActivations) {
      both("activate", [&](const Kernels& k, float* x) { k.activate(form, x, y.data(), n, x); });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, PerIsa,
                         ::testing::ValuesIn(AvailableIsas().begin(), AvailableIsas().end()),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

// --- attention -----------------------------------------------------------------------

// Keys and values of one sequence in tiles at scattered places, full of NaN where
// nothing was stored.
class KvHistory {
 public:
  KvHistory(const KvShape& shape, int64_t n_tokens, const VectorKernels& vec, uint32_t placement)
      : KvHistory(shape, n_tokens, vec, placement, RandomValues(n_tokens * shape.k_dim, 21),
                  RandomValues(n_tokens * shape.v_dim, 22)) {}
  KvHistory(const KvShape& shape, int64_t n_tokens, const VectorKernels& vec, uint32_t placement,
            std::vector<float> keys, std::vector<float> values)
      : shape_(shape), keys_(std::move(keys)), values_(std::move(values)) {
    const int64_t n_tiles = (n_tokens + 15) / 16, bytes = KvTileBytes(shape);
    memory_ = AlignedBuffer(static_cast<size_t>(n_tiles * bytes));
    std::memset(memory_.data(), 0xFF, memory_.size());
    for (int64_t i = 0; i < n_tiles; ++i) tiles_.push_back(memory_.data() + i * bytes);
    std::shuffle(tiles_.begin(), tiles_.end(), std::mt19937(placement));
    for (int64_t i = 0; i < n_tokens; ++i) {
      vec.store_kv(shape, keys_.data() + i * shape.k_dim, values_.data() + i * shape.v_dim,
                   static_cast<int>(i % 16), tiles_[i / 16]);
    }
  }

  const float* key(int64_t i) const { return keys_.data() + i * shape_.k_dim; }
  const float* value(int64_t i) const { return values_.data() + i * shape_.v_dim; }
  std::byte* tile(int64_t i) const { return tiles_[i]; }
  // What types that rotate heads hold of the keys, or the values; of others, the exact ones.
  std::vector<float> HeldKeys() const { return Held(keys_, shape_.type.keys, shape_.k_dim); }
  std::vector<float> HeldValues() const { return Held(values_, shape_.type.values, shape_.v_dim); }
  const std::byte* const* tiles() const {
    return const_cast<const std::byte* const*>(tiles_.data());
  }

 private:
  static std::vector<float> Held(std::vector<float> heads, DType type, int64_t n) {
    if (!RotatesHeads(type)) return heads;
    for (size_t i = 0; i < heads.size(); i += n) RoundAsStored(type, heads.data() + i, n);
    return heads;
  }

  const KvShape shape_;
  std::vector<float> keys_, values_;
  AlignedBuffer memory_;
  std::vector<std::byte*> tiles_;
};

struct Queries {
  std::vector<float> values;
  std::vector<int64_t> first, last;
  std::vector<float> sinks;
  float scale = 0.3f;
  float softcap = 0;
  float slope = 0;
  std::vector<int64_t> positions;  // with a slope
};

// Query i of `heads` per position sees its window; positions ascend.
Queries MakeQueries(const KvShape& shape, int64_t from, int64_t to, int64_t heads, int64_t window) {
  Queries queries;
  for (int64_t position = from; position < to; ++position) {
    for (int64_t head = 0; head < heads; ++head) {
      queries.first.push_back(window > 0 ? std::max<int64_t>(0, position - window + 1) : 0);
      queries.last.push_back(position);
      queries.sinks.push_back(0.5f * static_cast<float>(head));
    }
  }
  queries.values = RandomValues(static_cast<int64_t>(queries.first.size()) * shape.k_dim, 23);
  return queries;
}

// The same, but seeing later positions too, with scores that fall with the distance.
Queries SeeingBothWays(Queries queries, float slope, int64_t n_tokens, int64_t reach) {
  queries.slope = slope;
  queries.positions = queries.last;
  for (size_t i = 0; i < queries.last.size(); ++i) {
    queries.first[i] = reach > 0 ? std::max<int64_t>(0, queries.positions[i] - reach) : 0;
    queries.last[i] = std::min(n_tokens - 1, reach > 0 ? queries.positions[i] + reach : n_tokens);
  }
  return queries;
}

// Queries [begin, end), in one job.
std::vector<float> Attend(const VectorKernels& vec, const KvShape& shape, const KvHistory& history,
                          const Queries& queries, size_t begin, size_t end, bool sinks) {
  const size_t n = end - begin;
  std::vector<float> out(n * static_cast<size_t>(shape.v_dim));
  AttentionJob job;
  job.shape = shape;
  job.first_tile = queries.first[begin] / 16;
  std::vector<AttentionQuery> attending(n);
  for (size_t i = 0; i < n; ++i) {
    attending[i].values = queries.values.data() + (begin + i) * shape.k_dim;
    attending[i].output = out.data() + i * shape.v_dim;
    attending[i].tiles = history.tiles() + job.first_tile;
    attending[i].first = queries.first[begin + i];
    attending[i].last = queries.last[begin + i];
    if (sinks) attending[i].sink = queries.sinks[begin + i];
    attending[i].slope = queries.slope;
    if (queries.slope != 0) attending[i].position = queries.positions[begin + i];
  }
  job.queries = attending;
  job.scale = queries.scale;
  job.softcap = queries.softcap;
  AlignedBuffer scratch(
      static_cast<size_t>(AttentionScratchFloats(shape, static_cast<int64_t>(n))) * 4);
  vec.attend(job, scratch.As<float>().data());
  return out;
}

std::vector<float> AttendExactly(const KvShape& shape, const KvHistory& history,
                                 const Queries& queries, bool sinks) {
  const std::vector<float> keys = history.HeldKeys(), values = history.HeldValues();
  std::vector<float> out;
  for (size_t i = 0; i < queries.first.size(); ++i) {
    std::vector<double> scores;
    double largest = sinks ? queries.sinks[i] : -INFINITY;
    for (int64_t j = queries.first[i]; j <= queries.last[i]; ++j) {
      double score = 0;
      for (int64_t d = 0; d < shape.k_dim; ++d) {
        score += double{queries.values[i * shape.k_dim + d]} * keys[j * shape.k_dim + d];
      }
      score *= queries.scale;
      if (queries.softcap > 0) score = queries.softcap * std::tanh(score / queries.softcap);
      if (queries.slope != 0) score -= double{queries.slope} * std::abs(j - queries.positions[i]);
      scores.push_back(score);
      largest = std::max(largest, score);
    }
    double total = sinks ? std::exp(queries.sinks[i] - largest) : 0;
    std::vector<double> sum(static_cast<size_t>(shape.v_dim));
    for (size_t j = 0; j < scores.size(); ++j) {
      const double p = std::exp(scores[j] - largest);
      total += p;
      for (int64_t d = 0; d < shape.v_dim; ++d) {
        sum[d] += p * values[(queries.first[i] + static_cast<int64_t>(j)) * shape.v_dim + d];
      }
    }
    for (const double s : sum) out.push_back(static_cast<float>(s / total));
  }
  return out;
}

struct AttentionCase {
  KvTypes type;
  int64_t k_dim, v_dim, heads, window;
  bool sinks;
  float softcap;
};

const AttentionCase kCases[] = {{DType::kF32, 64, 64, 1, 0, false, 0},
                                {DType::kF32, 24, 24, 3, 0, false, 0},
                                {DType::kF32, 72, 56, 2, 20, true, 0},
                                {DType::kF32, 128, 128, 5, 100, false, 20},
                                {DType::kF16, 64, 64, 4, 0, true, 0},
                                {DType::kF16, 40, 24, 2, 33, false, 0},
                                {DType::kBF16, 48, 48, 2, 0, false, 0},
                                {DType::kBF16, 32, 32, 7, 64, true, 50},
                                {DType::kQ8_0, 64, 64, 2, 0, false, 0},
                                {DType::kQ8_0, 40, 24, 3, 70, true, 0},
                                {DType::kQ8_0, 128, 128, 4, 0, false, 30},
                                {DType::kQ8_0, 30, 50, 5, 0, true, 0},
                                {DType::kQ5_0, 64, 64, 3, 0, false, 0},
                                {DType::kQ4_0, 128, 128, 4, 0, true, 0},
                                {{DType::kQ5_0, DType::kQ4_0}, 40, 24, 3, 70, true, 0},
                                {{DType::kQ4_0, DType::kQ5_0}, 80, 576, 2, 0, false, 30},
                                {{DType::kQ8_0, DType::kQ4_0}, 64, 48, 5, 0, false, 0},
                                {{DType::kQ5_0, DType::kQ8_0}, 7, 33, 1, 0, false, 0}};

constexpr int64_t kHistory = 215;

double ToleranceOf(KvTypes type) {
  if (type == DType::kF32) return 5e-6;
  if (type == DType::kF16) return 3e-3;
  // Of Q5_0 and Q4_0 histories are compared as they are stored, which leaves the queries' levels.
  return 2e-2;  // BF16, levels
}

TEST_P(PerIsa, AttentionMatchesDoublePrecision) {
  for (const AttentionCase& c : kCases) {
    const KvShape shape{c.type, c.k_dim, c.v_dim};
    const KvHistory history(shape, kHistory, vec(), 1);
    Queries queries = MakeQueries(shape, 0, kHistory, c.heads, c.window);
    queries.softcap = c.softcap;
    queries.scale = 1 / std::sqrt(static_cast<float>(c.k_dim));
    const std::vector<float> out =
        Attend(vec(), shape, history, queries, 0, queries.first.size(), c.sinks);
    const std::vector<float> exact = AttendExactly(shape, history, queries, c.sinks);
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_NEAR(out[i], exact[i], ToleranceOf(c.type)) << NameOf(c.type) << " " << c.k_dim;
    }
  }
}

// Values that Q8_0 holds exactly: levels times a scale for 32 of them, which is a power of two.
std::vector<float> RandomLevels(int64_t n_rows, int64_t width, float spread, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> level(-127, 127), shrink(0, 6);
  std::vector<float> values;
  for (int64_t row = 0; row < n_rows; ++row) {
    for (int64_t begin = 0; begin < width; begin += 32) {
      const float scale = std::ldexp(spread, -shrink(random));
      for (int64_t i = begin; i < std::min(width, begin + 32); ++i) {
        values.push_back(scale * static_cast<float>(i == begin ? 127 : level(random)));
      }
    }
  }
  return values;
}

// What integers add to the error of the levels themselves: in a block, 2^-15 of the largest
// weight for each position. That holds too where one position outweighs all others, as the
// first one often does.
TEST_P(PerIsa, WeightsInIntegersAreAlmostExact) {
  for (const float sharpness : {0.02f, 0.2f, 1.0f}) {
    for (const auto& [k_dim, v_dim] : {std::pair{64, 64}, {40, 24}, {128, 128}}) {
      const KvShape shape{DType::kQ8_0, k_dim, v_dim};
      const KvHistory history(shape, kHistory, vec(), 1, RandomLevels(kHistory, k_dim, 0x1p-6f, 31),
                              RandomLevels(kHistory, v_dim, 0x1p-6f, 32));
      Queries queries = MakeQueries(shape, 0, kHistory, 2, 0);
      queries.values = RandomLevels(std::ssize(queries.first), k_dim, 0x1p-6f, 33);
      queries.scale = sharpness;
      const std::vector<float> out =
          Attend(vec(), shape, history, queries, 0, queries.first.size(), false);
      const std::vector<float> exact = AttendExactly(shape, history, queries, false);
      // The largest value is 127 / 64; a block's weights sum to at least their largest.
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_NEAR(out[i], exact[i], kAttentionBlock * 0x1p-15 * 127 / 64) << sharpness;
      }
    }
  }
}

// The same queries alone, in jobs of odd sizes, on tiles elsewhere, by the scalar
// kernel: always the same bits.
TEST_P(PerIsa, AttentionDoesNotDependOnTheJob) {
  for (const AttentionCase& c : kCases) {
    const KvShape shape{c.type, c.k_dim, c.v_dim};
    const KvHistory history(shape, kHistory, vec(), 1), elsewhere(shape, kHistory, vec(), 2);
    Queries queries = MakeQueries(shape, 3, kHistory, c.heads, c.window);
    queries.softcap = c.softcap;
    const size_t n = queries.first.size();
    const std::vector<float> whole = Attend(vec(), shape, history, queries, 0, n, c.sinks);
    EXPECT_TRUE(SameBits(whole, Attend(Scalar(), shape, history, queries, 0, n, c.sinks)));
    EXPECT_TRUE(SameBits(whole, Attend(vec(), shape, elsewhere, queries, 0, n, c.sinks)));
    for (const size_t step : {1, 2, 3, 7, 64}) {
      std::vector<float> parts;
      for (size_t begin = 0; begin < n; begin += step) {
        const std::vector<float> part =
            Attend(vec(), shape, history, queries, begin, std::min(n, begin + step), c.sinks);
        parts.insert(parts.end(), part.begin(), part.end());
      }
      EXPECT_TRUE(SameBits(whole, parts)) << NameOf(c.type) << " in jobs of " << step;
    }
  }
}

TEST_P(PerIsa, AttentionBothWaysFallsWithTheDistance) {
  const KvShape shape{DType::kF32, 24, 40};
  const KvHistory history(shape, kHistory, vec(), 1);
  for (const int64_t reach : {0, 20}) {
    const Queries queries =
        SeeingBothWays(MakeQueries(shape, 0, kHistory, 2, 0), 0.0625f, kHistory, reach);
    const size_t n = queries.first.size();
    const std::vector<float> out = Attend(vec(), shape, history, queries, 0, n, false);
    const std::vector<float> exact = AttendExactly(shape, history, queries, false);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], exact[i], 5e-6) << reach;
    EXPECT_TRUE(SameBits(out, Attend(Scalar(), shape, history, queries, 0, n, false)));
    const std::vector<float> last(out.end() - shape.v_dim, out.end());
    EXPECT_TRUE(SameBits(last, Attend(vec(), shape, history, queries, n - 1, n, false)));
  }
}

// Every span in a job of its own, joined afterwards.
std::vector<float> AttendInParts(const VectorKernels& vec, const KvShape& shape,
                                 const KvHistory& history, const Queries& queries, bool sinks) {
  const int64_t n = std::ssize(queries.first), part_floats = AttentionPartFloats(shape.v_dim);
  std::vector<float> out(static_cast<size_t>(n * shape.v_dim));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t first = queries.first[i], last = queries.last[i];
    const int64_t first_span = first / kAttentionSpan;
    const int64_t n_parts = last / kAttentionSpan + 1 - first_span;
    AlignedBuffer parts(static_cast<size_t>(n_parts * part_floats) * sizeof(float));
    float* const at = parts.As<float>().data();
    for (int64_t part = 0; part < n_parts; ++part) {
      const int64_t start = (first_span + part) * kAttentionSpan;
      AttentionQuery query;
      query.values = queries.values.data() + i * shape.k_dim;
      query.output = at + part * part_floats;
      query.tiles = history.tiles() + start / 16;
      query.first = std::max(first, start);
      query.last = std::min(last, start + kAttentionSpan - 1);
      AttentionJob job{shape, start / 16, {&query, 1}, queries.scale, queries.softcap, true};
      AlignedBuffer scratch(AttentionScratchFloats(shape, 1) * sizeof(float));
      vec.attend(job, scratch.As<float>().data());
    }
    vec.join_attention(at, n_parts, shape.v_dim, sinks ? queries.sinks[i] : -INFINITY,
                       out.data() + i * shape.v_dim);
  }
  return out;
}

TEST_P(PerIsa, LongHistoriesAreTheSumOfTheirSpans) {
  constexpr int64_t kLong = 2 * kAttentionSpan + 100;
  for (const auto& [type, window] : {std::pair{KvTypes(DType::kF32), 0},
                                     {DType::kF32, 700},
                                     {DType::kF16, 60},
                                     {DType::kQ8_0, 0},
                                     {KvTypes(DType::kQ5_0, DType::kQ4_0), 0}}) {
    const KvShape shape{type, 64, 40};
    const KvHistory history(shape, kLong, vec(), 1);
    // About the ends of spans, where a job's queries do not see the same ones.
    for (const int64_t end :
         {int64_t{kAttentionSpan + 8}, int64_t{2 * kAttentionSpan + 1}, kLong}) {
      Queries queries = MakeQueries(shape, end - 16, end, 2, window);
      queries.scale = 1 / std::sqrt(static_cast<float>(shape.k_dim));
      if (type == DType::kF16) queries.softcap = 20;
      const size_t n = queries.first.size();
      const std::vector<float> out = Attend(vec(), shape, history, queries, 0, n, true);
      const std::vector<float> exact = AttendExactly(shape, history, queries, true);
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_NEAR(out[i], exact[i], ToleranceOf(type)) << NameOf(type) << " " << end;
      }
      EXPECT_TRUE(SameBits(out, Attend(Scalar(), shape, history, queries, 0, n, true)));
      EXPECT_TRUE(SameBits(out, AttendInParts(vec(), shape, history, queries, true)))
          << NameOf(type) << " " << end;
    }
  }
}

// A logit of -infinity weighs nothing, also where a span has no other.
TEST_P(PerIsa, ASpanThatWeighsNothingChangesNothing) {
  constexpr int64_t kAll = kAttentionSpan + 1;
  const KvShape shape{DType::kF32, 16, 16};
  for (const int64_t position : {int64_t{0}, int64_t{kAttentionSpan}}) {  // among others, and alone
    std::vector<float> keys = RandomValues(kAll * shape.k_dim, 21);
    std::fill_n(keys.begin() + position * shape.k_dim, shape.k_dim, -3e38f);
    const KvHistory history(shape, kAll, vec(), 1, keys, RandomValues(kAll * shape.v_dim, 22));
    Queries with = MakeQueries(shape, kAttentionSpan, kAll, 1, 0);
    with.values.assign(static_cast<size_t>(shape.k_dim), 2.0f);
    Queries without = with;
    if (position == 0) {
      with.first[0] = 0;
      without.first[0] = 1;
    } else {
      without.last[0] = kAttentionSpan - 1;
    }
    const std::vector<float> expected = Attend(vec(), shape, history, without, 0, 1, false);
    EXPECT_TRUE(SameBits(Attend(vec(), shape, history, with, 0, 1, false), expected)) << position;
    EXPECT_TRUE(SameBits(AttendInParts(vec(), shape, history, with, false), expected)) << position;
  }
}

// Sequences that begin with the same tiles, in one job: each as alone.
TEST_P(PerIsa, AttentionOverSharedTilesIsAsAlone) {
  constexpr int64_t kShared = 8, kTiles = kHistory / 16;
  for (const AttentionCase& c : kCases) {
    if (c.window > 0) continue;
    const KvShape shape{c.type, c.k_dim, c.v_dim};
    const KvHistory history(shape, kHistory, vec(), 1);
    // Each has the others' later tiles in another order.
    std::vector<std::vector<const std::byte*>> tables(3);
    for (int64_t sequence = 0; sequence < 3; ++sequence) {
      for (int64_t t = 0; t < kTiles; ++t) {
        const int64_t own = kShared + (t - kShared + sequence) % (kTiles - kShared);
        tables[sequence].push_back(history.tile(t < kShared ? t : own));
      }
    }
    for (const int64_t rows : {1, 30}) {  // few queries, and as many as are expanded
      std::vector<AttentionQuery> queries;
      const std::vector<float> values = RandomValues(3 * rows * c.heads * c.k_dim, 24);
      std::vector<float> together(3 * rows * c.heads * c.v_dim), alone(together.size());
      for (int64_t i = 0; i < 3 * rows * c.heads; ++i) {
        AttentionQuery& query = queries.emplace_back();
        query.values = values.data() + i * c.k_dim;
        query.output = together.data() + i * c.v_dim;
        query.tiles = tables[i / (rows * c.heads)].data();
        query.last = 16 * kTiles - 1 - 5 * (i / (rows * c.heads)) - rows + i / c.heads % rows;
        if (c.sinks) query.sink = 0.25f;
      }
      AlignedBuffer scratch(AttentionScratchFloats(shape, std::ssize(queries)) * sizeof(float));
      AttentionJob job{shape, 0, queries, 0.2f, c.softcap};
      vec().attend(job, scratch.As<float>().data());
      for (size_t i = 0; i < queries.size(); ++i) {
        queries[i].output = alone.data() + i * c.v_dim;
        job.queries = std::span(queries).subspan(i, 1);
        vec().attend(job, scratch.As<float>().data());
      }
      EXPECT_TRUE(SameBits(together, alone)) << NameOf(c.type) << " " << rows;
    }
  }
}

TEST_P(PerIsa, StoredTilesHaveTheScalarBytes) {
  for (const AttentionCase& c : kCases) {
    const KvShape shape{c.type, c.k_dim, c.v_dim};
    const KvHistory mine(shape, 32, vec(), 1), others(shape, 32, Scalar(), 1);
    for (int64_t i = 0; i < 2; ++i) {
      ClearKvTail(shape, 16, mine.tile(i));
      ClearKvTail(shape, 16, others.tile(i));
      EXPECT_EQ(std::memcmp(mine.tile(i), others.tile(i), KvTileBytes(shape)), 0) << NameOf(c.type);
    }
  }
}

TEST_P(PerIsa, RotatedHeadsAreReadAsTheyAreRounded) {
  for (const AttentionCase& c : kCases) {
    if (!RotatesHeads(c.type.keys) && !RotatesHeads(c.type.values)) continue;
    const KvShape shape{c.type, c.k_dim, c.v_dim};
    const KvHistory history(shape, 32, vec(), 1);
    const std::vector<float> keys = history.HeldKeys(), values = history.HeldValues();
    std::vector<float> key(static_cast<size_t>(c.k_dim)), value(static_cast<size_t>(c.v_dim));
    for (int64_t i = 0; i < 32; ++i) {
      ReadKv(shape, history.tile(i / 16), static_cast<int>(i % 16), key.data(), value.data());
      const auto same = [&](DType type, const std::vector<float>& read, const float* held) {
        if (!RotatesHeads(type)) return true;
        return std::memcmp(read.data(), held, sizeof(float) * read.size()) == 0;
      };
      EXPECT_TRUE(same(c.type.keys, key, keys.data() + i * c.k_dim)) << NameOf(c.type) << " " << i;
      EXPECT_TRUE(same(c.type.values, value, values.data() + i * c.v_dim)) << NameOf(c.type);
    }
  }
}

// Threads store positions of one tile at the same time.
TEST(KvTile, PositionsShareNoByte) {
  for (const AttentionCase& c : kCases) {
    const KvShape shape{c.type, c.k_dim, c.v_dim};
    const auto bytes = static_cast<size_t>(KvTileBytes(shape));
    const KvHistory history(shape, 16, Scalar(), 1);
    AlignedBuffer tile(bytes);
    std::vector<int> writers(bytes);
    for (int index = 0; index < 16; ++index) {
      std::vector<bool> written(bytes);
      for (const int before : {0x00, 0xFF}) {
        std::memset(tile.data(), before, bytes);
        Scalar().store_kv(shape, history.key(index), history.value(index), index, tile.data());
        for (size_t i = 0; i < bytes; ++i) {
          if (tile.data()[i] != static_cast<std::byte>(before)) written[i] = true;
        }
      }
      for (size_t i = 0; i < bytes; ++i) writers[i] += written[i] ? 1 : 0;
    }
    EXPECT_LE(*std::ranges::max_element(writers), 1) << NameOf(c.type);
  }
}

// One large dimension costs the others little: the error is that of the whole head's size.
TEST(RotatedHeads, AnOutlierDoesNotCostTheOthersTheirLevels) {
  std::vector<float> head = RandomValues(64, 41);
  head[5] = 50.0f;
  for (const DType type : {DType::kQ5_0, DType::kQ4_0}) {
    std::vector<float> held = head;
    RoundAsStored(type, held.data(), std::ssize(held));
    double error = 0, size = 0;
    for (size_t i = 0; i < head.size(); ++i) {
      error += std::pow(held[i] - head[i], 2);
      size += std::pow(head[i], 2);
    }
    const double step = 1.0 / MaxLevel(LevelBits(type));
    EXPECT_LT(std::sqrt(error / size), step);
  }
}

TEST(RotatedHeads, RotatingTwiceGivesTheHead) {
  for (const int64_t n : {1, 2, 7, 64, 80, 576}) {
    const std::vector<float> head = RandomValues(n, 42);
    std::vector<float> twice = head;
    RotateHead(twice.data(), n);
    RotateHead(twice.data(), n);
    for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(twice[i], head[i], 1e-5) << n;
  }
}

TEST(KvTile, ClearTailKeepsWhatIsBeforeAndZeroesTheRest) {
  for (const AttentionCase& c : kCases) {
    const KvShape shape{c.type, c.k_dim, c.v_dim};
    const size_t bytes = static_cast<size_t>(KvTileBytes(shape));
    EXPECT_EQ(bytes % 64, 0u);
    for (const int kept : {0, 1, 9, 16}) {
      // Five positions stored over two different backgrounds differ nowhere once
      // the tail is cleared.
      const KvHistory a(shape, kept == 0 ? 1 : kept, Scalar(), 1);
      AlignedBuffer copy(bytes);
      std::memset(copy.data(), 0x55, bytes);
      for (int i = 0; i < kept; ++i) {
        Scalar().store_kv(shape, a.key(i), a.value(i), i, copy.data());
      }
      ClearKvTail(shape, kept, a.tile(0));
      ClearKvTail(shape, kept, copy.data());
      EXPECT_EQ(std::memcmp(a.tile(0), copy.data(), bytes), 0) << NameOf(c.type) << " " << kept;
      if (kept != 0) continue;
      for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(copy.data()[i], std::byte{0});
    }
  }
}

}  // namespace
}  // namespace weft
