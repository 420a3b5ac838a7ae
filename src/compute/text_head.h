// Turns a text's rows into its turn's result: one vector, a vector per token, or scores.
//
// Rows are added in order and in double, so that neither steps nor neighbours change a bit. The
// layers after pooling are small; they are computed here from the file's weights as floats, the
// same for every backend.
#ifndef WEFT_COMPUTE_TEXT_HEAD_H_
#define WEFT_COMPUTE_TEXT_HEAD_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "model/formats/model_file.h"
#include "model/model_spec.h"

namespace weft {

// Immutable; any thread.
class TextHead {
 public:
  // REQUIRES: the spec has a text_vector.
  static StatusOr<std::unique_ptr<const TextHead>> Load(const ModelFile& file,
                                                        const ModelSpec& spec);

  Pooling pooling() const { return pooling_; }
  // Number of values per result.
  int64_t width() const { return width_; }
  // The result for a pooled row.
  std::vector<float> Apply(std::vector<float> pooled) const;

 private:
  struct Layer {
    int64_t n_in, n_out;
    std::vector<float> weight, bias;  // (n_out, n_in)
    HeadActivation activation;
    Norm norm;
    std::vector<float> norm_weight, norm_bias;
  };
  TextHead() = default;
  static std::vector<float> Compute(const Layer& layer, std::span<const float> x);

  Pooling pooling_ = Pooling::kMean;
  int64_t width_ = 0;
  std::vector<Layer> layers_;
  bool softmax_ = false;
};

// Takes a text's rows in order.
class TextPooler {
 public:
  void Add(Pooling pooling, std::span<const float> row);
  // The results: pooled rows after the head. REQUIRES: there was a row.
  std::vector<std::vector<float>> Finish(const TextHead& head);

 private:
  std::vector<double> sums_;              // for the mean
  std::vector<std::vector<float>> rows_;  // for the other kinds of pooling
  int64_t count_ = 0;
};

}  // namespace weft

#endif  // WEFT_COMPUTE_TEXT_HEAD_H_
