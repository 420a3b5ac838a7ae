// A picture encoder as data: how a picture becomes patches, and how patches become input embeddings
// of a language model. Read from a projector file (llama.cpp's "mmproj").
//
// An encoder is a list of stages. A stage is a ModelSpec without tokens: its input rows are the
// patches, or the results of an earlier stage, changed as RowChange says. So backends compute an
// encoder with the blocks of language models, and all that is about the plane lies between stages.
//
// Rows always stand in reading order: row by row of the grid, from the top left.
#ifndef WEFT_MODEL_PICTURES_PICTURE_SPEC_H_
#define WEFT_MODEL_PICTURES_PICTURE_SPEC_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/formats/model_file.h"
#include "model/model_spec.h"

namespace weft {

enum class PictureFilter { kBilinear, kBicubic, kLanczos };

// How a picture's size is chosen. A view is what the encoder sees at one time.
enum class PictureFit {
  // One view: the whole picture, made a square of `side`.
  kSquare,
  // One view of about the picture's own size: both sides multiples of `unit`, and no fewer than
  // min_pixels and no more than max_pixels.
  kWhole,
  // One view: the sides multiples of `unit`, the longer one at most `longest`.
  kWithin,
  // The longer side becomes `longest`, both are rounded up to multiples of `side`, and each square
  // is a view. After them the whole picture is one, made a square. A picture of one square has no
  // other view.
  kTiles,
};

struct PicturePreparation {
  PictureFit fit = PictureFit::kSquare;
  PictureFilter filter = PictureFilter::kBilinear;
  int64_t patch = 0;  // pixels of a patch's side
  int64_t unit = 0;   // pixels of an embedding's side
  int64_t side = 0;
  int64_t longest = 0;
  int64_t min_pixels = 0, max_pixels = 0;
  // A value of a patch is (v / 255 - mean) / deviation, by channel.
  std::array<float, 3> mean = {}, deviation = {};
};

// What happens to rows between two stages. With a factor f, f by f rows become one; rows and
// columns that are missing at the end are zeros.
struct RowChange {
  enum class Kind {
    kNone,
    kAverage,    // the mean of the f * f rows
    kMerge,      // the f * f rows one after the other
    kInterleave  // the first values of the f * f rows, then the second, and so on
  } kind = Kind::kNone;
  int64_t factor = 1;
};

struct PictureStage {
  ModelSpec spec;  // with a row_input. Its result: the output's values if it has an output
  int input = -1;  // the earlier stage whose result it reads; -1: the patches
  RowChange change;
  // Added to the rows after that: one row per place of a square grid, stretched linearly to the
  // picture's own grid, corner to corner.
  TensorRef positions;
  int64_t n_positions = 0;
  // Only the rows of one window see each other: squares of the grid with this many rows to a side.
  // 0: all rows of a view.
  int64_t window = 0;
};

// How a picture's embeddings stand in a prompt: the texts around them, in which the tokenizer finds
// control tokens, and their positions and order.
struct PictureFrame {
  std::string before, after;  // around the only view, or the whole after tiles
  std::string tile;           // before each tile; "{row}" and "{column}" are its numbers, from 1
  std::string line_end;       // after each row of tiles
  std::string tiles_end;      // after the last row of tiles
  bool mutual = false;        // all embeddings of a view attend to each other
  bool on_grid = false;       // the model's ropes turn them by their places in the view
};

struct PictureSpec {
  std::string projector;  // as the file names it
  std::string name;       // general.name, may be empty
  PicturePreparation preparation;
  PictureFrame frame;
  std::vector<PictureStage> stages;
  std::vector<int> outputs;  // an embedding is the results of these stages, one after the other
  int64_t width = 0;         // values of an embedding, with what the model's first layers add to it
  // The model scales the embeddings of tokens, and not those of pictures.
  bool beside_scaled_tokens = false;
  TensorRef row_end;  // an embedding between two rows of a view; absent: none
};

// Builds the spec of a projector file. An unknown projector is UNIMPLEMENTED and lists the known
// ones; a missing key or tensor, or one of the wrong shape, is an error that names it.
StatusOr<PictureSpec> BuildPictureSpec(const ModelFile& file);

// Names of the known projectors, sorted.
std::vector<std::string> KnownProjectors();

}  // namespace weft

#endif  // WEFT_MODEL_PICTURES_PICTURE_SPEC_H_
