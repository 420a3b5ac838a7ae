// The recurrent kernels against double precision, and against the scalar ones bit by
// bit, whole or cut at any token and tile.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "compute/kernels/vector_ops.h"

namespace weft {
namespace {

std::vector<float> RandomValues(int64_t n, uint32_t seed, float mean = 0, float spread = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(mean, spread);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = normal(random);
  return values;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

const VectorKernels& Scalar() { return VectorKernelsFor(Isa::kScalar); }

class RecurrentPerIsa : public ::testing::TestWithParam<Isa> {
 protected:
  const VectorKernels& vec() const { return VectorKernelsFor(GetParam()); }
};

TEST_P(RecurrentPerIsa, StepsAndDecaysMatchDoublePrecision) {
  for (const int64_t n : {1, 16, 500}) {
    const std::vector<float> x = RandomValues(n, 1, 0, 12), bias = RandomValues(n, 2);
    const std::vector<float> rate = RandomValues(n, 3, -1, 0.3f);
    std::vector<float> steps(x.size()), decays(x.size()), same = x, scalar_decays(x.size());
    vec().steps_and_decays(x.data(), bias.data(), rate.data(), n, steps.data(), decays.data());
    for (int64_t i = 0; i < n; ++i) {
      const double step = std::log1p(std::exp(double{x[i] + bias[i]}));
      ASSERT_NEAR(steps[i], step, 3e-7 * step) << x[i] + bias[i];
      const double decay = std::exp(double{rate[i]} * step);
      ASSERT_NEAR(decays[i], decay, 1e-6 * (1 + step) * decay + 1e-37) << rate[i] * step;
    }
    Scalar().steps_and_decays(same.data(), bias.data(), rate.data(), n, same.data(),
                              scalar_decays.data());  // in place
    EXPECT_TRUE(SameBits(same, steps) && SameBits(scalar_decays, decays)) << n;
  }
}

TEST_P(RecurrentPerIsa, StepsAtTheEnds) {
  const std::vector<float> x = {-200, -80, 0, 80, 1e30f, NAN}, zero(6), rate(6, -1);
  std::vector<float> steps(6), decays(6);
  vec().steps_and_decays(x.data(), zero.data(), rate.data(), 6, steps.data(), decays.data());
  EXPECT_EQ(steps[0], 0);
  EXPECT_GT(steps[1], 0);
  EXPECT_FLOAT_EQ(steps[2], std::log(2.0f));
  EXPECT_EQ(steps[3], 80);
  EXPECT_EQ(steps[4], 1e30f);
  EXPECT_EQ(decays[0], 1);
  EXPECT_EQ(decays[4], 0);
  EXPECT_TRUE(std::isnan(steps[5]) && std::isnan(decays[5]));
}

TEST_P(RecurrentPerIsa, SetLengthMatchesDoublePrecision) {
  for (const int64_t n : {3, 32, 128, 200}) {
    std::vector<float> x = RandomValues(n, 4);
    double squares = 0;
    for (const float v : x) squares += double{v} * v;
    const std::vector<float> before = x;
    vec().set_length(n, 1e-6f, 0.25f, x.data());
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_NEAR(x[i], before[i] * 0.25 / std::sqrt(squares), 1e-6);
    }
    std::vector<float> scalar = before;
    Scalar().set_length(n, 1e-6f, 0.25f, scalar.data());
    EXPECT_TRUE(SameBits(x, scalar)) << n;
    x = before;
    vec().set_length(n, 1e6f, 1, x.data());  // shorter than epsilon
    EXPECT_FLOAT_EQ(x[0], before[0] * 1e-6f);
    std::vector<float> none(static_cast<size_t>(n));
    vec().set_length(n, 1e-6f, 1, none.data());
    EXPECT_EQ(none, std::vector<float>(static_cast<size_t>(n)));
  }
}

TEST_P(RecurrentPerIsa, ConvolveMatchesDoublePrecision) {
  for (const int64_t n_taps : {2, 3, 4, 7}) {
    for (const int64_t n : {1, 16, 45, 256}) {
      const std::vector<float> kernel = RandomValues(n_taps * n, 5), bias = RandomValues(n, 6);
      const std::vector<float> inputs = RandomValues(n_taps * n, 7);
      std::vector<const float*> rows;
      for (int64_t j = 0; j < n_taps; ++j) rows.push_back(inputs.data() + j * n);
      std::vector<float> out(static_cast<size_t>(n)), plain = out, scalar = out;
      vec().convolve(rows.data(), n_taps, kernel.data(), bias.data(), n, out.data());
      vec().convolve(rows.data(), n_taps, kernel.data(), nullptr, n, plain.data());
      Scalar().convolve(rows.data(), n_taps, kernel.data(), bias.data(), n, scalar.data());
      EXPECT_TRUE(SameBits(out, scalar));
      for (int64_t c = 0; c < n; ++c) {
        double sum = 0;
        for (int64_t j = 0; j < n_taps; ++j) sum += double{kernel[j * n + c]} * inputs[j * n + c];
        EXPECT_NEAR(plain[c], sum, 1e-5);
        EXPECT_NEAR(out[c], sum + bias[c], 1e-5);
      }
    }
  }
}

// One head's tokens and state.
struct Head {
  Head(int64_t rows, int64_t columns, int64_t tokens)
      : n_rows(rows),
        n_columns(columns),
        n_tokens(tokens),
        stride(2 * rows + columns + 3),
        inputs(RandomValues(tokens * stride, 8, 0, 1 / std::sqrt(static_cast<float>(rows)))),
        gates(RandomValues(2 * tokens, 9, 0.6f, 0.2f)),
        state(static_cast<size_t>(StateFloats(rows, columns))),
        outputs(static_cast<size_t>(tokens * (columns + 1)), -1) {
    const std::vector<float> values = RandomValues(rows * columns, 10);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) At(r, c) = values[r * columns + c];
    }
  }
  float& At(int64_t row, int64_t column) {
    return state[(column / 16 * n_rows + row) * 16 + column % 16];
  }
  float Key(int64_t t, int64_t r) const { return inputs[t * stride + r]; }
  float Query(int64_t t, int64_t r) const { return inputs[t * stride + n_rows + r]; }
  float Value(int64_t t, int64_t c) const { return inputs[t * stride + 2 * n_rows + c]; }

