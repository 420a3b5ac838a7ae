#include "compute/text_head.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "compute/kernels/quants/quants.h"
#include "compute/spec_tensors.h"

namespace weft {
namespace {

float Activated(HeadActivation activation, double x) {
  switch (activation) {
    case HeadActivation::kNone:
      break;
    case HeadActivation::kTanh:
      return static_cast<float>(std::tanh(x));
    case HeadActivation::kGeluErf:
      return static_cast<float>(0.5 * x * (1 + std::erf(x / std::sqrt(2.0))));
  }
  return static_cast<float>(x);
}

// With a fixed number of independent sums, so that the order is fixed and the compiler can
// vectorize.
double Dot(const float* a, const float* b, int64_t n) {
  constexpr int64_t kLanes = 8;
  double sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += static_cast<double>(a[i + lane]) * static_cast<double>(b[i + lane]);
    }
  }
  double sum = 0;
  for (; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  for (const double lane : sums) sum += lane;
  return sum;
}

// A layer norm of the whole vector.
void Normalise(const Norm& norm, std::span<const float> weight, std::span<const float> bias,
               std::vector<float>* x) {
  const auto n = static_cast<double>(x->size());
  double mean = 0, variance = 0;
  for (const float v : *x) mean += static_cast<double>(v);
  mean /= n;
  for (const float v : *x)
    variance += (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean);
  const double factor = 1 / std::sqrt(variance / n + static_cast<double>(norm.epsilon));
  for (size_t i = 0; i < x->size(); ++i) {
    double value = (static_cast<double>((*x)[i]) - mean) * factor * static_cast<double>(weight[i]);
    if (!bias.empty()) value += static_cast<double>(bias[i]);
    (*x)[i] = static_cast<float>(value);
  }
}

void Softmax(std::vector<float>* x) {
  const auto largest = static_cast<double>(*std::max_element(x->begin(), x->end()));
  double sum = 0;
  for (const float v : *x) sum += std::exp(static_cast<double>(v) - largest);
  for (float& v : *x) {
    v = static_cast<float>(std::exp(static_cast<double>(v) - largest) / sum);
  }
}

}  // namespace

StatusOr<std::unique_ptr<const TextHead>> TextHead::Load(const ModelFile& file,
                                                         const ModelSpec& spec) {
  std::unique_ptr<TextHead> head(new TextHead());
  const TextVector& vector = *spec.text_vector;
  head->pooling_ = vector.pooling;
  head->softmax_ = vector.softmax;
  head->width_ = spec.d_model;
  for (const HeadLayer& layer : vector.head) {
    const TensorInfo& tensor = file.tensors()[static_cast<size_t>(layer.linear.weight.index)];
    if (!CanDequantize(tensor.type)) {
      return file.TensorError(tensor.name, StrCat("has the type ", NameOf(tensor.type),
                                                  ", which cannot be computed with"));
    }
    head->layers_.push_back({.n_in = layer.linear.n_in,
                             .n_out = layer.linear.n_out,
                             .weight = ValuesOf(file, layer.linear.weight),
                             .bias = ValuesOf(file, layer.linear.bias),
                             .activation = layer.activation,
                             .norm = layer.norm,
                             .norm_weight = ValuesOf(file, layer.norm.weight),
                             .norm_bias = ValuesOf(file, layer.norm.bias)});
    head->width_ = layer.linear.n_out;
  }
  return std::unique_ptr<const TextHead>(std::move(head));
}

std::vector<float> TextHead::Compute(const Layer& layer, std::span<const float> x) {
  WEFT_CHECK(static_cast<int64_t>(x.size()) == layer.n_in, "a head's layer takes its n_in values");
  std::vector<float> y(static_cast<size_t>(layer.n_out));
  for (int64_t i = 0; i < layer.n_out; ++i) {
    double value = Dot(layer.weight.data() + i * layer.n_in, x.data(), layer.n_in);
    if (!layer.bias.empty()) value += static_cast<double>(layer.bias[static_cast<size_t>(i)]);
    y[static_cast<size_t>(i)] = Activated(layer.activation, value);
  }
  if (layer.norm) Normalise(layer.norm, layer.norm_weight, layer.norm_bias, &y);
  return y;
}

std::vector<float> TextHead::Apply(std::vector<float> pooled) const {
  for (const Layer& layer : layers_) pooled = Compute(layer, pooled);
  if (softmax_) Softmax(&pooled);
  return pooled;
}

void TextPooler::Add(Pooling pooling, std::span<const float> row) {
  ++count_;
  if (pooling == Pooling::kMean) {
    sums_.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) sums_[i] += static_cast<double>(row[i]);
    return;
  }
  if (pooling == Pooling::kFirst && count_ > 1) return;
  if (pooling == Pooling::kLast) rows_.clear();
  rows_.emplace_back(row.begin(), row.end());
}

std::vector<std::vector<float>> TextPooler::Finish(const TextHead& head) {
  WEFT_CHECK(count_ > 0, "a text has tokens");
  if (head.pooling() == Pooling::kMean) {
    std::vector<float>& mean = rows_.emplace_back();
    for (const double sum : sums_) {
      mean.push_back(static_cast<float>(sum / static_cast<double>(count_)));
    }
  }
  for (std::vector<float>& row : rows_) row = head.Apply(std::move(row));
  return std::move(rows_);
}

}  // namespace weft
