// A spec in a backend's own form of tensors, as spec_binder.h makes it.
//
// A backend's Form names the types of operations.h (Vector, Linear, Stack, Norm, Convolution), and
//   Matrix   packed rows of a tensor, which a Linear or a Stack is made of
//   Table    a tensor whose rows are looked up by number
// Its `Bound<Operation>` is a BoundOperation, with more where the backend needs more.
#ifndef WEFT_COMPUTE_BOUND_SPEC_H_
#define WEFT_COMPUTE_BOUND_SPEC_H_

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "model/model_spec.h"

namespace weft {

// The tensors have the names that they have in the spec. All other fields are read through `spec`.
template <typename Form, typename Operation>
struct BoundOperation : Operation::template Tensors<Form> {
  const Operation* spec = nullptr;
  // No later operation writes state, so rows without wanted results are dropped here.
  bool last_to_write = false;
};

template <typename Vector>
struct BoundNormOf {
  Norm spec;
  Vector weight = {};
  int64_t weight_values = 0;  // of one group, or of the whole row
  Vector bias = {};           // as long as the weight
  explicit operator bool() const { return static_cast<bool>(spec); }
};

template <typename Vector>
struct BoundConvolutionOf {
  const Convolution* spec = nullptr;
  Vector kernel = {};  // (n_taps, n_channels): transposed from the file
  Vector bias = {};
};

template <template <typename> typename Bound, typename... Operations>
std::variant<Bound<Operations>...> BindAll(const std::variant<Operations...>&);

template <typename Form, template <typename> typename Bound>
struct BoundSpec {
  struct Path {
    typename Form::Norm pre;
    decltype(BindAll<Bound>(std::declval<Op>())) op;
    typename Form::Norm post;
    float scale = 1;
  };
  struct Block {
    bool keeps_input = false;
    typename Form::Norm pre;
    std::vector<Path> paths;
    typename Form::Norm post;
    float residual_scale = 1;
    float stream_scale = 1;
    typename Form::Norm stream_norm;
    int64_t row_part = 0;
    bool replaces_stream = false;
  };
  struct PerLayerInput {
    typename Form::Table table;
    typename Form::Linear proj;
    typename Form::Norm norm;
  };
  struct HiddenInput {
    typename Form::Norm token_norm, hidden_norm;
    typename Form::Linear proj;
  };
  struct RowInput {
    typename Form::Norm norm;
    typename Form::Linear proj;
  };
  struct Model {
    typename Form::Table embedding = {};  // empty with row_input
    std::optional<RowInput> row_input;
    typename Form::Table positions = {};
    typename Form::Norm input_norm;
    std::optional<PerLayerInput> per_layer_input;
    std::optional<HiddenInput> hidden_input;
    std::vector<Block> blocks;  // all layers' blocks, in order
    typename Form::Norm output_norm;
    typename Form::Linear output;
  };
};

// Packed rows: tensor, first row, number of rows, and whether they are of a stack.
using MatrixKey = std::tuple<int, int64_t, int64_t, bool>;

// Everything bound, by its tensor's index in the file.
template <typename Form>
struct BoundTensors {
  std::map<MatrixKey, typename Form::Matrix> matrices;
  std::map<int, typename Form::Vector> vectors;
};

}  // namespace weft

#endif  // WEFT_COMPUTE_BOUND_SPEC_H_
