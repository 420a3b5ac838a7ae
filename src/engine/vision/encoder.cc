#include "engine/vision/encoder.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "base/tokens.h"
#include "compute/spec_tensors.h"
#include "engine/vision/rows.h"

namespace weft::vision {

namespace {

// The side of a square of `n_patches`, rounded down.
int64_t SideOf(int64_t n_patches) {
  return static_cast<int64_t>(std::sqrt(static_cast<double>(n_patches)));
}

}  // namespace

// --- weights ----------------------------------------------------------------------------

StatusOr<std::shared_ptr<const PictureEncoder>> PictureEncoder::Load(
    std::shared_ptr<const ModelFile> file, PictureSpec spec, const Backend* backend,
    const LoadOptions& options) {
  std::shared_ptr<PictureEncoder> encoder(new PictureEncoder);
  encoder->spec_ = std::move(spec);
  encoder->backend_ = backend;
  WEFT_RETURN_IF_ERROR(encoder->LimitPictures());
  encoder->row_end_ = ValuesOf(*file, encoder->spec_.row_end);
  for (const PictureStage& stage : encoder->spec_.stages) {
    WEFT_RETURN_IF_ERROR(CheckWeightTypes(*file, stage.spec));
    encoder->positions_.push_back(ValuesOf(*file, stage.positions));
    WEFT_ASSIGN_OR_RETURN(std::shared_ptr<const Weights> weights,
                          backend->Load(file, stage.spec, options));
    encoder->weights_.push_back(std::move(weights));
  }
  return encoder;
}

Status PictureEncoder::LimitPictures() {
  PicturePreparation& preparation = spec_.preparation;
  const int64_t most = backend_->capabilities().max_step_tokens;
  const int64_t patch = preparation.patch;
  const bool is_square =
      preparation.fit == PictureFit::kSquare || preparation.fit == PictureFit::kTiles;
  const int64_t side_patches = preparation.side / patch;
  if (is_square && side_patches * side_patches > most) {
    return Unimplemented("pictures of ", side_patches * side_patches, " patches: the ",
                         backend_->name(), " backend takes ", most);
  }
  preparation.max_pixels = std::min(preparation.max_pixels, most * patch * patch);
  preparation.min_pixels = std::min(preparation.min_pixels, preparation.max_pixels);
  if (preparation.fit == PictureFit::kWithin) {
    const int64_t longest = SideOf(most) * patch / preparation.unit * preparation.unit;
    preparation.longest = std::min(preparation.longest, longest);
  }
  return OkStatus();
}

int64_t PictureEncoder::memory_bytes() const {
  int64_t bytes = 0;
  for (const auto& weights : weights_) bytes += weights->memory_bytes();
  return bytes;
}

StatusOr<std::unique_ptr<Encoding>> PictureEncoder::Begin(std::vector<const Grid*> views,
                                                          const ExecutorOptions& options) const {
  const int64_t n_values = RowWidth(spec_.stages[0].spec);
  for (const Grid* view : views) {
    if (view->width != n_values || view->count() == 0) {
      return InvalidArgument("patches of ", view->width, " values; the encoder takes ", n_values);
    }
  }
  std::unique_ptr<Encoding> encoding(new Encoding(*this, std::move(views), options));
  WEFT_RETURN_IF_ERROR(encoding->BeginStage());
  return encoding;
}

StatusOr<std::vector<Grid>> PictureEncoder::Encode(const std::vector<Grid>& views,
                                                   const ExecutorOptions& options) const {
  std::vector<const Grid*> pointers;
  pointers.reserve(views.size());
  for (const Grid& view : views) pointers.push_back(&view);
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Encoding> encoding,
                        Begin(std::move(pointers), options));
  for (bool done = false; !done;) {
    WEFT_ASSIGN_OR_RETURN(done, encoding->Advance([] { return false; }));
  }
  return encoding->TakeEmbeddings();
}

