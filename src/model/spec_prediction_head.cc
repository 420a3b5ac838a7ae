// Prediction heads: layers after those that run.
#include <utility>

#include "base/strings.h"
#include "model/spec_builder.h"

namespace weft {

void SpecBuilder::ReadHeadEnds(const Dims& dims, int64_t layer, ModelSpec* head) {
  const auto name = [&](std::string_view part) { return LayerName(layer, part); };
  HiddenInput input;
  input.token_norm = RmsNorm(name("nextn.enorm"), dims.d_model, dims.epsilon);
  input.hidden_norm = RmsNorm(name("nextn.hnorm"), dims.d_model, dims.epsilon);
  input.proj = Matrix(name("nextn.eh_proj"), 2 * dims.d_model, dims.d_model);
  head->hidden_input = input;
  // Tensors that the head lacks are shared with the model.
  if (HasTensor(name("nextn.embed_tokens.weight"))) {
    head->embedding = Matrix(name("nextn.embed_tokens"), dims.d_model, head->n_vocab).weight;
  }
  if (HasTensor(name("nextn.shared_head_norm.weight"))) {
    head->output_norm = RmsNorm(name("nextn.shared_head_norm"), dims.d_model, dims.epsilon);
  }
  if (HasTensor(name("nextn.shared_head_head.weight"))) {
    head->output = Matrix(name("nextn.shared_head_head"), dims.d_model, head->n_vocab);
  }
}

void SpecBuilder::ReadPredictionHead(const Dims& dims, bool before_output_norm,
                                     FunctionRef<void(int64_t layer)> read_layer) {
  if (!ok() || n_blocks_ == n_layers_) return;
  const int64_t layer = n_layers_;  // a second head would draft from the first one's draft
  ModelSpec head = spec_;
  head.layers.clear();
  head.kv_layers.clear();
  head.kv_groups.clear();
  head.slots.clear();
  ReadHeadEnds(dims, layer, &head);
  head.hidden_input->before_output_norm = before_output_norm;
  ModelSpec model = std::exchange(spec_, std::move(head));
  if (ok()) read_layer(layer);
  head = std::exchange(spec_, std::move(model));
  if (ok()) {
    spec_.prediction_head = std::make_shared<const ModelSpec>(std::move(head));
  } else {
    spec_.no_prediction_head = std::string(Message(std::exchange(status_, OkStatus())));
  }
}

}  // namespace weft
