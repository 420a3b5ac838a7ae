// A step from its tokens to the stream behind the last block.
#include <utility>
#include <variant>

#include "backend/gpu/builder.h"

namespace weft::gpu {

Status Builder::Build(device::Device* device, std::vector<std::unique_ptr<device::Graph>>* graphs) {
  for (Rows* rows : {&stream_, &block_input_, &path_input_, &path_output_, &path_sum_}) {
    *rows = NewRows(spec_.d_model);
  }
  if (spec_.per_layer_input) per_layer_ = NewRows(spec_.per_layer_input->proj.n_out);
  const int64_t used = arena_.used();
  const auto build = [&](auto part) -> Status {
    arena_.BackTo(used);
    std::unique_ptr<device::Graph> graph;
    if (device != nullptr) graph = device->NewGraph();
    graph_ = graph.get();
    part();
    graph_ = nullptr;
    if (graph == nullptr) return OkStatus();
    WEFT_RETURN_IF_ERROR(graph->Finish());
    graphs->push_back(std::move(graph));
    return OkStatus();
  };
  WEFT_RETURN_IF_ERROR(build([&] { BuildInputs(); }));
  for (const BoundBlock& block : model_.blocks) {
    WEFT_RETURN_IF_ERROR(build([&] { BuildBlock(block); }));
  }
  return OkStatus();
}

void Builder::BuildInputs() {
  const device::StepView& step = buffer_.view();
  Embed(model_.embedding, step.tokens, spec_.embedding_scale, false, stream_);
  if (model_.positions) Embed(model_.positions, step.positions, 1, true, stream_);
  if (model_.token_types) Embed(model_.token_types, step.types, 1, true, stream_);
  Norm(model_.input_norm, stream_, spec_.d_model, stream_);
  if (spec_.per_layer_input) BuildPerLayerInputs();
}

// ( norm(proj(x)_l * proj_scale) + table[t]_l * table_scale ) * sum_scale
void Builder::BuildPerLayerInputs() {
  const PerLayerInput& input = *spec_.per_layer_input;
  const int64_t width = input.proj.n_out;
  Multiply(model_.per_layer_proj, Prepare(stream_, model_.per_layer_proj), per_layer_);
  Scale(input.proj_scale, width, per_layer_);
  Norm(model_.per_layer_norm, per_layer_, width, per_layer_);
  Embed(model_.per_layer_table, buffer_.view().tokens, input.table_scale, true, per_layer_);
  Scale(input.sum_scale, width, per_layer_);
}

void Builder::BuildBlock(const BoundBlock& block) {
  const int64_t width = spec_.d_model, used = arena_.used();
  const Rows input = Norm(block.pre, stream_, width, block_input_);
  for (size_t p = 0; p < block.paths.size(); ++p) {
    arena_.BackTo(used);
    const BoundPath& path = block.paths[p];
    const Rows x = Norm(path.pre, input, width, path_input_);
    const Rows out = p == 0 ? path_sum_ : path_output_;
    std::visit([&](const auto& op) { Run(op, x, stream_, out); }, path.op);
    Norm(path.post, out, width, out);
    if (p > 0) Add(out, width, path_sum_);
  }
  if (block.paths.empty()) Copy({}, 0, path_sum_, 0, 1, width);
  Norm(block.post, path_sum_, width, path_sum_);
  device::ScaleArgs args;
  args.stream = stream_;
  args.y = path_sum_;
  args.width = static_cast<int32_t>(width);
  args.y_scale = block.residual_scale;
  args.scale = block.stream_scale;
  args.n_rows = step_rows().n;
  Launch(device::ScaleRows, ColumnsShape(width, size_.rows), args);
  Norm(block.stream_norm, stream_, width, stream_);
}

}  // namespace weft::gpu