// --- one stage --------------------------------------------------------------------------

// Rows of one view that see each other.
struct Encoding::Piece {
  size_t view;
  std::vector<int64_t> rows;
};

// A stage in progress: its pieces, in steps of as many as fit.
class Encoding::StageRun {
 public:
  StageRun(const PictureStage& stage, std::vector<Grid> input) : stage_(stage) {
    const ModelSpec& spec = stage.spec;
    for (size_t view = 0; view < input.size(); ++view) {
      output_.emplace_back(input[view].rows, input[view].columns,
                           spec.output ? spec.n_vocab : spec.d_model);
      for (std::vector<int64_t>& rows : WindowsOf(input[view], stage.window)) {
        largest_ = std::max(largest_, std::ssize(rows));
        n_rows_ += std::ssize(rows);
        pieces_.push_back({view, std::move(rows)});
      }
    }
    input_ = std::move(input);
  }

  Status Begin(const Backend& backend, std::shared_ptr<const Weights> weights,
               ExecutorOptions options) {
    const int64_t most = backend.capabilities().max_step_tokens;
    if (largest_ > most) {
      return InvalidArgument("a picture of ", largest_, " patches; the ", backend.name(),
                             " backend takes ", most);
    }
    options.max_step_tokens =
        std::min(n_rows_, std::max(largest_, std::min(most, options.max_step_tokens)));
    options.max_beside_tokens = 1;
    max_step_rows_ = options.max_step_tokens;
    WEFT_ASSIGN_OR_RETURN(state_, backend.NewState(*weights, {}));
    WEFT_ASSIGN_OR_RETURN(executor_,
                          backend.NewExecutor(std::move(weights), state_.get(), options));
    return OkStatus();
  }

  StatusOr<bool> Advance(FunctionRef<bool()> pause) {
    while (next_ < pieces_.size() || step_run_ != nullptr) {
      if (step_run_ == nullptr) WEFT_RETURN_IF_ERROR(BeginStep());
      WEFT_ASSIGN_OR_RETURN(const bool done, step_run_->Advance(pause));
      if (!done) return false;
      EndStep();
    }
    return true;
  }
  std::vector<Grid> TakeOutput() { return std::move(output_); }

 private:
  Status BeginStep();
  void AddSequence(const Piece& piece);
  void EndStep();

  const PictureStage& stage_;
  std::vector<Grid> input_, output_;  // by view
  std::vector<Piece> pieces_;
  int64_t largest_ = 0, n_rows_ = 0, max_step_rows_ = 0;
  std::unique_ptr<StateStore> state_;
  std::unique_ptr<Executor> executor_;
  // The step in progress: pieces [first_, next_).
  size_t first_ = 0, next_ = 0;
  std::vector<TokenId> tokens_;
  std::vector<std::vector<AxisPositions>> axes_;
  std::vector<StepSequence> sequences_;
  std::vector<float> results_;
  std::unique_ptr<StepRun> step_run_;
};

void Encoding::StageRun::AddSequence(const Piece& piece) {
  const Grid& grid = input_[piece.view];
  StepSequence& sequence = sequences_.emplace_back();
  sequence.tokens = std::span(tokens_).first(piece.rows.size());
  std::vector<AxisPositions>& axes = axes_.emplace_back();
  for (const int64_t row : piece.rows) {
    sequence.rows.emplace_back(grid.row(row), static_cast<size_t>(grid.width));
    AxisPositions& at = axes.emplace_back();
    at[kRowAxis] = static_cast<int32_t>(row / grid.columns);
    at[kColumnAxis] = static_cast<int32_t>(row % grid.columns);
  }
  sequence.axes = axes;
  (stage_.spec.output ? sequence.n_logits : sequence.n_vectors) = std::ssize(piece.rows);
}

