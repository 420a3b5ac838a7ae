// The projectors: what each reads from its file, as a list of facts.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "model/pictures/picture_builder.h"

namespace weft {
namespace {

constexpr double kRopeBase = 10000;

// The matrix `name`, with as many rows as the file has.
Linear MatrixOf(SpecBuilder& reader, const std::string& name, int64_t n_in) {
  return reader.Matrix(name, n_in, std::max<int64_t>(1, reader.RowsOf(name)));
}

// Two products of `prefix` 0 and 2 over f * f merged rows, as Qwen's have them.
PictureBuilder::Projection Merger(PictureBuilder& b, const std::string& first,
                                  const std::string& second, int64_t factor) {
  PictureBuilder::Projection merger;
  merger.change = {RowChange::Kind::kMerge, factor};
  merger.first = MatrixOf(b.reader(), first, b.d_model() * factor * factor);
  merger.second = MatrixOf(b.reader(), second, merger.first.n_out);
  return merger;
}

// Layers with learned positions that see the whole square: SigLIP's.
int AddSiglip(PictureBuilder& b) {
  b.AddPatches();
  b.BeginLayers();
  b.AddPositions(b.side_patches() * b.side_patches());
  for (int64_t layer = 0; b.ok() && layer < b.n_layers(); ++layer) b.AddLayer(layer, Rope());
  b.AddLastNorm();
  return b.EndLayers();
}

// A square; the mean of 4 by 4 patches is an embedding, after a norm and a product.
void BuildGemma3(PictureBuilder& b) {
  SpecBuilder& reader = b.reader();
  const int64_t factor = reader.IntOr("vision.projector.scale_factor", 4, 1, 64);
  PicturePreparation& preparation = b.spec().preparation;
  preparation.filter = PictureFilter::kBilinear;
  preparation.unit = preparation.patch * factor;
  b.spec().frame = {
      .before = "\n\n<start_of_image>", .after = "<end_of_image>\n\n", .mutual = true};
  b.spec().beside_scaled_tokens = true;
  PictureBuilder::Projection projection;
  projection.input = AddSiglip(b);
  projection.change = {RowChange::Kind::kAverage, factor};
  projection.norm = b.NormOf("mm.soft_emb_norm", b.d_model(), NormKind::kRms);
  projection.first = MatrixOf(reader, "mm.input_projection", b.d_model());
  b.AddOutput(projection);
}

// Squares and the whole; 3 or 4 each way of a square's patches are joined, and projected.
void BuildIdefics3(PictureBuilder& b) {
  SpecBuilder& reader = b.reader();
  const int64_t factor = reader.Int("vision.projector.scale_factor", 1, 64);
  PicturePreparation& preparation = b.spec().preparation;
  preparation.fit = PictureFit::kTiles;
  preparation.filter = PictureFilter::kLanczos;
  preparation.unit = preparation.patch * factor;
  preparation.longest = reader.IntOr("vision.preproc_image_size", 4 * preparation.side,
                                     preparation.side, PictureBuilder::kMaxSide);
  b.spec().frame = {.before = "<fake_token_around_image><global-img>",
                    .after = "<fake_token_around_image>",
                    .tile = "<fake_token_around_image><row_{row}_col_{column}>",
                    .line_end = "\n",
                    .tiles_end = "\n"};
  PictureBuilder::Projection projection;
  projection.input = AddSiglip(b);
  projection.change = {RowChange::Kind::kMerge, factor};
  projection.first = MatrixOf(reader, "mm.model.fc", b.d_model() * factor * factor);
  b.AddOutput(projection);
}

// The pictures of both Qwens: their own size, two patches each way to an embedding.
int64_t ReadQwenPreparation(PictureBuilder& b) {
  constexpr int64_t kMinEmbeddings = 8, kMaxEmbeddings = 4096;
  SpecBuilder& reader = b.reader();
  const int64_t factor = reader.IntOr("vision.spatial_merge_size", 2, 1, 8);
  PicturePreparation& preparation = b.spec().preparation;
  preparation.fit = PictureFit::kWhole;
  preparation.filter = PictureFilter::kBicubic;
  preparation.unit = preparation.patch * factor;
  b.spec().frame = {.before = "<|vision_start|>", .after = "<|vision_end|>", .on_grid = true};
  const int64_t unit_pixels = preparation.unit * preparation.unit;
  preparation.min_pixels =
      reader.IntOr("vision.image_min_pixels", kMinEmbeddings * unit_pixels, 1, int64_t{1} << 30);
  preparation.max_pixels =
      reader.IntOr("vision.image_max_pixels", kMaxEmbeddings * unit_pixels, 1, int64_t{1} << 30);
  return factor;
}

// Windows but for every n-th layer, and positions by ropes alone.
void BuildQwen25(PictureBuilder& b) {
  SpecBuilder& reader = b.reader();
  const int64_t factor = ReadQwenPreparation(b);
  const int64_t period = reader.Int("vision.n_wa_pattern", 0, 1024);
  const int64_t window_pixels = reader.IntOr("vision.window_size", 112, 1, 1 << 16);
  const int64_t window = std::max<int64_t>(1, window_pixels / b.spec().preparation.unit) * factor;
  const auto is_whole = [&](int64_t layer) { return period == 0 || (layer + 1) % period == 0; };
  const Rope rope = PlaneRope(RopePairs::kHalves, b.k_dim(), kRopeBase, 0);
  b.set_norms(NormKind::kRms);
  b.AddPatches();
  int last = 0;
  for (int64_t layer = 0; b.ok() && layer < b.n_layers();) {
    const bool whole = is_whole(layer);
    b.BeginLayers();
    while (b.ok() && layer < b.n_layers() && is_whole(layer) == whole) b.AddLayer(layer++, rope);
    if (layer == b.n_layers()) b.AddLastNorm();
    last = b.EndLayers(whole ? 0 : window);
  }
  PictureBuilder::Projection merger = Merger(b, "mm.0", "mm.2", factor);
  merger.input = last;
  b.AddOutput(merger);
}

// Positions by a stretched table and ropes; some layers give rows to the language model's layers.
void BuildQwen3(PictureBuilder& b) {
  SpecBuilder& reader = b.reader();
  const int64_t factor = ReadQwenPreparation(b);
  const Rope rope = PlaneRope(RopePairs::kHalves, b.k_dim(), kRopeBase, 0);
  b.AddPatches();
  std::vector<std::pair<int64_t, int>> side_layers;  // and their stages
  int last = 0;
  for (int64_t layer = 0; b.ok() && layer < b.n_layers();) {
    b.BeginLayers();
    if (layer == 0) b.AddPositions(b.side_patches() * b.side_patches());
    bool gives = false;
    while (b.ok() && layer < b.n_layers() && !gives) {
      b.AddLayer(layer, rope);
      gives = reader.HasTensor(StrCat("v.deepstack.", layer, ".fc1.weight"));
      ++layer;
    }
    if (layer == b.n_layers() && !gives) b.AddLastNorm();
    last = b.EndLayers();
    if (gives) side_layers.emplace_back(layer - 1, last);
  }
  if (b.ok() && !side_layers.empty() && side_layers.back().first + 1 == b.n_layers()) {
    reader.FailTensor(StrCat("v.deepstack.", b.n_layers() - 1, ".fc1.weight"),
                      "belongs to the last layer, whose rows have a norm of their own");
  }
  PictureBuilder::Projection merger = Merger(b, "mm.0", "mm.2", factor);
  merger.input = last;
  b.AddOutput(merger);
  for (const auto& [layer, stage] : side_layers) {
    const std::string name = StrCat("v.deepstack.", layer, ".");
    PictureBuilder::Projection side = Merger(b, name + "fc1", name + "fc2", factor);
    side.input = stage;
    side.norm = b.NormOf(name + "norm", b.d_model() * factor * factor);
    b.AddOutput(side);
  }
}

// Ropes alone; an embedding of its own between rows. Larger models join patches first.
void BuildPixtral(PictureBuilder& b) {
  SpecBuilder& reader = b.reader();
  const int64_t factor = reader.IntOr("vision.spatial_merge_size", 1, 1, 8);
  PicturePreparation& preparation = b.spec().preparation;
  preparation.fit = PictureFit::kWithin;
  preparation.filter = PictureFilter::kBicubic;
  preparation.unit = preparation.patch * factor;
  preparation.longest = preparation.side;
  b.spec().frame = {.after = "[IMG_END]"};
  // Columns have the frequencies between those of rows.
  const double between = 2 / static_cast<double>(b.k_dim());
  const Rope rope = PlaneRope(RopePairs::kAdjacent, b.k_dim(), kRopeBase, between);
  const bool merges = reader.HasTensor("mm.patch_merger.weight");
  b.set_norms(NormKind::kRms);
  b.AddPatches();
  b.BeginLayers();
  b.AddFirstNorm();
  for (int64_t layer = 0; b.ok() && layer < b.n_layers(); ++layer) b.AddLayer(layer, rope);
  if (merges) b.AddLastNorm("mm.input_norm");
  PictureBuilder::Projection projection;
  projection.input = b.EndLayers();
  if (merges) {
    PictureBuilder::Projection merger;
    merger.input = projection.input;
    merger.change = {RowChange::Kind::kInterleave, factor};
    merger.first = reader.Matrix("mm.patch_merger", b.d_model() * factor * factor, b.d_model());
    projection.input = b.AddProjection(merger);
  }
  projection.first = MatrixOf(reader, "mm.1", b.d_model());
  projection.second = MatrixOf(reader, "mm.2", projection.first.n_out);
  b.AddOutput(projection);
  b.spec().row_end = reader.Vector("v.token_embd.img_break", b.spec().width);
}

struct Projector {
  std::string_view name;
  void (*build)(PictureBuilder& builder);
};
constexpr Projector kProjectors[] = {
    {"gemma3", BuildGemma3},           {"idefics3", BuildIdefics3},    {"pixtral", BuildPixtral},
    {"qwen2.5vl_merger", BuildQwen25}, {"qwen3vl_merger", BuildQwen3},
};

StatusOr<std::string> NameOfProjector(const ModelFile& file) {
  WEFT_ASSIGN_OR_RETURN(std::string_view name, file.GetStringOr("clip.projector_type", ""));
  if (name.empty()) {
    WEFT_ASSIGN_OR_RETURN(name, file.GetStringOr("clip.vision.projector_type", ""));
  }
  return std::string(name);
}

}  // namespace

std::vector<std::string> KnownProjectors() {
  std::vector<std::string> names;
  for (const Projector& projector : kProjectors) names.emplace_back(projector.name);
  return names;
}

StatusOr<PictureSpec> BuildPictureSpec(const ModelFile& file) {
  WEFT_ASSIGN_OR_RETURN(const std::string_view architecture,
                        file.GetStringOr("general.architecture", ""));
  if (architecture != "clip") {
    return InvalidArgument(Printable(file.path(), 300),
                           ": it is no projector for pictures (mmproj), but a file of the "
                           "architecture '",
                           Printable(architecture), "'");
  }
  WEFT_ASSIGN_OR_RETURN(const bool sees, file.GetBoolOr("clip.has_vision_encoder", false));
  if (!sees) {
    return Unimplemented(Printable(file.path(), 300), ": it is a projector, but not for pictures");
  }
  WEFT_ASSIGN_OR_RETURN(const std::string name, NameOfProjector(file));
  for (const Projector& projector : kProjectors) {
    if (projector.name != name) continue;
    PictureBuilder builder(file, name);
    if (builder.ok()) projector.build(builder);
    return builder.Finish();
  }
  return Unimplemented(
      Printable(file.path(), 300), ": the projector '", Printable(name),
      "' is not one of those that are supported: ", StrJoin(KnownProjectors(), ", "));
}

}  // namespace weft
