// The device memory that a model's layers need, how many layers fit, and how many fit without their
// experts.
#ifndef WEFT_COMPUTE_SPLIT_LAYER_NEEDS_H_
#define WEFT_COMPUTE_SPLIT_LAYER_NEEDS_H_

#include <cstdint>
#include <vector>

#include "compute/backend.h"
#include "model/formats/model_file.h"
#include "model/model_spec.h"

namespace weft {

// Tokens of the session that estimates include.
inline constexpr int64_t kCountedTokens = 8192;

struct LayerNeeds {
  int64_t weight_bytes = 0;
  int64_t state_bytes = 0;  // of a session of kCountedTokens
};
struct ModelNeeds {
  std::vector<LayerNeeds> layers;
  int64_t output_bytes = 0;  // on the device of the last layer
};

ModelNeeds NeedsOf(const Backend& backend, const ModelFile& file, const ModelSpec& spec);
// State of a session of kCountedTokens, with 16-bit keys and values.
int64_t StateBytesOf(const ModelSpec& spec);

// Bytes of the whole model: weights, steps, and the state of one session.
int64_t WholeBytes(const Backend& backend, const ModelFile& file, const ModelSpec& spec);

// How many of the last layers fit into this memory, together with the needs of steps and the state
// of a session. 0 also if the output alone does not fit.
int LastLayersThatFit(int64_t free_bytes, const ModelNeeds& needs);

// The same for splits that NewSplitBackend accepts, so possibly fewer: all layers, none, or a valid
// number in between.
int ChooseLastLayers(int64_t free_bytes, const Backend& backend, const ModelFile& file,
                     const ModelSpec& spec);

// The smallest number of first layers whose experts must stay on the host so that the rest fits. 0:
// none, or the model has no mixtures. If the rest never fits, all layers.
int ChooseExpertLayers(int64_t free_bytes, const Backend& backend, const ModelFile& file,
                       const ModelSpec& spec);

}  // namespace weft

#endif  // WEFT_COMPUTE_SPLIT_LAYER_NEEDS_H_