  // Tokens [begin, end) through columns [first, last).
  RecurrentJob Job(int64_t begin, int64_t end, int64_t first, int64_t last) {
    RecurrentJob job;
    job.state = state.data() + first * n_rows;
    job.n_rows = n_rows;
    job.n_columns = last - first;
    job.n_tokens = end - begin;
    job.keys = inputs.data() + begin * stride;
    job.queries = job.keys + n_rows;
    job.values = job.queries + n_rows + first;
    job.stride = stride;
    job.outputs = outputs.data() + begin * (n_columns + 1) + first;
    job.output_stride = n_columns + 1;
    job.decays = gates.data() + 2 * begin;
    job.gains = job.decays + 1;
    job.gate_stride = 2;
    job.skip = 0.4f;
    return job;
  }

  int64_t n_rows, n_columns, n_tokens, stride;
  std::vector<float> inputs, gates, state, outputs;
};

// What `advance` has to give for `head`, and leaves in its state.
std::vector<double> Exact(Head* head, bool delta_net) {
  std::vector<double> outputs;
  for (int64_t t = 0; t < head->n_tokens; ++t) {
    const double decay = head->gates[2 * t], gain = head->gates[2 * t + 1];
    for (int64_t c = 0; c < head->n_columns; ++c) {
      double known = 0;
      for (int64_t r = 0; r < head->n_rows; ++r) known += decay * head->At(r, c) * head->Key(t, r);
      const double value = head->Value(t, c);
      const double learnt = gain * (delta_net ? value - known : value);
      double sum = delta_net ? 0 : 0.4 * value;
      for (int64_t r = 0; r < head->n_rows; ++r) {
        const double s = decay * head->At(r, c) + head->Key(t, r) * learnt;
        head->At(r, c) = static_cast<float>(s);
        sum += s * head->Query(t, r);
      }
      outputs.push_back(sum);
    }
  }
  return outputs;
}

constexpr int64_t kShapes[][3] = {{1, 1, 1},   {8, 16, 5},    {24, 20, 7},
                                  {32, 48, 6}, {128, 128, 9}, {128, 64, 4}};

TEST_P(RecurrentPerIsa, StatesMatchDoublePrecision) {
  for (const auto& [n_rows, n_columns, n_tokens] : kShapes) {
    for (const bool delta_net : {true, false}) {
      Head head(n_rows, n_columns, n_tokens), exact = head;
      const std::vector<double> expected = Exact(&exact, delta_net);
      const auto advance = delta_net ? vec().advance_delta_net : vec().advance_state_space;
      advance(head.Job(0, n_tokens, 0, n_columns));
      for (int64_t t = 0; t < n_tokens; ++t) {
        for (int64_t c = 0; c < n_columns; ++c) {
          ASSERT_NEAR(head.outputs[t * (n_columns + 1) + c], expected[t * n_columns + c], 2e-5);
        }
        EXPECT_EQ(head.outputs[t * (n_columns + 1) + n_columns], -1);  // not its column
      }
      for (size_t i = 0; i < head.state.size(); ++i) {
        ASSERT_NEAR(head.state[i], exact.state[i], 2e-5);
      }
    }
  }
}

TEST_P(RecurrentPerIsa, StatesDoNotDependOnTheJob) {
  for (const auto& [n_rows, n_columns, n_tokens] : kShapes) {
    for (const bool delta_net : {true, false}) {
      Head scalar(n_rows, n_columns, n_tokens), cut = scalar;
      (delta_net ? Scalar().advance_delta_net
                 : Scalar().advance_state_space)(scalar.Job(0, n_tokens, 0, n_columns));
      const auto advance = delta_net ? vec().advance_delta_net : vec().advance_state_space;
      const int64_t middle = n_columns / 2 / 16 * 16;
      for (int64_t begin = 0, length = 1; begin < n_tokens; begin += length, ++length) {
        const int64_t end = std::min(n_tokens, begin + length);
        if (middle > 0) advance(cut.Job(begin, end, 0, middle));
        advance(cut.Job(begin, end, middle, n_columns));
      }
      EXPECT_TRUE(SameBits(cut.outputs, scalar.outputs)) << n_rows << " x " << n_columns;
      EXPECT_TRUE(SameBits(cut.state, scalar.state)) << n_rows << " x " << n_columns;

      // Outputs that overwrite the values.
      Head own(n_rows, n_columns, n_tokens);
      RecurrentJob job = own.Job(0, n_tokens, 0, n_columns);
      job.outputs = own.inputs.data() + 2 * n_rows;
      job.output_stride = own.stride;
      advance(job);
      for (int64_t t = 0; t < n_tokens; ++t) {
        EXPECT_EQ(
            std::memcmp(job.outputs + t * own.stride, scalar.outputs.data() + t * (n_columns + 1),
                        sizeof(float) * static_cast<size_t>(n_columns)),
            0);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, RecurrentPerIsa,
                         ::testing::ValuesIn(AvailableIsas().begin(), AvailableIsas().end()),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

}  // namespace
}  // namespace weft
