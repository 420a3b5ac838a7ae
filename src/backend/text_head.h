// From a text's rows to what its turn answers with: one vector, a vector for each token, or
// scores.
//
// Rows are taken in order and summed in double, so that neither steps nor neighbours change a
// bit. What stands behind the pooling is small, and computed here from the file's weights as
// floats, the same for every backend.
#ifndef WEFT_BACKEND_TEXT_HEAD_H_
#define WEFT_BACKEND_TEXT_HEAD_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "formats/model_file.h"
#include "model/model_spec.h"

namespace weft {

// Immutable; any thread.
class TextHead {
 public:
  // REQUIRES: the spec has a text_vector.
  static StatusOr<std::unique_ptr<const TextHead>> Load(const ModelFile& file,
                                                        const ModelSpec& spec);

  Pooling pooling() const { return pooling_; }
  // Values of what it gives.
  int64_t width() const { return width_; }
  // Of a pooled row.
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
  // The pooled rows, through the head. REQUIRES: there was a row.
  std::vector<std::vector<float>> Finish(const TextHead& head);

 private:
  std::vector<double> sums_;              // of a mean
  std::vector<std::vector<float>> rows_;  // that are wanted
  int64_t count_ = 0;
};

}  // namespace weft

#endif  // WEFT_BACKEND_TEXT_HEAD_H_
