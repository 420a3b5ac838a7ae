// What the projectors of projectors.cc have in common: sizes, the patches' product, layers.
#ifndef WEFT_MODEL_PICTURES_PICTURE_BUILDER_H_
#define WEFT_MODEL_PICTURES_PICTURE_BUILDER_H_

#include <cstdint>
#include <string>
#include <utility>

#include "model/pictures/picture_spec.h"
#include "model/spec_builder.h"

namespace weft {

// Reads one projector file; the first error is kept, as SpecBuilder keeps it.
class PictureBuilder {
 public:
  static constexpr int64_t kMaxSide = 1 << 14;  // pixels

  PictureBuilder(const ModelFile& file, std::string projector);

  SpecBuilder& reader() { return reader_; }
  PictureSpec& spec() { return spec_; }
  bool ok() const { return reader_.ok(); }
  int64_t n_layers() const { return n_layers_; }
  int64_t d_model() const { return d_model_; }
  int64_t k_dim() const { return d_model_ / n_heads_; }
  int64_t patch() const { return spec_.preparation.patch; }
  float epsilon() const { return epsilon_; }

  // A norm of the encoder's kind.
  void set_norms(NormKind norms) { norms_ = norms; }
  Norm NormOf(const std::string& name, int64_t width) { return NormOf(name, width, norms_); }
  Norm NormOf(const std::string& name, int64_t width, NormKind kind);

  // Adds the stage that makes a row of each patch.
  void AddPatches();
  // Begins a stage on the results of the last one; its layers come next.
  void BeginLayers();
  // Adds a layer to the stage that was begun. `rope`: of heads; may have no frequencies.
  void AddLayer(int64_t layer, const Rope& rope);
  // Ends the stage of layers. Returns its number.
  int EndLayers(int64_t window = 0);
  // The positions that are added to the rows of the stage that was begun.
  void AddPositions(int64_t n_positions);
  // Adds the norm before the first layer, or after the last one, to the stage that was begun.
  void AddFirstNorm();
  void AddLastNorm(const std::string& name = "v.post_ln");

  // Adds a stage of two products with an activation between them, or of one product if `second` is
  // empty. `norm` comes before the first. AddOutput makes its result a part of the embeddings.
  struct Projection {
    int input = 0;
    RowChange change = {};
    Norm norm = {};
    Linear first = {};
    Activation activation = Activation::kGeluErf;
    Linear second = {};
  };
  int AddProjection(const Projection& projection);
  void AddOutput(const Projection& projection);

  // Sides of the picture in patches, if it is the square of the file's image_size.
  int64_t side_patches() const { return spec_.preparation.side / patch(); }

  StatusOr<PictureSpec> Finish();

 private:
  void ReadPreparation();
  Activation ReadActivation();
  BidirectionalAttention ReadAttention(const std::string& layer, const Rope& rope);
  DenseFfn ReadFfn(const std::string& layer);
  ModelSpec TakeStage();

  const ModelFile& file_;
  SpecBuilder reader_;
  PictureSpec spec_;
  int64_t n_layers_ = 0, d_model_ = 1, n_heads_ = 1;
  float epsilon_ = 0;
  NormKind norms_ = NormKind::kLayer;
  Activation activation_ = Activation::kGeluTanh;
  PictureStage open_;  // the stage of layers that was begun, but for its spec
};

// The rope of a head of `k_dim` values: half of its pairs turn by the patch's row, the other half
// by its column. Pair j of a half has the frequency base^-(4 j / k_dim); in the columns' half,
// base^-(first_of_columns + 4 j / k_dim).
Rope PlaneRope(RopePairs pairs, int64_t k_dim, double base, double first_of_columns);

}  // namespace weft

#endif  // WEFT_MODEL_PICTURES_PICTURE_BUILDER_H_
