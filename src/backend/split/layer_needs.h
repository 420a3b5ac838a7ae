// What a model's layers take of a device, how many of them fit, and how many fit without their
// experts.
#ifndef WEFT_BACKEND_SPLIT_LAYER_NEEDS_H_
#define WEFT_BACKEND_SPLIT_LAYER_NEEDS_H_

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "formats/model_file.h"
#include "model/model_spec.h"

namespace weft {

// Sessions of so many tokens are counted with.
inline constexpr int64_t kCountedTokens = 8192;

struct LayerNeeds {
  int64_t weight_bytes = 0;
  int64_t state_bytes = 0;  // of a session of kCountedTokens
};
struct ModelNeeds {
  std::vector<LayerNeeds> layers;
  int64_t output_bytes = 0;  // lies where the last layer does
};

ModelNeeds NeedsOf(const Backend& backend, const ModelFile& file, const ModelSpec& spec);
// What a session of kCountedTokens takes, its keys and values in 16 bits.
int64_t StateBytesOf(const ModelSpec& spec);

// All of a model: weights, what steps need, and the state of a session.
int64_t WholeBytes(const Backend& backend, const ModelFile& file, const ModelSpec& spec);

// How many of the last layers fit into so much memory, with what steps need and with the state of
// a session. With none, the output does not fit either.
int LastLayersThatFit(int64_t free_bytes, const ModelNeeds& needs);

// The same of a model as it can be cut, so maybe fewer: all its layers, or none, or as many as
// NewSplitBackend takes.
int ChooseLastLayers(int64_t free_bytes, const Backend& backend, const ModelFile& file,
                     const ModelSpec& spec);

// Of how few of the first layers the experts must stay with the host so that all else fits. 0: of
// none, or the model has no mixtures. Where all else does not fit either, of all.
int ChooseExpertLayers(int64_t free_bytes, const Backend& backend, const ModelFile& file,
                       const ModelSpec& spec);

}  // namespace weft

#endif  // WEFT_BACKEND_SPLIT_LAYER_NEEDS_H_
