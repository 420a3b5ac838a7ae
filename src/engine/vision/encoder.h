// Computes a picture encoder on a backend: prepared pictures in, input embeddings out.
//
// An encoding is in progress as a step is: it can pause between two blocks, and others' steps run
// meanwhile. A view's embeddings depend on nothing but its patches and the weights.
#ifndef WEFT_ENGINE_VISION_ENCODER_H_
#define WEFT_ENGINE_VISION_ENCODER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "compute/backend.h"
#include "engine/vision/prepare.h"
#include "model/pictures/picture_spec.h"

namespace weft::vision {

class Encoding;

// The weights of an encoder. Immutable; any thread.
class PictureEncoder {
 public:
  // UNIMPLEMENTED if the backend computes no models without tokens. The largest pictures become
  // smaller if the backend's steps have too few rows for them. `backend` must live as long.
  static StatusOr<std::shared_ptr<const PictureEncoder>> Load(std::shared_ptr<const ModelFile> file,
                                                              PictureSpec spec,
                                                              const Backend* backend,
                                                              const LoadOptions& options);

  // With the preparation for this backend.
  const PictureSpec& spec() const { return spec_; }
  // The values of spec().row_end; empty if it has none.
  const std::vector<float>& row_end() const { return row_end_; }
  // Bytes of the weights.
  int64_t memory_bytes() const;

  // Begins to encode views of one or more pictures. Each stage computes as many of them in one step
  // as `options` allow. REQUIRES: `views` were prepared by spec().preparation, and live as long as
  // the encoding.
  StatusOr<std::unique_ptr<Encoding>> Begin(std::vector<const Grid*> views,
                                            const ExecutorOptions& options) const;
  // Encodes them at once.
  StatusOr<std::vector<Grid>> Encode(const std::vector<Grid>& views,
                                     const ExecutorOptions& options) const;

 private:
  friend class Encoding;
  PictureEncoder() = default;
  Status LimitPictures();

  PictureSpec spec_;
  const Backend* backend_ = nullptr;
  std::vector<std::shared_ptr<const Weights>> weights_;  // by stage
  std::vector<std::vector<float>> positions_;            // by stage; empty: none
  std::vector<float> row_end_;
};

// One thread.
class Encoding {
 public:
  ~Encoding();
  // As StepRun::Advance.
  StatusOr<bool> Advance(FunctionRef<bool()> pause);
  // The embeddings of each view. REQUIRES: the encoding is done; once.
  std::vector<Grid> TakeEmbeddings();

 private:
  friend class PictureEncoder;
  struct Piece;
  class StageRun;
  Encoding(const PictureEncoder& encoder, std::vector<const Grid*> views,
           const ExecutorOptions& options);
  Status BeginStage();
  void EndStage();

  const PictureEncoder& encoder_;
  const ExecutorOptions options_;
  const std::vector<const Grid*> views_;
  std::vector<std::vector<Grid>> results_;  // by stage, by view
  std::unique_ptr<StageRun> stage_;
};

}  // namespace weft::vision

#endif  // WEFT_ENGINE_VISION_ENCODER_H_
