// Builds a step from its tokens to the stream after the last block.
#include <utility>
#include <variant>

#include "base/check.h"
#include "compute/gpu/builder.h"

namespace weft::gpu {

void Builder::BeginPart() {
  if (device_ != nullptr && part_.graph == nullptr) part_.graph = device_->NewGraph();
}

void Builder::EndPart() {
  if (part_.graph == nullptr) return;
  if (status_.ok()) status_ = part_.graph->Finish();
  parts_->push_back(std::exchange(part_, {}));
}

Status Builder::Build(device::Device* device, std::vector<ProgramPart>* parts,
                      FunctionRef<void(const Launches&)> add_results) {
  device_ = device;
  parts_ = parts;
  for (Rows* rows : {&stream_, &block_input_, &path_input_, &path_output_, &path_sum_}) {
    *rows = NewRows(spec_.d_model);
  }
  if (KeepsInputs(spec_)) kept_ = NewRows(spec_.d_model);
  if (spec_.n_side_streams > 0) sides_ = NewRows(spec_.n_side_streams * spec_.d_model);
  if (SharesFirstValues(spec_)) first_values_ = NewRows(spec_.d_model);
  entry_bytes_ = arena_.TakeBytes(size_.rows, spec_.d_model);
  if (spec_.per_layer_input) per_layer_ = NewRows(spec_.per_layer_input->proj.n_out);
  const int64_t used = arena_.used();
  const bool pauses = size_.rows > kMaxWholeRows;
  BeginPart();
  BuildInputs();
  for (const BoundBlock& block : model_.blocks) {
    if (pauses) EndPart();
    WEFT_RETURN_IF_ERROR(status_);
    BeginPart();
    arena_.BackTo(used);
    BuildBlock(block);
  }
  AddToStream();
  if (part_.graph != nullptr) add_results(Launches(part_.graph.get()));
  EndPart();
  return status_;
}

void Builder::BuildInputs() {
  const device::StepView& step = buffer_.view();
  if (!spec_.embedding) return JoinHidden(*model_.hidden_input);
  Embed(model_.embedding, step.tokens, spec_.embedding_scale, false, stream_);
  if (model_.positions) Embed(model_.positions, step.positions, 1, true, stream_);
  if (model_.token_types) Embed(model_.token_types, step.types, 1, true, stream_);
  Norm(model_.input_norm, stream_, spec_.d_model, stream_);
  if (model_.hidden_input) JoinHidden(*model_.hidden_input);
  if (spec_.per_layer_input) BuildPerLayerInputs();
}

void Builder::JoinHidden(const BoundHiddenInput& input) {
  const int64_t width = spec_.d_model;
  const Rows joined = NewRows(spec_.hidden_input->proj.n_in);
  if (!spec_.embedding) {
    Copy(memory_.hidden, 0, joined, 0, 1, HiddenWidth(spec_));
    return Multiply(input.proj, Prepare(joined, input.proj), stream_);
  }
  const auto put = [&](const BoundNorm& norm, const Rows& x, const Rows& to) {
    if (norm) {
      Norm(norm, x, width, to);
    } else {
      Copy(x, 0, to, 0, 1, width);
    }
  };
  put(input.token_norm, stream_, joined);
  put(input.hidden_norm, memory_.hidden, Columns(joined, width));
  Multiply(input.proj, Prepare(joined, input.proj), stream_);
}

// ( norm(proj(x)_l * proj_scale) + table[t]_l * table_scale ) * sum_scale
void Builder::BuildPerLayerInputs() {
  const PerLayerInput& input = *spec_.per_layer_input;
  const auto& bound = *model_.per_layer_input;
  const int64_t width = input.proj.n_out;
  Multiply(bound.proj, Prepare(stream_, bound.proj), per_layer_);
  Scale(input.proj_scale, width, per_layer_);
  Norm(bound.norm, per_layer_, width, per_layer_);
  Embed(bound.table, buffer_.view().tokens, input.table_scale, true, per_layer_);
  Scale(input.sum_scale, width, per_layer_);
}

void Builder::BuildBlock(const BoundBlock& block) {
  const int64_t width = spec_.d_model, used = arena_.used();
  const bool one_path = block.paths.size() == 1;
  if (block.keeps_input) {
    AddToStream();
    Copy(stream_, 0, kept_, 0, 1, width);
  }
  const Rows input = Enter(block.pre, stream_, block_input_);
  for (size_t p = 0; p < block.paths.size(); ++p) {
    arena_.BackTo(used);
    const BoundPath& path = block.paths[p];
    const bool at_input = entry_.x.values == input.values;
    if (path.pre && block.pre && at_input) Entered(true, false);
    if (path.pre) {
      Enter(path.pre, input, path_input_);
    } else if (!at_input) {
      Enter(block.pre, stream_, block_input_);
    }
    const Rows x = entry_.x, out = p == 0 ? path_sum_ : path_output_;
    std::visit([&](const auto& op) { Run(op, x, stream_, out); }, path.op);
    if (!one_path || block.post || path.scale != 1) Norm(path.post, out, width, out);
    if (p == 0) Scale(path.scale, width, out);
    if (p > 0) Add(out, width, path_sum_, path.scale);
  }
  if (block.paths.empty()) {
    AddToStream();
    Copy({}, 0, path_sum_, 0, 1, width);
  }
  // The norm to apply to the sum when it is added to the stream.
  const BoundNorm* post = block.post ? &block.post : nullptr;
  const bool is_normed = !one_path || block.paths[0].scale != 1;
  if (post == nullptr && !is_normed && block.paths[0].post) post = &block.paths[0].post;
  WEFT_CHECK(!residual_, "a path has not read the stream");
  residual_ = Residual{path_sum_, post, block.residual_scale, block.stream_scale};
  entry_ = {};
  if (!block.stream_norm) return;
  AddToStream();
  Norm(block.stream_norm, stream_, width, stream_);
}

}  // namespace weft::gpu