Status Encoding::StageRun::BeginStep() {
  first_ = next_;
  sequences_.clear(), axes_.clear();
  tokens_.assign(static_cast<size_t>(largest_), kAnyRow);
  int64_t n_rows = 0;
  // At least one piece fits.
  while (next_ < pieces_.size() && n_rows + std::ssize(pieces_[next_].rows) <= max_step_rows_) {
    n_rows += std::ssize(pieces_[next_].rows);
    AddSequence(pieces_[next_++]);
  }
  results_.resize(static_cast<size_t>(n_rows * output_[0].width));
  Step step{.sequences = sequences_};
  (stage_.spec.output ? step.logits : step.vectors) = results_;
  WEFT_ASSIGN_OR_RETURN(step_run_, executor_->Begin(step));
  return OkStatus();
}

void Encoding::StageRun::EndStep() {
  step_run_ = nullptr;
  const float* from = results_.data();
  for (size_t i = first_; i < next_; ++i) {
    Grid& out = output_[pieces_[i].view];
    for (const int64_t row : pieces_[i].rows) {
      std::copy_n(from, out.width, out.row(row));
      from += out.width;
    }
  }
}

// --- all stages -------------------------------------------------------------------------

Encoding::Encoding(const PictureEncoder& encoder, std::vector<const Grid*> views,
                   const ExecutorOptions& options)
    : encoder_(encoder), options_(options), views_(std::move(views)) {}
Encoding::~Encoding() = default;

Status Encoding::BeginStage() {
  const size_t stage_no = results_.size();
  const PictureStage& stage = encoder_.spec_.stages[stage_no];
  const std::vector<float>& positions = encoder_.positions_[stage_no];
  try {
    std::vector<Grid> input;
    for (size_t view = 0; view < views_.size(); ++view) {
      const Grid& from = stage.input < 0 ? *views_[view] : results_[stage.input][view];
      input.push_back(Change(stage.change, from));
      if (!positions.empty()) AddPositions(positions, SideOf(stage.n_positions), &input.back());
    }
    stage_ = std::make_unique<StageRun>(stage, std::move(input));
    return stage_->Begin(*encoder_.backend_, encoder_.weights_[stage_no], options_);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory to encode a picture; send a smaller one");
  }
}

void Encoding::EndStage() {
  results_.push_back(stage_->TakeOutput());
  stage_ = nullptr;
  // Results that no later stage reads, and no embedding is made of.
  const PictureSpec& spec = encoder_.spec_;
  for (size_t i = 0; i < results_.size(); ++i) {
    const auto reads = [&](const PictureStage& stage) {
      return stage.input == static_cast<int>(i);
    };
    const bool is_read =
        std::any_of(spec.stages.begin() + std::ssize(results_), spec.stages.end(), reads);
    if (!is_read && std::ranges::count(spec.outputs, static_cast<int>(i)) == 0) results_[i].clear();
  }
}

StatusOr<bool> Encoding::Advance(FunctionRef<bool()> pause) {
  const size_t n_stages = encoder_.spec_.stages.size();
  while (results_.size() < n_stages) {
    WEFT_ASSIGN_OR_RETURN(const bool done, stage_->Advance(pause));
    if (!done) return false;
    EndStage();
    if (results_.size() < n_stages) WEFT_RETURN_IF_ERROR(BeginStage());
  }
  return true;
}

std::vector<Grid> Encoding::TakeEmbeddings() {
  const std::vector<int>& outputs = encoder_.spec_.outputs;
  std::vector<Grid> embeddings;
  for (size_t view = 0; view < views_.size(); ++view) {
    const Grid& first = results_[outputs[0]][view];
    Grid& joined = embeddings.emplace_back(first.rows, first.columns, encoder_.spec_.width);
    for (int64_t row = 0; row < joined.count(); ++row) {
      float* to = joined.row(row);
      for (const int stage : outputs) {
        const Grid& part = results_[stage][view];
        to = std::copy_n(part.row(row), part.width, to);
      }
    }
  }
  return embeddings;
}

}  // namespace weft::vision
